"""Ledgers under measurement: in this process, on a database that is made for it, with callers that share one loop.

The callers are what the service's handlers are: they call the ledger and wait. Nothing is sent over HTTP, and neither
are the statements of the other side, so that both are measured from the same place.
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

from podpool.ledger.domain.service import Ledger
from podpool.ledger.messages import Item, NewSubnet, OpenTerm, Reconcile, Report, SubnetName
from podpool.ledger.storage.database import parse_database
from podpool.runtime.clock import SystemClock

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine, Iterator

    from parts.postgres import Postgres

T = TypeVar("T")

BATCH = 16
"""Addresses for a new node: one for itself, the others for Pods."""

databases = count()


class Office:
    """A ledger with a loop of its own."""

    def __init__(self, url: str) -> None:
        self._runner = asyncio.Runner(loop_factory=uvloop.new_event_loop)
        self._store = self.run(parse_database(url).open(rng=random.SystemRandom()))
        self.ledger = Ledger(self._store, clock=SystemClock(), rng=random.SystemRandom())
        self.run(self.ledger.start())
        self._subnets = count()
        self._nodes = count()

    def run(self, work: Coroutine[object, object, T]) -> T:
        """Run something to its end."""
        return self._runner.run(work)

    def close(self) -> None:
        """Close the books."""
        self.run(self._store.close())
        self._runner.close()

    async def subnet(self, cidr: str) -> SubnetName:
        """Make a subnet that nobody has used."""
        name = SubnetName(network=f"network-{next(self._subnets)}", name="pods")
        await self.ledger.create_subnet(NewSubnet(network=name.network, name=name.name, cidr=cidr))
        return name

    async def clusters(self, number: int) -> list[Caller]:
        """Give as many clusters a leader."""
        callers = [Caller(self.ledger, f"cluster-{each}", self._nodes) for each in range(number)]
        for caller in callers:
            await caller.lead()
        return callers


class Caller:
    """A cluster's leader."""

    def __init__(self, ledger: Ledger, cluster: str, nodes: count[int]) -> None:
        self._ledger = ledger
        self._cluster = cluster
        self._nodes = nodes
        self._numbers = count(1)
        self._term = 0

    async def lead(self) -> None:
        """Open a term."""
        self._term = (await self._ledger.open_term(OpenTerm(cluster=self._cluster))).term
        self._numbers = count(1)

    def join(self, subnet: SubnetName) -> Awaitable[float]:
        """Have a node join with its first batch; tells how long that took."""
        node = f"node-{next(self._nodes)}"
        item = Item(subnet=subnet, node=node, node_uid=node, wanted=BATCH - 1, report=Report())
        call = Reconcile(cluster=self._cluster, term=self._term, number=next(self._numbers), items=(item,))
        return self._timed(call)

    async def _timed(self, call: Reconcile) -> float:
        begun = time.perf_counter()
        answer = await self._ledger.reconcile(call)
        state = answer.results[0].state
        if state is None or len(state.grants) < BATCH - 1:
            raise AssertionError(f"a batch was not granted: {answer.results[0]}")
        return time.perf_counter() - begun


@contextmanager
def on_postgres(server: Postgres) -> Iterator[Office]:
    """A ledger on a database of its own."""
    name = f"bench{next(databases)}"
    server.psql(f"CREATE DATABASE {name}")
    office = Office(server.url(name))
    try:
        yield office
    finally:
        office.close()
        server.psql(f"DROP DATABASE {name}")


@contextmanager
def on_sqlite() -> Iterator[Office]:
    """A ledger on a file."""
    with tempfile.TemporaryDirectory() as directory:
        office = Office(f"sqlite://{Path(directory) / 'ledger.db'}")
        try:
            yield office
        finally:
            office.close()
