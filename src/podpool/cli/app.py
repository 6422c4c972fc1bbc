"""What a person types, beside the long-running commands."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer
from rich.console import Console

from podpool import __version__
from podpool.cli import daemon_parser
from podpool.cli.completion import VARIABLE, add_own_commands, answer_shells
from podpool.cli.errors import guarded
from podpool.cli.ledger_spec import LEDGER
from podpool.cli.options import Asked, Manifests, OfCluster, Simple
from podpool.cli.spec import LOOK, RUN, TRY, Output
from podpool.cli.status_app import add_cluster_commands
from podpool.cli.typer_bridge import add_rooms
from podpool.runtime.logging import configure_logging

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


@app.command(cls=Simple, rich_help_panel=TRY)
def up(  # noqa: PLR0913  one for each option
    *,
    nodes: Annotated[int, typer.Option(help="how many machines")] = 8,
    subnet: Annotated[str, typer.Option(help="where the addresses come from")] = "10.77.0.0/24",
    batch: Annotated[int, typer.Option(help="B: addresses move in multiples of it")] = 16,
    mode: Annotated[str, typer.Option(help="what a request follows: reactive, idempotent or pods")] = "pods",
    scarcity: Annotated[str, typer.Option(help="what is done when it runs short: off, exhaustion, graded")] = "graded",
    story: Annotated[str, typer.Option(help="what is played: full, short, none (the stage is yours)")] = "full",
    api: Annotated[str, typer.Option(help="pocket, or real: kube-apiserver from a checkout's parts")] = "pocket",
    database: Annotated[str, typer.Option(help="the ledger's, as postgresql://user@host/name; else SQLite")] = "",
    port: Annotated[int, typer.Option(help="the first of four ports, on loopback")] = 7780,
    home: Annotated[Path | None, typer.Option(help="where it lives; else in your state directory")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="forget what was, and begin anew")] = False,
    once: Annotated[bool, typer.Option("--once", help="end with the story; exit code 1 if it went wrong")] = False,
    step: Annotated[bool, typer.Option("--step", help="wait for Enter after each act")] = False,
) -> None:
    """The whole system on this machine: API server, ledger, controller, nodes and Pods, and a story they play."""
    from podpool.lab.demo.run import run_up  # noqa: PLC0415  loads many rooms
    from podpool.lab.demo.settings import DemoSettings, usual_home  # noqa: PLC0415  same

    settings = DemoSettings(
        nodes=nodes,
        subnet=subnet,
        batch=batch,
        mode=mode,
        scarcity=scarcity,
        story=story,
        api=api,
        database=database,
        port=port,
        once=once,
        step=step,
    )
    good = run_up(settings, home=home or usual_home(), fresh=fresh, console=Console())
    raise typer.Exit(0 if good else 1)


@app.command(cls=Simple, rich_help_panel=TRY)
def tour() -> None:
    """Show what podpool computes: its mathematics in the terminal, a minute to read."""
    from podpool.lab.demo.tour import show_tour  # noqa: PLC0415  only here

    show_tour(Console())


@app.command(cls=Simple, rich_help_panel=TRY)
def sim(
    seed: Annotated[int | None, typer.Option(help="one seed, whose history is told when it goes wrong")] = None,
    seeds: Annotated[str, typer.Option(help="many seeds, first and last: 1-200")] = "1-100",
    climate: Annotated[
        str, typer.Option(help="what may happen: calm, storm, shared, narrow, ...; a wrong one lists all")
    ] = "storm",
    trace: Annotated[bool, typer.Option(help="with --seed: tell the plan, and everything that the parts log")] = False,  # noqa: FBT002  typer's way
) -> None:
    """Play histories in the simulator: the product's own parts on virtual time, with faults."""
    from podpool.cli.commands.sim import run_seed, run_seeds  # noqa: PLC0415  loads every room

    good = run_seed(seed, climate, trace=trace) if seed is not None else run_seeds(seeds, climate)
    raise typer.Exit(0 if good else 1)


add_cluster_commands(app)


@app.command(cls=Simple, rich_help_panel=LOOK)
def dashboard(
    kubeconfig: Annotated[str, typer.Option(envvar="PODPOOL_KUBECONFIG", help=daemon_parser.KUBECONFIG)] = "",
    ledger: Annotated[
        str, typer.Option(envvar="PODPOOL_LEDGER", help="where the ledger is; none, if there is none")
    ] = LEDGER,
    ledger_token_file: Annotated[
        str, typer.Option(envvar="PODPOOL_LEDGER_TOKEN_FILE", help="the file with a token for the ledger")
    ] = "",
    ledger_ca_file: Annotated[
        str, typer.Option(envvar="PODPOOL_LEDGER_CA_FILE", help="trust the ledger because of this authority, a file")
    ] = "",
    host: Annotated[str, typer.Option(help="who can reach the page: this machine alone, unless told")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="on which port; 0 for any", min=0, max=65535)] = 7781,
) -> None:
    """Serve a page that shows a cluster's addresses, live. It reads, and changes nothing."""
    from podpool.cli.commands.dashboard import serve_dashboard  # noqa: PLC0415  only here

    configure_logging()
    serve_dashboard(
        kubeconfig=kubeconfig,
        ledger=ledger,
        ledger_token_file=ledger_token_file,
        ledger_ca_file=ledger_ca_file,
        host=host,
        port=port,
    )


adopt = typer.Typer(no_args_is_help=True, help="Go on where another system is, and the way back.")
app.add_typer(adopt, name="adopt", rich_help_panel=RUN)


@adopt.command(cls=OfCluster)
def whereabouts(
    ctx: typer.Context,
    pools: Annotated[str, typer.Option("--whereabouts-namespace", help="where IPPools live")] = "kube-system",
    flat_file: Annotated[str, typer.Option(help="Whereabouts' whereabouts.conf, as nodes have it; or none")] = "",
    apply: Annotated[bool, typer.Option("--apply", help="do what is said; else nothing is changed")] = False,  # noqa: FBT002  typer's way
    back: Annotated[bool, typer.Option("--back", help="the way back to Whereabouts")] = False,  # noqa: FBT002  typer's way
) -> None:
    """Say what a cluster has of Whereabouts, and what is wrong with it: addresses with two owners, leaks, and more."""
    from podpool.cli.commands.adopt import adopt_whereabouts  # noqa: PLC0415  only here
    from podpool.cli.context import at_desk  # noqa: PLC0415  same

    work = partial(adopt_whereabouts, namespace=pools, flat_file=flat_file, apply=apply, back=back)
    raise typer.Exit(at_desk(ctx.obj, work))


@app.command(cls=Manifests, rich_help_panel=RUN)
def crds(ctx: typer.Context) -> None:
    """Print the definitions of the Kubernetes kinds, for kubectl apply -f -."""
    from podpool.api.crds import manifests  # noqa: PLC0415  only here

    _print(ctx.obj, manifests())


@app.command(cls=Manifests, rich_help_panel=RUN)
def access(
    ctx: typer.Context,
    pools: Annotated[str, typer.Option("--whereabouts-namespace", help="where IPPools live")] = "kube-system",
    shared_ranges: Annotated[bool, typer.Option(help="also let agents write ranges that nodes share")] = False,  # noqa: FBT002  typer's way
) -> None:
    """Print the accounts of all components, their roles, and the policies that hold an agent to its node."""
    from podpool.api import admission, rbac  # noqa: PLC0415  only here

    shared = rbac.shared_ranges(pools=pools) if shared_ranges else []
    _print(ctx.obj, [*rbac.accounts(pools=pools), *shared, *admission.policies()])


def _print(asked: Asked, manifests: Iterable[Mapping[str, Any]]) -> None:
    from podpool.cli.output import Sheet, Teller  # noqa: PLC0415  only here

    found = list(manifests)
    if asked.output is Output.YAML:
        documents = [msgspec.yaml.encode(each).decode() for each in found]
        typer.echo("".join(f"---\n{each}" for each in documents), nl=False)
        return
    rows = [(each["kind"], each["metadata"].get("namespace", "-"), each["metadata"]["name"]) for each in found]
    together = {"apiVersion": "v1", "kind": "List", "items": found}
    Teller(asked).answer(together, Sheet(("KIND", "NAMESPACE", "NAME"), rows))


add_own_commands(app)
add_rooms(app)


def run(words: Sequence[str], *, name: str) -> None:
    """Run what a person typed, under the name that it was typed with."""
    answer_shells()
    guarded(lambda: app(list(words), prog_name=name, complete_var=VARIABLE), words=words)
