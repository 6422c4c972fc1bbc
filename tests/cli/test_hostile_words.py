"""Words, variables and files that no one should type: refused with the option's name, or answered with nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from podpool.cli.completion import complete
from podpool.cli.parser import parse
from podpool.cli.spec import COMMANDS
from podpool.core.errors import InvalidInput

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cli.conftest import Invoke

AGENT = COMMANDS["agent run"]
FORMATS = "use one of auto, text, json"


class TestLogFormat:
    @pytest.mark.parametrize("value", ["xml", "", "JSON", "json ", "text,json", "\x00", "\N{SNOWMAN}" * 1000])
    def test_an_unknown_format_is_refused(self, value: str) -> None:
        with pytest.raises(InvalidInput, match=FORMATS) as refused:
            parse(AGENT, ["--log-format", value], {})
        assert "--log-format" in str(refused.value)

    def test_also_from_the_environment_and_the_file(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidInput, match=FORMATS):
            parse(AGENT, [], {"PODPOOL_LOG_FORMAT": "xml"})
        file = tmp_path / "agent.toml"
        file.write_text('log-format = "xml"')
        with pytest.raises(InvalidInput, match=FORMATS):
            parse(AGENT, ["--config", str(file)], {})

    def test_a_command_fails_before_it_starts(self, invoke: Invoke) -> None:
        code, stdout, stderr = invoke("controller", "run", "--log-format", "xml")
        assert (2, "", f"podpool: --log-format 'xml': {FORMATS}\n") == (code, stdout, stderr)


class TestTomlBooleans:
    @pytest.mark.parametrize(
        ("value", "taint"), [("true", True), ("false", False), ('"true"', True), ("1", True), ("0", False)]
    )
    def test_a_boolean_option(self, tmp_path: Path, value: str, taint: bool) -> None:
        file = tmp_path / "agent.toml"
        file.write_text(f"taint = {value}\n")
        assert taint is parse(AGENT, ["--config", str(file)], {})["taint"]

    @pytest.mark.parametrize("value", ['"yes"', '""', "2", "1.0", "inf", "2026-11-16", '"TRUE"', "-1"])
    def test_what_is_not_a_boolean_is_refused(self, tmp_path: Path, value: str) -> None:
        file = tmp_path / "agent.toml"
        file.write_text(f"taint = {value}\n")
        with pytest.raises(InvalidInput, match="--taint .*: use true or false"):
            parse(AGENT, ["--config", str(file)], {})

    @pytest.mark.parametrize("value", ["true", "1", "[]", "{}"])
    def test_a_boolean_for_an_option_with_choices_is_refused(self, tmp_path: Path, value: str) -> None:
        file = tmp_path / "agent.toml"
        file.write_text(f"log-level = {value}\n")
        with pytest.raises(InvalidInput, match="log-level"):
            parse(AGENT, ["--config", str(file)], {})


ODD_WORDS = [
    [],
    ["-"],
    ["--"],
    ["---"],
    ["--", "", "--"],
    ["-o"],
    ["=", "=="],
    ["\x00"],
    ["\udcff\udcfe"],
    ["\n", "\t:4"],
    ["agent\n", "run"],
    ["agent", "run", "--mode=", ""],
    ["agent", "run", "--mode", "--mode", "--mode", ""],
    ["agent", "run", "--taint", "--taint", ""],
    ["ledger", "subnet", "-o", "list", ""],
    ["status", *["extra"] * 500, ""],
    ["x" * 100_000],
    ["__complete", "__complete", ""],
    ["help", ""],
]


@pytest.mark.parametrize("words", ODD_WORDS, ids=lambda words: ascii(words)[:40])
def test_completion_of_odd_words_ends_with_a_directive(words: list[str], invoke: Invoke) -> None:
    *candidates, directive = complete(words)
    assert directive in {":0", ":4"}
    assert not any("\n" in each for each in candidates)
    code, stdout, stderr = invoke("__complete", *words)
    assert (0, "", directive) == (code, stderr, stdout.splitlines()[-1])
