"""Scenario yield: how much of a subnet Pods get before one is refused, and how soon idle addresses serve other Pods.

A /22 and 60 nodes on the real parts; agents and load generator share one process. How late the load generator starts
events is measured, which shows whether it is the bottleneck.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from functools import cache, partial
from typing import TYPE_CHECKING

from bench.measures import Median
from bench.scenario import Effort, Run, Scenario, Side, Trial, each_turn
from bench.yield_load import Size
from bench.yield_runs import GRADED, Runs
from parts.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

EXHAUSTION, FIXED = "exhaustion", "fixed batch"
MODEL = "fixed batch and all-or-nothing grants (model)"
POLICIES = {GRADED: GRADED, EXHAUSTION: "exhaustion", FIXED: "off"}
"""Sides on the real parts, and the controller's --scarcity of each."""
LARGE = Size(cidr="10.0.0.0/22", nodes=60, reuse_seconds=60.0, steady_seconds=600.0)
SMALL = Size(cidr="10.0.0.0/25", nodes=6, reuse_seconds=10.0, steady_seconds=20.0)
ROUNDS = 2
"""A round takes about five minutes."""
CASE = "a /22 and 60 nodes, Pods arrive and depart at random"
REUSE = "a /22 and 60 nodes, full, Pods wait: from the DEL of a Pod until its address serves a Pod of another node"

YIELD = Median(
    id="yield-at-first-refusal",
    what=f"{CASE}: addresses of Pods when the first ADD fails, of those that Pods can have",
    goal=">= 0.98",
    side=GRADED,
)
LATE = Median(
    id="yield-load-late-ms-p99",
    what=f"{CASE}, 16.5 events a second: how late the load generator starts them, p99",
    goal="< 250",
    side=GRADED,
)
REUSE_P50 = Median(id="idle-to-reuse-seconds-p50", what=f"{REUSE}, p50", side=GRADED)
REUSE_P99 = Median(id="idle-to-reuse-seconds-p99", what=f"{REUSE}, p99", goal="< 30", side=GRADED)
OSCILLATIONS = Median(
    id="batch-oscillations",
    what="a /22 and 60 nodes, 85 % in use, as many arrivals as departures for ten minutes, run once: changes of batch, "
    "buffer or exhaustion that reverse the one before",
    goal="<= 0",
    side=GRADED,
)


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """Yield the trials; PostgreSQL is started on first use, a cluster for each run."""
    with ExitStack() as up:

        @cache
        def server() -> Postgres:
            made = Postgres()
            up.callback(made.remove)
            made.start()
            return made

        runs = Runs(server, SMALL if effort.quick else LARGE)

        def number(turn: int) -> int:
            return 0 if effort.quick else turn

        def share(scarcity: str, turn: int) -> float:
            return runs.fill(scarcity, number(turn)).share

        sides = {name: partial(share, scarcity) for name, scarcity in POLICIES.items()}
        yield (
            trial("share", YIELD, sides | {MODEL: lambda turn: runs.modelled(number(turn))}),
            trial("ms", LATE, {GRADED: lambda turn: 1e3 * runs.fill(GRADED, number(turn)).late}),
            trial("s", REUSE_P50, {GRADED: lambda turn: runs.reuse(0.50, number(turn))}),
            trial("s", REUSE_P99, {GRADED: lambda turn: runs.reuse(0.99, number(turn))}),
            trial("changes", OSCILLATIONS, {GRADED: lambda _: float(runs.oscillations())}),
        )


def trial(unit: str, count: Median, sides: dict[str, Run]) -> Trial:
    """Return a trial of few, long turns."""
    named = tuple(Side(name, each_turn(run)) for name, run in sides.items())
    return Trial(sides=named, unit=unit, counts=(count,), at_most=ROUNDS, warmed=0)


SCENARIO = Scenario(
    name="yield",
    summary="how full a subnet gets before a Pod is refused; how soon idle addresses are used again",
    ids=tuple(count.id for count in (YIELD, LATE, REUSE_P50, REUSE_P99, OSCILLATIONS)),
    setup=trials,
)
