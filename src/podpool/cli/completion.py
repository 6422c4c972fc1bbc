"""What podpool tells of itself: its version, and what a shell needs to complete its commands."""

import enum
import platform
from typing import Annotated

import typer
from typer.completion import completion_init, get_completion_script  # type: ignore[attr-defined]  # no other way

from podpool import __version__
from podpool.cli.options import OfItself, Simple
from podpool.cli.spec import OWN, Output

VARIABLE = "_PODPOOL_COMPLETE"
"""With this in the environment a shell asks what may follow."""


class Shell(enum.StrEnum):
    """A shell that completes."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def add_own_commands(app: typer.Typer) -> None:
    """Add them all."""
    app.command(cls=OfItself, rich_help_panel=OWN)(version)
    app.command(cls=Simple, rich_help_panel=OWN)(completion)


def version(ctx: typer.Context) -> None:
    """Tell the version."""
    from podpool.cli.output import Teller  # noqa: PLC0415  only here

    told = {"version": __version__, "python": platform.python_version(), "machine": platform.machine()}
    teller = Teller(ctx.obj)
    more = f" (Python {told['python']}, {told['machine']})" * (teller.output is Output.WIDE)
    teller.answer(told, f"podpool {__version__}{more}")


def completion(shell: Annotated[Shell, typer.Argument(help="whose")]) -> None:
    """Print a script for a shell's completion: `source <(podpool completion bash)`, or put it where yours looks."""
    script = get_completion_script(prog_name="podpool", complete_var=VARIABLE, shell=shell.value)
    typer.echo(script)


def answer_shells() -> None:
    """Be ready for a shell that asks what may follow."""
    completion_init()
