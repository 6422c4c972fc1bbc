"""The table of the README has the recorded results."""

from pathlib import Path

import msgspec

from bench.readme_table import ALONE, BEGIN, BESIDE, END, HEAD, comparison, write_comparison
from bench.results import EMPTY, Result, load, merged
from parts.pages import ROOT

RATIO = Result(
    id="add-vs-host-local-1",
    what="",
    value=10.6,
    unit="ratio",
    goal=None,
    ours=0.496,
    theirs=5.26,
    measured_in="ms",
    spread=0.1,
    command="",
    when="",
)


def table_of(*results: Result) -> str:
    return comparison(merged(EMPTY, results, machine={}, versions={})).removeprefix(HEAD)


def test_the_table_matches_the_recorded_results() -> None:
    """If this fails, run make docs."""
    text = (ROOT / "README.md").read_text()
    assert comparison(load(ROOT / "docs" / "benchmarks.json")) == text.partition(BEGIN)[2].partition(END)[0]


def test_a_row_has_both_sides() -> None:
    what, _ = BESIDE[RATIO.id]
    assert f"| {what} | 0.496 ms | host-local: 5.26 ms | **10.6 x** |\n" == table_of(RATIO)


def test_a_noisy_result_has_no_row() -> None:
    assert "" == table_of(msgspec.structs.replace(RATIO, noisy=True))


def test_several_peers_are_listed_by_name() -> None:
    several = msgspec.structs.replace(RATIO, theirs={"Whereabouts": 7.0, "in slices": 6.0})
    assert "| Whereabouts: 7 ms, in slices: 6 ms |" in table_of(several)


def test_a_missing_result_has_no_row() -> None:
    assert "" == table_of()
    assert not BESIDE.keys() & ALONE.keys()


def test_a_page_without_markers_is_unchanged(tmp_path: Path) -> None:
    page = tmp_path / "README.md"
    write_comparison(EMPTY, page)
    assert not page.exists()
    page.write_text("words")
    write_comparison(EMPTY, page)
    assert "words" == page.read_text()
