"""Scenario controller: joining nodes, changing requests and idle writes, beside a bare loop of the same writes.

API server, etcd, PostgreSQL, ledger and controller share one machine with the load generator. The bare loop shows
that the load generator is not the bottleneck: alone it writes more than all of them with the controller.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

from bench.controller_cluster import site
from bench.measures import Exponent, Median, Ratio
from bench.nnc_changes import Standing
from bench.node_join import Joins
from bench.scenario import Effort, Run, Scenario, Side, Trial, each_turn
from parts.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

OURS, BARE = "podpool", "bare aiohttp"
SIZES = (100, 1_000, 5_000)
GENTLE = 50.0
"""Changes per second that all components sustain."""


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """Start one PostgreSQL for all trials; clusters are started on first use."""
    server = Postgres()
    server.start()
    small, middle, large = (20, 40, 100) if effort.quick else SIZES
    with ExitStack() as up:
        up.callback(server.remove)
        joins = Joins(server)

        @cache
        def stands(nodes: int) -> Standing:
            place = up.enter_context(site(server, nodes))
            place.join(nodes)
            return Standing(place, nodes)

        changes = 20 if effort.quick else 500
        yield (
            *joining(joins, dict(zip(SIZES, (small, middle, large), strict=True))),
            by_size(stands, dict(zip(SIZES, (small, middle, large), strict=True)), changes=min(changes, small)),
            *changing(joins, stands, middle=middle, large=large, changes=changes),
            quiet(stands, large),
        )


def joining(joins: Joins, sizes: dict[int, int]) -> Iterator[Trial]:
    """Trials of nodes that join at once."""
    yield Trial(
        sides=(
            Side(OURS, each_turn(lambda turn: joins.of(sizes[1_000], turn).writes_per_second)),
            Side(BARE, each_turn(lambda turn: joins.bare(sizes[1_000], turn))),
        ),
        unit="writes/s",
        counts=(
            Ratio(
                id="join-writes-vs-bare",
                what="1,000 nodes join at once: writes per second, the controller / a bare loop",
                goal=">= 0.7",
                ours=OURS,
                theirs=BARE,
                better="higher",
            ),
        ),
        at_most=5,
        warmed=1,
    )
    yield single(
        "join-calls-per-node",
        "API calls of the controller per joining node",
        lambda turn: joins.of(sizes[1_000], turn).calls_per_node,
        unit="calls",
        goal="<= 3",
        at_most=5,
    )
    for size in SIZES:
        yield single(
            f"join-seconds-{size}",
            f"{size:,} nodes join at once: until every NNC has its network container",
            partial(_join_seconds, joins, sizes[size]),
            unit="s",
        )
    yield single(
        "controller-memory-mib",
        "memory of the controller with 5,000 nodes",
        lambda turn: joins.of(sizes[5_000], turn).memory,
        unit="MiB",
    )


def by_size(stands: Callable[[int], Standing], sizes: dict[int, int], *, changes: int) -> Trial:
    """Trial of the cost per change, from 100 to 5,000 nodes."""

    def at(nodes: int) -> Callable[[], AbstractContextManager[Run]]:
        return each_turn(lambda _: stands(nodes).cpu_per_change(changes, rate=GENTLE))

    what = "CPU of controller and ledger per NNC change, by number of nodes"
    exponent = Exponent(id="change-growth-exponent", what=what, goal="< 0.15", sizes=SIZES)
    sides = tuple(Side(str(size), at(nodes)) for size, nodes in sizes.items())
    return Trial(sides=sides, unit="us", counts=(exponent,), at_most=7, warmed=1)


def changing(
    joins: Joins, stands: Callable[[int], Standing], *, middle: int, large: int, changes: int
) -> Iterator[Trial]:
    """Trials at half the change rate of a bare loop; a change is two writes, request and status."""

    def rate() -> float:
        return joins.bare(middle, 1) / 2 / 2

    for quantile in ("p50", "p99"):
        yield single(
            f"change-ms-{quantile}",
            f"5,000 nodes, half the change rate of a bare loop: spec to status, {quantile}",
            partial(_change_ms, stands, rate, quantile, large, changes),
            unit="ms",
            at_most=3,
        )
    yield single("change-rate", "rate of these changes", lambda _: rate(), unit="1/s")


def quiet(stands: Callable[[int], Standing], nodes: int) -> Trial:
    """Trial of an idle cluster."""
    return single(
        "steady-writes",
        "writes of the controller in 30 idle s, 5,000 nodes, without its Lease",
        lambda _: float(stands(nodes).writes_while_quiet()),
        unit="writes",
        goal="= 0",
    )


def single(id_: str, what: str, run: Run, *, unit: str, goal: str | None = None, at_most: int = 2) -> Trial:
    """Return a trial without a peer."""
    count = Median(id=id_, what=what, goal=goal, side=OURS)
    return Trial(sides=(Side(OURS, each_turn(run)),), unit=unit, counts=(count,), at_most=at_most, warmed=1)


def _join_seconds(joins: Joins, nodes: int, turn: int) -> float:
    return joins.of(nodes, turn).seconds


def _change_ms(
    stands: Callable[[int], Standing], rate: Callable[[], float], quantile: str, nodes: int, changes: int, turn: int
) -> float:
    return float(getattr(stands(nodes).delay(turn, changes, rate()), quantile))


SCENARIO = Scenario(
    name="controller",
    summary="nodes that join at once, beside a bare loop of the same writes; requests that change; quiet",
    ids=(
        "join-writes-vs-bare",
        "join-calls-per-node",
        *(f"join-seconds-{size}" for size in SIZES),
        "controller-memory-mib",
        "change-growth-exponent",
        "change-ms-p50",
        "change-ms-p99",
        "change-rate",
        "steady-writes",
    ),
    setup=trials,
)
