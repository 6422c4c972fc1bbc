"""This node's allocations in shared ranges, and the releases that are still to be done, in a write-ahead log.

The IPPools are authoritative. The log contains what they cannot: the CNI network of an allocation, and that a DEL was
answered while the API server was unreachable. A change is written before the request is answered, and synced before an
IPPool is: after a reboot every entry of this node is in the log.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.agent.journal import Journal
from podpool.agent.journal_reader import JournalFormat
from podpool.api.whereabouts import ReservationSpec
from podpool.cni.protocol import Attachment
from podpool.core.addresses import Address, parse_address


class SharedAllocation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The allocations of one interface of a sandbox."""

    attachment: Attachment
    podref: str
    network: str
    """The CNI network name; a GC of this network may release it."""
    network_name: str
    ranges: tuple[str, ...]
    reserved: bool
    """The addresses may also be reserved."""
    releasing: bool = False
    """It is to be released."""
    addresses: tuple[str, ...] = ()
    """Those of the first ranges, once they are allocated; the others are of another ADD of the sandbox."""
    boot_id: str = ""
    """The boot of the allocation: sandboxes do not survive a reboot. Empty in records of older agents."""
    pod_uid: str = ""
    netns: str = ""
    added: float = 0.0
    """Pod, network namespace and time of the ADD, on the clock of its boot; empty and 0 in records of older agents."""


class SharedRangeRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type"):
    """A record of the log."""


class SharedAllocated(SharedRangeRecord, frozen=True, kw_only=True, tag="shared-allocated"):
    """The allocations of an interface; replaces an earlier record."""

    allocation: SharedAllocation


class SharedReleased(SharedRangeRecord, frozen=True, kw_only=True, tag="shared-released"):
    """All allocations of an interface were released."""

    attachment: Attachment


class SharedRangeSnapshot(SharedRangeRecord, frozen=True, kw_only=True, tag="shared-snapshot"):
    """All allocations."""

    allocations: tuple[SharedAllocation, ...]


AnySharedRangeRecord: TypeAlias = SharedAllocated | SharedReleased | SharedRangeSnapshot
SHARED_RANGE_JOURNAL: JournalFormat[AnySharedRangeRecord] = JournalFormat(AnySharedRangeRecord, prefix="shared-ranges.")


class ReleasesInProgress:
    """Attachments that are being released, each possibly by several DELs at once."""

    def __init__(self) -> None:
        self._counts: Counter[Attachment] = Counter()

    def __contains__(self, attachment: Attachment) -> bool:
        return attachment in self._counts

    @contextmanager
    def mark(self, attachment: Attachment) -> Iterator[None]:
        """Run a release in this context."""
        self._counts[attachment] += 1
        try:
            yield
        finally:
            self._counts[attachment] -= 1
            if not self._counts[attachment]:
                del self._counts[attachment]


class SharedRangeLog:
    """All allocations by attachment. A change survives the process when it returns, the machine after `sync`."""

    def __init__(self, deps: AgentDeps) -> None:
        self.being_released = ReleasesInProgress()
        """Attachments whose entries are being removed from IPPools."""
        self._deps = deps
        self._journal = Journal(deps.disk, SHARED_RANGE_JOURNAL, self._snapshot)
        self._allocations: dict[Attachment, SharedAllocation] | None = None

    @property
    def allocations(self) -> Mapping[Attachment, SharedAllocation]:
        """All allocations."""
        return self._opened()

    def put(self, allocation: SharedAllocation) -> None:
        """Write the allocations of an interface, if they differ."""
        allocations = self._opened()
        if allocations.get(allocation.attachment) != allocation:
            self._journal.append(SharedAllocated(allocation=allocation))
            allocations[allocation.attachment] = allocation

    def remove(self, attachment: Attachment) -> None:
        """Remove the allocations of an interface."""
        allocations = self._opened()
        if attachment in allocations:
            self._journal.append(SharedReleased(attachment=attachment))
            del allocations[attachment]

    def live(self) -> Iterator[SharedAllocation]:
        """Iterate over the allocations of this boot that are not being released."""
        for attachment, each in self._opened().items():
            is_live = each.addresses and each.boot_id == self._deps.boot_id and not each.releasing
            if is_live and attachment not in self.being_released:
                yield each

    def is_of_earlier_boot(self, allocation: SharedAllocation) -> bool:
        """Return whether the machine has rebooted since."""
        return allocation.boot_id not in ("", self._deps.boot_id)

    def live_addresses(self, network: str, *, range_: str = "") -> dict[Address, ReservationSpec]:
        """Return the addresses of live allocations and their owners, of one range or of the whole network."""
        return {
            parse_address(address): ReservationSpec(podref=each.podref, ifname=each.attachment.ifname)
            for each in self.live()
            if each.network_name == network
            for of_range, address in zip(each.ranges, each.addresses, strict=False)
            if range_ in ("", of_range)
        }

    async def sync(self) -> None:
        """Sync everything that was written."""
        await self._journal.sync()

    async def run(self) -> None:
        """Sync in the background and compact the log, until cancelled."""
        await self._journal.run()

    def _snapshot(self) -> SharedRangeSnapshot:
        return SharedRangeSnapshot(allocations=tuple(self._opened().values()))

    def _opened(self) -> dict[Attachment, SharedAllocation]:
        """Read the log on first use. Lost records cost no safety: orphan GC releases what they were about."""
        if self._allocations is None:
            found: dict[Attachment, SharedAllocation] = {}
            contents = self._journal.open(lambda record: _apply(record, found))
            if contents.damaged:
                event = "shared-range log is damaged, lost entries are released when their Pods are gone"
                self._deps.log.warning(event, damage=contents.damage, set_aside=contents.set_aside)
            self._allocations = found
        return self._allocations


def _apply(record: AnySharedRangeRecord, allocations: dict[Attachment, SharedAllocation]) -> None:
    match record:
        case SharedAllocated():
            allocations[record.allocation.attachment] = record.allocation
        case SharedReleased():
            allocations.pop(record.attachment, None)
        case SharedRangeSnapshot():
            allocations.update({each.attachment: each for each in record.allocations})
