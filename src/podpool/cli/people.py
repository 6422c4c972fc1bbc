"""What a person types, beside the long-running commands."""

import typer
from rich.console import Console

from podpool import __version__
from podpool.cli import daemons
from podpool.cli.tour import show_tour

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def podpool() -> None:
    """Addresses for Pods, from subnets that are running out."""


@app.command()
def up() -> None:
    """Show what podpool does: a tour of its mathematics in the terminal."""
    show_tour(Console())


def _forward(room: str, sentences: str) -> None:
    """List a group of long-running commands, and hand over to them."""

    @app.command(room, help=sentences, context_settings={"ignore_unknown_options": True}, add_help_option=False)
    def forward(words: list[str] | None = typer.Argument(None)) -> None:  # noqa: B008  typer's way
        daemons.main([room, *(words or [])])


for _room, _commands in daemons.COMMANDS.items():
    _forward(_room, "; ".join(f"{name}: {command.sentence}" for name, command in _commands.items()))


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)
