"""The long-running commands: `ledger serve`, `controller run`, `agent run`, and what goes with them.

On argparse, and each imports only its own rooms when it is called: the agent's memory is counted on every node. Every
option may be set in the environment: `--ledger` is also PODPOOL_LEDGER. Some commands read a file as well.
"""

import argparse
import importlib
import os
from collections.abc import Mapping, Sequence

from podpool.cli.apiserver_spec import POCKET_COMMANDS
from podpool.cli.errors import DEBUG, guarded
from podpool.cli.ledger_spec import DATABASE, LEDGER, LEDGER_COMMANDS, NUMBERS, TLS
from podpool.cli.node_spec import AGENT_COMMANDS, CNI_COMMANDS
from podpool.cli.settings_file import VARIABLE, chosen_file, read_settings
from podpool.cli.spec import EXIT_CODES, NO_COLOR, OUTPUT, Command, Option, firsts, under
from podpool.core.errors import InvalidInput
from podpool.core.quantities import parse_count
from podpool.runtime.logging import FORMATS, configure_logging

LOG_LEVEL = Option("info", "how much to log", ("debug", "info", "warning", "error"))
LOG_FORMAT = Option("auto", "text on a terminal and JSON otherwise, or always one of them", FORMATS)
SCARCITIES = ("off", "exhaustion", "graded")
KUBECONFIG = "else the variable KUBECONFIG, the Pod's own account, or ~/.kube/config"


ROOMS = {
    "ledger": "The authority on subnets: serve it, and look after its subnets, tokens, clusters, past and copies.",
    "controller": "The part that each cluster has once: turns Nodes and their requests into grants.",
    "agent": "The part on each node: owns the node's addresses and answers the plugin.",
    "cni": "The plugin that container runtimes start: put it in its place, or take it away.",
    "pocket": "A Kubernetes API without a cluster, small enough to carry.",
}
"""What each is, for people."""
COMMANDS: Mapping[str, Mapping[str, Command]] = {
    "ledger": {
        "serve": Command(
            sentence="answer over HTTP, from books in a SQLite file or in PostgreSQL",
            does="podpool.cli.commands.controller:serve_ledger",
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
            does="podpool.cli.commands.controller:run_controller",
            options={
                "subnet": Option("", "the subnet of nodes without a label, as NETWORK.SUBNET"),
                "ledger": Option(LEDGER, "where the ledger is; or none, to look after node slices alone"),
                "ledger-token-file": Option("", "the file with this cluster's token for the ledger"),
                "ledger-ca-file": Option("", "trust the ledger's certificate because of this authority, a file"),
                "listen": Option("127.0.0.1:7783", "address and port of /healthz, /readyz and /metrics"),
                "scarcity": Option("graded", "what is done when a subnet runs short", SCARCITIES),
                "whereabouts-namespace": Option("kube-system", "where IPPools, NodeSlicePools and their Leases are"),
                "flat-file": Option("", "Whereabouts' whereabouts.conf, as nodes have it; or none"),
                "pod-history": Option("on", "tell the ledger which Pods have which addresses", ("on", "off")),
                "numbers": Option("", NUMBERS),
                "kubeconfig": Option("", KUBECONFIG),
            },
        ),
        "install-crds": Command(
            sentence="define our kinds in a cluster",
            does="podpool.cli.commands.controller:install_crds",
            options={"kubeconfig": Option("", KUBECONFIG)},
        ),
    },
    "agent": AGENT_COMMANDS,
    "cni": CNI_COMMANDS,
    "pocket": POCKET_COMMANDS,
}


def main(words: Sequence[str]) -> None:
    """Run what was typed."""
    guarded(lambda: _run(words), words=words)


def _run(words: Sequence[str]) -> None:
    options = vars(parser(words).parse_args(words))
    configure_logging(level=options.pop("log_level"), log_format=options.pop("log_format"))
    module, _, name = options.pop("does").partition(":")
    for read_before in ("config", "debug"):
        options.pop(read_before, None)
    getattr(importlib.import_module(module), name)(**options)


def parser(words: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Describe all of them; what is typed may name a file with further defaults."""
    top = argparse.ArgumentParser(prog="podpool")
    rooms = top.add_subparsers(required=True, title="commands", metavar="COMMAND")
    for room, commands in COMMANDS.items():
        described = rooms.add_parser(room, description=ROOMS[room])
        _describe_all(described, commands, words if words[:1] == [room] else ())
    return top


def _describe_all(parser: argparse.ArgumentParser, commands: Mapping[str, Command], words: Sequence[str]) -> None:
    """Describe commands of one word, and those of two under their first."""
    group = parser.add_subparsers(required=True, title="commands", metavar="COMMAND")
    for first in firsts(commands):
        command = commands.get(first)
        if command is not None:
            told = f"{command.sentence[:1].upper()}{command.sentence[1:]}."
            codes = EXIT_CODES if OUTPUT in command.options.values() else None
            typed = words if words[1:2] == [first] else ()
            _describe(group.add_parser(first, help=command.sentence, description=told, epilog=codes), command, typed)
        else:
            second = under(commands, first)
            _describe_all(group.add_parser(first, help=", ".join(second)), second, ())


def _describe(parser: argparse.ArgumentParser, command: Command, words: Sequence[str]) -> None:
    settings: Mapping[str, str] = {}
    if command.file:
        parser.add_argument("--config", help=f"a TOML file with options ({VARIABLE}; default {command.file})")
        path = chosen_file(words, command.file) if words else None
        settings = read_settings(path, [*command.options, "log-level", "log-format"]) if path else {}
    for name in command.takes:
        parser.add_argument(name.lower().replace(".", "_"), metavar=name)
    for name, option in {**command.options, "log-level": LOG_LEVEL, "log-format": LOG_FORMAT}.items():
        variable = "PODPOOL_" + name.replace("-", "_").upper()
        value = os.environ.get(variable, settings.get(name, option.default))
        if words and option.choices and value not in option.choices:  # argparse looks only at what is typed
            raise InvalidInput(f"--{name}", value, f"use one of {', '.join(option.choices)}")
        told = f"{option.help} ({variable}; default {value})" if value else f"{option.help} ({variable})"
        short = ["-o"] if option is OUTPUT else []
        parser.add_argument(
            *short, f"--{name}", default=value, required=value is None, help=told, choices=option.choices
        )
    if OUTPUT in command.options.values():
        parser.add_argument("--no-color", action="store_const", const="yes", default="", help=NO_COLOR)
    parser.add_argument("--debug", action="store_true", help=f"{DEBUG} (PODPOOL_DEBUG)")
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
