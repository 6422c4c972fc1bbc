"""Ledgers under measurement: in this process, on their own database, with callers in the same event loop.

A caller does what the HTTP handler does: it calls the service and waits. Both sides of a comparison leave HTTP out.
"""

from __future__ import annotations

import asyncio
import random
import tempfile
import time
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import uvloop

from podpool.ledger.domain.service import LedgerService
from podpool.ledger.messages import (
    DemandReport,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    SubnetName,
    SubnetSpec,
)
from podpool.ledger.storage.database import parse_database
from podpool.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterator

    from parts.postgres import Postgres

T = TypeVar("T")

BATCH = 16
"""Addresses for a new node: one primary, the others for Pods."""

databases = count()


class MeasuredLedger:
    """A ledger with its own event loop."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._store = self.run(parse_database(url).open(rng=random.SystemRandom()))
        self.ledger = LedgerService(self._store, clock=SystemClock(), rng=random.SystemRandom())
        self.run(self.ledger.start())
        self._subnets = count()
        self._nodes = count()

    def run(self, call: Coroutine[object, object, T]) -> T:
        """Run a call to completion."""
        return self._runner.run(call)

    def close(self) -> None:
        """Close the database."""
        self.run(self._store.close())
        self._runner.close()

    async def subnet(self, cidr: str) -> SubnetName:
        """Create a new subnet."""
        name = SubnetName(network=f"network-{next(self._subnets)}", name="pods")
        await self.ledger.admin.create_subnet(SubnetSpec(network=name.network, name=name.name, cidr=cidr))
        return name

    async def clusters(self, number: int, *, network: str) -> list[Caller]:
        """Return the leaders of new clusters in a network."""
        callers = [Caller(self.ledger, f"cluster-{each}", network, self._nodes) for each in range(number)]
        for caller in callers:
            await caller.lead()
        return callers


class Caller:
    """The leader of a cluster in a network."""

    def __init__(self, ledger: LedgerService, cluster: str, network: str, nodes: count[int]) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._network = network
        self._nodes = nodes
        self._numbers = count(1)
        self._term = 0

    async def lead(self) -> None:
        """Open a term."""
        request = OpenTermRequest(cluster=self._cluster, network=self._network)
        self._term = (await self._ledger.open_term(request)).term
        self._numbers = count(1)

    def join(self, subnet: SubnetName) -> Awaitable[float]:
        """Request the first batch of a new node; returns the seconds that it took."""
        node = f"node-{next(self._nodes)}"
        item = ReconcileItem(subnet=subnet, node=node, node_uid=node, wanted=BATCH - 1, report=DemandReport())
        call = ReconcileRequest(
            cluster=self._cluster,
            network=self._network,
            term=self._term,
            number=next(self._numbers),
            items=(item,),
        )
        return self._timed(call)

    async def _timed(self, call: ReconcileRequest) -> float:
        start = time.perf_counter()
        response = await self._ledger.reconcile(call)
        state = response.results[0].state
        if state is None or len(state.grants) < BATCH - 1:
            raise AssertionError(f"a batch was not granted: {response.results[0]}")
        return time.perf_counter() - start


@contextmanager
def on_postgres(server: Postgres) -> Iterator[MeasuredLedger]:
    """A ledger on its own PostgreSQL database."""
    name = f"bench{next(databases)}"
    server.psql(f"CREATE DATABASE {name}")
    measured = MeasuredLedger(server.url(name))
    try:
        yield measured
    finally:
        measured.close()
        server.psql(f"DROP DATABASE {name}")


@contextmanager
def on_sqlite() -> Iterator[MeasuredLedger]:
    """A ledger on a SQLite file."""
    with tempfile.TemporaryDirectory() as directory:
        measured = MeasuredLedger(f"sqlite://{Path(directory) / 'ledger.db'}")
        try:
            yield measured
        finally:
            measured.close()
