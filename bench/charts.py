"""Charts in docs/pictures: ratios with their goals, and cost over size.

Drawn from results alone and reproducible byte for byte: no date, no creator, fixed salt for SVG ids. Text stays text.
"""

from __future__ import annotations

from io import StringIO
from itertools import groupby
from math import floor, log10
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from bench.goals import limit, met

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes
    from matplotlib.typing import RcKeyType

    from bench.results import Result

_STYLE: dict[RcKeyType, Any] = {
    "svg.hashsalt": "podpool",
    "svg.fonttype": "none",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_MET, _MISSED, _GOAL = "#2a7f62", "#c0392b", "#555555"


def draw(results: Sequence[Result], folder: Path) -> list[str]:
    """Draw the charts of the results, each as NAME.svg in the folder; return the names."""
    ratios = [result for result in results if result.unit == "ratio"]
    exponents = sorted((result for result in results if result.unit == "exponent"), key=_growth_name)
    with mpl.rc_context(_STYLE):
        pictures = {"ratios": draw_ratios(ratios)} if ratios else {}
        pictures |= {name: draw_growth(list(group)) for name, group in groupby(exponents, key=_growth_name)}
        for name, figure in pictures.items():
            _save(figure, folder / f"{name}.svg")
    return list(pictures)


def draw_ratios(results: Sequence[Result]) -> Figure:
    """Draw one bar per ratio on a logarithmic axis, with a mark at its goal."""
    figure = Figure(figsize=(8, 1.2 + 0.4 * len(results)), layout="constrained")
    axes = figure.subplots()
    for row, result in enumerate(results):
        colour = _MISSED if met(result.goal, result.value) is False else _MET
        # from 1, "as good as the other", to either side
        axes.barh(row, result.value - 1, left=1, height=0.6, color=colour)
        if result.goal:
            axes.plot([limit(result.goal)] * 2, [row - 0.42, row + 0.42], color=_GOAL, linewidth=2)
    axes.set_xscale("log")
    axes.xaxis.set_major_formatter(FuncFormatter(_plain))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(results)), [result.id for result in results])
    axes.invert_yaxis()
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_xlabel("times better than theirs; the stroke is the goal, red misses it")
    return figure


def draw_growth(results: Sequence[Result]) -> Figure:
    """Draw one line per operation, cost over size, both axes logarithmic."""
    figure = Figure(figsize=(8, 4.5), layout="constrained")
    axes = figure.subplots()
    for result in results:
        _draw_costs(axes, result)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_ylim(*_decades(results))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(LogLocator())
        axis.set_major_formatter(FuncFormatter(_plain))
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel("size")
    axes.set_ylabel(f"cost of one operation, {results[0].measured_in}")
    axes.grid(visible=True, color="#dddddd")
    figure.legend(loc="outside lower center", frameon=False, ncols=3)
    return figure


def _draw_costs(axes: Axes, result: Result) -> None:
    if not isinstance(result.ours, dict):
        raise TypeError(f"{result.id}: an exponent comes with its costs by size, not with {result.ours}")
    missed = " (goal missed)" if met(result.goal, result.value) is False else ""
    label = f"{result.id.removesuffix('-growth-exponent')}: size^{result.value:.2f}{missed}"
    axes.plot([int(size) for size in result.ours], list(result.ours.values()), marker="o", label=label)


def _decades(results: Sequence[Result]) -> tuple[float, float]:
    """Return axis limits of whole decades, so that the frame does not exaggerate a slope."""
    costs = [cost for result in results if isinstance(result.ours, dict) for cost in result.ours.values()]
    return 10.0 ** floor(log10(min(costs))), 10.0 ** (floor(log10(max(costs))) + 1)


def _growth_name(result: Result) -> str:
    """Draw one chart per scenario and unit, so that all lines of a chart share its axes."""
    return f"growth-{result.command.removeprefix('make bench-')}-{result.measured_in.replace(' ', '-')}"


def _plain(value: float, _position: int) -> str:
    return f"{value:,.12g}"


def _save(figure: Figure, path: Path) -> None:
    drawn = StringIO()
    figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line.rstrip()}\n" for line in drawn.getvalue().splitlines()))
