"""What a person types."""

import typer
from rich.console import Console

from podpool import __version__
from podpool.cli.tour import show_tour

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


@app.callback()
def podpool() -> None:
    """Addresses for Pods, from subnets that are running out."""


@app.command()
def up() -> None:
    """Show what podpool does: a tour of its mathematics in the terminal."""
    show_tour(Console())


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)
