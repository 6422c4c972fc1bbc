"""The cooldown of the ledger, checked by true time: whatever the clock of its machine shows.

Agents release only what has cooled down with them. An address of a closed network container has not: only the ledger
keeps it from the next node.
"""

from contextvars import Context
from typing import TYPE_CHECKING

from podpool.lab.sim.address_use_oracle import Violation

if TYPE_CHECKING:
    from podpool.lab.sim.cluster import SimCluster

_TOLERANCE = 0.01
"""Seconds: stamps are whole milliseconds."""


class LedgerCooldownChecker:
    """Observes the network containers of one cluster. A restored ledger is observed again once it grants."""

    def __init__(self, cluster: "SimCluster") -> None:
        self._cluster = cluster
        self._check_due = False
        self._held: dict[str, frozenset[str]] = {}
        """The addresses of each open network container."""
        self._closed_at: dict[str, float] = {}
        """When the network container that had an address was closed."""
        cluster.ledger_host.on_change.append(self._on_ledger_change)

    def _on_ledger_change(self) -> None:
        if not self._check_due:
            self._check_due = True
            self._cluster.loop.call_soon(self._check, context=Context())

    def _check(self) -> None:
        self._check_due = False
        if self._cluster.ledger_host.subnet().frozen:
            self._held, self._closed_at = {}, {}
            return
        before, now = self._held, self._cluster.loop.time()
        records = [record for each in self._cluster.nc_records().values() for record in each]
        self._held = {
            each.state.nc_id: frozenset((each.state.primary, *(grant.address for grant in each.state.grants)))
            for each in records
        }
        for nc in before.keys() - self._held.keys():
            self._closed_at.update(dict.fromkeys(before[nc], now))
        for nc, addresses in self._held.items():
            for address in addresses - before.get(nc, frozenset()):
                self._check_grant(address, now=now)

    def _check_grant(self, address: str, *, now: float) -> None:
        closed_at = self._closed_at.pop(address, None)
        shortest = self._cluster.config.settings.cooldown_exhausted
        if closed_at is not None and now - closed_at < shortest - _TOLERANCE:
            cooled = f"{address} was granted {now - closed_at:.2f} s after its network container was closed"
            self._cluster.report(Violation("cooldown", f"{cooled}, the shortest cooldown is {shortest:g} s"))
