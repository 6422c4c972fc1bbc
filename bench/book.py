"""docs/benchmarks.json: every result that was ever kept, one per id.

A run of one scenario replaces its own ids and leaves the others as they are: each result carries its own time, while
machine and versions are those of the latest run. Everything that people look at is made from this file alone, which
is why a result also says what it is about.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec
from msgspec import Struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

NOISY_ABOVE = 0.20
"""The spread above which a run was too noisy. `make bench-core` on 2 cores with little else to do has 0.02 to 0.06."""

Figures: TypeAlias = float | dict[str, float]


class Result(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One number and where it comes from. `ours` and `theirs` are `measured_in` their own unit, by size or side."""

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


class Book(Struct, frozen=True, kw_only=True):
    """The whole file."""

    machine: dict[str, str | int]
    versions: dict[str, str]
    results: tuple[Result, ...]


EMPTY = Book(machine={}, versions={}, results=())


def load(path: Path) -> Book:
    """What was kept so far; nothing where there is no file yet."""
    if not path.exists():
        return EMPTY
    return msgspec.json.decode(path.read_bytes(), type=Book)


def save(path: Path, book: Book) -> None:
    """Write the file so that a change of one result is a change of its own lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(book), indent=2) + b"\n")


def merged(
    book: Book,
    results: Iterable[Result],
    *,
    machine: Mapping[str, str | int],
    versions: Mapping[str, str],
) -> Book:
    """The book with these results in it. Versions of peers who did not take part this time stay."""
    by_id = {result.id: result for result in (*book.results, *results)}
    return Book(
        machine=dict(machine),
        versions=dict(sorted((book.versions | dict(versions)).items())),
        results=tuple(by_id[key] for key in sorted(by_id)),
    )
