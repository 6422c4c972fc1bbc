"""The page and the pictures, from the file alone."""

from __future__ import annotations

from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from msgspec import structs

from bench.report import cells, markdown, remarks, summary, table, write_report
from bench.results import EMPTY, RecordedResults, load, merged, save

if TYPE_CHECKING:
    from pathlib import Path

    from bench.results import Result
    from tests.bench.conftest import MakeResult


@pytest.fixture
def exponent(make_result: MakeResult) -> Result:
    return make_result(
        "take-growth-exponent",
        value=0.0312,
        unit="exponent",
        goal="< 0.15",
        ours={"100": 412.3, "10000": 430.0, "1000000": 1520.0},
        theirs=None,
        measured_in="ns",
        command="make bench-core",
    )


@pytest.fixture
def book(make_result: MakeResult, exponent: Result) -> RecordedResults:
    memory = make_result("a-memory", value=41.0, unit="MiB", goal="< 50", ours=41.0, theirs=None, measured_in="MiB")
    results = [memory, exponent, make_result("z-missed"), make_result("y-met", value=12.5)]
    return merged(EMPTY, results, machine={"cores": 2, "memory": "7.8 GiB"}, versions={"podpool": "0.1.0"})


def rows(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("|")]


def test_ratios_come_first_then_exponents_then_the_rest(book: RecordedResults) -> None:
    ids = [row.split(" | ")[0].removeprefix("| ") for row in rows(markdown(book, []))[2:]]
    assert ids == ["y-met", "z-missed", "take-growth-exponent", "a-memory"]


def test_the_table_has_a_column_for_all_that_a_reader_asks(book: RecordedResults) -> None:
    heading = "| id | what | value | goal | met? | ours | theirs | spread | command |"
    row = "| y-met | what y-met is | 12.5 ratio | >= 5 | met | 2 ms | 8 ms | 3% | `make bench-some` |"
    assert (heading, row) == (rows(markdown(book, []))[0], rows(markdown(book, []))[2])


def test_a_missed_goal_is_shown_as_missed_and_named_before_the_table(book: RecordedResults) -> None:
    page = markdown(book, [])
    assert "| >= 5 | MISSED |" in page
    assert "3 of 4 goals are met. Missed: z-missed." in page.partition("| id |")[0]


def test_costs_are_listed_by_size(exponent: Result) -> None:
    assert "100: 412 ns, 10,000: 430 ns, 1,000,000: 1,520 ns" in cells(exponent)


def test_a_noisy_result_is_marked_on_the_page_and_in_the_terminal(make_result: MakeResult) -> None:
    noisy = make_result("a", spread=0.31, noisy=True)
    assert "31%, noisy" in cells(noisy)
    assert summary([noisy]) == "0 of 1 goals are met. Missed: a. Noisy: a."
    assert remarks([noisy]) == ["a: noisy, spread 31.0% is above 20%. Repeat it on an idle machine."]


def test_a_goal_met_only_in_a_noisy_run_is_counted_separately(make_result: MakeResult) -> None:
    results = [make_result("a", value=6.0, noisy=True), make_result("b", value=6.0)]
    expected = "2 of 2 goals are met, 1 of them in a quiet run. Noisy: a."
    assert expected == summary(results)


def test_an_exponent_is_described(exponent: Result) -> None:
    assert remarks([exponent]) == ["take-growth-exponent: cost grows as size^0.0312"]


def test_the_table_in_the_terminal_is_aligned(book: RecordedResults) -> None:
    lines = table(book.results).splitlines()
    assert len({line.index(word) for line, word in zip(lines[1:4], ("12.5", "4 ratio", "0.0312"), strict=True)}) == 1


def test_page_and_pictures_are_made_from_the_file_alone(tmp_path: Path, book: RecordedResults) -> None:
    save(tmp_path / "benchmarks.json", book)
    write_report(load(tmp_path / "benchmarks.json"), tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    for name in ("ratios", "growth-core-ns"):
        assert f"(pictures/{name}.svg)" in page
        assert svg(tmp_path / "pictures" / f"{name}.svg").tag == "{http://www.w3.org/2000/svg}svg"


def test_made_twice_they_are_the_same_to_the_byte(tmp_path: Path, book: RecordedResults) -> None:
    for name in ("once", "again"):
        (tmp_path / name).mkdir()
        write_report(book, tmp_path / name)
    assert made(tmp_path / "once") == made(tmp_path / "again")
    assert {"benchmarks.md", "pictures/ratios.svg", "pictures/growth-core-ns.svg"} == set(made(tmp_path / "once"))


def test_what_is_measured_in_another_unit_has_its_own_picture(tmp_path: Path, exponent: Result) -> None:
    calls = structs.replace(exponent, id="calls-growth-exponent", measured_in="API calls")
    write_report(merged(EMPTY, [exponent, calls], machine={}, versions={}), tmp_path)
    assert {"pictures/growth-core-ns.svg", "pictures/growth-core-API-calls.svg"} < set(made(tmp_path))


def test_a_chart_labels_each_line(tmp_path: Path, book: RecordedResults) -> None:
    write_report(book, tmp_path)
    words = "".join(svg(tmp_path / "pictures" / "growth-core-ns.svg").itertext())
    assert "take: size^0.03" in words
    assert "cost of one operation, ns" in words


def test_without_results_there_is_a_page_and_no_picture(tmp_path: Path) -> None:
    write_report(EMPTY, tmp_path)
    assert {"benchmarks.md"} == set(made(tmp_path))


def made(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def svg(path: Path) -> ET.Element:
    return ET.fromstring(path.read_text())  # noqa: S314 - we drew it
