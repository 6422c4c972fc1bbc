"""Scenario kube: cost of a watch event and a cached Pod, write throughput, lite API server."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import kubernetes

from bench.kube_feed import feeding
from bench.kube_reads import official_memory, official_watch, our_memory, our_watch
from bench.kube_writes import bare_writes, our_writes, prepare
from bench.lite_api_server import lite_api_fanout, lite_api_writes
from bench.measures import Median, Ratio
from bench.scenario import Effort, Scenario, Side, Trial
from parts.control_plane import ControlPlane

if TYPE_CHECKING:
    from collections.abc import Iterator

OURS, OFFICIAL, BARE, LITE_API = "podpool", "kubernetes (Python client)", "bare aiohttp", "lite API server"
WATCHES = 1000

EVENT_CPU = Ratio(
    id="watch-event-cpu-vs-official",
    what="CPU time of one Pod event, from the socket into the cache, at full speed: official client / podpool",
    goal=">= 20",
    ours=OURS,
    theirs=OFFICIAL,
    better="lower",
)
POD_MEMORY = Ratio(
    id="pod-memory-vs-official",
    what="memory of one cached Pod: official client / podpool",
    goal=">= 50",
    ours=OURS,
    theirs=OFFICIAL,
    better="lower",
)
WRITES = Ratio(
    id="client-writes-vs-bare",
    what="writes per second to a real API server, 16 at once: podpool's client / a bare loop that sends the same bytes",
    goal=">= 0.8",
    ours=OURS,
    theirs=BARE,
    better="higher",
)
LITE_API_WRITES = Median(
    id="lite-api-writes-per-second", what="writes to the lite API server over HTTP, 16 at once", side=LITE_API
)
LITE_API_FANOUT = Median(
    id="lite-api-watch-fanout-1000",
    what="events that 1,000 watches of an object receive from the lite API server over HTTP",
    side=LITE_API,
)
COUNTS = (EVENT_CPU, POD_MEMORY, WRITES, LITE_API_WRITES, LITE_API_FANOUT)


def reads(address: str, *, pods: int, events: int) -> tuple[Trial, ...]:
    """Trials of podpool's and the official client, on one feed."""
    version = kubernetes.__version__
    return (
        Trial(
            sides=(
                Side(OURS, partial(our_watch, address, events)),
                Side(OFFICIAL, partial(official_watch, address, events), version),
            ),
            unit="us",
            counts=(EVENT_CPU,),
            at_most=11,
        ),
        Trial(
            sides=(
                Side(OURS, partial(our_memory, address, pods)),
                Side(OFFICIAL, partial(official_memory, address, pods), version),
            ),
            unit="B",
            counts=(POD_MEMORY,),
            at_most=3,
        ),
    )


def writes(plane: ControlPlane, *, of_each: int) -> Trial:
    """Trial of podpool's client and a bare loop, on one API server."""
    sides = (Side(OURS, partial(our_writes, plane, of_each)), Side(BARE, partial(bare_writes, plane, of_each)))
    return Trial(sides=sides, unit="writes/s", counts=(WRITES,))


def lite_api_server(*, of_each: int) -> tuple[Trial, ...]:
    """Trials of the lite API server."""
    fanout = Side(LITE_API, partial(lite_api_fanout, WATCHES, of_each // 20))
    return (
        Trial(sides=(Side(LITE_API, partial(lite_api_writes, of_each)),), unit="writes/s", counts=(LITE_API_WRITES,)),
        Trial(sides=(fanout,), unit="events/s", counts=(LITE_API_FANOUT,)),
    )


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """Start a feed and a control plane for all trials."""
    pods, events = (200, 500) if effort.quick else (500, 2000)
    with tempfile.TemporaryDirectory() as home, feeding(pods=pods, events=events) as address:
        plane = ControlPlane(Path(home))
        try:
            plane.start()
            prepare(plane)
            yield (
                *reads(address, pods=pods, events=events),
                writes(plane, of_each=20 if effort.quick else 60),
                *lite_api_server(of_each=200 if effort.quick else 1000),
            )
        finally:
            plane.stop()


SCENARIO = Scenario(
    name="kube",
    summary="the client of the API server, compared to the official one and to a bare loop",
    ids=tuple(count.id for count in COUNTS),
    setup=trials,
)
