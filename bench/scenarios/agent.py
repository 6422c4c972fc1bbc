"""Scenario agent: ADD beside host-local, under load and after a burst; memory, start time, journal."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.agent_adds import host_local_adds, our_adds
from bench.agent_cluster import USUAL, AgentSite
from bench.agent_process import (
    burst_writes,
    calls_per_add,
    journalled,
    memory,
    p99_under_load,
    start_to_serving,
)
from bench.measures import Exponent, Median, Ratio
from bench.scenario import Effort, Scenario, Side, Trial, growth
from parts.control_plane import ControlPlane
from parts.recipes import RECIPES

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from bench.agent_cluster import BenchNode

OURS, THEIRS = "podpool", "host-local"
IN_USE = (1, 110, 1000)
SIZES = (10, 300, 10_000)


def beside_host_local(suffix: str, what: str) -> Ratio:
    """Compare an ADD of podpool with one of host-local."""
    text = f"plugin ADD, process start to exit, {what}: host-local / podpool"
    return Ratio(id=f"add-vs-host-local-{suffix}", what=text, goal=">= 5", ours=OURS, theirs=THEIRS, better="lower")


def alone(name: str, what: str, goal: str) -> Median:
    """A result without a peer."""
    return Median(id=name, what=what, goal=goal, side=OURS)


ONE = beside_host_local("1", "sequential, 110 addresses in use")
MANY = beside_host_local("16", "16 at once, 110 addresses in use")
EMPTY = beside_host_local("1-first", "sequential, no address in use")
FULL_NODE = beside_host_local("1-at-1000", "sequential, 1,000 addresses in use")
P99 = alone(
    "agent-add-p99-us",
    "p99 of ADDs at 1,000/s, from request frame to response, from the agent's histogram",
    "< 1000",
)
CALLS = alone("dynamic-calls-per-add", "API calls of the agent per Pod that starts and stops", "<= 0")
BURST = alone(
    "burst-writes-per-node",
    "successful writes of the agent when 35 Pods start at once, until it is granted their addresses",
    "<= 1",
)
MEMORY = alone("agent-memory-mib", "RSS of `podpool agent run`, TLS, 60 s after 110 ADDs", "< 50")
START = alone("agent-start-seconds", "process start to the first ADD response, 250 addresses in use", "< 1")
FLAT = Exponent(
    id="add-growth-exponent", what="plugin ADD from 1 to 1,000 addresses in use", goal="< 0.15", sizes=IN_USE
)
JOURNAL = "journal-growth-exponent"
IDS = (*(each.id for each in (ONE, MANY, EMPTY, FULL_NODE, P99, CALLS, BURST, MEMORY, START, FLAT)), JOURNAL)


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """Start a cluster with a node per number of addresses in use, and two with default settings."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        plane = ControlPlane(home)
        site = AgentSite(plane, home)
        try:
            plane.start()
            site.begin()
            nodes = {count: site.node(f"node-{count}").holds(1023) for count in IN_USE}
            nodes[1000].fill(500)  # it requests more meanwhile
            nodes[1000].holds(1500)
            for count, node in nodes.items():
                node.fill(count)
            usual = site.node("usual", subnet=USUAL, options=("--settings", "shrink_hold=500ms")).holds(15)
            yield (*plugins(nodes, home, effort), *lives(nodes, usual, effort), journal(effort))
        finally:
            site.stop()
            plane.stop()


def plugins(nodes: Mapping[int, BenchNode], home: Path, effort: Effort) -> tuple[Trial, ...]:
    """Trials of podpool and host-local."""
    of_each = 20 if effort.quick else 50
    versions = next(recipe.version for recipe in RECIPES if recipe.name == "cni")

    def against(count: Ratio, in_use: int, at_once: int) -> Trial:
        ours = partial(our_adds, nodes[max(in_use, 1)], at_once=at_once, of_each=of_each)
        theirs = partial(host_local_adds, home, in_use=in_use, at_once=at_once, of_each=of_each)
        return Trial(sides=(Side(OURS, ours), Side(THEIRS, theirs, versions)), unit="ms", counts=(count,))

    flat = tuple(Side(str(in_use), partial(our_adds, nodes[in_use], at_once=1, of_each=of_each)) for in_use in IN_USE)
    return (
        against(ONE, 110, 1),
        against(MANY, 110, 16),
        against(EMPTY, 0, 1),
        against(FULL_NODE, 1000, 1),
        Trial(sides=flat, unit="ms", counts=(FLAT,)),
    )


def lives(nodes: Mapping[int, BenchNode], usual: BenchNode, effort: Effort) -> tuple[Trial, ...]:
    """Trials of podpool without a peer."""
    roomy = nodes[110]
    load = partial(p99_under_load, nodes[1], per_second=1000, seconds=0.5 if effort.quick else 0.9)
    wait = 5.0 if effort.quick else 60.0
    return (
        Trial(sides=(Side(OURS, load),), unit="us", counts=(P99,), at_most=11),
        Trial(sides=(Side(OURS, partial(calls_per_add, roomy, adds=100)),), unit="calls", counts=(CALLS,), at_most=5),
        Trial(sides=(Side(OURS, partial(burst_writes, usual)),), unit="writes", counts=(BURST,), at_most=5),
        Trial(
            sides=(Side(OURS, partial(start_to_serving, roomy, assigned=250)),), unit="s", counts=(START,), at_most=7
        ),
        Trial(
            sides=(Side(OURS, partial(memory, usual, pods=110, seconds=wait)),), unit="MiB", counts=(MEMORY,), at_most=2
        ),
    )


def journal(effort: Effort) -> Trial:
    """Trial of the journal."""
    return growth(
        count=JOURNAL,
        what="one ADD and its DEL in journal and pool, after 10 to 10,000 of them",
        goal="< 0.15",
        sizes=SIZES,
        at=partial(journalled, batch_seconds=effort.batch_seconds),
    )


SCENARIO = Scenario(name="agent", summary="the agent and the plugin, beside host-local", ids=IDS, setup=trials)
