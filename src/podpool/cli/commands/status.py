"""Commands that show the state of a cluster from one snapshot; and `watch`, which follows it.

Handlers return the exit code. If a component is unreachable, they print what the other one knows, and a warning.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from rich.text import Text

from podpool.cli.commands.status_wait import read_health, reason_text, wait_until_healthy
from podpool.cli.context import ClusterContext
from podpool.cli.errors import FAILED, UNREACHABLE, ComponentUnreachable, DoesNotExist
from podpool.cli.output import BAD, FAINT, GOOD, HEAD, WARNING, TextTable, age, joined
from podpool.cli.spec.options import NO_LEDGER
from podpool.cli.state_tables import network_table, node_table, pod_table, slice_table, sliced_node_table, subnet_table
from podpool.core.errors import InvalidInput
from podpool.core.quantities import parse_duration, show_duration
from podpool.inspect.activity import Activity, pod_activity
from podpool.inspect.cluster_model import ClusterModel
from podpool.inspect.health import HealthReason
from podpool.inspect.observer import CLUSTER, LEDGER, Observer
from podpool.inspect.secondary_networks import NetworkView, SliceView
from podpool.inspect.slice_inventory import InventoryStatus
from podpool.inspect.status import ClusterStatus, read_status
from podpool.inspect.view_models import InspectedPod, NodeView, PodView, SubnetView, ViewModel, pod_view
from podpool.runtime import entropy

V = TypeVar("V", SubnetView, NodeView, NetworkView, PodView)

MAX_NAMES = 3
"""Networks that are named; more are counted."""
POLL = 0.5
"""Seconds between two updates of `watch`."""


class ItemList(ViewModel, frozen=True, kw_only=True):
    """A list as JSON or YAML."""

    items: Sequence[msgspec.Struct]
    unreachable: Mapping[str, str] = {}
    """Errors by component."""


class SliceList(ItemList, frozen=True, kw_only=True):
    """A network and its slices as JSON or YAML."""

    slices: Sequence[SliceView] = ()
    waiting_nodes: Sequence[str] = ()
    """Nodes without a slice, the longest waiting first."""


async def status(context: ClusterContext, *, wait: str = "") -> int:
    """Show address usage, waiting Pods and unreachable components; with `wait`, once the cluster is healthy."""
    limit = parse_duration(wait, what="--wait") if wait else 0.0
    seen, reasons = await (wait_until_healthy(context, limit) if wait else read_health(context))
    code = _print_status(context, seen, reasons)
    if not wait:
        return code
    if reasons:
        context.printer.warn(f"not healthy after {show_duration(limit)}: {reason_text(reasons)}")
    return FAILED if reasons else 0


def _print_status(context: ClusterContext, seen: ClusterStatus, reasons: Sequence[HealthReason]) -> int:
    now, model = context.clock.wall(), seen.model
    nodes = tuple(model.nodes.values())
    figures: dict[str, Any] = {
        "summary": seen.headline,
        "subnets": seen.subnets,
        "nodes": len(nodes),
        "nodes_short": sum(each.short for each in nodes),
        "nodes_unserved": sum(not each.subnet for each in nodes) if context.ledger else 0,
        "nodes_gone": sum(each.gone for each in nodes),
        "pods": sum(each.assigned for each in nodes),
        "pods_waiting": sum(each.waiting for each in nodes),
        "networks": model.networks,
        "networks_short": sum(bool(each.waiting) for each in model.networks),
        "nodes_without_slice": model.nodes_waiting,
        "controller": seen.leader,
        "slice_inventory": seen.inventory,
        "unreachable": model.problems,
        "unhealthy": reasons,
    }
    parts: list[TextTable | str | Text] = [Text(seen.headline, style=_style(figures)), *_remedies(model.networks), ""]
    if seen.subnets:
        parts += [subnet_table(seen.subnets), ""]
    slices_only = context.ledger is None and not seen.subnets
    cluster = {"nodes": _nodes(figures), "Pods": _pods(figures, slices_only=slices_only), "networks": _networks(model)}
    cluster["controller"] = _controller(seen, now=now)
    if waits := _waits(seen.inventory):
        cluster["slices"] = waits
    if CLUSTER in model.problems:
        cluster = dict.fromkeys(cluster, "unknown")
    rows = [*cluster.items(), ("ledger", _ledger(model, context))]
    context.printer.result(figures, *parts, TextTable(("COMPONENT", "STATE"), rows))
    return _warn_unreachable(context, model)


def _style(figures: dict[str, Any]) -> str:
    inventory = figures["slice_inventory"]
    if figures["pods_waiting"] or figures["nodes_without_slice"] or figures["unreachable"]:
        return BAD
    if inventory.waits_for_nodes or inventory.waits_for_confirmation:
        return BAD
    limited = any(each.exhausted or each.frozen for each in figures["subnets"])
    return WARNING if limited or figures["nodes_gone"] else GOOD


def _remedies(networks: Iterable[NetworkView]) -> list[str]:
    """Return what to do for nodes without a slice, network by network."""
    short = [each for each in networks if each.waiting]
    lines = [f"{each.name}: {each.assigned} nodes have a slice; {each.remedy}." for each in short[:MAX_NAMES]]
    more = len(short) - MAX_NAMES
    return [*lines, f"{more} more: see `podpool slices`."] if more > 0 else lines


def _nodes(figures: dict[str, Any]) -> str:
    words = ("short", "unserved", "gone", "without_slice")
    more = [f"{figures[f'nodes_{word}']} {word.replace('_', ' a ')}" for word in words if figures[f"nodes_{word}"]]
    return ", ".join([str(figures["nodes"]), *more])


def _pods(figures: dict[str, Any], *, slices_only: bool) -> str:
    assigned = "" if slices_only else f"{figures['pods']} with an address, "  # those are another plugin's
    return f"{assigned}{figures['pods_waiting']} waiting"


def _networks(model: ClusterModel) -> str:
    if not model.networks:
        return "no secondary networks"
    used = sum(each.used for each in model.networks)
    short = [each.name for each in model.networks if each.waiting]
    names = joined(short) if len(short) <= MAX_NAMES else f"{len(short)} networks"
    waiting = f", nodes wait for slices of {names}" if short else ""
    return f"{len(model.networks)} secondary, {used} addresses in use{waiting}"


def _controller(seen: ClusterStatus, *, now: float) -> str:
    if not seen.leader.name:
        return "no leader: requests of nodes are not answered"
    return f"{seen.leader.name}, renewed {age(seen.leader.renewed, now=now)} ago"


def _waits(inventory: InventoryStatus) -> str:
    """Return what the controller waits for before it assigns or releases slices."""
    parts = []
    if inventory.waits_for_nodes:
        count = len(inventory.silent)
        parts.append(f"none is assigned before {count} nodes answer: see `podpool slices declare-complete`")
    if inventory.waits_for_confirmation:
        count = len(inventory.missing)
        parts.append(f"none of {count} missing nodes is released: see `podpool slices confirm-loss`")
    return "; ".join(parts)


def _ledger(model: ClusterModel, context: ClusterContext) -> str:
    if context.ledger is None:
        return "none"
    return "unreachable" if LEDGER in model.problems else "reachable"


async def subnets(context: ClusterContext, *, names: Sequence[str]) -> int:
    """Show address usage per subnet."""
    seen = await read_status(context.kube, context.ledger, at=context.clock.wall())
    found = _named(seen.subnets, names, what="SUBNET")
    context.printer.result(ItemList(items=found, unreachable=seen.model.problems), subnet_table(found))
    return _warn_unreachable(context, seen.model)


async def nodes(context: ClusterContext, *, names: Sequence[str], waiting: bool) -> int:
    """Show addresses per node."""
    now = context.clock.wall()
    model = await load_cluster(context)
    found = [each for each in _named(model.nodes.values(), names, what="NODE") if each.waiting or not waiting]
    slices_only = context.ledger is None and model.caches.slices_only
    table = (
        sliced_node_table(found, now=now)
        if slices_only
        else node_table(found, now=now, ledger=context.ledger is not None)
    )
    context.printer.result(ItemList(items=found), table)
    return 0


async def pods(context: ClusterContext, *, names: Sequence[str], namespace: str, node: str, waiting: bool) -> int:
    """Show the addresses of Pods."""
    now = context.clock.wall()
    model = await load_cluster(context)
    views = (pod_view(each) for each in model.caches.pods.values())
    keys = [each if "/" in each else f"{namespace or context.namespace}/{each}" for each in names]
    shown = _named(sorted(views, key=lambda each: each.name), keys, what="POD", hint="`podpool pods` lists all")
    found = [
        each
        for each in shown
        if (not namespace or each.name.startswith(f"{namespace}/"))
        and (not node or each.node == node)
        and (not waiting or each.state == "waiting")
    ]
    context.printer.result(ItemList(items=found), pod_table(found, now=now))
    return 0


async def slices(context: ClusterContext, *, network: str) -> int:
    """Show secondary networks, or the slices of one of them."""
    model = await load_cluster(context)
    found = _named(model.networks, [network] if network else [], what="NETWORK")
    remedies = _remedies(found)
    if not network:
        context.printer.result(ItemList(items=found), network_table(found), *([""] * bool(remedies)), *remedies)
        return 0
    (shown,) = (each for each in model.read_networks() if each.view.name == network)
    data = SliceList(items=found, slices=shown.slices, waiting_nodes=shown.waiting)
    context.printer.result(data, slice_table(shown.slices, shown.waiting), *([""] * bool(remedies)), *remedies)
    return 0


async def watch(context: ClusterContext, *, duration: str) -> int:
    """Print changes, one per line."""
    seconds = parse_duration(duration, what="--duration") if duration else None
    if context.ledger is None:
        raise InvalidInput(
            "--ledger", NO_LEDGER, "watch needs the ledger: name its URL, or use `kubectl get events --watch`"
        )
    observer = Observer(context.kube, context.ledger, clock=context.clock, rng=entropy.system_random())
    model, pod_changes = observer.model, list[Activity]()

    def on_pod(old: InspectedPod | None, new: InspectedPod | None) -> None:
        if model.caches.pods.synced.is_set():
            pod_changes.extend(pod_activity(old, new, at=_timestamp(context)))

    model.caches.pods.subscribe(on_pod)
    loop = asyncio.get_running_loop()
    deadline = None if seconds is None else loop.time() + seconds
    running = asyncio.ensure_future(observer.run())
    unreachable: Mapping[str, str] = {}
    synced = False
    try:
        while deadline is None or loop.time() < deadline:
            await asyncio.sleep(POLL)
            if running.done():
                running.result()
            unreachable = _warn_changes(context, unreachable, model.problems)
            changes = (*model.refresh(at=context.clock.wall()).activity, *pod_changes)
            pod_changes.clear()
            if not synced:  # the initial state is not a change
                synced = _is_synced(model)
                initial = Activity(at=_timestamp(context), subject="Cluster", message=model.headline)
                changes = (initial,) if synced else ()
            for each in changes:
                context.printer.event(each, _line(each))
        if not synced and not unreachable:
            context.printer.warn(f"the cluster at {context.server} cannot be watched: {observer.missing()}")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return UNREACHABLE if unreachable or not synced else 0


def _is_synced(model: ClusterModel) -> bool:
    caches = model.caches
    synced = all(each.synced.is_set() for each in (caches.nodes, caches.nncs, caches.pods))
    return synced and bool(model.subnets or LEDGER in model.problems)


def _warn_changes(context: ClusterContext, before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    for name, error in now.items():
        if name not in before:
            context.printer.warn(f"lost {name}, retrying: {error}")
    for name in before.keys() - now.keys():
        context.printer.warn(f"{name} is reachable again")
    return dict(now)


def _line(change: Activity) -> Text:
    times = f" ({change.count} times)" if change.count > 1 else ""
    style = WARNING if change.warning else ""
    return Text.assemble((f"{change.at}  ", FAINT), (change.subject, HEAD), "  ", (f"{change.message}{times}", style))


def _timestamp(context: ClusterContext) -> str:
    return datetime.fromtimestamp(context.clock.wall(), UTC).isoformat(timespec="seconds")


async def load_cluster(context: ClusterContext) -> ClusterModel:
    """Return the state that Kubernetes has; the ledger is not read."""
    model = (await read_status(context.kube, None, at=context.clock.wall())).model
    require_cluster(model)
    return model


def require_cluster(model: ClusterModel) -> None:
    """Raise an error if the API server is unreachable."""
    if CLUSTER in model.problems:
        alternative = "`podpool subnets` and `podpool who ADDRESS --at TIME` only need the ledger."
        raise ComponentUnreachable(model.problems[CLUSTER], alternative)


def _warn_unreachable(context: ClusterContext, model: ClusterModel) -> int:
    shown = {
        LEDGER: "showing what Kubernetes knows, without the capacity of subnets",
        CLUSTER: "showing what the ledger knows",
    }
    for name, error in model.problems.items():
        context.printer.warn(f"{error}: {shown[name]}" if len(model.problems) == 1 else error)
    return UNREACHABLE if model.problems else 0


def _named(found: Iterable[V], names: Sequence[str], *, what: str, hint: str = "") -> list[V]:
    """Return the named ones, or all if none is named."""
    by_name = {each.name: each for each in found}
    for name in names:
        if name not in by_name:
            raise DoesNotExist(what, name, hint or f"existing: {joined(by_name)}")
    return [by_name[name] for name in names] if names else list(by_name.values())
