"""The long-running commands: `ledger serve`, `controller run`, `agent run`, and what goes with them.

On argparse, and each imports only its own rooms when it is called: the agent's memory is counted on every node. Every
option may be set in the environment: `--ledger` is also PODPOOL_LEDGER. Some commands read a file as well.
"""

import argparse
import importlib
import os
from collections.abc import Mapping, Sequence

from podpool.cli.command import Command, Option
from podpool.cli.ledger_commands import DATABASE, LEDGER, LEDGER_COMMANDS, NUMBERS, TLS
from podpool.cli.node_commands import AGENT_COMMANDS, CNI_COMMANDS
from podpool.cli.pocket_commands import POCKET_COMMANDS
from podpool.cli.settings_file import VARIABLE, chosen_file, read_settings
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.quantities import parse_count
from podpool.runtime import logs

LEVELS = ("debug", "info", "warning", "error")
SCARCITIES = ("off", "exhaustion", "graded")
KUBECONFIG = "else the variable KUBECONFIG, the Pod's own account, or ~/.kube/config"


COMMANDS: Mapping[str, Mapping[str, Command]] = {
    "ledger": {
        "serve": Command(
            sentence="answer over HTTP, from books in a SQLite file or in PostgreSQL",
            does="podpool.cli.services:serve_ledger",
            options={
                "database": DATABASE,
                "listen": Option("127.0.0.1:7780", "address and port"),
                **TLS,
                "admin-token-file": Option("", "where the admin token is, or will be; else beside the database"),
                "history": Option("720h", "how long the past is kept"),
                "refresh": Option("1s", "how often utilisation is read from the books"),
            },
        ),
        **LEDGER_COMMANDS,
    },
    "controller": {
        "run": Command(
            sentence="turn Nodes and requests into grants, and definitions into node slices, for one cluster",
            does="podpool.cli.services:run_controller",
            options={
                "subnet": Option("", "the subnet of nodes without a label, as NETWORK.SUBNET"),
                "ledger": Option(LEDGER, "where the ledger is; or none, to look after node slices alone"),
                "ledger-token-file": Option("", "the file with this cluster's token for the ledger"),
                "ledger-ca-file": Option("", "trust the ledger's certificate because of this authority, a file"),
                "listen": Option("127.0.0.1:7783", "address and port of /healthz, /readyz and /metrics"),
                "scarcity": Option("graded", "what is done when a subnet runs short", SCARCITIES),
                "whereabouts-namespace": Option("kube-system", "where IPPools, NodeSlicePools and their Leases are"),
                "pod-history": Option("on", "tell the ledger which Pods have which addresses", ("on", "off")),
                "numbers": Option("", NUMBERS),
                "kubeconfig": Option("", KUBECONFIG),
            },
        ),
        "install-crds": Command(
            sentence="define our kinds in a cluster",
            does="podpool.cli.services:install_crds",
            options={"kubeconfig": Option("", KUBECONFIG)},
        ),
    },
    "agent": AGENT_COMMANDS,
    "cni": CNI_COMMANDS,
    "pocket": POCKET_COMMANDS,
}


def main(words: Sequence[str]) -> None:
    """Run what was typed."""
    try:
        options = vars(parser(words).parse_args(words))
        logs.to_stderr(level=options.pop("log_level"))
        module, _, name = options.pop("does").partition(":")
        options.pop("config", None)
        getattr(importlib.import_module(module), name)(**options)
    except PodpoolError as error:
        raise SystemExit(f"podpool: {error}") from None


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Describe all of them; what is typed may name a file with further defaults."""
    top = argparse.ArgumentParser(prog="podpool")
    rooms = top.add_subparsers(required=True, metavar="{" + ",".join(COMMANDS) + "}")
    for room, commands in COMMANDS.items():
        _describe_all(rooms.add_parser(room), commands, words if words[:1] == [room] else ())
    return top


def summary(room: str) -> str:
    """Tell in a line what there is in a room: sentences for few commands, names for many."""
    commands = COMMANDS[room]
    if any(" " in name for name in commands):
        return ", ".join(dict.fromkeys(name.partition(" ")[0] for name in commands))
    return "; ".join(f"{name}: {command.sentence}" for name, command in commands.items())


def _describe_all(parser: argparse.ArgumentParser, commands: Mapping[str, Command], words: Sequence[str]) -> None:
    """Describe commands of one word, and those of two under their first."""
    firsts = list(dict.fromkeys(name.partition(" ")[0] for name in commands))
    group = parser.add_subparsers(required=True, metavar="{" + ",".join(firsts) + "}")
    for first in firsts:
        command = commands.get(first)
        if command is not None:
            typed = words if words[1:2] == [first] else ()
            _describe(group.add_parser(first, help=command.sentence, description=command.sentence), command, typed)
        else:
            under = {name.partition(" ")[2]: each for name, each in commands.items() if name.startswith(f"{first} ")}
            _describe_all(group.add_parser(first, help=", ".join(under)), under, ())


def _describe(parser: argparse.ArgumentParser, command: Command, words: Sequence[str]) -> None:
    settings: Mapping[str, str] = {}
    if command.file:
        parser.add_argument("--config", help=f"a TOML file with options ({VARIABLE}; default {command.file})")
        path = chosen_file(words, command.file) if words else None
        settings = read_settings(path, [*command.options, "log-level"]) if path else {}
    for name in command.takes:
        parser.add_argument(name.lower().replace(".", "_"), metavar=name)
    log_level = Option("info", "how much to log", LEVELS)
    for name, option in {**command.options, "log-level": log_level}.items():
        variable = "PODPOOL_" + name.replace("-", "_").upper()
        value = os.environ.get(variable, settings.get(name, option.default))
        if words and option.choices and value not in option.choices:  # argparse looks only at what is typed
            raise InvalidInput(f"--{name}", value, f"use one of {', '.join(option.choices)}")
        told = f"{option.help} ({variable}; default {value})" if value else f"{option.help} ({variable})"
        parser.add_argument(f"--{name}", default=value, required=value is None, help=told, choices=option.choices)
    parser.set_defaults(does=command.does)


def parse_listen(text: str) -> tuple[str, int]:
    """Read an address and a port."""
    host, colon, port = text.rpartition(":")
    if not (colon and host):
        raise InvalidInput("--listen", text, "not an address and port: write it as 127.0.0.1:7780")
    number = parse_count(port, what="--listen")
    if number > 65535:
        raise InvalidInput("--listen", text, "has no such port: use 0 to 65535")
    return host.strip("[]"), number
