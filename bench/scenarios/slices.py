"""Whereabouts' world: ADDs of our plugin beside those of Whereabouts' own, with node slices and with shared ranges."""

from __future__ import annotations

import tempfile
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.counts import Median, Ratio
from bench.scenario import Effort, Scenario, Side, Trial
from bench.slices_adds import AT_ONCE, our_adds, p99, per_second, their_adds
from bench.slices_site import SliceSite
from parts.control_plane import ControlPlane
from parts.recipes import RECIPES

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bench.counts import Count

OURS, THEIRS = "podpool", "Whereabouts"
ROUNDS = 5
"""A turn of theirs takes ten seconds and more."""


def beside(mode: str, what: str, goal: str) -> Ratio:
    """Our ADDs per second beside theirs."""
    told = f"plugin ADDs per second, {AT_ONCE} at once, {what}: ours by Whereabouts'"
    return Ratio(id=f"{mode}-vs-whereabouts-16", what=told, goal=goal, ours=OURS, theirs=THEIRS, better="higher")


def slowest(mode: str, what: str, goal: str | None) -> Median:
    """The slowest of our ADDs, theirs beside them."""
    told = f"99 in 100 plugin ADDs, {AT_ONCE} at once, {what}, in ms; Whereabouts' beside them"
    return Median(id=f"{mode}-p99-ms", what=told, goal=goal, side=OURS)


SLICE = beside("slice", "node slices on both sides", ">= 100")
CLASSIC = beside("classic", "a range that all nodes share", ">= 5")
SLICE_P99 = slowest("slice", "node slices on both sides", "< 50")
CLASSIC_P99 = slowest("classic", "a range that all nodes share", None)


@contextmanager
def trials(effort: Effort) -> Iterator[tuple[Trial, ...]]:
    """One API server, one node of each."""
    with tempfile.TemporaryDirectory() as scratch:
        home = Path(scratch)
        plane = ControlPlane(home)
        site = SliceSite(plane, home)
        try:
            plane.start()
            site.begin()
            yield (
                both(site, SLICE, sliced=True, effort=effort),
                both(site, SLICE_P99, sliced=True, effort=effort),
                both(site, CLASSIC, sliced=False, effort=effort),
                both(site, CLASSIC_P99, sliced=False, effort=effort),
            )
        finally:
            site.stop()
            plane.stop()


def both(site: SliceSite, count: Count, *, sliced: bool, effort: Effort) -> Trial:
    """Ours and theirs in turn: as many of theirs as come at once, because they go one after the other."""
    figure = per_second if isinstance(count, Ratio) else p99
    many = 160 if effort.quick else 800
    ours = partial(our_adds, site, sliced=sliced, adds=many if sliced else many // 2, figure=figure)
    theirs = partial(their_adds, site, sliced=sliced, adds=AT_ONCE, figure=figure)
    version = next(recipe.version for recipe in RECIPES if recipe.name == "whereabouts")
    return Trial(
        sides=(Side(OURS, ours), Side(THEIRS, theirs, version)),
        unit="ADDs/s" if isinstance(count, Ratio) else "ms",
        counts=(count,),
        at_most=2 if effort.quick else ROUNDS,
        warmed=1,
    )


SCENARIO = Scenario(
    name="slices",
    sentence="secondary networks, beside Whereabouts",
    ids=(SLICE.id, SLICE_P99.id, CLASSIC.id, CLASSIC_P99.id),
    setup=trials,
)
