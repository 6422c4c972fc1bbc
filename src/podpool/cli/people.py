"""What a person types, beside the long-running commands."""

from typing import Annotated

import typer
from rich.console import Console

from podpool import __version__
from podpool.cli import daemons
from podpool.cli.tour import show_tour
from podpool.core.errors import PodpoolError

app = typer.Typer(no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


def _version(wanted: bool) -> None:  # noqa: FBT001  typer's way
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def podpool(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="tell the version")
    ] = False,
) -> None:
    """Addresses for Pods, from subnets that are running out."""
    del version  # told by its callback


@app.command()
def up() -> None:
    """Show what podpool does: a tour of its mathematics in the terminal."""
    show_tour(Console())


@app.command()
def sim(
    seed: Annotated[int | None, typer.Option(help="one seed, whose history is told when it goes wrong")] = None,
    seeds: Annotated[str, typer.Option(help="many seeds, first and last: 1-200")] = "1-100",
    climate: Annotated[
        str, typer.Option(help="what may happen: calm, storm, restore-ledger, restore-api, restore-both")
    ] = "storm",
    trace: Annotated[bool, typer.Option(help="with --seed: tell everything that the parts log")] = False,  # noqa: FBT002  typer's way
) -> None:
    """Play histories in the simulator: the product's own parts on virtual time, with faults."""
    from podpool.cli.simulation import run_seed, run_seeds  # noqa: PLC0415  loads every room

    try:
        good = run_seed(seed, climate, trace=trace) if seed is not None else run_seeds(seeds, climate)
    except PodpoolError as error:
        raise SystemExit(f"podpool: {error}") from None
    raise typer.Exit(0 if good else 1)


def _forward(room: str, sentences: str) -> None:
    """List a group of long-running commands, and hand over to them."""

    @app.command(room, help=sentences, context_settings={"ignore_unknown_options": True}, add_help_option=False)
    def forward(words: list[str] | None = typer.Argument(None)) -> None:  # noqa: B008  typer's way
        daemons.main([room, *(words or [])])


for _room, _commands in daemons.COMMANDS.items():
    _forward(_room, "; ".join(f"{name}: {command.sentence}" for name, command in _commands.items()))
