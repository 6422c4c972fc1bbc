"""What people read: a table in the terminal, and docs/benchmarks.md with its pictures, from docs/benchmarks.json alone.

Ratios come first, then exponents, then the rest. A goal that is missed stands there as missed, and before the table;
a figure that was too noisy says so beside its spread. Made twice from one file, the pages are the same to the byte.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.book import NOISY_ABOVE
from bench.goals import met
from bench.pictures import draw

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from bench.book import Book, Figures, Result

HEADINGS = ("id", "what", "value", "goal", "met?", "ours", "theirs", "spread", "command")
_INTRODUCTION = (
    "Made from [benchmarks.json](benchmarks.json), which also tells when each figure was measured; the command in the "
    "last column measures it again. Sides take turns on one machine. Figures are medians; the spread is the "
    f"interquartile range over the median, and above {NOISY_ABOVE:.0%} a run was too noisy to be believed."
)
_FIRST = {"ratio": 0, "exponent": 1}


def write_report(book: Book, docs: Path) -> None:
    """Draw the pictures and write the page that shows them."""
    pictures = draw(ordered(book.results), docs / "pictures")
    (docs / "benchmarks.md").write_text(markdown(book, pictures))


def markdown(book: Book, pictures: Iterable[str]) -> str:
    """The page."""
    rows = [cells(result) for result in ordered(book.results)]
    parts = [
        "# Benchmarks",
        _INTRODUCTION,
        f"The latest run: {_listed(book.machine)}; {_listed(book.versions)}.",
        summary(book.results),
        "\n".join(f"| {' | '.join(row)} |" for row in (HEADINGS, ["---"] * len(HEADINGS), *rows)),
        *(f"![{name}](pictures/{name}.svg)" for name in pictures),
    ]
    return "\n\n".join(parts) + "\n"


def summary(results: Iterable[Result]) -> str:
    """How many goals are met, and how many of those in a run that can be believed; by name, which are not."""
    told = ordered(results)
    judged = [result for result in told if result.goal]
    missed = [result.id for result in judged if not met(result.goal, result.value)]
    noisy = [result.id for result in told if result.noisy]
    believed = sum(not result.noisy for result in judged if result.id not in missed)
    reached = len(judged) - len(missed)
    doubt = f", {believed} of them in a run that can be believed" if believed < reached else ""
    named = [f"{what}: {', '.join(ids)}." for what, ids in (("Missed", missed), ("Too noisy", noisy)) if ids]
    return " ".join([f"{reached} of {len(judged)} goals are met{doubt}.", *named])


def table(results: Iterable[Result]) -> str:
    """The same for a terminal, without what only a page has room for."""
    shown = [heading not in {"what", "command"} for heading in HEADINGS]
    rows = [HEADINGS, *(cells(result) for result in ordered(results))]
    kept = [[cell for cell, keep in zip(row, shown, strict=True) if keep] for row in rows]
    widths = [max(map(len, column)) for column in zip(*kept, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in kept)


def remarks(results: Iterable[Result]) -> list[str]:
    """What a run has to say beside its table: how cost grew, and what was too noisy."""
    said = []
    for result in ordered(results):
        if result.unit == "exponent":
            said.append(f"{result.id}: cost grows as size^{number(result.value)}")
        if result.noisy:
            said.append(
                f"{result.id}: too noisy, its spread of {result.spread:.1%} is above {NOISY_ABOVE:.0%}. "
                "Run it again when nothing else does."
            )
    return said


def ordered(results: Iterable[Result]) -> list[Result]:
    """Ratios, exponents, the rest; each by id."""
    return sorted(results, key=lambda result: (_FIRST.get(result.unit, 2), result.id))


def cells(result: Result) -> tuple[str, ...]:
    """One row, in the order of the headings."""
    return (
        result.id,
        result.what,
        f"{number(result.value)} {result.unit}",
        result.goal or "none",
        {True: "met", False: "MISSED", None: ""}[met(result.goal, result.value)],
        figures(result.ours, result.measured_in),
        figures(result.theirs, result.measured_in),
        f"{result.spread:.0%}{', too noisy' if result.noisy else ''}",
        f"`{result.command}`",
    )


def number(figure: float) -> str:
    """Three digits that matter, and no exponents for people."""
    return f"{figure:,.0f}" if abs(figure) >= 100 else f"{figure:.3g}"


def figures(told: Figures | None, unit: str) -> str:
    """One figure with its unit, or several with their names."""
    if told is None:
        return ""
    if isinstance(told, dict):
        return ", ".join(f"{_label(name)}: {number(figure)} {unit}" for name, figure in told.items())
    return f"{number(told)} {unit}"


def _label(name: str) -> str:
    return f"{int(name):,}" if name.isdigit() else name


def _listed(facts: dict[str, str | int] | dict[str, str]) -> str:
    return ", ".join(f"{name} {fact}" for name, fact in facts.items())
