"""docs/benchmarks.json: the recorded results, one per id.

A run replaces the ids that it measured. Each result has its own time; machine and versions are those of the latest run.
Pages and charts are generated from this file alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

NOISY_ABOVE = 0.20
"""Spread above which a result is noisy; `make bench-core` on an idle 2-core machine has 0.02 to 0.06."""

Figures: TypeAlias = float | dict[str, float]


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One result. `ours` and `theirs` are in `measured_in`, by size or side where there are several."""

    id: str
    what: str
    value: float
    unit: str
    goal: str | None
    ours: Figures
    theirs: Figures | None
    measured_in: str
    spread: float
    noisy: bool = False
    command: str
    when: str


class RecordedResults(Struct, frozen=True, kw_only=True):
    """The whole file."""

    machine: dict[str, str | int]
    versions: dict[str, str]
    results: tuple[Result, ...]


EMPTY = RecordedResults(machine={}, versions={}, results=())


def load(path: Path) -> RecordedResults:
    """Return the recorded results; empty without a file."""
    if not path.exists():
        return EMPTY
    return msgspec.json.decode(path.read_bytes(), type=RecordedResults)


def save(path: Path, recorded: RecordedResults) -> None:
    """Write the file, formatted so that one changed result changes only its own lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(recorded), indent=2) + b"\n")


def merged(
    recorded: RecordedResults,
    results: Iterable[Result],
    *,
    machine: Mapping[str, str | int],
    versions: Mapping[str, str],
) -> RecordedResults:
    """Return the recorded results with these added. Versions of peers that were not measured this time stay."""
    by_id = {result.id: result for result in (*recorded.results, *results)}
    return RecordedResults(
        machine=dict(machine),
        versions=dict(sorted((recorded.versions | dict(versions)).items())),
        results=tuple(by_id[key] for key in sorted(by_id)),
    )
