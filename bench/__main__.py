"""Command line of the benchmarks: `python -m bench [NAME]` runs scenarios, prints and records the results.

Each scenario is recorded when it ends, so that an aborted run loses only the current one. A quick run records nothing.
"""

from __future__ import annotations

import argparse
import logging
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from bench.harness import measure
from bench.machine import machine, own_versions
from bench.readme_table import write_comparison
from bench.report import remarks, table, write_report
from bench.results import load, merged, save
from bench.scenario import FULL, QUICK
from bench.scenarios import ALL

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bench.harness import Outcome
    from bench.results import RecordedResults, Result
    from bench.scenario import Scenario

DOCS = Path(__file__).resolve().parent.parent / "docs"


def main(argv: Sequence[str] | None = None, *, scenarios: Sequence[Scenario] = ALL, docs: Path = DOCS) -> int:
    """Run the command line; exit code 2 for invalid arguments."""
    args = parse(argv)
    if args.list:
        print("\n".join(line for scenario in scenarios for line in describe(scenario)))
        return 0
    if args.report_only:
        return report_only(docs)
    chosen = [scenario for scenario in scenarios if selects(scenario, args.name)]
    if not chosen:
        names = ", ".join(scenario.name for scenario in scenarios)
        print(f"bench: unknown scenario {args.name!r}; use one of {names}.", file=sys.stderr)
        return 2
    logging.basicConfig(level=logging.ERROR)  # thousands of agents in one process warn of Nodes that are not there yet
    run(chosen, docs, quick=args.quick)
    return 0


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Run benchmarks of podpool and other implementations."
    )
    parser.add_argument("name", nargs="?", help="a scenario, or the prefix of several; all by default")
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--quick", action="store_true", help="a few rounds, about a minute; records nothing")
    mode.add_argument("--list", action="store_true", help="list the scenarios and the ids that they measure")
    mode.add_argument("--report-only", action="store_true", help="regenerate page and charts without measuring")
    return parser.parse_args(argv)


def selects(scenario: Scenario, name: str | None) -> bool:
    """Return whether a name selects a scenario: its name, or a prefix before a hyphen; no name selects all."""
    return name in {None, scenario.name} or scenario.name.startswith(f"{name}-")


def describe(scenario: Scenario) -> list[str]:
    """Return the lines that describe a scenario: name, summary, ids."""
    return [f"{scenario.name}: {scenario.summary}", *(f"    {name}" for name in scenario.ids)]


def report_only(docs: Path) -> int:
    """Regenerate page and charts from recorded results."""
    path = docs / "benchmarks.json"
    if not path.exists():
        print("bench: docs/benchmarks.json does not exist: run 'make bench' first.", file=sys.stderr)
        return 2
    regenerate(load(path), docs)
    return 0


def run(scenarios: Sequence[Scenario], docs: Path, *, quick: bool) -> None:
    """Run scenarios in order and print their results."""
    results: list[Result] = []
    for scenario in scenarios:
        outcome = measure(
            scenario,
            QUICK if quick else FULL,
            now=partial(datetime.now, UTC),
            log=partial(print, flush=True),
        )
        results += outcome.results
        if not quick:
            record(outcome, docs)
    print("", table(results), "", *remarks(results), sep="\n")
    print("Quick run: nothing recorded." if quick else "Recorded in docs/benchmarks.json; see docs/benchmarks.md.")


def record(outcome: Outcome, docs: Path) -> None:
    """Record results and regenerate what depends on them."""
    path = docs / "benchmarks.json"
    versions = own_versions() | dict(outcome.versions)
    save(path, merged(load(path), outcome.results, machine=machine(), versions=versions))
    regenerate(load(path), docs)


def regenerate(results: RecordedResults, docs: Path) -> None:
    """Regenerate the page, the charts and the table of the README."""
    write_report(results, docs)
    write_comparison(results, docs.parent / "README.md")


if __name__ == "__main__":
    sys.exit(main())
