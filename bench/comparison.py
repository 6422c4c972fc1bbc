"""The table of the README: what was measured beside others, from docs/benchmarks.json alone, between two marks.

A row appears when its figure has been measured. A figure that was too noisy says so here too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bench.report import figures, number

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from bench.book import Book, Result

BEGIN, END = "<!-- measured: made by `make docs` -->\n", "<!-- end -->"
HEAD = "| | podpool | beside it | |\n|---|---|---|---|\n"

BESIDE: Mapping[str, tuple[str, str]] = {
    "add-vs-host-local-1": ("one Pod's address, from the plugin's start to its end", "host-local"),
    "add-vs-host-local-16": ("the same, 16 Pods at once", "host-local"),
    "slice-vs-whereabouts-16": ("addresses of a secondary network, 16 Pods at once, in slices", "Whereabouts"),
    "classic-vs-whereabouts-16": ("the same, in one range that nodes share", "Whereabouts"),
    "pod-start-vs-host-local": ("110 Pods start on a real node", "host-local"),
    "pod-start-10-networks-vs-whereabouts": ("10 Pods of ten networks each start", "Whereabouts"),
    "rest-vs-cns": ("requests to the agent's REST API, durable", "Azure CNS"),
    "ledger-vs-skip-locked": ("batches of 16 addresses, PostgreSQL, 16 callers", "a row for each address"),
    "watch-event-cpu-vs-official": ("CPU for one Pod event of a watch", "the official Python client"),
    "pod-memory-vs-official": ("memory for one Pod in a cache", "the official Python client"),
}
"""Ratios: what is measured, and whom it stands beside."""
ALONE: Mapping[str, str] = {
    "dynamic-calls-per-add": "calls to the API server for a Pod's address",
    "slice-calls-per-add": "the same, in slices",
    "burst-writes-per-node": "a node's writes when 35 Pods land on it at once",
    "yield-at-first-refusal": "share of a subnet that Pods hold when the first of them is refused",
}


def write_comparison(book: Book, page: Path) -> None:
    """Write the table into a page that has the marks."""
    text = page.read_text() if page.exists() else ""
    before, mark, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if mark and end:
        page.write_text(before + mark + comparison(book) + end + after)


def comparison(book: Book) -> str:
    """Make the table."""
    by_id = {each.id: each for each in book.results}
    rows = [_beside(by_id[key], *words) for key, words in BESIDE.items() if key in by_id]
    rows += [f"| {what} | {number(by_id[key].value)} | | |" for key, what in ALONE.items() if key in by_id]
    return HEAD + "".join(f"{row}\n" for row in rows)


def _beside(result: Result, what: str, peer: str) -> str:
    ours, theirs = (figures(each, result.measured_in) for each in (result.ours, result.theirs))
    beside = theirs if isinstance(result.theirs, dict) else f"{peer}: {theirs}"
    noisy = ", a noisy run" if result.noisy else ""
    return f"| {what} | {ours} | {beside} | **{number(result.value)} times**{noisy} |"
