"""`python -m bench [NAME]`: measure, tell, and keep what was measured.

Every scenario is kept as soon as it is done, so that a run which breaks off later loses only what it had not measured.
A quick run keeps nothing: its few rounds must not replace the figures of a full one.
"""

from __future__ import annotations

import argparse
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.book import load, merged, save
from bench.comparison import write_comparison
from bench.harness import measure
from bench.machine import machine, own_versions
from bench.report import remarks, table, write_report
from bench.scenario import FULL, QUICK
from bench.scenarios import ALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.book import Book, Result
    from bench.harness import Outcome
    from bench.scenario import Scenario

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main(argv: Sequence[str] | None = None, *, scenarios: Sequence[Scenario] = ALL, docs: Path = DOCS) -> int:
    """Do what the command line asks for; the exit code is 2 where it cannot be meant."""
    asked = parse(argv)
    if asked.list:
        print("\n".join(line for scenario in scenarios for line in listed(scenario)))
        return 0
    if asked.report_only:
        return report_only(docs)
    chosen = [scenario for scenario in scenarios if meant(scenario, asked.name)]
    if not chosen:
        names = ", ".join(scenario.name for scenario in scenarios)
        print(f"bench: there is no scenario {asked.name!r}, but these: {names}.", file=sys.stderr)
        return 2
    run(chosen, docs, quick=asked.quick)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measure podpool beside others.")
    parser.add_argument("name", nargs="?", help="one scenario, with those whose names begin so; all without it")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="few rounds, within a minute; keeps nothing")
    mode.add_argument("--list", action="store_true", help="the scenarios, and the ids that each one measures")
    mode.add_argument("--report-only", action="store_true", help="no measuring: the page and pictures from the file")
    return parser.parse_args(argv)


def meant(scenario: Scenario, name: str | None) -> bool:
    """Whether a name means a scenario: all without one, and with `slices` also `slices-growth`."""
    return name in {None, scenario.name} or scenario.name.startswith(f"{name}-")


def listed(scenario: Scenario) -> list[str]:
    """A scenario in a list: its name and sentence, below it what it measures."""
    return [f"{scenario.name}: {scenario.sentence}", *(f"    {name}" for name in scenario.ids)]


def report_only(docs: Path) -> int:
    """Make the page and its pictures again."""
    kept = docs / "benchmarks.json"
    if not kept.exists():
        print("bench: docs/benchmarks.json does not exist yet: 'make bench' makes it.", file=sys.stderr)
        return 2
    show(load(kept), docs)
    return 0


def run(scenarios: Sequence[Scenario], docs: Path, *, quick: bool) -> None:
    """Measure one scenario after the other and say what came out."""
    results: list[Result] = []
    for scenario in scenarios:
        outcome = measure(
            scenario,
            QUICK if quick else FULL,
            now=partial(datetime.now, UTC),
            tell=partial(print, flush=True),
        )
        results += outcome.results
        if not quick:
            keep(outcome, docs)
    print("", table(results), "", *remarks(results), sep="\n")
    print(
        "A quick run: docs/ stays as it is." if quick else "Kept in docs/benchmarks.json, shown in docs/benchmarks.md."
    )


def keep(outcome: Outcome, docs: Path) -> None:
    """Write the results down, and make from the file what is made from it."""
    kept = docs / "benchmarks.json"
    versions = own_versions() | dict(outcome.versions)
    save(kept, merged(load(kept), outcome.results, machine=machine(), versions=versions))
    show(load(kept), docs)


def show(book: Book, docs: Path) -> None:
    """Make everything that people look at."""
    write_report(book, docs)
    write_comparison(book, docs.parent / "README.md")


if __name__ == "__main__":
    sys.exit(main())
