"""Sixty-four addresses in a row: who has each, under which grant, and since when it is free.

An address has one slot, so two owners cannot be written. A slot without an owner is free from its stamp on: `UNUSED`
for an address that never had one, else the millisecond that its rest is counted from. A slot with an owner, or one that
is no member of its subnet, has the stamp `NEVER`; so the lowest stamp tells at C speed which slot has rested longest,
and whether the block has room at all.
"""

import struct
from collections.abc import Iterable, Iterator, Sequence

from podpool.ledger.domain.subnet_layout import BLOCK

NEVER = (1 << 62) - 1
UNUSED = -(1 << 62)
PRIMARY = bytes(16)
"""In the place of a grant's identity: the address is the container's own."""

_NOBODY = 0
_KEPT_BACK = (1 << 32) - 1
_PACKED = struct.Struct(f"<{BLOCK}I{BLOCK}q" + BLOCK * "16s")


class Block:
    """The slots of a block, to be changed and written again as one."""

    __slots__ = ("_freed", "_grants", "_owners")

    def __init__(self, owners: list[int], freed: list[int], grants: list[bytes]) -> None:
        self._owners = owners
        self._freed = freed
        self._grants = grants

    @classmethod
    def fresh(cls, members: Iterable[int]) -> "Block":
        """Make a block in which these slots are free and the others do not exist."""
        owners, freed = [_KEPT_BACK] * BLOCK, [NEVER] * BLOCK
        for slot in members:
            owners[slot], freed[slot] = _NOBODY, UNUSED
        return cls(owners, freed, [PRIMARY] * BLOCK)

    @classmethod
    def decode(cls, packed: bytes) -> "Block":
        """Read what `encode` wrote."""
        values = _PACKED.unpack(packed)
        return cls(list(values[:BLOCK]), list(values[BLOCK : 2 * BLOCK]), list(values[2 * BLOCK :]))

    def copy(self) -> "Block":
        """Make another one, to be changed by itself."""
        return Block(self._owners.copy(), self._freed.copy(), self._grants.copy())

    def encode(self) -> bytes:
        """Pack the block: 1,792 bytes."""
        return _PACKED.pack(*self._owners, *self._freed, *self._grants)

    @property
    def ready(self) -> int | None:
        """The stamp of the slot that has been free for longest; None when all have owners."""
        lowest = min(self._freed)
        return None if lowest == NEVER else lowest

    def take(self, count: int, *, awake: int) -> list[int]:
        """Find the slots that have been free for longest, of those whose rest is over: stamped at `awake` or before."""
        lowest = min(self._freed)
        if lowest > awake:
            return []
        if count == 1:
            return [self._freed.index(lowest)]
        longest = sorted(range(BLOCK), key=self._freed.__getitem__)[:count]
        return [slot for slot in longest if self._freed[slot] <= awake]

    def owner(self, slot: int) -> int | None:
        """Tell the container that has a slot."""
        owner = self._owners[slot]
        return None if owner in (_NOBODY, _KEPT_BACK) else owner

    def stamp(self, slot: int) -> int:
        """Tell since when a slot is free."""
        return self._freed[slot]

    def grant(self, slot: int) -> bytes:
        """Tell the identity of the grant in a slot."""
        return self._grants[slot]

    def give(self, slot: int, *, owner: int, grant: bytes) -> None:
        """Write down who has a slot; whoever had it before has it no more."""
        self.give_all([slot], owner=owner, grants=[grant])

    def give_all(self, slots: Sequence[int], *, owner: int, grants: Iterable[bytes]) -> None:
        """Write down who has several slots."""
        for slot, grant in zip(slots, grants, strict=True):
            self._owners[slot] = owner
            self._freed[slot] = NEVER
            self._grants[slot] = grant

    def free(self, slot: int, *, since: int) -> None:
        """Write down that nobody has a slot, and from when its rest counts."""
        self._owners[slot] = _NOBODY
        self._freed[slot] = since
        self._grants[slot] = PRIMARY

    def owned_by(self, owner: int) -> Iterator[tuple[int, bytes]]:
        """List the slots of a container with their grants."""
        slot = -1
        for _ in range(self._owners.count(owner)):
            slot = self._owners.index(owner, slot + 1)
            yield slot, self.grant(slot)
