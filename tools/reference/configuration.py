"""The page of commands: what may be typed, set in the environment, or stand in a file, from what describes them."""

import socket
from collections.abc import Iterator, Mapping

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from podpool.cli.app import app
from podpool.cli.daemon_parser import COMMANDS, LOG_LEVEL
from podpool.cli.errors import DEBUG
from podpool.cli.spec import Command, Option
from tools.reference.words import code, table

_HEAD = ("option", "variable", "default", "what it is")
_LOG = {"log-level": LOG_LEVEL}


def configuration_page() -> str:
    """Write every command with its options."""
    rooms = "\n\n".join(_room(room, commands) for room, commands in COMMANDS.items())
    return f"""# Commands and configuration

Made by `make docs` from the descriptions of the commands. What is typed comes first, then the environment, then the
file, where there is one. Options stand in a file under their names, without the dashes; `numbers` may be a table there.
The [numbers](../settings.md) have a page of their own. `podpool COMMAND --help` tells the same.

{rooms}

## For people

{_people()}
"""


def _room(room: str, commands: Mapping[str, Command]) -> str:
    shared = _shared(commands)
    parts = [f"## podpool {room}"]
    if shared:
        parts += [f"Options of every command but {_without(room, commands, shared)}:", _options(shared)]
    for name, command in commands.items():
        words = " ".join(["podpool", room, name, *command.takes])
        more = {each: option for each, option in command.options.items() if each not in shared}
        sentence = f"{command.sentence[:1].upper()}{command.sentence[1:]}."
        file = f" Options may stand in `{command.file}`; `--config` or PODPOOL_CONFIG names another." * bool(
            command.file
        )
        parts += [f"### {words}", sentence + file]
        parts += [_options(more)] if more else []
    parts.append(f"Every command also takes {_one(_LOG)}. And `--debug` ({_variable('debug')}): {DEBUG}.")
    return "\n\n".join(parts)


def _shared(commands: Mapping[str, Command]) -> dict[str, Option]:
    """Find what most commands of a room take: it is told once."""
    found = {name: option for command in commands.values() for name, option in command.options.items()}
    most = len(commands) / 2
    return {
        name: option
        for name, option in found.items()
        if len(commands) > 2 and sum(each.options.get(name) == option for each in commands.values()) > most
    }


def _without(room: str, commands: Mapping[str, Command], shared: Mapping[str, Option]) -> str:
    others = [name for name, command in commands.items() if not shared.keys() <= command.options.keys()]
    return ", ".join(code(f"{room} {name}") for name in others)


def _options(options: Mapping[str, Option]) -> str:
    return table(_HEAD, ((code(f"--{name}"), _variable(name), _default(o), _meaning(o)) for name, o in options.items()))


def _one(options: Mapping[str, Option]) -> str:
    ((name, option),) = options.items()
    return f"`--{name}` ({_variable(name)}, default {_default(option)}): {_meaning(option)}"


def _variable(name: str) -> str:
    return code("PODPOOL_" + name.replace("-", "_").upper())


def _default(option: Option) -> str:
    if option.default is None:
        return "must be given"
    return "the machine's name" if option.default == socket.gethostname() else code(option.default)


def _meaning(option: Option) -> str:
    return option.help + (f"; one of {', '.join(map(code, option.choices))}" if option.choices else "")


def _people() -> str:
    group = typer.main.get_command(app)
    assert isinstance(group, TyperGroup)  # noqa: S101  for the type checker: it has commands
    return "\n\n".join(part for name, each in _own(group) for part in _command(name, each))


def _own(group: TyperGroup, above: str = "podpool") -> Iterator[tuple[str, TyperCommand]]:
    """Go over all commands that are not long-running ones."""
    for name, each in group.commands.items():
        if above == "podpool" and name in COMMANDS:
            continue
        if isinstance(each, TyperGroup):
            yield from _own(each, f"{above} {name}")
        elif isinstance(each, TyperCommand):
            yield f"{above} {name}", each


def _command(name: str, command: TyperCommand) -> Iterator[str]:
    takes = [(each.name or "").upper() for each in command.params if isinstance(each, TyperArgument)]
    yield f"### {' '.join([name, *takes])}"
    yield " ".join((command.help or "").split())
    rows = [
        (code(", ".join(each.opts)), code(_typed(each.envvar)), code(_typed(each.default)), each.help or "")
        for each in command.params
        if isinstance(each, TyperOption)
    ]
    if rows:
        yield table(_HEAD, rows)


def _typed(value: object) -> str:
    return "" if value is None or value is False or callable(value) else str(value)
