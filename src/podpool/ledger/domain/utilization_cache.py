"""A pull-through cache of subnet utilization.

A subnet that was requested is read again at a fixed interval, until it was not requested for `_EXPIRY`. So requests
cost the database nothing; a value is at most as old as the interval, or as the last time the database was reachable.
"""

import msgspec

from podpool.ledger.domain.convert import utilization
from podpool.ledger.domain.repository import LedgerStore, Repository
from podpool.ledger.domain.subnets import existing_subnet
from podpool.ledger.messages import SubnetName, Utilization
from podpool.runtime.clock import Clock

_EXPIRY = 600.0
"""Seconds after the last request in which a subnet is refreshed."""


class _Entry(msgspec.Struct, frozen=True):
    """A cached value, and when it was last requested."""

    utilization: Utilization
    requested_at: float


class UtilizationCache:
    """Filled by the first request; with an interval of 0 every request reads the database."""

    def __init__(self, store: LedgerStore, *, clock: Clock, interval: float) -> None:
        self._store = store
        self._clock = clock
        self._interval = interval
        self._entries: dict[SubnetName, _Entry] = {}

    async def get(self, name: SubnetName) -> Utilization:
        """Return the utilization of a subnet."""
        cached = self._entries.get(name)
        value = cached.utilization if cached else await self._store.read(lambda repo: self._read(repo, name))
        if self._interval:
            self._entries[name] = _Entry(value, self._clock.boot())
        return value

    def invalidate(self, name: SubnetName) -> None:
        """Drop a subnet from the cache."""
        self._entries.pop(name, None)

    async def refresh(self) -> None:
        """Read every recently requested subnet again, in one transaction."""
        since = self._clock.boot() - _EXPIRY
        recent = {name: each.requested_at for name, each in self._entries.items() if each.requested_at > since}
        wall = self._clock.wall()
        rows = await self._store.read(lambda repo: repo.subnets()) if recent else []
        found = ((row, recent[row.name]) for row in rows if row.name in recent)
        self._entries = {row.name: _Entry(utilization(row, wall=wall), requested) for row, requested in found}

    def _read(self, repo: Repository, name: SubnetName) -> Utilization:
        return utilization(existing_subnet(repo, name), wall=self._clock.wall())
