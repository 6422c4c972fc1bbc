"""Who has which address of one subnet, within one transaction.

Every change of a slot, a counter or a sum goes through here, so that the sums agree with what they are the sums of.
The subnet's row is written once, at the end. Time moves on first: whatever has rested enough is free.
"""

from bisect import insort
from collections.abc import Iterable, Sequence

import msgspec
from msgspec.structs import replace

from podpool.ledger.domain.scaling_policy import reservations
from podpool.ledger.domain.block import PRIMARY, UNUSED, Block
from podpool.ledger.domain.rows import ContainerRow, SubnetRow, stamp
from podpool.ledger.domain.repository import Books
from podpool.runtime.entropy import uuid_text

_GRAINS = 64
"""Rests are counted in this many steps of the cooldown, so that a row holds a few dozen counts and not thousands."""


class Held(msgspec.Struct, frozen=True, gc=False):
    """An address that a container has."""

    address: int
    grant: bytes
    text: str
    """The address as others write it,"""
    id: str
    """and the grant's identity; a primary has none."""

    @property
    def primary(self) -> bool:
        """It is the container's own."""
        return not self.id


def told(held: Iterable[Held]) -> tuple[tuple[str, str], ...]:
    """Tell of addresses as events do."""
    return tuple([(each.text, each.id) for each in held])


class Holdings:
    """One subnet's slots and sums."""

    def __init__(self, books: Books, subnet: SubnetRow, *, wall: float) -> None:
        self.books = books
        self.ground = subnet.ground
        self._text = self.ground.family.text
        self.now, shift = subnet.steady(wall)
        awake = max(subnet.awake, stamp(self.now - subnet.cooldown))
        resting = tuple(each for each in subnet.resting if each[0] > awake)
        self.subnet = replace(subnet, latest=self.now, shift=shift, awake=awake, resting=resting)
        self._blocks: dict[int, Block] = {}
        self._touched: dict[int, None] = {}
        self._at_hand: int | None = None
        self.changed = False

    @property
    def free(self) -> int:
        """How many addresses can be given now, as primaries."""
        return self.ground.capacity - self.subnet.held - sum(count for _, count in self.subnet.resting)

    @property
    def spare(self) -> int:
        """How many can be given now as secondaries: some are kept for primaries, and none while the subnet drains."""
        return 0 if self.subnet.draining else max(0, self.free - self.subnet.made.reserved_for_primaries)

    def held(self, container: ContainerRow) -> list[Held]:
        """List what a container has, in the order of the addresses."""
        return [
            self.hold(self.ground.address(number, slot), grant)
            for number in container.blocks
            for slot, grant in self._block(number).owned_by(container.number)
        ]

    def hold(self, address: int, grant: bytes) -> Held:
        """Put an address that a container has, or claims, into words."""
        return Held(address, grant, self._text(address), "" if grant == PRIMARY else uuid_text(grant))

    def holder(self, address: int) -> int | None:
        """Tell which container has an address."""
        number, slot = self.ground.place(address)
        return self._block(number).owner(slot)

    def take(self, container: ContainerRow, grants: Sequence[bytes]) -> tuple[ContainerRow, list[Held]]:
        """Give a container an address for each grant; so many must be free."""
        given: list[Held] = []
        while len(given) < len(grants):
            number, slots = self._find(len(grants) - len(given))
            first = self.ground.address(number, 0)
            drawn = grants[len(given) : len(given) + len(slots)]
            self._blocks[number].give_all(slots, owner=container.number, grants=drawn)
            given += map(self.hold, [first + slot for slot in slots], drawn)
            container = self._count(container, number, len(slots))
        return container, given

    def assign(self, container: ContainerRow, address: int, grant: bytes) -> ContainerRow:
        """Give a container one certain address that nobody else has: free, resting, or its own already."""
        number, slot = self.ground.place(address)
        block = self._block(number)
        if block.owner(slot) == container.number:
            block.give(slot, owner=container.number, grant=grant)
            self._touched[number] = None
            return container
        self._count_resting(block.stamp(slot), -1)
        block.give(slot, owner=container.number, grant=grant)
        return self._count(container, number, 1)

    def release(self, container: ContainerRow, held: Held, *, rested: float) -> ContainerRow:
        """Take an address from a container; it rests for what is left of the cooldown."""
        number, slot = self.ground.place(held.address)
        block = self._block(number)
        since = self._stamp(rested)
        block.free(slot, since=since)
        self._touched[number] = None
        self._count_resting(since, +1)
        self.subnet = replace(self.subnet, held=self.subnet.held - 1, released=self.subnet.released + 1)
        if any(block.owned_by(container.number)):
            return container
        return replace(container, blocks=tuple(each for each in container.blocks if each != number))

    def rest(self, address: int, *, rested: float) -> None:
        """Let an address rest that nobody has; one that rests longer already does so."""
        number, slot = self.ground.place(address)
        block = self._block(number)
        since = self._stamp(rested)
        if since > block.stamp(slot):  # never so when it has an owner
            self._count_resting(block.stamp(slot), -1)
            block.free(slot, since=since)
            self._touched[number] = None
            self._count_resting(since, +1)

    def open_up(self, address: int) -> None:
        """Let an address be given that was no member before; a block that is yet to be made will have it anyway."""
        number, slot = self.ground.place(address)
        block = self._blocks.get(number) or self.books.block(self.subnet.number, number)
        if block is not None:
            block.free(slot, since=UNUSED)
            self._blocks[number] = block
            self._touched[number] = None

    def save(self, before: ContainerRow | None, after: ContainerRow) -> None:
        """Write a container, and bring the subnet's sums in step."""
        if before == after:
            return
        self.changed = True
        self.books.put_container(after)
        subnet = self.subnet
        totals = list(subnet.totals)
        for row, sign in ((before, -1), (after, +1)):
            if row is not None and row.load is not None:
                for rung, count in enumerate(reservations(row.load, subnet.made.batch, subnet.made.buffer)):
                    totals[rung] += sign * count
        self.subnet = replace(
            subnet,
            totals=tuple(totals),
            need=subnet.need + after.need - (before.need if before else 0),
            wish=subnet.wish + after.wish - (before.wish if before else 0),
            unsettled=subnet.unsettled + after.unsettled - (before.unsettled if before else 0),
        )

    def flush(self) -> None:
        """Write the blocks that were changed."""
        self.changed |= bool(self._touched)
        for number in self._touched:
            self.books.put_block(self.subnet.number, number, self._blocks[number])
        self._touched.clear()

    def _count(self, container: ContainerRow, number: int, count: int) -> ContainerRow:
        """Count addresses of a block as given, and remember that the container has some there."""
        self._touched[number] = None
        subnet = self.subnet
        self.subnet = replace(subnet, held=subnet.held + count, granted=subnet.granted + count)
        if number in container.blocks:
            return container
        blocks = list(container.blocks)
        insort(blocks, number)
        return replace(container, blocks=tuple(blocks))

    def _find(self, count: int) -> tuple[int, list[int]]:
        """Find slots: in the block at hand, in the one that has had room for longest, else in a new one."""
        if self._at_hand is not None:
            slots = self._block(self._at_hand).take(count, awake=self.subnet.awake)
            if slots:
                return self._at_hand, slots
        self.flush()
        number = self.books.ready_block(self.subnet.number, self.subnet.awake)
        self._at_hand = self._make_block() if number is None else number
        slots = self._block(self._at_hand).take(count, awake=self.subnet.awake)
        if not slots:
            raise AssertionError(f"{self.subnet.name} counts free addresses that block {number} does not have")
        return self._at_hand, slots

    def _make_block(self) -> int:
        while self.subnet.next_block is not None:
            number = self.ground.next_block(self.subnet.next_block)
            self.subnet = replace(self.subnet, next_block=None if number is None else number + 1)
            if number is not None and self.books.block(self.subnet.number, number) is None:
                return number
        raise AssertionError(f"{self.subnet.name} counts free addresses that none of its blocks has")

    def _block(self, number: int) -> Block:
        block = self._blocks.get(number)
        if block is None:
            block = self.books.block(self.subnet.number, number) or Block.fresh(self.ground.slots(number))
            self._blocks[number] = block
        return block

    def _stamp(self, rested: float) -> int:
        """Round a rest that is not over yet up to the next grain: never shorter than it must be."""
        since = stamp(self.now - rested)
        if since <= self.subnet.awake:
            return since
        grain = max(1, -(-stamp(self.subnet.made.cooldown) // _GRAINS))
        return -(-since // grain) * grain

    def _count_resting(self, since: int, change: int) -> None:
        if since <= self.subnet.awake:
            return
        counts = dict(self.subnet.resting)
        counts[since] = counts.get(since, 0) + change
        resting = tuple(sorted(each for each in counts.items() if each[1]))
        self.subnet = replace(self.subnet, resting=resting)
