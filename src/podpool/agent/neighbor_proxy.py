"""Keeps the kernel answering ARP and NDP for the node's Pods on the uplink (`uplink`), and for no other address.

An entry is made before the ADD is answered: a Pod without one is unreachable, so its ADD fails. It is removed with the
DEL. Entries outlive the agent. They are lost with the interface, so they are compared with the assignments at the start
and at an interval. After a loss of the journal a Pod may use an address without a record: until that is excluded, its
entry stays.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from podpool.agent.deps import MIN_WAIT, AgentDeps, Uplink, UplinkFailed, event_or_timeout
from podpool.agent.records import GrantAssignment
from podpool.agent.state import AgentState
from podpool.cni.protocol import CniError, ErrorCode

COMPARE_INTERVAL = 5.0
"""Seconds between two comparisons: an interface that was replaced answers for no Pod until then."""
ANNOUNCEMENTS, ANNOUNCE_INTERVAL = 3, 1.0
"""How often an address is announced, and the seconds between: constants of RFC 4861 for neighbors."""


class Announcement(msgspec.Struct, frozen=True):
    """How often an address is still to be announced, and when the next time is."""

    left: int
    at: float


class NeighborProxy:
    """The entries of one CNI network's Pods."""

    def __init__(self, deps: AgentDeps, state: AgentState, uplink: Uplink, *, network: str) -> None:
        self.failure = ""
        """Why an entry could not be written or announced last; empty if all could."""
        self.failures = 0
        self._log = deps.log
        self._state = state
        self._uplink = uplink
        self._network = network
        self._entries: set[str] = set()
        self._announcing: dict[str, Announcement] = {}
        """By address; those that were announced often enough are not in it."""
        self._wake = asyncio.Event()

    @property
    def entries(self) -> int:
        """The number of addresses for which the kernel answers."""
        return len(self._entries)

    def on_assigned(self, assignments: Iterable[GrantAssignment]) -> None:
        """Answer for what a sandbox was assigned; raises `CniError`."""
        try:
            for each in assignments:
                if each.network == self._network and each.grant.address not in self._entries:
                    self._add(each.grant.address)
        except UplinkFailed as error:
            self._report(error)
            message = f"the Pod would be unreachable: {error}"
            raise CniError(ErrorCode.TRY_AGAIN_LATER, message) from error

    def on_released(self, address: str) -> None:
        """Stop answering for an address; a failure is repaired by the next comparison."""
        try:
            self._remove(address)
        except UplinkFailed as error:
            self._report(error)

    async def run(self) -> None:
        """Compare entries with assignments, and announce addresses, until cancelled."""
        loop = asyncio.get_running_loop()
        compare_at = loop.time()
        while True:
            self._wake.clear()
            compares = loop.time() >= compare_at
            compare_at = loop.time() + COMPARE_INTERVAL if compares else compare_at
            try:
                if compares:
                    self._compare()
                self._announce()
            except UplinkFailed as error:
                self._report(error)
            else:
                if compares:  # what failed before was repeated
                    self._report(None)
            due = min((compare_at, *(each.at for each in self._announcing.values())))
            at_least = ANNOUNCE_INTERVAL if self.failure else MIN_WAIT
            await event_or_timeout(self._wake, asyncio.timeout(max(due - loop.time(), at_least)))

    def _compare(self) -> None:
        """Add what is missing, remove what no Pod has; raises `UplinkFailed`."""
        self._uplink.prepare()
        self._entries = set(self._uplink.entries())
        wanted = {each.grant.address for each in self._state.pool.assigned.values() if each.network == self._network}
        missing, stale = wanted - self._entries, self._entries - wanted - self._unrecorded(self._entries)
        for address in missing:
            self._add(address)
        for address in stale:
            self._remove(address)
        if missing:
            self._log.warning("ARP and NDP entries of Pods were missing, added", count=len(missing))
        if stale:
            self._log.info("ARP and NDP entries of former Pods removed", count=len(stale))

    def _unrecorded(self, addresses: set[str]) -> set[str]:
        """Return the addresses that a Pod may use without a record."""
        pool = self._state.pool
        if pool.incomplete or not pool.adopted_nc:
            return addresses
        return {each.address for each in pool.unassigned_lost()}

    def _add(self, address: str) -> None:
        self._uplink.add(address)
        self._entries.add(address)
        self._announcing[address] = Announcement(ANNOUNCEMENTS, asyncio.get_running_loop().time())
        self._wake.set()

    def _remove(self, address: str) -> None:
        self._announcing.pop(address, None)
        if address in self._entries:
            self._uplink.remove(address)
            self._entries.discard(address)

    def _announce(self) -> None:
        now = asyncio.get_running_loop().time()
        due = {address: each for address, each in self._announcing.items() if each.at <= now}
        if due:
            self._uplink.announce(tuple(due))
        for address, each in due.items():
            if each.left > 1:
                self._announcing[address] = Announcement(each.left - 1, now + ANNOUNCE_INTERVAL)
            else:
                del self._announcing[address]

    def _report(self, error: UplinkFailed | None) -> None:
        """Count a failure, and log it once until it is over."""
        reason = str(error or "")
        if error:
            self.failures += 1
            if reason != self.failure:
                self._log.error(
                    "cannot add ARP or NDP entries on the uplink, some Pods may be unreachable; retrying", reason=reason
                )
        elif self.failure:
            self._log.info("uplink answers for all Pods again")
        self.failure = reason
