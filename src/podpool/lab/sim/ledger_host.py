"""The ledger of a simulation: its database, the replicas on it, and direct reads of its state.

Several replicas are several services on one store, which alternate transactions on it.
"""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

from podpool.core.mass_loss import BreakerSettings
from podpool.lab.sim.machine import MachineClock, SimProcess
from podpool.lab.sim.network import SimNetwork, SimService
from podpool.lab.sim.profiles import SimConfig
from podpool.ledger.client import LedgerClient
from podpool.ledger.domain.service import LedgerService, LedgerSettings
from podpool.ledger.http.handler import LedgerHandler
from podpool.ledger.messages import NetworkContainerRecord, SubnetGrowth, SubnetName, SubnetSpec, SubnetState
from podpool.ledger.storage.backup import TABLES, select_all
from podpool.ledger.storage.fsck import check
from podpool.ledger.storage.rollback_detector import MemoryRollbackDetector
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from podpool.runtime.transport import Handler, Request, Response

T = TypeVar("T")

CONFIRM_INTERVAL = 10.0
"""Seconds between two checks for an open circuit breaker."""
SUBNET = SubnetName(network="vnet", name="pods")


@cache
def _empty_database() -> bytes:
    return InlineSqliteStore().image()


class LedgerHost:
    """One ledger for all clusters of a simulation."""

    def __init__(self, network: SimNetwork, config: SimConfig, *, rng: Callable[[str], random.Random]) -> None:
        self.on_change: list[Callable[[], None]] = []
        """Called when the database has changed."""
        self.replicas = [SimService(f"ledger-{number}" if number else "ledger") for number in range(config.replicas)]
        self._network = network
        self._config = config
        self.clock = MachineClock(network.loop)
        """Of the machine that all replicas run on."""
        self._rng = rng
        self._starts = 0
        self._records: dict[str, dict[str, list[NetworkContainerRecord]]] = {}
        self._subnet: SubnetState | None = None
        self._detector = MemoryRollbackDetector()
        self._open(_empty_database())

    def _open(self, image: bytes) -> None:
        self._store = InlineSqliteStore(detector=self._detector, image=image)
        self._auditor = self._client()
        self._store.subscribe(self._on_commit)
        self._on_commit()

    async def start(self) -> None:
        """Start every replica, and create the subnet."""
        for number in range(len(self.replicas)):
            self.start_replica(number)
        config = self._config
        subnet = SubnetSpec(network=SUBNET.network, name=SUBNET.name, cidr=config.cidr, gateway=config.gateway)
        client = LedgerClient(self._network.transport("operator", self.replicas[0]))
        await client.create_subnet(subnet.with_settings(config.settings))

    def start_replica(self, number: int = 0) -> None:
        """Start a replica on the database."""
        self._starts += 1
        process = SimProcess(self.replicas[number].name, self._network.loop)
        settings = LedgerSettings(breaker=BreakerSettings(window_seconds=self._config.settings.node_gc_delay))
        rng = self._rng(f"ledger/{self._starts}")
        ledger = LedgerService(self._store, clock=self.clock, rng=rng, settings=settings)
        _run_sync(ledger.start())
        self.replicas[number].serve(LedgerHandler(ledger), process)
        process.spawn(ledger.run())

    def reboot(self) -> None:
        """Kill every replica and restart the boot clock; `start_replica` starts them again."""
        for replica in self.replicas:
            if replica.process:
                replica.process.kill()
        self.clock.booted_at = self._network.loop.time()
        self._auditor = self._client()

    def image(self) -> bytes:
        """Return a copy of the database, as a backup does."""
        return self._store.image()

    def restore(self, image: bytes) -> None:
        """Restart every replica on an older copy of the database; the rollback detector's state is not restored."""
        for replica in self.replicas:
            if replica.process:
                replica.process.kill()
        self._open(image)
        for number in range(len(self.replicas)):
            self.start_replica(number)

    async def run_operator(self) -> None:
        """Confirm the loss of nodes that opened the circuit breaker: in the simulation they are really gone."""
        while True:
            await asyncio.sleep(CONFIRM_INTERVAL)
            for cluster in _run_sync(self._auditor.clusters()).clusters:
                if cluster.breaker_open_since:
                    _run_sync(self._client().confirm_loss(cluster.id))

    def grow(self, cidr: str) -> None:
        """Add a CIDR to the subnet, as an operator does."""
        _run_sync(self._client().grow_subnet(SUBNET, SubnetGrowth(cidr=cidr)))

    # direct reads, without the network and without delay

    def records(self, cluster: str) -> dict[str, list[NetworkContainerRecord]]:
        """Return a cluster's open network containers by node name."""
        if cluster not in self._records:
            found: dict[str, list[NetworkContainerRecord]] = {}
            for record in _run_sync(self._auditor.network_containers(cluster)).network_containers:
                found.setdefault(record.node, []).append(record)
            self._records[cluster] = found
        return self._records[cluster]

    def subnet(self) -> SubnetState:
        """Return the subnet as of the last commit."""
        if self._subnet is None:
            self._subnet = _run_sync(self._auditor.subnet(SUBNET))
        return self._subnet

    def subnet_now(self) -> SubnetState:
        """Return the subnet as of now: a cooldown ends without a commit."""
        return _run_sync(self._auditor.subnet(SUBNET))

    def granted(self) -> int:
        """Return the number of grants and primaries of all clusters."""
        clusters = sorted({each.id for each in _run_sync(self._auditor.clusters()).clusters})
        found = [each.state for cluster in clusters for records in self.records(cluster).values() for each in records]
        return sum(len(state.grants) + bool(state.primary) for state in found)

    def fsck_errors(self) -> list[str]:
        """Return what fsck finds wrong in the database."""
        copy = sqlite3.connect(":memory:")
        copy.deserialize(self.image())
        rows = ((table, columns, copy.execute(select_all(table))) for table, columns in TABLES.items())
        return check((table, columns, row) for table, columns, found in rows for row in found).faults

    def _client(self) -> LedgerClient:
        ledger = LedgerService(self._store, clock=self.clock, rng=self._rng("auditor"))
        return LedgerClient(_DirectTransport(LedgerHandler(ledger)))

    def _on_commit(self, *_: object) -> None:
        self._records, self._subnet = {}, None
        for callback in self.on_change:
            callback()


class _DirectTransport:
    """Calls a handler without a network."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def send(self, request: Request) -> Response:
        return await self._handler(request)


def _run_sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Return the result of a coroutine that does not wait."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise RuntimeError("a direct read of the ledger waited")
