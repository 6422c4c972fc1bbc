"""What is kept in docs/benchmarks.json."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from bench.machine import machine, own_versions
from bench.results import EMPTY, RecordedResults, load, merged, save

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.conftest import MakeResult


def kept(*results: str, make_result: MakeResult) -> RecordedResults:
    return merged(EMPTY, map(make_result, results), machine={"cores": 2}, versions={"podpool": "1", "peer": "7"})


def test_a_run_replaces_its_own_results_and_keeps_the_others(make_result: MakeResult) -> None:
    book = kept("a", "b", make_result=make_result)
    after = merged(book, [make_result("b", value=9.0), make_result("c")], machine={"cores": 4}, versions={})
    assert {result.id: result.value for result in after.results} == {"a": 4, "b": 9, "c": 4}


def test_machine_and_versions_are_of_the_latest_run_and_absent_peers_stay(make_result: MakeResult) -> None:
    book = kept("a", make_result=make_result)
    after = merged(book, [], machine={"cores": 4}, versions={"podpool": "2"})
    assert (after.machine, after.versions) == ({"cores": 4}, {"peer": "7", "podpool": "2"})


def test_what_is_saved_is_what_is_loaded(tmp_path: Path, make_result: MakeResult) -> None:
    book = merged(EMPTY, [make_result("a", ours={"100": 5.0}, theirs=None)], machine=machine(), versions={"x": "1"})
    save(tmp_path / "docs" / "benchmarks.json", book)
    assert book == load(tmp_path / "docs" / "benchmarks.json")


def test_no_file_is_an_empty_book(tmp_path: Path) -> None:
    assert load(tmp_path / "benchmarks.json") == EMPTY


def test_the_file_has_the_form_that_others_read(tmp_path: Path, make_result: MakeResult) -> None:
    results = [make_result("a", goal=None, theirs=None), make_result("b", noisy=True)]
    save(tmp_path / "b.json", merged(EMPTY, results, machine=machine(), versions=own_versions()))
    written = json.loads((tmp_path / "b.json").read_text())
    quiet, noisy = written["results"]
    agreed = {"id", "value", "unit", "goal", "ours", "theirs", "spread", "command", "when"}
    assert {"machine", "versions", "results"} == set(written)
    assert agreed | {"what", "measured_in"} == set(quiet)
    assert (quiet["goal"], quiet["theirs"]) == (None, None)
    assert noisy["noisy"] is True


def test_the_machine_is_described_without_its_name() -> None:
    assert {"cores", "memory", "kernel", "python"} == set(machine())
