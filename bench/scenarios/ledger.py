"""Throughput of the ledger on both databases, compared to other designs on the same server; and how its cost grows.

The comparison covers decisions and database: each side is called within one process, without HTTP, on the same server
with the same durability. The callers limit neither side: those of the other designs take a sixth of the CPU that the
server takes for them, and ours only queue a call and wait.

Each batch is a new node's first call for 16 addresses. `podpool` and `skip-locked` give the same guarantees: term and
number of the cluster are checked and raised, the network container has a version and keeps its addresses when the call
is repeated, addresses cool down, the reserved count is read from one row, and a row records the event. (The ledger also
computes batch, exhaustion and the fair queue.) `skip-locked-bare` guarantees none of it: it only marks 16 rows.
"""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import time
from contextlib import contextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

from bench.ledgers import BATCH, databases, on_postgres, on_sqlite
from bench.measures import Exponent, Median, Ratio
from bench.scenario import Effort, Run, Scenario, Side, Trial, growth
from bench.skip_locked import BARE, ROWS, address_table
from bench.timing import batched, spotted
from parts.postgres import Postgres
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.messages import (
    DemandReport,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    SubnetName,
    SubnetSpec,
)
from podpool.ledger.storage.sqlite.store import InlineSqliteStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager

    from bench.ledgers import Caller, MeasuredLedger
    from bench.skip_locked import Design

CALLERS = 16
CIDR = "10.0.0.0/16"
ADDRESSES = (1 << 16) - 2
BURST = 5_000
SMALL = "10.0.0.0/24"
SUBNET = SubnetName(network="vnet", name="pods")


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """All trials, on one PostgreSQL server."""
    server = Postgres()
    server.start()
    try:
        yield (
            batches(server, effort),
            one_caller(server, effort),
            *bursts(server, effort),
            by_size(effort),
            by_fill(effort),
        )
    finally:
        server.remove()


def batches(server: Postgres, effort: Effort) -> Trial:
    """Sixteen callers on a /16, compared to one row per address and to pgbench."""
    share = 600 if effort.quick else 3_600
    return Trial(
        sides=(
            Side("podpool", partial(first_batches, partial(on_postgres, server), callers=CALLERS, batches=share)),
            Side("skip-locked", partial(row_batches, server, ROWS, batches=share)),
            Side("skip-locked-bare", partial(row_batches, server, BARE, batches=share)),
            Side("pgbench", partial(pgbench, server, seconds=1 if effort.quick else 3)),
        ),
        unit="1/s",
        counts=(
            Ratio(
                id="ledger-vs-skip-locked",
                what="batches of 16 from a /16, PostgreSQL, 16 callers, against one row per address, same guarantees",
                goal=">= 4",
                ours="podpool",
                theirs="skip-locked",
                better="higher",
            ),
            Ratio(
                id="ledger-vs-skip-locked-bare",
                what="the same against a statement that only marks free rows",
                ours="podpool",
                theirs="skip-locked-bare",
                better="higher",
            ),
            Median(
                id="pgbench-simple-update",
                what="pgbench simple-update transactions, 16 clients, same server, for reference",
                side="pgbench",
            ),
        ),
        at_most=10,
    )


def one_caller(server: Postgres, effort: Effort) -> Trial:
    """One caller, sequential batches."""
    share = 200 if effort.quick else 1_000
    return Trial(
        sides=(
            Side("sqlite", partial(first_batches, on_sqlite, callers=1, batches=share)),
            Side("postgresql", partial(first_batches, partial(on_postgres, server), callers=1, batches=share)),
        ),
        unit="1/s",
        counts=(
            Ratio(
                id="ledger-sqlite-vs-postgresql",
                what="batches of 16 from a /16, one caller, SQLite against PostgreSQL",
                goal=">= 1",
                ours="sqlite",
                theirs="postgresql",
                better="higher",
            ),
        ),
        at_most=10,
    )


def bursts(server: Postgres, effort: Effort) -> Iterator[Trial]:
    """Every node of a large cluster requests its first batch at the same time."""
    size = BURST // 10 if effort.quick else BURST
    ledgers: dict[str, Callable[[], AbstractContextManager[MeasuredLedger]]] = {
        "sqlite": on_sqlite,
        "postgresql": partial(on_postgres, server),
    }
    for metric, label in (("seconds", "until all have them"), ("worst-ms", "longest wait")):
        yield Trial(
            sides=tuple(
                Side(name, partial(burst, measured, size=size, metric=metric)) for name, measured in ledgers.items()
            ),
            unit="s" if metric == "seconds" else "ms",
            counts=tuple(
                Median(
                    id=f"ledger-burst-{metric}-{name}",
                    what=f"5,000 nodes request their first 16 addresses at once, {name}: {label}",
                    side=name,
                )
                for name in ledgers
            ),
            at_most=5,
        )


@contextmanager
def first_batches(
    on: Callable[[], AbstractContextManager[MeasuredLedger]], *, callers: int, batches: int
) -> Iterator[Run]:
    """Nodes request their first batch, in a new subnet for each run."""

    async def measure(measured: MeasuredLedger) -> float:
        subnet = await measured.subnet(CIDR)
        clusters = await measured.clusters(callers, network=subnet.network)
        remaining = iter(range(batches))
        start = time.perf_counter()
        await asyncio.gather(*(sequential_calls(cluster, subnet, remaining) for cluster in clusters))
        return batches / (time.perf_counter() - start)

    with on() as measured:
        yield lambda _: measured.run(measure(measured))


async def sequential_calls(caller: Caller, subnet: SubnetName, remaining: Iterator[int]) -> None:
    """Call again after each response."""
    for _ in remaining:
        await caller.join(subnet)


@contextmanager
def burst(on: Callable[[], AbstractContextManager[MeasuredLedger]], *, size: int, metric: str) -> Iterator[Run]:
    """All nodes at once, from 16 clusters."""

    async def measure(measured: MeasuredLedger) -> float:
        subnet = await measured.subnet("10.0.0.0/15")
        clusters = await measured.clusters(CALLERS, network=subnet.network)
        start = time.perf_counter()
        waits: list[Awaitable[float]] = [clusters[number % CALLERS].join(subnet) for number in range(size)]
        waited = await asyncio.gather(*waits)
        return time.perf_counter() - start if metric == "seconds" else 1_000 * max(waited)

    with on() as measured:
        yield lambda _: measured.run(measure(measured))


@contextmanager
def row_batches(server: Postgres, design: Design, *, batches: int) -> Iterator[Run]:
    """The same batches from one row per address."""
    with address_table(server, design, callers=CALLERS) as table:

        def run(_: int) -> float:
            table.fill(ADDRESSES)
            return table.allocate(batches)

        yield run


@contextmanager
def pgbench(server: Postgres, *, seconds: int) -> Iterator[Run]:
    """PostgreSQL's benchmark: one small update and one insert per transaction."""
    name = f"bench{next(databases)}"
    server.psql(f"CREATE DATABASE {name}")
    command = [str(server.bin / "pgbench"), "-h", str(server.home), "-U", "postgres"]
    subprocess.run([*command, "-i", "-q", "-s", "10", name], check=True, capture_output=True)

    def run(_: int) -> float:
        load = ["-N", "-n", "-M", "prepared", "-c", str(CALLERS), "-T", str(seconds)]
        output = subprocess.run([*command, *load, name], check=True, capture_output=True, text=True).stdout
        return float(re.findall(r"tps = ([\d.]+)", output)[-1])

    try:
        yield run
    finally:
        server.psql(f"DROP DATABASE {name}")


def by_size(effort: Effort) -> Trial:
    """From a /24 to a /12, nearly full, which is the hardest case."""
    prefixes = (24, 20, 16) if effort.quick else (24, 20, 16, 12)

    @contextmanager
    def at(size: int) -> Iterator[Run]:
        yield batched(releases_and_grants(32 - size.bit_length() + 1, percent=99), at_least=effort.batch_seconds)

    return growth(
        count="ledger-growth-exponent",
        what="eight grants released and eight granted, by the size of a subnet that is 99 % full",
        goal="< 0.15",
        sizes=tuple(1 << (32 - prefix) for prefix in prefixes),
        at=at,
    )


def by_fill(effort: Effort) -> Trial:
    """From 1 % to 99 % of a /16."""
    percents = (1, 10, 99)

    @contextmanager
    def at(percent: int) -> Iterator[Run]:
        yield batched(releases_and_grants(16, percent=percent), at_least=effort.batch_seconds)

    sides = tuple(Side(str(percent), partial(at, percent)) for percent in percents)
    what = "eight grants released and eight granted, by how full a /16 is"
    exponent = Exponent(id="ledger-fill-growth-exponent", what=what, goal="< 0.15", sizes=percents)
    return Trial(sides=sides, unit="ns", counts=(exponent,))


def releases_and_grants(prefix: int, *, percent: int) -> Callable[[int], float]:
    """Measure releases and grants on a filled database in memory."""
    inline = InlineLedger(prefix)
    capacity = (1 << (32 - prefix)) - 2
    inline.fill(capacity * percent // 100)
    rng = random.Random(prefix)  # noqa: S311  reproducible
    return spotted(inline.release_and_grant, before=lambda: rng.choice(inline.nodes))


class InlineLedger:
    """A ledger in memory whose calls never wait."""

    def __init__(self, prefix: int) -> None:
        rng = random.Random(1)  # noqa: S311  reproducible
        self._ledger = LedgerService(InlineSqliteStore(), clock=_FixedClock(), rng=rng)
        new = SubnetSpec(
            network=SUBNET.network,
            name=SUBNET.name,
            cidr=f"10.0.0.0/{prefix}",
            cooldown_roomy=0.0,
            cooldown_filling=0.0,
            cooldown_exhausted=0.0,
            reserved_for_primaries=0,
        )
        _done(self._ledger.admin.create_subnet(new))
        self._term = _done(self._ledger.open_term(OpenTermRequest(cluster="c1"))).term
        self._numbers = count(1)
        self._held: dict[str, tuple[str, ...]] = {}
        self.nodes = [f"small-{number}" for number in range(8)]

    def fill(self, addresses: int) -> None:
        """Allocate addresses: to small network containers first, then to large ones."""
        for node in self.nodes[: max(1, addresses // BATCH)]:
            self._call(node, wanted=8)
            addresses -= 9
        self.nodes = list(self._held)
        for number in count():
            if addresses < 2:
                return
            wanted = min(addresses - 1, 1 << 12)
            self._call(f"large-{number}", wanted=wanted)
            addresses -= wanted + 1

    def release_and_grant(self, node: str) -> None:
        """Release all addresses of a node and request as many."""
        self._call(node, wanted=8, released=self._held[node])

    def _call(self, node: str, *, wanted: int, released: tuple[str, ...] = ()) -> None:
        item = ReconcileItem(
            subnet=SUBNET, node=node, node_uid=node, wanted=wanted, released=released, report=DemandReport()
        )
        call = ReconcileRequest(cluster="c1", term=self._term, number=next(self._numbers), items=(item,))
        state = _done(self._ledger.reconcile(call)).results[0].state
        if state is None or len(state.grants) < wanted:
            raise AssertionError(f"{node} was not granted {wanted} addresses")
        self._held[node] = tuple(grant.id for grant in state.grants)


class _FixedClock:
    """A clock that does not advance."""

    def wall(self) -> float:
        """Return the fixed time."""
        return 1_000_000.0

    def boot(self) -> float:
        """Return the fixed time."""
        return 1_000_000.0


def _done(call: Any) -> Any:  # noqa: ANN401  any return type
    """Run a call that never waits."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("the call waits")


SCENARIO = Scenario(
    name="ledger",
    summary="batches from a subnet, on both databases and compared to other designs; bursts; growth",
    ids=(
        "ledger-vs-skip-locked",
        "ledger-vs-skip-locked-bare",
        "pgbench-simple-update",
        "ledger-sqlite-vs-postgresql",
        *(f"ledger-burst-{what}-{name}" for what in ("seconds", "worst-ms") for name in ("sqlite", "postgresql")),
        "ledger-growth-exponent",
        "ledger-fill-growth-exponent",
    ),
    setup=trials,
)
