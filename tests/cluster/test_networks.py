"""Pods with ten secondary networks through Multus, by both names of the plugin: all sources agree."""

from __future__ import annotations

from itertools import filterfalse
from typing import TYPE_CHECKING

import pytest

from parts.cluster import PODS
from parts.multus import attached, wanting
from parts.node_config import BRIDGE
from parts.polling import until
from parts.whereabouts import POOLS, RESERVATIONS
from tests.cluster.conftest import INTERVAL, MOVES, TIMEOUT
from tests.cluster.consistency import name_of
from tests.cluster.network_consistency import collected, entries, of_a_node, pod_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parts.multus import Multus
    from tests.cluster.conftest import World
    from tests.cluster.consistency import Addresses

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("cluster"), pytest.mark.timeout(600)]

TEN = [f"net{number}" for number in range(1, 11)]
WHEREABOUTS, PODPOOL = {"type": "whereabouts"}, {"type": "podpool"}
SLICED = {"node_slice_size": "/27"}
NODE_SLICES_PATH = "/apis/podpool.io/v1alpha1/nodeslices"
SWEPT = 300.0


def define(multus: Multus, ways: Sequence[dict[str, str]]) -> None:
    """Ten networks, each with a range of its own."""
    for number, (name, way) in enumerate(zip(TEN, ways, strict=True)):
        ipam = {**way, "range": f"10.62.{number}.0/24"}
        multus.define(name, {"type": "macvlan", "master": BRIDGE, "mode": "bridge", "ipam": ipam})


def test_slices_and_shared_ranges_serve_pods_that_come_and_go_and_come_back(world: World, multus: Multus) -> None:
    """Names of a StatefulSet come back in other sandboxes; what they had before is theirs no more."""
    sliced = [WHEREABOUTS | SLICED] * 4 + [PODPOOL | SLICED] * 3
    define(multus, [*sliced, WHEREABOUTS, WHEREABOUTS, PODPOOL])
    world.cluster.deploy("web", 4, annotations=wanting(TEN))
    world.cluster.deploy_named("db", 3, annotations=wanting(TEN))
    world.agrees(pods=7)
    node, far = world.cluster.nodes["one"], attached(world.bound_to("two")[0])
    for (
        netns
    ) in node.addresses():  # the first packet may be lost: eleven interfaces of one segment answer for an address
        node.run("ip", "netns", "exec", netns, "ping", "-c", "5", "-W", "5", "-I", TEN[0], far[TEN[0]][0])

    for pod in ("db-0", "db-2"):
        world.cluster.admin.delete(f"{PODS}/{pod}")
    world.cluster.force_delete("db-1")
    world.cluster.scale("web", 1)
    world.agrees(pods=4)
    world.cluster.scale("web", 5)
    world.agrees(pods=8)


def test_the_slice_size_of_a_live_network_is_changed(world: World, multus: Multus) -> None:
    """As docs/slice-sizing.md has it: a node keeps what is in use, and has the new size when nothing is."""
    name = TEN[0]
    config = {"type": "macvlan", "master": BRIDGE, "mode": "bridge"}
    ipam = {**WHEREABOUTS, "network_name": name, "range": "10.62.1.0/24"}
    multus.define(name, {**config, "ipam": {**ipam, "node_slice_size": "/27"}})
    world.cluster.deploy("web", 4, annotations=wanting([name]))
    world.agrees(pods=4)
    before = addresses_of(world)
    assert {("/27", False)} == set(slices_of(world).values())

    multus.redefine(name, {**config, "ipam": {**ipam, "node_slice_size": "/28"}})
    kept = {("/27", True)}
    until(lambda: kept == set(slices_of(world).values()), "the slices are to be returned", timeout=TIMEOUT)
    assert before == addresses_of(world)
    world.cluster.scale("web", 8)
    world.agrees(pods=8)
    assert before.items() <= addresses_of(world).items()
    assert kept == set(slices_of(world).values())

    world.cluster.scale("web", 0)
    returned = {("/28", False)}
    until(lambda: returned == set(slices_of(world).values()), "the large slices are returned", timeout=TIMEOUT)
    world.cluster.scale("web", 4)
    world.agrees(pods=4)


def test_networks_have_back_what_pods_of_a_node_that_dies_had(world: World, multus: Multus) -> None:
    """A machine that takes its name inherits nothing.

    Slices come back with the Node. From shared ranges the controller releases it, after two looks at least a minute
    apart: no agent is left that would. A name that comes back, as of a StatefulSet, keeps there what it had.
    """
    define(multus, [WHEREABOUTS | SLICED, PODPOOL | SLICED] * 3 + [WHEREABOUTS, PODPOOL] * 2)
    world.cluster.deploy("web", 4, annotations=wanting(TEN), **MOVES)
    world.cluster.deploy_named("db", 3, annotations=wanting(TEN[:6]), **MOVES)
    world.agrees(pods=7)
    lost = {name for name in world.on("two") if name.startswith("web")}
    had = {address for interface, address in lent(world).items() if interface.split()[0] in lost}
    assert len(TEN[6:]) * len(lost) == len(had) > 0

    world.lose("two")
    until(lambda: not lost & named(world), "nothing is kept for them", timeout=SWEPT, interval=INTERVAL)
    world.agrees(pods=7)

    replace_two(world, multus)
    world.cluster.scale("web", 8)
    world.agrees(pods=11)
    assert world.on("two")
    assert had <= {*lent(world).values()}


def replace_two(world: World, multus: Multus) -> None:
    """Have another machine under the name of the one that died."""
    replacement = world.cluster.add("two")
    world.installation.join(replacement)
    world.ready()
    multus.join(replacement)


def addresses_of(world: World) -> dict[str, list[str]]:
    """The addresses of each Pod in its only secondary network."""
    return {name_of(pod): attached(pod)["net1"] for pod in world.cluster.pods()}


def slices_of(world: World) -> dict[str, tuple[str, bool]]:
    """The size of each assigned slice, and whether its return is requested."""
    found = [
        each
        for obj in world.cluster.admin.get(NODE_SLICES_PATH)["items"]
        for each in obj["spec"].get("assignments", ())
    ]
    return {each["slice"]: (f"/{each['slice'].partition('/')[2]}", bool(each.get("returnReason"))) for each in found}


def lent(world: World) -> Addresses:
    """What IPPools of shared ranges say of each interface."""
    return collected(entries(filterfalse(of_a_node, world.cluster.admin.get(POOLS)["items"])))


def named(world: World) -> set[str]:
    """The Pods that IPPools and reservations name."""
    reserved = [pod_in(each["spec"]["podref"]) for each in world.cluster.admin.get(RESERVATIONS)["items"]]
    return {*reserved, *(interface.split()[0] for interface in lent(world))}
