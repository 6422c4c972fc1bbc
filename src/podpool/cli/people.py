"""What a person types, beside the long-running commands."""

from collections.abc import Iterable, Mapping
from typing import Annotated, Any

import msgspec
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
        str, typer.Option(help="what may happen: calm, storm, shared, narrow, ...; a wrong one lists all")
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


@app.command()
def crds() -> None:
    """Print the definitions of the Kubernetes kinds, for kubectl apply -f -."""
    from podpool.resources.crds import manifests  # noqa: PLC0415  only here

    _print(manifests())


@app.command()
def access(
    pools: Annotated[str, typer.Option("--whereabouts-namespace", help="where IPPools live")] = "kube-system",
    shared_ranges: Annotated[bool, typer.Option(help="also let agents write ranges that nodes share")] = False,  # noqa: FBT002  typer's way
) -> None:
    """Print the accounts of controller and agent, their roles, and the policies that hold an agent to its node."""
    from podpool.resources import access, admission  # noqa: PLC0415  only here

    shared = access.shared_ranges(pools=pools) if shared_ranges else []
    _print([*access.accounts(pools=pools), *shared, *admission.policies()])


def _print(manifests: Iterable[Mapping[str, Any]]) -> None:
    for manifest in manifests:
        typer.echo("---\n" + msgspec.yaml.encode(manifest).decode(), nl=False)


def _forward(room: str, sentences: str) -> None:
    """List a group of long-running commands, and hand over to them."""

    @app.command(room, help=sentences, context_settings={"ignore_unknown_options": True}, add_help_option=False)
    def forward(words: list[str] | None = typer.Argument(None)) -> None:  # noqa: B008  typer's way
        daemons.main([room, *(words or [])])


for _room in daemons.COMMANDS:
    _forward(_room, daemons.summary(_room))
