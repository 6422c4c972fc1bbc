"""Completion of every command, option and choice, in bash, zsh, fish and kubectl."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from parts.debian import command
from parts.recipes import program
from podpool.cli.completion import complete
from podpool.cli.spec import COMMANDS, options_of

if TYPE_CHECKING:
    from tests.cli.conftest import Invoke

BIN = Path(sys.executable).parent
IN_BASH = r"""
source <(podpool completion bash)
answer=$(complete -p podpool)
[[ $answer =~ -F\ ([^ ]+) ]]
COMP_WORDS=({words})
COMP_CWORD={at}
"${{BASH_REMATCH[1]}}" podpool
printf '%s\n' "${{COMPREPLY[@]}}"
"""
"""What bash does when Tab is pressed after these words."""
CASES: dict[str, set[str]] = {
    "podpool sta": {"status"},
    "podpool history ": {"pod", "node", "address"},
    "podpool ledger ": {
        *("serve", "subnet", "token", "cluster", "history", "audit-log", "apply", "export"),
        *("backup", "restore", "check", "recovery"),
    },
    "podpool ledger subnet ": {"create", "list", "show", "grow", "drain", "reopen", "delete"},
    "podpool ledger subnet list -o ": {"table", "wide", "json", "yaml"},
    "podpool ledger subnet create --ex": {"--exclude"},
    "podpool controller ": {"run", "install-crds", "uninstall"},
    "podpool controller run --scarcity ": {"off", "exhaustion", "graded"},
    "podpool agent run --mode r": {"reactive"},
    "podpool agent journal ": {"show"},
    "podpool cni ": {"install", "uninstall"},
    "podpool cni uninstall --bin": {"--bin-dir"},
    "podpool apiserver serve --tls-c": {"--tls-cert"},
    "podpool pods -o y": {"yaml"},
    "podpool completion ": {"bash", "zsh", "fish"},
    "podpool nonsense ": set(),
}


def complete_in_bash(line: str) -> set[str]:
    """Press Tab in a real bash."""
    words = shlex.split(line) + [""] * line.endswith(" ")
    script = IN_BASH.format(words=shlex.join(words), at=len(words) - 1)
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    bash = [command("bash"), "--norc", "-euc", script]
    done = subprocess.run(bash, check=True, capture_output=True, text=True, env=environment)
    return set(done.stdout.split())


@pytest.mark.parametrize("line", CASES)
def test_candidates(line: str) -> None:
    words = shlex.split(line)[1:] + [""] * line.endswith(" ")
    *lines, directive = complete(words)
    assert (CASES[line], ":4") == ({each.partition("\t")[0] for each in lines}, directive)


@pytest.mark.integration
@pytest.mark.parametrize("line", list(CASES)[:4])
def test_bash_completes(line: str) -> None:
    assert CASES[line] == complete_in_bash(line)


@pytest.mark.real
@pytest.mark.parametrize("line", CASES)
def test_kubectl_completes_the_same(line: str) -> None:
    """As its completion scripts do, whatever the shell."""
    words = shlex.split(line) + [""] * line.endswith(" ")
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        [program("kubectl"), "__complete", *words], check=True, capture_output=True, text=True, env=environment
    )
    candidates = [each.partition("\t")[0] for each in done.stdout.splitlines() if not each.startswith(":")]
    assert sorted(CASES[line]) == sorted(candidates)
    assert ":4" == done.stdout.split()[-1]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shells_script_asks_the_hidden_command(invoke: Invoke, shell: str) -> None:
    assert "podpool __complete" in invoke("completion", shell).stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_of_every_command_is_offered_with_its_help(name: str) -> None:
    *lines, directive = complete([*name.split(), "--"])
    assert [f"{option.flag}\t{option.help}" for option in options_of(COMMANDS[name])] == lines
    assert ":4" == directive


def test_a_file_is_completed_by_the_shell() -> None:
    assert [":0"] == complete(["agent", "run", "--config", ""])
    assert [":4"] == complete(["agent", "run", "--taint", ""])
