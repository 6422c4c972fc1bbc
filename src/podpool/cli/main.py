"""The command line: find the command, print its help or parse its words, run its handler.

Loads neither rich nor any component before a handler does: an agent's process has 50 MiB.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from typing import Any

from podpool import __version__
from podpool.cli.errors import UsageError, report_errors
from podpool.cli.help import help_text
from podpool.cli.parser import Value, find_command, nearest, parse
from podpool.cli.spec.model import Command, Session
from podpool.runtime.logging import configure_logging

_HELP = ("-h", "--help")
_SESSIONS = {Session.CLUSTER: "run_with_cluster", Session.LEDGER: "run_with_ledger"}


def main(words: Sequence[str] | None = None, *, program: str = "podpool") -> None:
    """Run a command line, and exit with its code."""
    typed = sys.argv[1:] if words is None else list(words)
    report_errors(lambda: _run(typed, program), words=typed)


def kubectl() -> None:
    """Run `kubectl podpool`."""
    main(program="kubectl podpool")


def kubectl_completion() -> None:
    """Complete `kubectl podpool`."""
    main(["__complete", *sys.argv[1:]])


def _run(words: list[str], program: str) -> int | None:
    text = _information(words, program)
    if text is not None:
        sys.stdout.write(text)
        return 0
    command, rest = find_command(words)
    if not isinstance(command, Command):
        path = command.name.split() if command else []
        raise UsageError(f"unknown flag {rest[0]}{nearest(rest[0], (*_HELP, '--version'))}", path)
    return _handle(command, parse(command, rest))


def _information(words: list[str], program: str) -> str | None:
    """Return help, version or completions, if the words ask for one of them."""
    if words[:1] == ["__complete"]:
        from podpool.cli.completion import complete  # noqa: PLC0415  only for shells

        return "\n".join(complete(words[1:])) + "\n"
    if words == ["--version"]:
        return f"{__version__}\n"
    if words[:1] == ["help"]:
        return help_text(find_command(words[1:])[0], program)
    found, rest = find_command(words)
    wants_help = any(word in _HELP for word in rest) or not (rest or isinstance(found, Command))
    return help_text(found, program) if wants_help else None


def _handle(command: Command, values: dict[str, Value]) -> int | None:
    for name in ("config", "debug"):  # read before
        values.pop(name, None)
    if command.service:
        configure_logging(level=str(values.pop("log_level")), log_format=str(values.pop("log_format")))
    handler = load(command.handler)
    if command.session in _SESSIONS:
        start = load(f"podpool.cli.context:{_SESSIONS[command.session]}")
        return int(start(handler, values))
    code: int | None = handler(**values)
    return code


def load(handler: str) -> Callable[..., Any]:
    """Import a handler, named as module:function."""
    module, _, name = handler.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return function
