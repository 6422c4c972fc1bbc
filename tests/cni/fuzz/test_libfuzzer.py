"""The plugin's code under libFuzzer with a fixed seed, and planted bugs that it must find."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

import pytest

from podpool.cni.build import SOURCE
from tools.fuzz import build, fuzz_command

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("fuzz")]

RUNS, RUNS_TO_FIND = 150_000, 1_000_000
PLANTED = {
    "a response without an exit code": ("response_size < 1 || ", ""),
    "a value one byte too long": ("- request_size) return", "- request_size + 1) return"),
    "a path one byte too long": ("strlen(path) >= sizeof", "strlen(path) > sizeof"),
    "a DEL saved outside its directory": ("*each == '/' || ", ""),
    "a DEL owned by root in the agent's directory": ("fchown(file, owner,", "fchown(file, owner & 0,"),
    "an existing file whose owner is changed": ("O_CREAT | O_EXCL", "O_CREAT | O_TRUNC"),
    "a call that goes on without a reader": ("polled[1].revents) return", "polled[1].revents < 0) return"),
    "a DEL that ends with its reader": ('"DEL") ? STDOUT_FILENO', '"-") ? STDOUT_FILENO'),
}
"""Name of a bug: the text in the plugin, and its replacement."""
FOUND = re.compile(r"ERROR: AddressSanitizer|must hold:")


def search(source: Path, home: Path, *, runs: int) -> subprocess.CompletedProcess[str]:
    corpus = home / "corpus"
    corpus.mkdir()
    options = (f"-runs={runs}", f"-artifact_prefix={home}/")
    program = build(source, home)
    return subprocess.run(fuzz_command(program, corpus, 1, *options), check=False, capture_output=True, text=True)


def test_no_input_violates_a_rule(tmp_path: Path) -> None:
    done = search(SOURCE, tmp_path, runs=RUNS)
    assert 0 == done.returncode, done.stderr[-4000:]
    assert f"Done {RUNS} runs" in done.stderr


@pytest.mark.parametrize("bug", PLANTED)
def test_planted_bug_is_found(tmp_path: Path, bug: str) -> None:
    original, replacement = PLANTED[bug]
    text = SOURCE.read_text()
    assert 1 == text.count(original)
    planted = tmp_path / "planted.c"
    planted.write_text(text.replace(original, replacement))
    done = search(planted, tmp_path, runs=RUNS_TO_FIND)
    assert done.returncode
    assert FOUND.search(done.stderr)
