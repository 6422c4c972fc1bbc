"""The plugin's own code in a hostile world, searched by libFuzzer from a fixed seed; and bugs that it must find."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from podpool.cni.build import SOURCE
from tools.fuzz import build, words

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("fuzz")]

RUNS, RUNS_TO_FIND = 150_000, 1_000_000
PLANTED = {
    "an answer without as much as an exit code": ("answer_size < 1 || ", ""),
    "a value of one byte more than there is room for": ("- request_size) return", "- request_size + 1) return"),
    "a path of one byte more than there is room for": ("strlen(path) >= sizeof", "strlen(path) > sizeof"),
    "a DEL that is left outside its directory": ("*each == '/' || ", ""),
    "a DEL that is root's in the agent's directory": ("fchown(file, owner,", "fchown(file, owner & 0,"),
    "a file of others that is given away": ("O_CREAT | O_EXCL", "O_CREAT | O_TRUNC"),
}
"""What stands in the plugin, and what takes its place."""
FOUND = re.compile(r"ERROR: AddressSanitizer|must hold:")


def search(source: Path, home: Path, *, runs: int) -> subprocess.CompletedProcess[str]:
    learned = home / "learned"
    learned.mkdir()
    options = (f"-runs={runs}", f"-artifact_prefix={home}/")
    program = build(source, home)
    return subprocess.run(words(program, learned, 1, *options), check=False, capture_output=True, text=True)


def test_whatever_the_world_does_the_plugin_ends_in_good_order(tmp_path: Path) -> None:
    done = search(SOURCE, tmp_path, runs=RUNS)
    assert 0 == done.returncode, done.stderr[-4000:]
    assert f"Done {RUNS} runs" in done.stderr


@pytest.mark.parametrize("bug", PLANTED)
def test_the_search_finds(tmp_path: Path, bug: str) -> None:
    right, wrong = PLANTED[bug]
    text = SOURCE.read_text()
    assert 1 == text.count(right)
    planted = tmp_path / "planted.c"
    planted.write_text(text.replace(right, wrong))
    done = search(planted, tmp_path, runs=RUNS_TO_FIND)
    assert done.returncode
    assert FOUND.search(done.stderr)
