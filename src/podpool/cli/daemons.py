"""The long-running commands: `ledger serve`, `controller run`, `agent run`, and what goes with them.

On argparse, and each imports only its own rooms when it is called: the agent's memory is counted on every node. Every
option may be set in the environment: `--ledger` is also PODPOOL_LEDGER.
"""

import argparse
import importlib
import os
import socket
from collections.abc import Mapping, Sequence

from podpool.cli.command import Command, Option
from podpool.cli.ledger_commands import DATABASE, LEDGER, LEDGER_COMMANDS, NUMBERS, TLS
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.quantities import parse_count
from podpool.runtime import logs

LEVELS = ("debug", "info", "warning", "error")
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
            sentence="turn Nodes and requests into grants, for one cluster",
            does="podpool.cli.services:run_controller",
            options={
                "subnet": Option(None, "the subnet of nodes without a label, as NETWORK.SUBNET"),
                "ledger": Option(LEDGER, "where the ledger is"),
                "ledger-token-file": Option("", "the file with this cluster's token for the ledger"),
                "ledger-ca-file": Option("", "trust the ledger's certificate because of this authority, a file"),
                "listen": Option("127.0.0.1:7783", "address and port of /healthz and /readyz"),
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
    "agent": {
        "run": Command(
            sentence="own the node's pool, and answer the plugin",
            does="podpool.cli.node:run_agent",
            options={
                "node": Option(socket.gethostname(), "the Node's name"),
                "state": Option("/var/lib/podpool", "where the journal is kept"),
                "socket": Option("/run/podpool/agent.sock", "where the plugin knocks"),
                "deletes": Option("/run/podpool/deletes", "where the plugin leaves DELs for later"),
                "listen": Option("127.0.0.1:7784", "address and port of /healthz and /readyz"),
                "numbers": Option("", NUMBERS),
                "kubeconfig": Option("", KUBECONFIG),
                "boot-id": Option("", "else the kernel's; must be what the kubelet reports"),
            },
        ),
    },
    "cni": {
        "install": Command(
            sentence="put the plugin where the container runtime looks for it",
            does="podpool.cli.node:install_plugin",
            options={"bin-dir": Option("/opt/cni/bin", "the runtime's plugins")},
        ),
    },
}


def main(words: Sequence[str]) -> None:
    """Run what was typed."""
    options = vars(parser().parse_args(words))
    logs.to_stderr(level=options.pop("log_level"))
    module, _, name = options.pop("does").partition(":")
    try:
        getattr(importlib.import_module(module), name)(**options)
    except PodpoolError as error:
        raise SystemExit(f"podpool: {error}") from None


def parser() -> argparse.ArgumentParser:
    """Describe all of them."""
    top = argparse.ArgumentParser(prog="podpool")
    rooms = top.add_subparsers(required=True, metavar="{" + ",".join(COMMANDS) + "}")
    for room, commands in COMMANDS.items():
        _describe_all(rooms.add_parser(room), commands)
    return top


def summary(room: str) -> str:
    """Tell in a line what there is in a room: sentences for few commands, names for many."""
    commands = COMMANDS[room]
    if any(" " in name for name in commands):
        return ", ".join(dict.fromkeys(name.partition(" ")[0] for name in commands))
    return "; ".join(f"{name}: {command.sentence}" for name, command in commands.items())


def _describe_all(parser: argparse.ArgumentParser, commands: Mapping[str, Command]) -> None:
    """Describe commands of one word, and those of two under their first."""
    firsts = list(dict.fromkeys(name.partition(" ")[0] for name in commands))
    group = parser.add_subparsers(required=True, metavar="{" + ",".join(firsts) + "}")
    for first in firsts:
        command = commands.get(first)
        if command is not None:
            _describe(group.add_parser(first, help=command.sentence, description=command.sentence), command)
        else:
            under = {name.partition(" ")[2]: each for name, each in commands.items() if name.startswith(f"{first} ")}
            _describe_all(group.add_parser(first, help=", ".join(under)), under)


def _describe(parser: argparse.ArgumentParser, command: Command) -> None:
    for name in command.takes:
        parser.add_argument(name.lower().replace(".", "_"), metavar=name)
    log_level = Option("info", "how much to log", LEVELS)
    for name, option in {**command.options, "log-level": log_level}.items():
        variable = "PODPOOL_" + name.replace("-", "_").upper()
        value = os.environ.get(variable, option.default)
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
