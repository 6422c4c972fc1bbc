"""Every command of a page exists, and a test runs it."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parts.pages import ROOT, commands_of
from podpool.cli.parser import find_command
from podpool.cli.spec import COMMANDS, options_of
from podpool.cli.spec.model import Command

PAGES = sorted(str(page.relative_to(ROOT)) for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
LANGUAGES = {"sh", "python", "text", "mermaid", "json", "yaml", "toml"}
QUICK = {
    "podpool sim --seeds 1-200": "podpool sim --seeds 1-2",
    "podpool sim --seed 7 --profile restore-ledger": "podpool sim --seed 7 --profile narrow-restores",
    "podpool sim --seed 7 --trace": "podpool sim --seed 7 --profile narrow --trace",
}
"""Commands of pages that no test runs as a whole: each with the quick form that runs here."""
EXEMPT = {
    "make up": "tests/lab/demo runs its scenario in the short form",
    "podpool up": "the same",
    "podpool up --scenario none": "tests/lab/demo does that, on other ports",
    "podpool up --fresh --scarcity off --mode reactive": "the same",
    "make test": "runs this test",
    "make sim": "part of make test",
    "make image": "tests/image builds the same image, under another label",
    "make soak SEEDS=10000-20000": "make sim with more seeds",
}
"""Commands that no test runs, and why."""
ELSEWHERE = {
    "docs/install.md": "tests/install installs, upgrades and uninstalls by Helm with values of its cluster, where the "
    "API server reaches no kubelet (kubectl exec); tests/chart/test_uninstall.py runs the plain manifests' lines",
}
"""Pages whose commands a test runs in another form, and which."""


def test_every_command_of_a_page_is_run() -> None:
    """By a test that runs the whole page, or here in a quick form; exceptions have a reason."""
    alone = {line for page in PAGES if not runner_of(page) for line in lines_of(page)}
    assert {*QUICK, *EXEMPT} == alone - {line for page in ELSEWHERE for line in lines_of(page)}


def test_every_code_block_has_a_language() -> None:
    """Otherwise commands in it would not be found."""
    for page in PAGES:
        fences = re.findall(r"^```(.*)$", (ROOT / page).read_text(), re.MULTILINE)
        assert set(fences[::2]) <= LANGUAGES, page
        assert set(fences[1::2]) <= {""}, page


@pytest.mark.integration
@pytest.mark.parametrize("command", QUICK.values())
def test_a_quick_form_works(command: str) -> None:
    program, *words = shlex.split(command)
    subprocess.run([Path(sys.executable).parent / program, *words], check=True, capture_output=True)


@pytest.mark.parametrize("page", PAGES)
def test_commands_in_sentences_exist(page: str) -> None:
    """Including their options."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(), flags=re.DOTALL | re.MULTILINE)
    for command in re.findall(r"`(podpool [a-z][^`|]*)[`|]", text):
        assert set(re.findall(r"--([a-z-]+)", command)) <= flags_of(command.split()[1:]), command
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for target in re.findall(r"`(?:\\w+=\\S+ )?make ([a-z-]+)", text):
        assert target in targets or target.startswith("bench-"), target


def lines_of(page: str) -> Iterator[str]:
    """Return the commands of a page, without comments."""
    for line in commands_of(page).splitlines():
        command = re.sub(r"\s+# .*$", "", line).strip()
        if command:
            yield command


def runner_of(page: str) -> Path | None:
    """Return the test that runs all commands of a page."""
    named = re.compile(rf"[\"/]{re.escape(Path(page).name)}\"")
    for test in set(ROOT.glob("tests/**/*.py")) - {Path(__file__)}:
        source = test.read_text()
        if named.search(source) and ("commands_of(" in source or "```sh" in source):
            return test
    return None


def flags_of(words: list[str]) -> set[str]:
    """Return the options of a command, or of all commands of a group; raise if there is no such command."""
    found, _ = find_command([word for word in words if re.fullmatch("[a-z-]+", word) and not word.startswith("-")])
    if found is None:
        raise LookupError(" ".join(words))
    names = [found.name] if isinstance(found, Command) else [name for name in COMMANDS if name.startswith(found.name)]
    return {option.name for name in names for option in options_of(COMMANDS[name])}
