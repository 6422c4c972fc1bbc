"""The long-running commands: `ledger serve`, `controller run`, `agent run`, and what goes with them.

On argparse, and each imports only its own rooms when it is called: the agent's memory is counted on every node. Every
option may be set in the environment: `--ledger` is also PODPOOL_LEDGER.
"""

import argparse
import importlib
import os
import socket
from collections.abc import Mapping, Sequence

import msgspec

from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.quantities import parse_count
from podpool.runtime import logs

LEDGER = "http://127.0.0.1:7780"
NUMBERS = "numbers that are not the usual ones, as batch=8,buffer=0.25,shrink_hold=1m"
LEVELS = ("debug", "info", "warning", "error")
KUBECONFIG = "else the variable KUBECONFIG, the Pod's own account, or ~/.kube/config"


class Option(msgspec.Struct, frozen=True):
    """What may be said to a command; without a default it must be."""

    default: str | None
    help: str


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """One command: what it does, who does it, what it takes."""

    sentence: str
    does: str
    takes: tuple[str, ...] = ()
    options: Mapping[str, Option] = {}


COMMANDS: Mapping[str, Mapping[str, Command]] = {
    "ledger": {
        "serve": Command(
            sentence="answer over HTTP, from books in a SQLite file",
            does="podpool.cli.services:serve_ledger",
            options={
                "data": Option("/var/lib/podpool/ledger.db", "the database"),
                "listen": Option("127.0.0.1:7780", "address and port"),
            },
        ),
        "create-subnet": Command(
            sentence="make a subnet",
            does="podpool.cli.services:create_subnet",
            takes=("NETWORK.SUBNET", "CIDR"),
            options={
                "gateway": Option("", "its gateway, which is never given"),
                "numbers": Option("", NUMBERS),
                "ledger": Option(LEDGER, "where the ledger is"),
            },
        ),
    },
    "controller": {
        "run": Command(
            sentence="turn Nodes and requests into grants, for one cluster",
            does="podpool.cli.services:run_controller",
            options={
                "subnet": Option(None, "the subnet of nodes without a label, as NETWORK.SUBNET"),
                "ledger": Option(LEDGER, "where the ledger is"),
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
        group = rooms.add_parser(room).add_subparsers(required=True, metavar="{" + ",".join(commands) + "}")
        for name, command in commands.items():
            _describe(group.add_parser(name, help=command.sentence, description=command.sentence), command)
    return top


def _describe(parser: argparse.ArgumentParser, command: Command) -> None:
    for name in command.takes:
        parser.add_argument(name.lower().replace(".", "_"), metavar=name)
    log_level = Option("info", "how much to log")
    for name, option in {**command.options, "log-level": log_level}.items():
        variable = "PODPOOL_" + name.replace("-", "_").upper()
        value = os.environ.get(variable, option.default)
        told = f"{option.help} ({variable}; default {value})" if value else f"{option.help} ({variable})"
        choices = LEVELS if name == "log-level" else None
        parser.add_argument(f"--{name}", default=value, required=value is None, help=told, choices=choices)
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
