"""Addresses of the node's own slices, from the journal alone: nothing on the way of an ADD leaves the node.

What must hold: one record gives a sandbox all its addresses, so that after a crash it has all or none. An address rests
for the cooldown after its use; when a slice has no other left it rests for the floor, and who came first gets it first.
While the Node is not confirmed nothing new is given. What an ADD finds missing it waits for, and then says why.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache

from podpool.agent.add_queue import AddQueue, SandboxDeleted
from podpool.agent.deps import AgentDeps
from podpool.agent.errors import fenced
from podpool.agent.pool_monitor import TICK
from podpool.agent.records import SliceAddress, SliceAssigned, SliceHolder, SliceUnassigned
from podpool.agent.secondary.address_source import AddressRequest
from podpool.agent.secondary.ippool_writer import allocation_of
from podpool.agent.secondary.slices import Slice
from podpool.agent.state import AgentState
from podpool.cni.protocol import Attachment, CniError, ErrorCode
from podpool.core.addresses import Address, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, RangeSet
from podpool.whereabouts.config import RangeConfig
from podpool.whereabouts.ippool import allocation_for
from podpool.whereabouts.shared_range import ALWAYS_FITS, entry_size, remaining_bytes
from podpool.whereabouts.slice_assignment import usable_addresses

Usable = Callable[[Slice], bool]
"""Tell whether new addresses of a slice may be given, as far as its objects in the API server say."""


class SliceIPAM:
    """Gives addresses of the node's slices; `touched` is told of each slice that changed."""

    def __init__(
        self,
        deps: AgentDeps,
        state: AgentState,
        *,
        usable: Usable,
        why: Callable[[str, RangeConfig], str],
        touched: Callable[[Slice], None],
    ) -> None:
        self.queue: AddQueue[AddressRequest, tuple[Address, ...]] = AddQueue()
        self._deps = deps
        self._state = state
        self._usable = usable
        self._why = why
        self._touched = touched
        self._stirred = asyncio.Event()
        self.asked: set[str] = set()
        """Pods that ask in vain: what earlier sandboxes of theirs had they have no more."""

    async def give(self, want: AddressRequest) -> tuple[Address, ...]:
        """Give one address of each range, waiting for slices that are on their way and addresses that rest."""
        _check(want)
        self.serve()
        answer = self.try_give(want)
        if answer is None:
            self.asked.add(want.owner.podref)
            self._stirred.set()
            patience = min(self._deps.settings.add_timeout, want.deadline - self._deps.clock.boot())
            waited = await self.queue.wait(want.sandbox, want, timeout=max(patience, 0.0))
            if waited is None:
                raise CniError(ErrorCode.TRY_AGAIN_LATER, self._why_none(want))
            if isinstance(waited, SandboxDeleted):
                raise CniError(ErrorCode.TRY_AGAIN_LATER, "the sandbox was deleted while it waited for an address")
            answer = waited
        self.asked.discard(want.owner.podref)
        return answer

    async def give_back(self, sandbox: Attachment, want: AddressRequest | None = None) -> None:
        """Take back whatever the sandbox's interface has."""
        self.release(sandbox, want)

    async def check(self, want: AddressRequest) -> tuple[Address, ...]:
        """Tell what the sandbox's interface has."""
        held = self._held(want)
        missing = [str(each.prefix) for each, address in zip(want.ranges, held, strict=True) if address is None]
        if missing:
            who = f"interface {want.owner.ifname} of sandbox {want.owner.container}"
            raise CniError(ErrorCode.CHECK_MISMATCH, f"{who} has no address of {', '.join(missing)} here")
        return tuple(filter(None, held))

    async def collect(self, network: str, valid: frozenset[Attachment]) -> None:
        """Take back what sandboxes of a network have that are not valid any more."""
        held = [tenant.owner for _, tenant in self._state.slices.tenants() if tenant.network == network]
        for sandbox in dict.fromkeys(each for each in held if each not in valid):
            told = f"sandbox {sandbox.container_id} is not listed by the runtime any more"
            self._deps.tell(f"{told}: its addresses of slices rest")
            self.release(sandbox)

    def release(self, sandbox: Attachment, _want: AddressRequest | None = None) -> None:
        """Take back everything that a sandbox's interface has, of whichever range, and end its waiting."""
        self.put_back(self._state.slices.slots_of(sandbox))
        self.queue.cancel(sandbox)

    def put_back(self, slots: tuple[SliceAddress, ...]) -> None:
        """Let addresses rest."""
        if slots:
            self._state.write(SliceUnassigned(slots=slots, at=self._deps.clock.boot()))
            self._touch(slots)

    def try_give(self, want: AddressRequest) -> tuple[Address, ...] | None:
        """Give what the sandbox has, and what it still lacks, or nothing; None when something is missing."""
        held = self._held(want)
        if None not in held:
            return tuple(filter(None, held))
        slots: dict[str, SliceAddress] = {}
        for wanted, address in zip(want.ranges, held, strict=True):
            if address is None and str(wanted.prefix) not in slots:
                slot = self._choose(want, wanted)
                if slot is None:
                    return None
                slots[str(wanted.prefix)] = slot
        tenant = SliceHolder(owner=want.sandbox, podref=want.owner.podref, network=want.config.name)
        self._state.write(SliceAssigned(tenant=tenant, slots=tuple(slots.values())))
        self._touch(slots.values())
        return tuple(
            address or parse_address(slots[str(wanted.prefix)].address)
            for wanted, address in zip(want.ranges, held, strict=True)
        )

    def serve(self) -> None:
        """Give to those who wait, in the order in which they came."""
        for sandbox, want in self.queue.waiting().items():
            answer = self.try_give(want)
            if answer is not None:
                self.queue.serve(sandbox, answer)
            self._stirred.set()

    async def run(self) -> None:
        """Serve those who wait for an address that rests when it has rested; everything else serves them at once."""
        while True:
            self._stirred.clear()
            now = self._deps.clock.boot()
            rested = min(self._rested_at(), default=None)
            try:
                async with asyncio.timeout(None if rested is None else max(rested - now, TICK)):
                    await self._stirred.wait()
            except TimeoutError:
                self.serve()

    def _rested_at(self) -> Iterator[float]:
        now, floor = self._deps.clock.boot(), self._deps.settings.cooldown_exhausted
        for want in self.queue.waiting().values():
            for wanted in want.ranges:
                for slice_, members in self._places(want, wanted):
                    at = slice_.rested_at(members, rest=floor)
                    if at is not None and at > now:
                        yield at

    def _held(self, want: AddressRequest) -> tuple[Address | None, ...]:
        network = want.config.network_name
        return tuple(
            self._state.slices.holds(want.sandbox, network=network, range_=each.prefix) for each in want.ranges
        )

    def _choose(self, want: AddressRequest, wanted: RangeConfig) -> SliceAddress | None:
        if not self._state.node_fence.is_open():
            return None
        settings, now = self._deps.settings, self._deps.clock.boot()
        for slice_, members in self._places(want, wanted):
            value = slice_.next_free(members, now=now, rests=(settings.cooldown, settings.cooldown_exhausted))
            if value is not None and _has_room(slice_, want):
                return slice_.slot(value)
        return None

    def _places(self, want: AddressRequest, wanted: RangeConfig) -> Iterator[tuple[Slice, RangeSet]]:
        """Go through the slices that may give addresses of a range, with what the configuration allows in each."""
        try:
            for slice_ in self._state.slices.of(want.config.network_name, wanted.prefix):
                if self._usable(slice_):
                    yield slice_, _members(wanted, slice_.prefix)
        except InvalidInput as error:
            raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _why_none(self, want: AddressRequest) -> str:
        node, fence = self._deps.node, self._state.node_fence
        if not fence.is_open():
            return fenced(node, fence.age(), self._deps.settings)
        held = self._held(want)
        lacking = [each for each, address in zip(want.ranges, held, strict=True) if address is None]
        return "; ".join(self._why_range(want, each) for each in lacking if self._choose(want, each) is None)

    def _why_range(self, want: AddressRequest, wanted: RangeConfig) -> str:
        places = list(self._places(want, wanted))
        if not places:
            return self._why(want.config.network_name, wanted)
        now, cooldown = self._deps.clock.boot(), self._deps.settings.cooldown
        slice_, members = places[0]
        if slice_.unsure:
            told = "the agent's journal was lost: nothing is given until every Pod of the node has told what it has"
            return f"slice {slice_.prefix} of node {self._deps.node} may be in use: {told}"
        if not slice_.signed:
            return f"Lease {slice_.name} does not name this boot of node {self._deps.node} yet: its agent signs it"
        if not _has_room(slice_, want):
            return f"the IPPool {slice_.name} has as many entries as fit into one object: use a smaller node_slice_size"
        if not members.size:
            told = "everything in it is excluded or out of range_start and range_end: change these, or node_slice_size"
            return f"slice {slice_.prefix} of node {self._deps.node} has no address to give: {told}"
        resting = slice_.resting(now=now, rest=cooldown)
        return (
            f"slice {slice_.prefix} of node {self._deps.node} has no free address: {len(slice_.held)} in use, "
            f"{resting} resting, of {members.size}: run fewer Pods on this node, or use larger slices (node_slice_size)"
        )

    def _touch(self, slots: Iterable[SliceAddress]) -> None:
        for lease in dict.fromkeys(slot.lease for slot in slots):
            slice_ = self._state.slices.get(lease)
            if slice_:
                self._touched(slice_)


def _check(want: AddressRequest) -> None:
    """Refuse what cannot be read before it waits: whoever serves those who wait must not stumble over it."""
    try:
        for each in want.ranges:
            _ = each.allocation.members
    except InvalidInput as error:
        raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error


@lru_cache(maxsize=64)
def _members(wanted: RangeConfig, slice_: Prefix) -> RangeSet:
    """Find what a configuration allows in a slice; raises `InvalidInput`."""
    return usable_addresses(wanted.allocation, slice_)


def _has_room(slice_: Slice, want: AddressRequest) -> bool:
    """Tell whether an IPPool can be written that has an entry more."""
    if len(slice_.held) < ALWAYS_FITS:
        return True
    whole = slice_.prefix.range
    entries = {str(value - whole.first): allocation_of(tenant) for value, tenant in slice_.held.items()}
    return entry_size(str(whole.size), allocation_for(want.owner)) <= remaining_bytes(entries)
