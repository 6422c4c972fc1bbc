"""The report: a table in the terminal, and docs/benchmarks.md with its charts.

Ratios come first, then exponents, then the rest. Missed goals and noisy results are listed before the table. Output is
reproducible byte for byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.charts import draw
from bench.goals import met
from bench.results import NOISY_ABOVE

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.results import Figures, RecordedResults, Result

HEADINGS = ("id", "what", "value", "goal", "met?", "ours", "theirs", "spread", "command")
_INTRODUCTION = (
    "Generated from [benchmarks.json](benchmarks.json), which has the time of each result; the command in the last "
    "column repeats it. Sides are interleaved on one machine. Figures are medians; the spread is the interquartile "
    f"range over the median, and a result with a spread above {NOISY_ABOVE:.0%} is noisy."
)
_FIRST = {"ratio": 0, "exponent": 1}


def write_report(recorded: RecordedResults, docs: Path) -> None:
    """Draw the charts and write the page."""
    pictures = draw(ordered(recorded.results), docs / "pictures")
    (docs / "benchmarks.md").write_text(markdown(recorded, pictures))


def markdown(recorded: RecordedResults, pictures: Iterable[str]) -> str:
    """Return the page."""
    rows = [cells(result) for result in ordered(recorded.results)]
    parts = [
        "# Benchmarks",
        _INTRODUCTION,
        f"Latest run: {_listed(recorded.machine)}; {_listed(recorded.versions)}.",
        summary(recorded.results),
        "\n".join(f"| {' | '.join(row)} |" for row in (HEADINGS, ["---"] * len(HEADINGS), *rows)),
        *(f"![{name}](pictures/{name}.svg)" for name in pictures),
    ]
    return "\n\n".join(parts) + "\n"


def summary(results: Iterable[Result]) -> str:
    """Return how many goals are met, how many of them in quiet runs, and the ids of the others."""
    listed = ordered(results)
    judged = [result for result in listed if result.goal]
    missed = [result.id for result in judged if not met(result.goal, result.value)]
    noisy = [result.id for result in listed if result.noisy]
    quiet = sum(not result.noisy for result in judged if result.id not in missed)
    reached = len(judged) - len(missed)
    doubt = f", {quiet} of them in a quiet run" if quiet < reached else ""
    named = [f"{what}: {', '.join(ids)}." for what, ids in (("Missed", missed), ("Noisy", noisy)) if ids]
    return " ".join([f"{reached} of {len(judged)} goals are met{doubt}.", *named])


def table(results: Iterable[Result]) -> str:
    """Return the table for a terminal, without descriptions and commands."""
    shown = [heading not in {"what", "command"} for heading in HEADINGS]
    rows = [HEADINGS, *(cells(result) for result in ordered(results))]
    kept = [[cell for cell, keep in zip(row, shown, strict=True) if keep] for row in rows]
    widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in kept)


def remarks(results: Iterable[Result]) -> list[str]:
    """Return notes on growth and noise for the terminal."""
    notes = []
    for result in ordered(results):
        if result.unit == "exponent":
            notes.append(f"{result.id}: cost grows as size^{number(result.value)}")
        if result.noisy:
            notes.append(
                f"{result.id}: noisy, spread {result.spread:.1%} is above {NOISY_ABOVE:.0%}. "
                "Repeat it on an idle machine."
            )
    return notes


def ordered(results: Iterable[Result]) -> list[Result]:
    """Sort results: ratios, exponents, the rest; each by id."""
    return sorted(results, key=lambda result: (_FIRST.get(result.unit, 2), result.id))


def cells(result: Result) -> tuple[str, ...]:
    """Return the row of a result."""
    return (
        result.id,
        result.what,
        f"{number(result.value)} {result.unit}",
        result.goal or "none",
        {True: "met", False: "MISSED", None: ""}[met(result.goal, result.value)],
        figures(result.ours, result.measured_in),
        figures(result.theirs, result.measured_in),
        f"{result.spread:.0%}{', noisy' if result.noisy else ''}",
        f"`{result.command}`",
    )


def number(figure: float) -> str:
    """Format a number with three significant digits."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def figures(values: Figures | None, unit: str) -> str:
    """Format one figure with its unit, or several with their names."""
    if values is None:
        return ""
    if isinstance(values, dict):
        return ", ".join(f"{_label(name)}: {number(figure)} {unit}" for name, figure in values.items())
    return f"{number(values)} {unit}"


def _label(name: str) -> str:
    return f"{int(name):,}" if name.isdigit() else name


def _listed(facts: dict[str, str | int] | dict[str, str]) -> str:
    return ", ".join(f"{name} {fact}" for name, fact in facts.items())
