"""The long-running commands and their kin, as the list of all commands and a shell's completion see them.

What is typed goes to `daemons` as it is, word for word: here they are only described, from the same descriptions.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from podpool.cli import daemon_parser
from podpool.cli.errors import DEBUG
from podpool.cli.spec import NO_COLOR, OUTPUT, RUN, Command, firsts, under


class Room(TyperGroup):
    """Hands over whatever is typed after its name; a shell that completes goes on from here."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]  # typer's own
        """Hand over, unless a shell asks."""
        if ctx.resilient_parsing:
            return super().parse_args(ctx, args)
        daemon_parser.main([ctx.info_name or "", *args])
        raise typer.Exit


def add_rooms(app: typer.Typer) -> None:
    """Add them all."""
    for room, commands in daemon_parser.COMMANDS.items():
        app.add_typer(_group(commands, cls=Room, help=daemon_parser.ROOMS[room]), name=room, rich_help_panel=RUN)


def _group(commands: Mapping[str, Command], **described: Any) -> typer.Typer:  # noqa: ANN401  typer's own
    group = typer.Typer(**described)
    for first in firsts(commands):
        if command := commands.get(first):
            group.command(first, help=command.sentence)(_function(command))
        else:
            group.add_typer(_group(under(commands, first)), name=first)
    return group


def _function(command: Command) -> Callable[[], None]:
    """Make a function that takes what the command takes; nobody calls it."""

    def described() -> None:
        """Be described."""

    parameters = list(_parameters(command))
    described.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # what typer reads
    described.__annotations__ = {each.name: each.annotation for each in parameters}
    return described


def _parameters(command: Command) -> Iterator[inspect.Parameter]:
    for name in command.takes:
        yield _parameter(name, Annotated[str, typer.Argument(metavar=name)])
    if command.file:
        told = f"a TOML file with options; else {command.file}"
        yield _parameter("config", Annotated[Path, typer.Option("--config", help=told)], None)
    for name, option in {
        **command.options,
        "log-level": daemon_parser.LOG_LEVEL,
        "log-format": daemon_parser.LOG_FORMAT,
    }.items():
        flags = [f"--{name}", *["-o"] * (option is OUTPUT)]
        chosen = _offering(option.choices) if option.choices else None
        yield _parameter(name, Annotated[str, typer.Option(*flags, help=option.help, autocompletion=chosen)], None)
    colours = {"no-color": NO_COLOR} if OUTPUT in command.options.values() else {}
    for name, words in {**colours, "debug": DEBUG}.items():
        yield _parameter(name, Annotated[bool, typer.Option(f"--{name}", help=words)], default=False)


def _parameter(name: str, annotation: object, default: object = inspect.Parameter.empty) -> inspect.Parameter:
    plain = name.lower().replace(".", "_").replace("-", "_")
    return inspect.Parameter(plain, inspect.Parameter.KEYWORD_ONLY, annotation=annotation, default=default)


def _offering(choices: Sequence[str]) -> Callable[[str], list[str]]:
    def offered(incomplete: str) -> list[str]:
        return [each for each in choices if each.startswith(incomplete)]

    return offered
