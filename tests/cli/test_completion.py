"""Shells are told what may follow, of every command that there is."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from parts.debian import command
from parts.recipes import program
from podpool.cli.daemon_parser import COMMANDS

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
"""What bash does when Tab is pressed behind these words."""
ASKED: dict[str, set[str]] = {
    "podpool sta": {"status"},
    "podpool history ": {"pod", "node", "address"},
    "podpool ledger ": {"serve", "subnet", "token", "cluster", "history", "backup", "restore", "check", "recovery"},
    "podpool ledger subnet ": {"create", "list", "show", "grow", "drain", "reopen", "delete"},
    "podpool ledger subnet list -o ": {"table", "wide", "json", "yaml"},
    "podpool ledger subnet create --keep": {"--keep-back"},
    "podpool controller ": {"run", "install-crds"},
    "podpool controller run --scarcity ": {"off", "exhaustion", "graded"},
    "podpool agent run --mode r": {"reactive"},
    "podpool agent journal ": {"show"},
    "podpool cni ": {"install", "uninstall"},
    "podpool cni uninstall --bin": {"--bin-dir"},
    "podpool pocket serve --tls ": {"off", "on"},
    "podpool pods -o y": {"yaml"},
}


def tabbed(line: str) -> set[str]:
    """Press Tab in a real bash."""
    words = shlex.split(line) + [""] * line.endswith(" ")
    script = IN_BASH.format(words=shlex.join(words), at=len(words) - 1)
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    bash = [command("bash"), "--norc", "-euc", script]
    told = subprocess.run(bash, check=True, capture_output=True, text=True, env=environment)
    return set(told.stdout.split())


@pytest.mark.parametrize("line", ASKED)
def test_bash_offers_what_may_follow(line: str) -> None:
    assert ASKED[line] == tabbed(line)


@pytest.mark.real
@pytest.mark.parametrize("line", ASKED)
def test_kubectl_offers_the_same(line: str) -> None:
    """As its completion scripts ask it, whatever the shell."""
    words = shlex.split(line) + [""] * line.endswith(" ")
    environment = os.environ | {"PATH": f"{BIN}:{os.environ['PATH']}"}
    told = subprocess.run(
        [program("kubectl"), "__complete", *words], check=True, capture_output=True, text=True, env=environment
    )
    assert (*sorted(ASKED[line]), ":4") == tuple(sorted(told.stdout.split(), key=lambda each: (each == ":4", each)))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
@pytest.mark.parametrize("line", ["podpool ledger subnet ", "podpool agent run --mode "])
def test_other_shells_are_told_the_same(shell: str, line: str) -> None:
    asking = {"_PODPOOL_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_ARGS": line}
    environment = os.environ | asking | {"_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    told = subprocess.run([BIN / "podpool"], check=True, capture_output=True, text=True, env=environment)
    assert all(each in told.stdout for each in ASKED.get(line, {"reactive", "idempotent", "pods"}))


def test_every_option_of_every_command_is_offered() -> None:
    """One look for each room, at the command with the most to say."""
    for room, commands in COMMANDS.items():
        name, widest = max(commands.items(), key=lambda each: len(each[1].options))
        assert {f"--{option}" for option in widest.options} <= tabbed(f"podpool {room} {name} --"), name
