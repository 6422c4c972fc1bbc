"""What podpool tells of itself: its version, and what a shell needs to complete its commands."""

import enum
import platform
from typing import Annotated

import msgspec
import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]  # no other way

from podpool import __version__
from podpool.cli.asked import Output

VARIABLE = "_PODPOOL_COMPLETE"
"""With this in the environment a shell asks what may follow."""


class Shell(enum.StrEnum):
    """A shell that completes."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def add_own_commands(app: typer.Typer) -> None:
    """Add them all."""
    for each in (version, completion):
        app.command()(each)


def version(
    output: Annotated[Output, typer.Option("--output", "-o", help="how to tell")] = Output.TABLE,
) -> None:
    """Tell the version."""
    told = {"version": __version__, "python": platform.python_version(), "machine": platform.machine()}
    if output is Output.JSON:
        typer.echo(msgspec.json.format(msgspec.json.encode(told)).decode())
    elif output is Output.YAML:
        typer.echo(msgspec.yaml.encode(told).decode(), nl=False)
    else:
        wide = f" (Python {told['python']}, {told['machine']})" * (output is Output.WIDE)
        typer.echo(f"podpool {__version__}{wide}")


def completion(shell: Annotated[Shell, typer.Argument(help="whose")]) -> None:
    """Print a script for a shell's completion: `source <(podpool completion bash)`, or put it where yours looks."""
    script = get_completion_script(prog_name="podpool", complete_var=VARIABLE, shell=shell.value)
    typer.echo(script)


def answer_shells() -> None:
    """Be ready for a shell that asks what may follow."""
    completion_init()
