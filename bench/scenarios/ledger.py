"""What the ledger does in a second, on both its databases, beside others on the same server; and how its cost grows.

Compared is the keeping of books: decisions and database, each side called from within one process, without HTTP, on the
same server with the same durability. Callers are not what limits either: those of the other sides take a sixth of the
CPU that the server takes for them, and ours only write down a call and wait.

Each batch is a new node's first call for 16 addresses. `podpool` and `skip-locked` answer it with the same promises:
term and number of the cluster are checked and raised, the container has a version and keeps its addresses when its node
asks again, addresses rest, what is reserved is one row's read, and a row tells what happened. (The ledger also decides
batch, exhaustion and whose turn it is.) `skip-locked-bare` promises none of it: an owner and a grant in 16 free rows.
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

from bench.counts import Exponent, Median, Ratio
from bench.ledgers import BATCH, databases, on_postgres, on_sqlite
from bench.scenario import Effort, Run, Scenario, Side, Trial, growth
from bench.skip_locked import BARE, ROWS, rows
from bench.timing import batched, spotted
from parts.postgres import Postgres
from podpool.ledger.domain.service import Ledger
from podpool.ledger.messages import Item, NewSubnet, OpenTerm, Reconcile, Report, SubnetName
from podpool.ledger.storage.sqlite.store import InlineStore

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager

    from bench.ledgers import Caller, Office
    from bench.skip_locked import Way

CALLERS = 16
CIDR = "10.0.0.0/16"
ADDRESSES = (1 << 16) - 2
STORM = 5_000
SMALL = "10.0.0.0/24"
SUBNET = SubnetName(network="vnet", name="pods")


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """One PostgreSQL for all."""
    server = Postgres()
    server.start()
    try:
        yield (
            batches(server, effort),
            one_caller(server, effort),
            *storms(server, effort),
            by_size(effort),
            by_fill(effort),
        )
    finally:
        server.remove()


def batches(server: Postgres, effort: Effort) -> Trial:
    """Sixteen callers on a /16, beside a row for each address, and beside what the server itself can do."""
    share = 600 if effort.quick else 3_600
    return Trial(
        sides=(
            Side("podpool", partial(joining, partial(on_postgres, server), callers=CALLERS, batches=share)),
            Side("skip-locked", partial(taking, server, ROWS, batches=share)),
            Side("skip-locked-bare", partial(taking, server, BARE, batches=share)),
            Side("pgbench", partial(pgbench, server, seconds=1 if effort.quick else 3)),
        ),
        unit="1/s",
        counts=(
            Ratio(
                id="ledger-vs-skip-locked",
                what="batches of 16 from a /16, PostgreSQL, 16 callers, against a row for each address, same promises",
                goal=">= 4",
                ours="podpool",
                theirs="skip-locked",
                better="higher",
            ),
            Ratio(
                id="ledger-vs-skip-locked-bare",
                what="the same against one that only marks free rows as taken",
                ours="podpool",
                theirs="skip-locked-bare",
                better="higher",
            ),
            Median(
                id="pgbench-simple-update",
                what="transactions of pgbench's simple update, 16 clients, on the same server: what it can do",
                side="pgbench",
            ),
        ),
        at_most=10,
    )


def one_caller(server: Postgres, effort: Effort) -> Trial:
    """One batch after the other."""
    share = 200 if effort.quick else 1_000
    return Trial(
        sides=(
            Side("sqlite", partial(joining, on_sqlite, callers=1, batches=share)),
            Side("postgresql", partial(joining, partial(on_postgres, server), callers=1, batches=share)),
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


def storms(server: Postgres, effort: Effort) -> Iterator[Trial]:
    """Every container of a large cluster asks for its first batch at the same moment."""
    size = STORM // 10 if effort.quick else STORM
    offices: dict[str, Callable[[], AbstractContextManager[Office]]] = {
        "sqlite": on_sqlite,
        "postgresql": partial(on_postgres, server),
    }
    for what, told in (("seconds", "until all have it"), ("worst-ms", "the longest that one waits")):
        yield Trial(
            sides=tuple(
                Side(name, partial(storming, office, size=size, tell=what)) for name, office in offices.items()
            ),
            unit="s" if what == "seconds" else "ms",
            counts=tuple(
                Median(
                    id=f"ledger-storm-{what}-{name}",
                    what=f"5,000 containers ask for their first 16 at once, {name}: {told}",
                    side=name,
                )
                for name in offices
            ),
            at_most=5,
        )


@contextmanager
def joining(on: Callable[[], AbstractContextManager[Office]], *, callers: int, batches: int) -> Iterator[Run]:
    """Nodes join, each with its first batch, in a subnet that is new each time."""

    async def measure(office: Office) -> float:
        subnet = await office.subnet(CIDR)
        clusters = await office.clusters(callers)
        turns = iter(range(batches))
        begun = time.perf_counter()
        await asyncio.gather(*(one_after_another(cluster, subnet, turns) for cluster in clusters))
        return batches / (time.perf_counter() - begun)

    with on() as office:
        yield lambda _: office.run(measure(office))


async def one_after_another(caller: Caller, subnet: SubnetName, turns: Iterator[int]) -> None:
    """Ask again as soon as there is an answer."""
    for _ in turns:
        await caller.join(subnet)


@contextmanager
def storming(on: Callable[[], AbstractContextManager[Office]], *, size: int, tell: str) -> Iterator[Run]:
    """All at once, from as many clusters as there are callers elsewhere."""

    async def measure(office: Office) -> float:
        subnet = await office.subnet("10.0.0.0/15")
        clusters = await office.clusters(CALLERS)
        begun = time.perf_counter()
        waits: list[Awaitable[float]] = [clusters[number % CALLERS].join(subnet) for number in range(size)]
        waited = await asyncio.gather(*waits)
        return time.perf_counter() - begun if tell == "seconds" else 1_000 * max(waited)

    with on() as office:
        yield lambda _: office.run(measure(office))


@contextmanager
def taking(server: Postgres, way: Way, *, batches: int) -> Iterator[Run]:
    """The same from rows."""
    with rows(server, way, callers=CALLERS) as table:

        def run(_: int) -> float:
            table.fill(ADDRESSES)
            return table.take(batches)

        yield run


@contextmanager
def pgbench(server: Postgres, *, seconds: int) -> Iterator[Run]:
    """PostgreSQL's own program: one small update and one insert in each transaction."""
    name = f"bench{next(databases)}"
    server.psql(f"CREATE DATABASE {name}")
    words = [str(server.bin / "pgbench"), "-h", str(server.home), "-U", "postgres"]
    subprocess.run([*words, "-i", "-q", "-s", "10", name], check=True, capture_output=True)

    def run(_: int) -> float:
        load = ["-N", "-n", "-M", "prepared", "-c", str(CALLERS), "-T", str(seconds)]
        told = subprocess.run([*words, *load, name], check=True, capture_output=True, text=True).stdout
        return float(re.findall(r"tps = ([\d.]+)", told)[-1])

    try:
        yield run
    finally:
        server.psql(f"DROP DATABASE {name}")


def by_size(effort: Effort) -> Trial:
    """From a /24 to a /12; nearly full, where it is hardest."""
    prefixes = (24, 20, 16) if effort.quick else (24, 20, 16, 12)

    @contextmanager
    def at(size: int) -> Iterator[Run]:
        yield batched(exchanging(32 - size.bit_length() + 1, percent=99), at_least=effort.batch_seconds)

    return growth(
        count="ledger-growth-exponent",
        what="eight grants let go of and eight given anew, by the size of a subnet that is 99 % full",
        goal="< 0.15",
        sizes=tuple(1 << (32 - prefix) for prefix in prefixes),
        at=at,
    )


def by_fill(effort: Effort) -> Trial:
    """From 1 % to 99 % of a /16."""
    percents = (1, 10, 99)

    @contextmanager
    def at(percent: int) -> Iterator[Run]:
        yield batched(exchanging(16, percent=percent), at_least=effort.batch_seconds)

    sides = tuple(Side(str(percent), partial(at, percent)) for percent in percents)
    what = "eight grants let go of and eight given anew, by how full a /16 is"
    exponent = Exponent(id="ledger-fill-growth-exponent", what=what, goal="< 0.15", sizes=percents)
    return Trial(sides=sides, unit="ns", counts=(exponent,))


def exchanging(prefix: int, *, percent: int) -> Callable[[int], float]:
    """A ledger on books in memory, filled, with a few containers that exchange their addresses."""
    desk = Desk(prefix)
    capacity = (1 << (32 - prefix)) - 2
    desk.fill(capacity * percent // 100)
    chance = random.Random(prefix)  # noqa: S311  the same each time
    return spotted(desk.exchange, before=lambda: chance.choice(desk.nodes))


class Desk:
    """One caller of a ledger that answers at once."""

    def __init__(self, prefix: int) -> None:
        rng = random.Random(1)  # noqa: S311  the same each time
        self._ledger = Ledger(InlineStore(), clock=_StandingClock(), rng=rng)
        new = NewSubnet(
            network=SUBNET.network,
            name=SUBNET.name,
            cidr=f"10.0.0.0/{prefix}",
            cooldown=0.0,
            cooldown_exhausted=0.0,
            reserved_for_primaries=0,
        )
        _done(self._ledger.create_subnet(new))
        self._term = _done(self._ledger.open_term(OpenTerm(cluster="c1"))).term
        self._numbers = count(1)
        self._held: dict[str, tuple[str, ...]] = {}
        self.nodes = [f"small-{number}" for number in range(8)]

    def fill(self, addresses: int) -> None:
        """Give so many away: to the small containers first, then to large ones."""
        for node in self.nodes[: max(1, addresses // BATCH)]:
            self._ask(node, wanted=8)
            addresses -= 9
        self.nodes = list(self._held)
        for number in count():
            if addresses < 2:
                return
            wanted = min(addresses - 1, 1 << 12)
            self._ask(f"large-{number}", wanted=wanted)
            addresses -= wanted + 1

    def exchange(self, node: str) -> None:
        """Let go of all and ask for as many."""
        self._ask(node, wanted=8, released=self._held[node])

    def _ask(self, node: str, *, wanted: int, released: tuple[str, ...] = ()) -> None:
        item = Item(subnet=SUBNET, node=node, node_uid=node, wanted=wanted, released=released, report=Report())
        call = Reconcile(cluster="c1", term=self._term, number=next(self._numbers), items=(item,))
        state = _done(self._ledger.reconcile(call)).results[0].state
        if state is None or len(state.grants) < wanted:
            raise AssertionError(f"{node} was not given {wanted} addresses")
        self._held[node] = tuple(grant.id for grant in state.grants)


class _StandingClock:
    """Time that stands still."""

    def wall(self) -> float:
        """Tell the one moment."""
        return 1_000_000.0

    def boot(self) -> float:
        """Tell the same."""
        return 1_000_000.0


def _done(call: Any) -> Any:  # noqa: ANN401  whatever the call returns
    """Run what never waits, as nothing does on books in memory."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits")


SCENARIO = Scenario(
    name="ledger",
    sentence="batches from a subnet, on both databases and beside others; storms; growth",
    ids=(
        "ledger-vs-skip-locked",
        "ledger-vs-skip-locked-bare",
        "pgbench-simple-update",
        "ledger-sqlite-vs-postgresql",
        *(f"ledger-storm-{what}-{name}" for what in ("seconds", "worst-ms") for name in ("sqlite", "postgresql")),
        "ledger-growth-exponent",
        "ledger-fill-growth-exponent",
    ),
    setup=trials,
)
