"""What a person types."""

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def podpool() -> None:
    """Addresses for Pods, from subnets that are running out."""


@app.command()
def up() -> None:
    """Show what podpool does."""
