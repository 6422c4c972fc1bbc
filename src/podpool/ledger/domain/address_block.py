"""A block of 64 consecutive addresses: the owner and grant of each slot, or since when it is free.

An address has one slot, so two owners cannot be written. A slot without an owner has the stamp at which it was freed:
`UNUSED` if it never had an owner, else the millisecond from which its cooldown counts. A slot with an owner, or one
that is not an address of the subnet, has the stamp `NOT_FREE`. So the minimum of the stamps finds at C speed the slot
that was freed first, and whether the block has a free slot at all.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

from podpool.ledger.domain.subnet_layout import BLOCK_SIZE

NOT_FREE = (1 << 62) - 1
UNUSED = -(1 << 62)
PRIMARY = bytes(16)
"""In place of a grant ID: the address is the NC's primary."""

_NO_OWNER = 0
_EXCLUDED = (1 << 32) - 1
_PACKED = struct.Struct(f"<{BLOCK_SIZE}I{BLOCK_SIZE}q" + BLOCK_SIZE * "16s")


class Block:
    """The slots of a block; mutable, read and written as one row."""

    __slots__ = ("_freed", "_grants", "_owners")

    def __init__(self, owners: list[int], freed: list[int], grants: list[bytes]) -> None:
        self._owners = owners
        self._freed = freed
        self._grants = grants

    @classmethod
    def new(cls, members: Iterable[int]) -> "Block":
        """Return a block in which these slots are free and the others are excluded."""
        owners, freed = [_EXCLUDED] * BLOCK_SIZE, [NOT_FREE] * BLOCK_SIZE
        for slot in members:
            owners[slot], freed[slot] = _NO_OWNER, UNUSED
        return cls(owners, freed, [PRIMARY] * BLOCK_SIZE)

    @classmethod
    def decode(cls, packed: bytes) -> "Block":
        """Unpack what `encode` returned."""
        values = _PACKED.unpack(packed)
        return cls(list(values[:BLOCK_SIZE]), list(values[BLOCK_SIZE : 2 * BLOCK_SIZE]), list(values[2 * BLOCK_SIZE :]))

    def copy(self) -> "Block":
        """Return a copy that can be changed independently."""
        return Block(self._owners.copy(), self._freed.copy(), self._grants.copy())

    def encode(self) -> bytes:
        """Pack the block: 1,792 bytes."""
        return _PACKED.pack(*self._owners, *self._freed, *self._grants)

    @property
    def ready(self) -> int | None:
        """The stamp of the slot that was freed first; None if no slot is free."""
        lowest = min(self._freed)
        return None if lowest == NOT_FREE else lowest

    def find_free(self, count: int, *, reusable_stamp: int) -> list[int]:
        """Return the slots that were freed first, of those whose cooldown is over: freed at this stamp or before."""
        lowest = min(self._freed)
        if lowest > reusable_stamp:
            return []
        if count == 1:
            return [self._freed.index(lowest)]
        longest = sorted(range(BLOCK_SIZE), key=self._freed.__getitem__)[:count]
        return [slot for slot in longest if self._freed[slot] <= reusable_stamp]

    def owner(self, slot: int) -> int | None:
        """Return the NC that holds a slot."""
        owner = self._owners[slot]
        return None if owner in (_NO_OWNER, _EXCLUDED) else owner

    def stamp(self, slot: int) -> int:
        """Return the stamp at which a slot was freed."""
        return self._freed[slot]

    def grant(self, slot: int) -> bytes:
        """Return the grant ID of a slot."""
        return self._grants[slot]

    def assign(self, slots: Sequence[int], *, owner: int, grants: Iterable[bytes]) -> None:
        """Set the owner and the grants of slots; a previous owner loses them."""
        for slot, grant in zip(slots, grants, strict=True):
            self._owners[slot] = owner
            self._freed[slot] = NOT_FREE
            self._grants[slot] = grant

    def free(self, slot: int, *, since: int) -> None:
        """Remove the owner of a slot; its cooldown counts from a stamp."""
        self._owners[slot] = _NO_OWNER
        self._freed[slot] = since
        self._grants[slot] = PRIMARY

    def owned_by(self, owner: int) -> Iterator[tuple[int, bytes]]:
        """Yield the slots of an NC with their grants."""
        slot = -1
        for _ in range(self._owners.count(owner)):
            slot = self._owners.index(owner, slot + 1)
            yield slot, self.grant(slot)
