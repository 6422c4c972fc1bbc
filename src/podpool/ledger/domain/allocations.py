"""The allocations of one subnet, within one transaction.

Every change of a slot, a counter or a total goes through `Allocations`, so that totals and slots agree. The subnet's
row is written once, at the end. The subnet's time advances first: addresses whose cooldown is over become free.

An address can be granted once it has cooled down for the shortest level, so that neither what is reserved nor
exhaustion depends on the level in force. One that has cooled down for the level in force, or that no Pod used, is
granted first.
"""

from bisect import insort
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from podpool.ledger.domain.address_block import PRIMARY, UNUSED, Block
from podpool.ledger.domain.cluster_usage import changed_usage
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import ClusterUse, NcRow, SubnetRow, stamp
from podpool.ledger.domain.scaling_policy import reservations
from podpool.runtime.entropy import uuid_text

_COOLDOWN_STEPS = 64
"""Cooldowns end on so many points in time, so that a row has a few dozen counts and not thousands."""


class AllocatedAddress(msgspec.Struct, frozen=True, gc=False):
    """An address that an NC holds."""

    address: int
    grant: bytes
    text: str
    """The address as text."""
    id: str
    """The grant ID as text; empty for a primary."""

    @property
    def primary(self) -> bool:
        """Whether it is the NC's primary."""
        return not self.id


def event_entries(addresses: Iterable[AllocatedAddress]) -> tuple[tuple[str, str], ...]:
    """Return addresses and grant IDs as an event stores them."""
    return tuple([(each.text, each.id) for each in addresses])


class Allocations:
    """The slots and totals of one subnet."""

    def __init__(self, repo: Repository, subnet: SubnetRow, *, time: float) -> None:
        self.repo = repo
        self.layout = subnet.layout
        self._text = self.layout.family.text
        self.now, clock_offset = subnet.time_at(time)
        reusable_stamp = subnet.reusable_at(self.now)
        self._cooled_stamp = min(reusable_stamp, stamp(self.now - subnet.cooldown))
        cooling = tuple(each for each in subnet.cooling if each[0] > reusable_stamp)
        times = {"latest_time": self.now, "clock_offset": clock_offset}
        self.subnet = replace(subnet, **times, reusable_stamp=reusable_stamp, cooling=cooling)
        self._blocks: dict[int, Block] = {}
        self._dirty: dict[int, None] = {}
        self._current_block: int | None = None
        self._use_changes: dict[str, tuple[int, int]] = {}
        """By cluster: NCs and addresses that it has gained since the row was read."""
        self.changed = False

    @property
    def free(self) -> int:
        """How many addresses can be granted now, as primaries."""
        return self.layout.capacity - self.subnet.held - sum(count for _, count in self.subnet.cooling)

    @property
    def available(self) -> int:
        """How many can be granted now as secondaries: some are reserved for primaries; none while draining."""
        return 0 if self.subnet.draining else max(0, self.free - self.subnet.spec.reserved_for_primaries)

    def use(self, cluster: str) -> ClusterUse:
        """Return what a cluster has of the subnet now."""
        return changed_usage(self.subnet.usage or {}, self._use_changes).get(cluster, ClusterUse())

    def held(self, nc: NcRow) -> list[AllocatedAddress]:
        """Return the addresses of an NC, in order."""
        return [
            self.allocated(self.layout.address(number, slot), grant)
            for number in nc.blocks
            for slot, grant in self._block(number).owned_by(nc.number)
        ]

    def allocated(self, address: int, grant: bytes) -> AllocatedAddress:
        """Return an address that an NC holds or claims, with its texts."""
        return AllocatedAddress(address, grant, self._text(address), "" if grant == PRIMARY else uuid_text(grant))

    def holder(self, address: int) -> int | None:
        """Return the NC that holds an address."""
        number, slot = self.layout.locate(address)
        return self._block(number).owner(slot)

    def allocate(self, nc: NcRow, grants: Sequence[bytes]) -> tuple[NcRow, list[AllocatedAddress]]:
        """Allocate an address for each grant; so many must be free."""
        allocated: list[AllocatedAddress] = []
        while len(allocated) < len(grants):
            number, slots = self._find_free(nc, len(grants) - len(allocated))
            first = self.layout.address(number, 0)
            batch = grants[len(allocated) : len(allocated) + len(slots)]
            self._blocks[number].assign(slots, owner=nc.number, grants=batch)
            allocated += map(self.allocated, [first + slot for slot in slots], batch)
            nc = self._count_granted(nc, number, len(slots))
        return nc, allocated

    def assign(self, nc: NcRow, address: int, grant: bytes) -> NcRow:
        """Assign a specific address that no other NC holds: free, cooling down, or its own already."""
        number, slot = self.layout.locate(address)
        block = self._block(number)
        own = block.owner(slot) == nc.number
        if not own:
            self._count_cooling(block.stamp(slot), -1)
        block.assign([slot], owner=nc.number, grants=[grant])
        self._dirty[number] = None
        return nc if own else self._count_granted(nc, number, 1)

    def release(self, nc: NcRow, held: AllocatedAddress, *, cooled_seconds: float) -> NcRow:
        """Release an address of an NC; it cools down for the remaining cooldown."""
        number, slot = self.layout.locate(held.address)
        block = self._block(number)
        self._free(number, slot, since=self._stamp(cooled_seconds))
        self.subnet = replace(self.subnet, held=self.subnet.held - 1, released=self.subnet.released + 1)
        self._count_use(nc.cluster, held=-1)
        if any(block.owned_by(nc.number)):
            return nc
        return replace(nc, blocks=tuple(each for each in nc.blocks if each != number))

    def close(self, nc: NcRow) -> list[AllocatedAddress]:
        """Release all addresses of an NC, close it and write it; returns the addresses."""
        held, after = self.held(nc), nc
        for each in held:
            after = self.release(after, each, cooled_seconds=0.0)
        self.save(nc, replace(after.close(), version=nc.version + 1))
        return held

    def cool_down(self, address: int, *, cooled_seconds: float) -> None:
        """Start the cooldown of an address that no NC holds, unless one that ends later is running."""
        number, slot = self.layout.locate(address)
        block = self._block(number)
        since = self._stamp(cooled_seconds)
        if since > block.stamp(slot):  # never so if it has an owner
            self._count_cooling(block.stamp(slot), -1)
            self._free(number, slot, since=since)

    def include(self, address: int) -> None:
        """Make an address usable that was excluded; a block that is created later has it anyway."""
        number, slot = self.layout.locate(address)
        block = self._blocks.get(number) or self.repo.block(self.subnet.number, number)
        if block is not None:
            block.free(slot, since=UNUSED)
            self._blocks[number] = block
            self._dirty[number] = None

    def save(self, before: NcRow | None, after: NcRow) -> None:
        """Write an NC, and update the subnet's totals."""
        if before == after:
            return
        self.changed = True
        self.repo.put_nc(after)
        was_open, is_open = before is not None and before.load is not None, after.load is not None
        self._count_use(after.cluster, ncs=is_open - was_open)
        subnet = self.subnet
        totals, ncs = list(subnet.totals), subnet.network_containers
        for row, sign in ((before, -1), (after, +1)):
            if row is not None and row.load is not None:
                ncs += sign
                for rung, count in enumerate(reservations(row.load, subnet.spec.batch, subnet.spec.buffer)):
                    totals[rung] += sign * count
        self.subnet = replace(
            subnet,
            totals=tuple(totals),
            network_containers=ncs,
            pod_shortage=subnet.pod_shortage + after.pod_shortage - (before.pod_shortage if before else 0),
            buffer_shortage=subnet.buffer_shortage + after.buffer_shortage - (before.buffer_shortage if before else 0),
            unsettled=subnet.unsettled + after.unsettled - (before.unsettled if before else 0),
        )

    def flush(self) -> None:
        """Write the changed blocks, and the usage of clusters into the row."""
        if self.subnet.usage is not None and self._use_changes:
            self.subnet = replace(self.subnet, usage=changed_usage(self.subnet.usage, self._use_changes))
        self._use_changes = {}
        self.changed |= bool(self._dirty)
        for number in self._dirty:
            self.repo.put_block(self.subnet.number, number, self._blocks[number])
        self._dirty.clear()

    def _free(self, number: int, slot: int, *, since: int) -> None:
        self._block(number).free(slot, since=since)
        self._dirty[number] = None
        self._count_cooling(since, +1)

    def _count_granted(self, nc: NcRow, number: int, count: int) -> NcRow:
        """Count granted addresses of a block, and add the block to the NC."""
        self._dirty[number] = None
        subnet = self.subnet
        self.subnet = replace(subnet, held=subnet.held + count, granted=subnet.granted + count)
        self._count_use(nc.cluster, held=count)
        if number in nc.blocks:
            return nc
        blocks = list(nc.blocks)
        insort(blocks, number)
        return replace(nc, blocks=tuple(blocks))

    def _count_use(self, cluster: str, *, ncs: int = 0, held: int = 0) -> None:
        before = self._use_changes.get(cluster, (0, 0))
        self._use_changes[cluster] = before[0] + ncs, before[1] + held

    def _find_free(self, nc: NcRow, count: int) -> tuple[int, list[int]]:
        """Return free slots that have cooled down for the level in force, else for the shortest."""
        found = None
        for before in (self._cooled_stamp, self.subnet.reusable_stamp):
            found = found or self._find_in_own_blocks(nc, count, before=before)
            found = found or self._find_freed(count, before=before)
        if found is None:
            raise AssertionError(f"{self.subnet.name} counts free addresses that none of its blocks has")
        return found

    def _find_in_own_blocks(self, nc: NcRow, count: int, *, before: int) -> tuple[int, list[int]] | None:
        """Return the free slots of the block of an NC that has most of them: its addresses stay together."""
        found = {number: self._block(number).find_free(count, reusable_stamp=before) for number in nc.blocks}
        number = max(found, key=lambda each: len(found[each]), default=None)
        return None if number is None or not found[number] else (number, found[number])

    def _find_freed(self, count: int, *, before: int) -> tuple[int, list[int]] | None:
        """Return slots: of the current block, of the one with the slot freed first, else of a new one."""
        if self._current_block is not None:
            slots = self._block(self._current_block).find_free(count, reusable_stamp=before)
            if slots:
                return self._current_block, slots
        self.flush()
        number = self.repo.reusable_block(self.subnet.number, before)
        number = self._new_block() if number is None else number
        if number is None:
            return None
        self._current_block = number
        slots = self._block(number).find_free(count, reusable_stamp=before)
        return (number, slots) if slots else None

    def _new_block(self) -> int | None:
        while self.subnet.next_block is not None:
            number = self.layout.next_block(self.subnet.next_block)
            self.subnet = replace(self.subnet, next_block=None if number is None else number + 1)
            if number is not None and self.repo.block(self.subnet.number, number) is None:
                return number
        return None

    def _block(self, number: int) -> Block:
        block = self._blocks.get(number)
        if block is None:
            block = self.repo.block(self.subnet.number, number) or Block.new(self.layout.slots(number))
            self._blocks[number] = block
        return block

    def _stamp(self, cooled_seconds: float) -> int:
        """Return the stamp of a release; a cooldown that is not over is rounded up to the next step, never down."""
        since = stamp(self.now - cooled_seconds)
        if since <= self.subnet.reusable_stamp:
            return since
        step = max(1, -(-stamp(self.subnet.spec.cooldown_exhausted) // _COOLDOWN_STEPS))
        return -(-since // step) * step

    def _count_cooling(self, since: int, change: int) -> None:
        if since <= self.subnet.reusable_stamp:
            return
        counts = dict(self.subnet.cooling)
        counts[since] = counts.get(since, 0) + change
        self.subnet = replace(self.subnet, cooling=tuple(sorted(each for each in counts.items() if each[1])))
