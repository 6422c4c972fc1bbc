"""What a person asks about a cluster, answered from one look at it; and `watch`, which goes on looking.

Each gives its exit code. Whoever is away is told in a sentence, and what can be told without them is told.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
from rich.text import Text

from podpool.cli.context import Desk
from podpool.cli.errors import AWAY, Away
from podpool.cli.ledger_connection import NO_LEDGER
from podpool.cli.output import BAD, FAINT, GOOD, HEAD, WARNING, Sheet, age, joined
from podpool.cli.tables import network_sheet, node_sheet, pod_sheet, slice_sheet, subnet_sheet
from podpool.core.errors import InvalidInput
from podpool.inspect.changes import News, headline
from podpool.inspect.cluster_model import Scene
from podpool.inspect.objects import SeenPod
from podpool.inspect.observer import CLUSTER, LEDGER, Observer
from podpool.inspect.pods import PodView, pod_news, pod_view
from podpool.inspect.secondary_networks import NetworkView
from podpool.inspect.snapshot import Glance, glance
from podpool.inspect.view_models import NodeView, SubnetView, View
from podpool.runtime import entropy

V = TypeVar("V", SubnetView, NodeView, NetworkView, PodView)

LOOK = 0.5
"""Seconds between two looks of `watch`."""


class Items(View, frozen=True, kw_only=True):
    """A list, for programs."""

    items: Sequence[msgspec.Struct]
    troubles: Mapping[str, str] = {}


async def status(desk: Desk) -> int:
    """Tell in a screenful how the cluster is."""
    at = desk.clock.wall()
    seen = await glance(desk.kube, desk.ledger, at=at)
    scene = seen.scene
    nodes = tuple(scene.nodes.values())
    figures: dict[str, Any] = {
        "headline": seen.headline,
        "subnets": seen.subnets,
        "nodes": len(nodes),
        "nodes_short": sum(each.short for each in nodes),
        "nodes_unserved": sum(not each.subnet for each in nodes),
        "nodes_gone": sum(each.gone for each in nodes),
        "pods": sum(each.assigned for each in nodes),
        "pods_waiting": sum(each.waiting for each in nodes),
        "networks": scene.networks,
        "controller": seen.leader,
        "troubles": scene.troubles,
    }
    parts: list[Sheet | str | Text] = [Text(seen.headline, style=_mood(figures)), ""]
    if seen.subnets:
        parts += [subnet_sheet(seen.subnets), ""]
    cluster = {"nodes": _nodes(figures), "Pods": _pods(figures), "networks": _networks(scene)}
    cluster["controller"] = _controller(seen, at=at)
    if CLUSTER in scene.troubles:
        cluster = dict.fromkeys(cluster, "not known")
    rows = [*cluster.items(), ("ledger", _ledger(scene, desk))]
    desk.teller.answer(figures, *parts, Sheet(("PART", "HOW IT IS"), rows))
    return _troubled(desk, scene)


def _mood(figures: dict[str, Any]) -> str:
    if figures["pods_waiting"] or figures["troubles"]:
        return BAD
    short = any(each.exhausted or each.frozen for each in figures["subnets"])
    return WARNING if short or figures["nodes_gone"] else GOOD


def _nodes(figures: dict[str, Any]) -> str:
    words = ("short", "unserved", "gone")
    more = [f"{figures[f'nodes_{word}']} {word}" for word in words if figures[f"nodes_{word}"]]
    return ", ".join([str(figures["nodes"]), *more])


def _pods(figures: dict[str, Any]) -> str:
    return f"{figures['pods']} with an address, {figures['pods_waiting']} waiting"


def _networks(scene: Scene) -> str:
    if not scene.networks:
        return "none beside the Pods' own"
    used = sum(each.used for each in scene.networks)
    return f"{len(scene.networks)} further, {used} addresses in use"


def _controller(seen: Glance, *, at: float) -> str:
    if not seen.leader.name:
        return "none leads: requests of nodes are not answered"
    return f"{seen.leader.name}, renewed {age(seen.leader.renewed, at=at)} ago"


def _ledger(scene: Scene, desk: Desk) -> str:
    if desk.ledger is None:
        return "none"
    return "cannot be asked" if LEDGER in scene.troubles else "answers"


async def subnets(desk: Desk, *, names: Sequence[str]) -> int:
    """Tell how full subnets are."""
    seen = await glance(desk.kube, desk.ledger, at=desk.clock.wall())
    found = _named(seen.subnets, names, what="SUBNET")
    desk.teller.answer(Items(items=found, troubles=seen.scene.troubles), subnet_sheet(found))
    return _troubled(desk, seen.scene)


async def nodes(desk: Desk, *, names: Sequence[str], waiting: bool) -> int:
    """Tell what nodes have."""
    at = desk.clock.wall()
    scene = await see_cluster(desk)
    found = [each for each in _named(scene.nodes.values(), names, what="NODE") if each.waiting or not waiting]
    desk.teller.answer(Items(items=found), node_sheet(found, at=at))
    return 0


async def pods(desk: Desk, *, names: Sequence[str], namespace: str, node: str, waiting: bool) -> int:
    """Tell which Pod has which address."""
    at = desk.clock.wall()
    scene = await see_cluster(desk)
    views = (pod_view(each) for each in scene.mirrors.pods.values())
    keys = [each if "/" in each else f"{namespace or desk.namespace}/{each}" for each in names]
    shown = _named(sorted(views, key=lambda each: each.name), keys, what="POD", found_by="`podpool pods` lists them")
    found = [
        each
        for each in shown
        if (not namespace or each.name.startswith(f"{namespace}/"))
        and (not node or each.node == node)
        and (not waiting or each.state == "waits")
    ]
    desk.teller.answer(Items(items=found), pod_sheet(found, at=at))
    return 0


async def slices(desk: Desk, *, network: str) -> int:
    """Tell of further networks; or of one of them, which node has which slice."""
    scene = await see_cluster(desk)
    found = _named(scene.networks, [network] if network else [], what="NETWORK")
    sheet = slice_sheet(found[0].fullest) if network else network_sheet(found)
    desk.teller.answer(Items(items=found), sheet)
    return 0


async def watch(desk: Desk, *, seconds: float | None) -> int:
    """Tell what happens, a line each, until it is enough."""
    if desk.ledger is None:
        raise InvalidInput(
            "--ledger", NO_LEDGER, "the ledger is followed too: name it, or `kubectl get events --watch`"
        )
    observer = Observer(desk.kube, desk.ledger, clock=desk.clock, rng=entropy.system())
    scene, fresh = observer.scene, list[News]()

    def noticed(old: SeenPod | None, new: SeenPod | None) -> None:
        if scene.mirrors.pods.synced.is_set():
            fresh.extend(pod_news(old, new, at=_moment(desk)))

    scene.mirrors.pods.subscribe(noticed)
    loop = asyncio.get_running_loop()
    end = None if seconds is None else loop.time() + seconds
    running = asyncio.ensure_future(observer.run())
    troubles: Mapping[str, str] = {}
    begun = False
    try:
        while end is None or loop.time() < end:
            await asyncio.sleep(LOOK)
            if running.done():
                running.result()
            troubles = _tell_troubles(desk, troubles, scene.troubles)
            news = (*scene.look(at=desk.clock.wall()).news, *fresh)
            fresh.clear()
            if not begun:  # what was there before is no news
                begun = _listed(scene)
                words = headline(tuple(scene.subnets.values()), tuple(scene.nodes.values()))
                news = (News(at=_moment(desk), about="Cluster", words=words),) if begun else ()
            for each in news:
                desk.teller.event(each, _line(each))
        if not begun and not troubles:
            desk.teller.remark(f"the cluster at {desk.server} cannot be followed: {observer.missing()}")
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return AWAY if troubles or not begun else 0


def _listed(scene: Scene) -> bool:
    mirrors = scene.mirrors
    synced = all(each.synced.is_set() for each in (mirrors.nodes, mirrors.configs, mirrors.pods))
    return synced and bool(scene.subnets or LEDGER in scene.troubles)


def _tell_troubles(desk: Desk, before: Mapping[str, str], now: Mapping[str, str]) -> dict[str, str]:
    for name, words in now.items():
        if name not in before:
            desk.teller.remark(f"{name} cannot be followed, and is tried again: {words}")
    for name in before.keys() - now.keys():
        desk.teller.remark(f"{name} is followed again")
    return dict(now)


def _line(news: News) -> Text:
    times = f" ({news.count} times)" if news.count > 1 else ""
    style = WARNING if news.warning else ""
    return Text.assemble((f"{news.at}  ", FAINT), (news.about, HEAD), "  ", (f"{news.words}{times}", style))


def _moment(desk: Desk) -> str:
    return datetime.fromtimestamp(desk.clock.wall(), UTC).isoformat(timespec="seconds")


async def see_cluster(desk: Desk) -> Scene:
    """Look at what Kubernetes knows; the ledger is not asked."""
    scene = (await glance(desk.kube, None, at=desk.clock.wall())).scene
    need_cluster(scene)
    return scene


def need_cluster(scene: Scene) -> None:
    """Go no further when nothing is known of the cluster."""
    if CLUSTER in scene.troubles:
        still = "`podpool subnets` and `podpool who ADDRESS --at TIME` ask the ledger, and may still be answered."
        raise Away(scene.troubles[CLUSTER], still)


def _troubled(desk: Desk, scene: Scene) -> int:
    still = {
        LEDGER: "shown is what Kubernetes knows; how large a subnet is, only the ledger can tell",
        CLUSTER: "shown is what the ledger knows",
    }
    for name, words in scene.troubles.items():
        desk.teller.remark(f"{words}: {still[name]}" if len(scene.troubles) == 1 else words)
    return AWAY if scene.troubles else 0


def _named(found: Iterable[V], names: Sequence[str], *, what: str, found_by: str = "") -> list[V]:
    """Pick by name; all of them when none is named."""
    by_name = {each.name: each for each in found}
    for name in names:
        if name not in by_name:
            raise InvalidInput(what, name, f"is not there; {found_by or f'there are {joined(by_name)}'}")
    return [by_name[name] for name in names] if names else list(by_name.values())
