"""Scenario slices: podpool's plugin beside Whereabouts', and many nodes with ten networks each.

One API server serves the plugins side by side, another the many nodes. Growth up to 5,000 nodes is a scenario of its
own, because such a cluster takes long to start. Figures with the same source come from one run.
"""

from __future__ import annotations

import os
import tempfile
import time
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from bench.controller_cluster import cpu_of
from bench.measures import Exponent, Median, Ratio
from bench.scenario import Effort, Run, Scenario, Side, Trial, each_turn
from bench.slices_adds import AT_ONCE, Adds, Turns
from bench.slices_burst import Burst, Bursts
from bench.slices_cluster import SliceSite
from bench.slices_growth import IP_POOL, OWN_SLICES, PROBES, Growth, Watchers
from bench.slices_nodes import ManyNodes
from parts.control_plane import ControlPlane
from parts.recipes import RECIPES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from bench.measures import Count

    Setup = Callable[[], AbstractContextManager[Run]]

Place = TypeVar("Place", SliceSite, ManyNodes)

OURS, THEIRS, THEIR_SLICES = "podpool", "Whereabouts", "Whereabouts, node slices"
VERSION = next(recipe.version for recipe in RECIPES if recipe.name == "whereabouts")
ROUNDS = 5
"""A turn of Whereabouts takes ten seconds or more."""
SIZES = (64, 512, 5_000)
SEED, SEED_ROUNDS = 256, 5
TWO_MINUTES = 120.0


def beside(mode: str, what: str, goal: str) -> Ratio:
    """Compare ADDs per second."""
    text = f"plugin ADDs per second, {AT_ONCE} at once, {what}: podpool / Whereabouts"
    return Ratio(id=f"{mode}-vs-whereabouts-16", what=text, goal=goal, ours=OURS, theirs=THEIRS, better="higher")


def alone(id_: str, what: str, goal: str | None = None) -> Median:
    """A result of podpool, with that of the peer if there is one."""
    return Median(id=id_, what=what, goal=goal, side=OURS)


SLICED, SHARED = "node slices on both sides", "a range that all nodes share"
P99 = f"p99 of plugin ADDs, {AT_ONCE} at once, {{}}"
SLICE, SLICE_P99 = beside("slice", SLICED, ">= 100"), alone("slice-p99-ms", P99.format(SLICED), "< 50")
SHARED_RANGE, SHARED_RANGE_P99 = (
    beside("shared-range", SHARED, ">= 5"),
    alone("shared-range-p99-ms", P99.format(SHARED)),
)

SEED_CASE = "256 nodes, a Pod with ten networks starts on each at once, plugin processes"
LARGE_CASE = (
    "5,000 nodes, a Pod with ten networks starts on each at once, agents in one process, 256 of them with their "
    "own connections, run once"
)
GIVEN, READ = (
    "until every address is assigned",
    "bytes from the API server per node, until the IPPools list all addresses",
)
SEED_SECONDS = alone("slice-seconds-256", f"{SEED_CASE}: {GIVEN}")
SEED_BYTES = alone("slice-bytes-per-node-256", f"{SEED_CASE}: {READ}")
CALLS = alone("slice-calls-per-add", f"{SEED_CASE}: API calls during an ADD", "<= 0")
BEST = Ratio(
    id="slice-256-vs-whereabouts",
    what=f"{SEED_CASE}: addresses assigned per second, podpool / the better of Whereabouts' modes in 2 minutes, once",
    ours=OURS,
    theirs=(THEIRS, THEIR_SLICES),
    better="higher",
)
LARGE_SECONDS = alone("slice-seconds-5000", f"{LARGE_CASE}: {GIVEN}")
LARGE_BYTES = alone("slice-bytes-per-node-5000", f"{LARGE_CASE}: {READ}")
LARGE_CALLS = alone("slice-calls-per-add-5000", f"{LARGE_CASE}: API calls during an ADD", "<= 0")
READS = Exponent(
    id="slice-node-read-growth-exponent",
    what="bytes that a node reads when it starts and a Pod with ten networks starts and stops, by number of nodes",
    goal="< 0.15",
    sizes=SIZES,
)
WRITE_CPU = Exponent(
    id="slice-pool-write-cpu-growth-exponent",
    what="CPU of the API server per write to an IPPool, by number of nodes that watch their NodeSlices",
    goal="< 0.15",
    sizes=SIZES,
)
OWN_WRITE_CPU = Exponent(
    id="node-slices-write-cpu-growth-exponent",
    what="CPU of the API server per write to a NodeSlices, by number of nodes that watch their own",
    goal="< 0.15",
    sizes=SIZES,
)
JOIN = alone(
    "slices-join-5000x10-seconds",
    "5,000 nodes register and join with ten sliced networks each, agents in one process, 256 of them with their own "
    "connections, run once: until every node may serve all ten",
    "< 300",
)
JOIN_CPU = {
    part: alone(f"slices-join-cpu-ms-{part}", f"CPU of {what} per node that joins with ten sliced networks")
    for part, what in (
        ("api-server", "the API server"),
        ("etcd", "etcd"),
        ("controller", "the controller"),
        ("agents", "the agents, with the load generator"),
    )
}
"""Where the time of a join goes."""
BESIDE = (SLICE, SLICE_P99, SHARED_RANGE, SHARED_RANGE_P99, WRITE_CPU, OWN_WRITE_CPU)
SEEDED = (SEED_SECONDS, CALLS, SEED_BYTES, BEST)
GROWING = (READS, LARGE_SECONDS, LARGE_CALLS, LARGE_BYTES)


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """Yield the trials on two API servers, each started on first use."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as up:

        @cache
        def site() -> SliceSite:
            return up.enter_context(started(SliceSite, Path(scratch) / "site"))

        @cache
        def cluster() -> ManyNodes:
            return up.enter_context(started(ManyNodes, Path(scratch) / "nodes"))

        @cache
        def watchers() -> Watchers:
            made = Watchers(site().plane)
            up.callback(made.close)
            return made

        yield (*side_by_side(site, effort), *write_cpu(watchers, effort), *seed_case(cluster, effort))


@contextmanager
def growing(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """Yield the growth trials on one API server."""
    with tempfile.TemporaryDirectory() as scratch, started(ManyNodes, Path(scratch) / "nodes") as cluster:
        yield tuple(many(cluster, effort))


@contextmanager
def joining(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """Yield the trial of a whole cluster that joins, on an API server of its own."""
    nodes = 24 if effort.quick else SIZES[-1]
    with tempfile.TemporaryDirectory() as scratch, started(ManyNodes, Path(scratch) / "nodes") as cluster:
        pids = {
            "api-server": cluster.plane.apiserver.pid,
            "etcd": cluster.plane.etcd.pid,
            "controller": cluster.controller.pid,
            "agents": os.getpid(),
        }

        @cache
        def joined() -> tuple[float, dict[str, float]]:
            begun, before = time.perf_counter(), {part: cpu_of(pid) for part, pid in pids.items()}
            cluster.crowd.run(cluster.grow_to(nodes))
            seconds = time.perf_counter() - begun
            return seconds, {part: 1e3 * (cpu_of(pid) - before[part]) / nodes for part, pid in pids.items()}

        def cpu(part: str, _: int) -> float:
            return joined()[1][part]

        yield (
            once(JOIN, "s", lambda _: joined()[0]),
            *(once(count, "ms", partial(cpu, part)) for part, count in JOIN_CPU.items()),
        )


@contextmanager
def started(kind: type[Place], home: Path) -> Iterator[Place]:
    """Start an API server with its clients, and yield them."""
    home.mkdir()
    plane = ControlPlane(home)
    made = kind(plane, home)
    try:
        plane.start()
        made.begin()
        yield made
    finally:
        made.stop()
        plane.stop()


def side_by_side(site: Callable[[], SliceSite], effort: Effort) -> Iterator[Trial]:
    """Trials of podpool and Whereabouts."""
    for sliced, ratio, slowest in ((True, SLICE, SLICE_P99), (False, SHARED_RANGE, SHARED_RANGE_P99)):
        many = (800 if sliced else 400) // (5 if effort.quick else 1)

        @cache
        def turns(*, sliced: bool = sliced, many: int = many) -> Turns:
            return Turns(site(), sliced=sliced, ours=many, theirs=AT_ONCE if effort.quick else 4 * AT_ONCE)

        def both(count: Count, unit: str, read: Callable[[Adds], float], turns: Callable[[], Turns] = turns) -> Trial:
            ours = each_turn(lambda turn: read(turns().ours(turn)))
            theirs = each_turn(lambda turn: read(turns().theirs(turn)))
            sides = (Side(OURS, ours), Side(THEIRS, theirs, VERSION))
            return trial(sides, unit, count, rounds=2 if effort.quick else ROUNDS, warmed=1)

        yield both(ratio, "ADDs/s", lambda adds: adds.per_second)
        yield both(slowest, "ms", lambda adds: adds.p99)


def write_cpu(watchers: Callable[[], Watchers], effort: Effort) -> Iterator[Trial]:
    """Trials of the API server's cost per write, by watches."""
    sizes = dict(zip(SIZES, (4, 16, 64) if effort.quick else SIZES, strict=True))
    writes = 50 if effort.quick else 200

    def at(nodes: int, of: str) -> Setup:
        return each_turn(lambda _: watchers().cpu_per_write(nodes, writes=writes, of=of))

    yield trial(by_size(sizes, partial(at, of=IP_POOL)), "us", WRITE_CPU, rounds=3, warmed=1)
    yield trial(by_size(sizes, partial(at, of=OWN_SLICES)), "us", OWN_WRITE_CPU, rounds=3, warmed=1)


def seed_case(cluster: Callable[[], ManyNodes], effort: Effort) -> Iterator[Trial]:
    """Trials of a burst: podpool, and Whereabouts' two modes within the timeout."""
    seed, seconds = (8, 20.0) if effort.quick else (SEED, TWO_MINUTES)

    @cache
    def bursts() -> Bursts:
        cluster().crowd.run(cluster().grow_to(seed))
        return Bursts(cluster(), nodes=seed, seconds=seconds)

    def ours(count: Count, unit: str, run: Run) -> Trial:
        return trial((Side(OURS, each_turn(run)),), unit, count, rounds=SEED_ROUNDS, warmed=1)

    yield ours(SEED_SECONDS, "s", lambda turn: bursts().ours(turn).seconds)
    yield ours(CALLS, "calls", lambda turn: bursts().ours(turn).calls_per_add)
    yield ours(SEED_BYTES, "bytes", lambda turn: bursts().ours(turn).bytes_per_node)
    sides = (
        Side(OURS, each_turn(lambda turn: bursts().ours(turn).per_second)),
        Side(THEIRS, each_turn(lambda _: bursts().theirs(sliced=False)), VERSION),
        Side(THEIR_SLICES, each_turn(lambda _: bursts().theirs(sliced=True)), VERSION),
    )
    yield trial(sides, "addresses/s", BEST, rounds=SEED_ROUNDS, warmed=1)


def many(cluster: ManyNodes, effort: Effort) -> Iterator[Trial]:
    """Trials of the bytes that a node reads, and of the largest cluster."""
    sizes = dict(zip(SIZES, (6, 12, 24) if effort.quick else SIZES, strict=True))
    growth = Growth(cluster, tuple(sizes.values()))
    bursts = Bursts(cluster, nodes=SEED, seconds=TWO_MINUTES)

    def reading(nodes: int) -> Setup:
        return each_turn(lambda turn: growth.bytes_read(nodes, turn))

    yield trial(by_size(sizes, reading), "bytes", READS, rounds=PROBES, warmed=0)

    def largest() -> Burst:
        growth.reach(sizes[SIZES[-1]])
        return bursts.simulated(0)

    yield once(LARGE_SECONDS, "s", lambda _: largest().seconds)
    yield once(LARGE_CALLS, "calls", lambda _: largest().calls_per_add)
    yield once(LARGE_BYTES, "bytes", lambda _: largest().bytes_per_node)


def once(count: Count, unit: str, run: Run) -> Trial:
    """Return a trial of something that takes minutes: it runs once, and both rounds get the same figure."""
    return trial((Side(OURS, each_turn(run)),), unit, count, rounds=2, warmed=0)


def by_size(sizes: Mapping[int, int], at: Callable[[int], Setup]) -> tuple[Side, ...]:
    """Return sides named by their sizes, also if a quick run uses smaller ones."""
    return tuple(Side(str(size), at(nodes)) for size, nodes in sizes.items())


def trial(sides: tuple[Side, ...], unit: str, count: Count, *, rounds: int, warmed: int) -> Trial:
    """Return a trial of few, long turns."""
    return Trial(sides=sides, unit=unit, counts=(count,), at_most=rounds, warmed=warmed)


SCENARIO = Scenario(
    name="slices",
    summary="secondary networks, beside Whereabouts; 256 nodes with ten of them",
    ids=tuple(count.id for count in (*BESIDE, *SEEDED)),
    setup=trials,
)
LARGE = Scenario(
    name="slices-growth",
    summary="up to 5,000 nodes with ten secondary networks each",
    ids=tuple(count.id for count in GROWING),
    setup=growing,
)
JOINING = Scenario(
    name="slices-join",
    summary="5,000 nodes join with ten secondary networks each",
    ids=(JOIN.id, *(count.id for count in JOIN_CPU.values())),
    setup=joining,
)
