"""What can be typed about a cluster. Each command loads what it needs when it runs."""

import importlib
from functools import partial
from typing import Annotated

import typer

from podpool.cli.options import Asked, Everyday
from podpool.cli.spec import EXIT_CODES, LOOK
from podpool.core.quantities import parse_duration

NAMESPACE = Annotated[str, typer.Option("--namespace", "-n", help="the Pod's namespace; else the context's")]
WAITING = Annotated[bool, typer.Option("--waiting", help="only where somebody waits")]


AT = Annotated[str, typer.Option(help="at this moment, as 2026-11-16T02:30:00Z; else ever")]


def add_cluster_commands(app: typer.Typer) -> None:
    """Add them all."""
    for each in (status, subnets, nodes, pods, slices, who, watch):
        app.command(cls=Everyday, rich_help_panel=LOOK)(each)
    history = typer.Typer(
        no_args_is_help=True, help="Tell what was: of a Pod, a node or an address, also one that is gone."
    )
    for name, past in (("pod", pod_history), ("node", node_history), ("address", address_history)):
        history.command(name, cls=Everyday)(past)
    app.add_typer(history, name="history", rich_help_panel=LOOK)
    waits = "1 it waits for an address, or is not there"
    app.command(
        cls=Everyday, rich_help_panel=LOOK, epilog=EXIT_CODES.replace("1 something is wrong, or refused", waits)
    )(why)
    app.command(cls=Everyday, rich_help_panel=LOOK)(audit)


def status(ctx: typer.Context) -> None:
    """Tell in a screenful how a cluster's addresses are: who waits, how full, who is away."""
    _run(ctx, "status:status")


def subnets(
    ctx: typer.Context, names: Annotated[list[str] | None, typer.Argument(metavar="NETWORK.SUBNET")] = None
) -> None:
    """Tell how full subnets are, and of what."""
    _run(ctx, "status:subnets", names=names or [])


def nodes(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="NODE")] = None,
    *,
    waiting: WAITING = False,
) -> None:
    """Tell what nodes have, what is on its way, and who waits there."""
    _run(ctx, "status:nodes", names=names or [], waiting=waiting)


def pods(
    ctx: typer.Context,
    names: Annotated[list[str] | None, typer.Argument(metavar="POD", help="names, or NAMESPACE/NAME; else all")] = None,
    *,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="of this namespace; else of all")] = "",
    node: Annotated[str, typer.Option(help="on this node; else on all")] = "",
    waiting: WAITING = False,
) -> None:
    """Tell which Pod has which address."""
    _run(ctx, "status:pods", names=names or [], namespace=namespace, node=node, waiting=waiting)


def slices(
    ctx: typer.Context,
    network: Annotated[str, typer.Argument(help="its fullest slices, by node; else all networks")] = "",
) -> None:
    """Tell of further networks: how they are divided among nodes, and how full."""
    _run(ctx, "status:slices", network=network)


def who(
    ctx: typer.Context,
    address: Annotated[str, typer.Argument(help="an IPv4 or IPv6 address")],
    at: Annotated[str, typer.Option(help="at this moment, as 2026-11-16T02:30:00Z; else now, and before")] = "",
) -> None:
    """Tell who has an address, and who had it, down to the Pod."""
    _run(ctx, "history:who", address=address, at=at)


def pod_history(
    ctx: typer.Context,
    pod: Annotated[str, typer.Argument(help="a Pod's name, or NAMESPACE/NAME")],
    namespace: NAMESPACE = "",
    at: AT = "",
) -> None:
    """Tell which addresses a Pod had, on which node and in which network."""
    _run(ctx, "history:of_pod", pod=pod, namespace=namespace, at=at)


def node_history(ctx: typer.Context, node: Annotated[str, typer.Argument(help="a Node's name")], at: AT = "") -> None:
    """Tell which addresses a node had, and for which Pods."""
    _run(ctx, "history:of_node", node=node, at=at)


def address_history(
    ctx: typer.Context, address: Annotated[str, typer.Argument(help="an IPv4 or IPv6 address")], at: AT = ""
) -> None:
    """Tell who had an address, down to the Pod."""
    _run(ctx, "history:of_address", address=address, at=at)


def why(
    ctx: typer.Context,
    pod: Annotated[str, typer.Argument(help="a Pod's name, or NAMESPACE/NAME")],
    namespace: NAMESPACE = "",
) -> None:
    """Tell why a Pod has no address, from what is known, and what to do about it."""
    _run(ctx, "history:explain", pod=pod, namespace=namespace)


def watch(
    ctx: typer.Context,
    duration: Annotated[str, typer.Option("--for", help="as 30s or 5m; else until Ctrl-C")] = "",
) -> None:
    """Tell what happens, a line each: Pods and their addresses, nodes, subnets, what podpool remarks."""
    seconds = parse_duration(duration, what="--for") if duration else None
    _run(ctx, "status:watch", seconds=seconds)


def audit(
    ctx: typer.Context,
    *,
    settle: Annotated[
        str, typer.Option(help="look again after this long: a fault counts when it is still there")
    ] = "5s",
    repair: Annotated[
        bool, typer.Option("--repair", help="show what can safely be mended, and do it if you agree")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="agree beforehand")] = False,
) -> None:
    """Check that every address has one owner, is its node's to give, left no node unasked, and moves in batches."""
    settling = parse_duration(settle, what="--settle")

    def agreed(server: str) -> bool:
        return yes or typer.confirm(f"Do this in the cluster at {server}?", err=True)

    _run(ctx, "audit:run_audit", settling=settling, repair=repair, agreed=agreed)


def _run(ctx: typer.Context, does: str, **said: object) -> None:
    asked: Asked = ctx.obj
    module, _, name = does.partition(":")
    work = getattr(importlib.import_module(f"podpool.cli.commands.{module}"), name)
    desk = importlib.import_module("podpool.cli.context")
    raise typer.Exit(desk.at_desk(asked, partial(work, **said)))
