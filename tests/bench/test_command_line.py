"""`python -m bench`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from bench.__main__ import main
from bench.results import load

if TYPE_CHECKING:
    from pathlib import Path

    from tests.bench.conftest import MakeScenario


def ids(docs: Path) -> list[str]:
    return [result.id for result in load(docs / "benchmarks.json").results]


def test_a_run_is_kept_and_shown(
    tmp_path: Path, make_scenario: MakeScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], scenarios=[make_scenario("one"), make_scenario("two")], docs=tmp_path) == 0
    assert ids(tmp_path) == ["one-figure", "one-ratio", "two-figure", "two-ratio"]
    assert "one-ratio" in (tmp_path / "benchmarks.md").read_text()
    assert "MISSED" in capsys.readouterr().out


def test_a_name_runs_one_scenario_and_keeps_the_results_of_others(tmp_path: Path, make_scenario: MakeScenario) -> None:
    scenarios = [make_scenario("one"), make_scenario("two")]
    main(["one"], scenarios=scenarios, docs=tmp_path)
    assert ids(tmp_path) == ["one-figure", "one-ratio"]
    main(["two"], scenarios=scenarios, docs=tmp_path)
    assert ids(tmp_path) == ["one-figure", "one-ratio", "two-figure", "two-ratio"]


def test_a_name_means_also_what_goes_on_from_it(
    tmp_path: Path, make_scenario: MakeScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    scenarios = [make_scenario("one"), make_scenario("one-more"), make_scenario("ones")]
    main(["--quick", "one"], scenarios=scenarios, docs=tmp_path)
    output = capsys.readouterr().out
    assert ("one:" in output, "one-more:" in output, "ones:" in output) == (True, True, False)


def test_a_quick_run_prints_its_table_and_writes_nothing(
    tmp_path: Path, make_scenario: MakeScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--quick"], scenarios=[make_scenario("one")], docs=tmp_path) == 0
    assert list(tmp_path.iterdir()) == []
    output = capsys.readouterr().out
    assert "one-ratio" in output
    assert "Quick run: nothing recorded." in output


def test_a_quick_run_takes_fewer_turns(tmp_path: Path, make_scenario: MakeScenario, diary: list[str]) -> None:
    main(["--quick"], scenarios=[make_scenario("one")], docs=tmp_path)
    quick = len(diary)
    main([], scenarios=[make_scenario("one")], docs=tmp_path)
    assert quick < (len(diary) - quick) / 3


def test_a_noisy_run_is_reported(
    tmp_path: Path, make_scenario: MakeScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    main([], scenarios=[make_scenario("one", ours=range(1, 30))], docs=tmp_path)
    assert "one-ratio: noisy" in capsys.readouterr().out
    assert ", noisy |" in (tmp_path / "benchmarks.md").read_text()


def test_what_was_measured_before_a_scenario_breaks_is_kept(tmp_path: Path, make_scenario: MakeScenario) -> None:
    with pytest.raises(ZeroDivisionError):
        main([], scenarios=[make_scenario("one"), make_scenario("two", ours=(0,))], docs=tmp_path)
    assert ids(tmp_path) == ["one-figure", "one-ratio"]


def test_an_unknown_name_is_answered_with_those_that_exist(
    tmp_path: Path, make_scenario: MakeScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["thre"], scenarios=[make_scenario("one"), make_scenario("two")], docs=tmp_path) == 2
    assert capsys.readouterr().err == "bench: unknown scenario 'thre'; use one of one, two.\n"


def test_the_list_has_each_scenario_and_what_it_measures(
    tmp_path: Path, make_scenario: MakeScenario, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--list"], scenarios=[make_scenario("one")], docs=tmp_path) == 0
    assert capsys.readouterr().out == "one: the sentence of one\n    one-ratio\n    one-figure\n"


def test_report_only_measures_nothing_and_makes_the_page_again(
    tmp_path: Path, make_scenario: MakeScenario, diary: list[str]
) -> None:
    main([], scenarios=[make_scenario("one")], docs=tmp_path)
    before = (tmp_path / "benchmarks.md").read_bytes()
    (tmp_path / "benchmarks.md").unlink()
    diary.clear()
    assert main(["--report-only"], scenarios=[make_scenario("one")], docs=tmp_path) == 0
    assert (before, []) == ((tmp_path / "benchmarks.md").read_bytes(), diary)


def test_report_only_without_a_file_names_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--report-only"], scenarios=[], docs=tmp_path) == 2
    assert "run 'make bench' first" in capsys.readouterr().err
