"""How full each subnet is, as it was read last: asked for again and again by many, read from the books by one.

A subnet that somebody has asked for is read again at a set rate, whoever asks, until nobody has asked for long. So what
is cached costs the database nothing; it is as old as the rate at most, or as the last time that the books were there.
"""

import msgspec

from podpool.ledger.domain.convert import utilization
from podpool.ledger.domain.subnets import found
from podpool.ledger.messages import SubnetName, Utilization
from podpool.ledger.storage.store import Books, Store
from podpool.runtime.clock import Clock

_FORGET = 600.0
"""Seconds after which a subnet that nobody asks for is not read any more."""


class _Entry(msgspec.Struct, frozen=True):
    """What was read, and when somebody last asked for it."""

    utilization: Utilization
    asked: float


class UtilizationCache:
    """Pulled through when it is first asked for; with a rate of 0 it is read each time."""

    def __init__(self, store: Store, *, clock: Clock, rate: float) -> None:
        self._store = store
        self._clock = clock
        self._rate = rate
        self._entries: dict[SubnetName, _Entry] = {}

    async def get(self, name: SubnetName) -> Utilization:
        """Tell how full a subnet is."""
        known = self._entries.get(name)
        read = known.utilization if known else await self._store.read(lambda books: self._read(books, name))
        if self._rate:
            self._entries[name] = _Entry(read, self._clock.boot())
        return read

    def forget(self, name: SubnetName) -> None:
        """Read a subnet again when it is asked for."""
        self._entries.pop(name, None)

    async def refresh(self) -> None:
        """Read every subnet that somebody has asked for of late, in one go."""
        since = self._clock.boot() - _FORGET
        wanted = {name: entry.asked for name, entry in self._entries.items() if entry.asked > since}
        wall = self._clock.wall()
        rows = await self._store.read(lambda books: books.subnets()) if wanted else []
        self._entries = {
            row.name: _Entry(utilization(row, wall=wall), wanted[row.name]) for row in rows if row.name in wanted
        }

    def _read(self, books: Books, name: SubnetName) -> Utilization:
        return utilization(found(books, name), wall=self._clock.wall())
