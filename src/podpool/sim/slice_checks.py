"""What must always be true of node slices, looked at from outside, and what when all is well again.

One owner and rest are checked where an address is given (`truth`). Here: whether the address is of a slice that is the
node's (containment), whether slices are one node's each, whether a slice was taken from a machine that lets go of
nothing (consent), whether whoever gives an address may (the fence). And, after the faults, that every node has a slice,
every Pod an address, every object says what is so, and nothing is left of what is gone.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any

from podpool.pocket.history import Event, Object
from podpool.resources.builtin import LEASES
from podpool.resources.whereabouts import (
    IP_POOLS,
    LEAVE_ANNOTATION,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    SLICE_ANNOTATION,
    SLICE_POOLS,
)
from podpool.sim import attachments
from podpool.sim.checks import LOOK, NEVER
from podpool.sim.slice_acts import FOREIGN
from podpool.sim.truth import Use, Violation
from podpool.sim.world import World

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SliceAuditor:
    """Looks at everything that changes in a world with slices, from the beginning on."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._nodes: dict[str, float] = {}
        """When a Node last had each boot id, and each UID."""
        world.truth.given.append(self._look_at)
        world.looks.append(self._look)
        world.store.written.append(self._written)

    def _look(self) -> None:
        for name in self._world.hosts:
            self._identify(name, self._world.nodes().get(name))

    def _identify(self, name: str, node: Object | None) -> None:
        host = self._world.hosts.get(name)
        if node:
            self._nodes[node["metadata"]["uid"]] = self._world.loop.time()
        if host and node and node["status"]["nodeInfo"]["bootID"] == host.machine.boot_id:
            self._nodes[host.machine.boot_id] = self._world.loop.time()

    def _written(self, event: Event) -> None:
        plural, name = event.id[1], event.key.rpartition("/")[2]
        if plural == "nodes":
            for each in (event.old, self._world.nodes().get(name)):
                self._identify(name, each)
        elif plural == LEASES.plural and SLICE_ANNOTATION in _notes(event.new):
            if event.gone:
                self._consented(event.new)
            else:
                self._one_owner_each(event.new)
        elif plural == IP_POOLS.plural and event.gone:
            self._unused(event.new)

    def _one_owner_each(self, lease: Object) -> None:
        """No two nodes are offered the same addresses."""
        name = lease["metadata"]["name"]
        for other in leases(self._world).values():
            if other["metadata"]["name"] != name and _slice(other).overlaps(_slice(lease)):
                story = f"{name} and {other['metadata']['name']} are offered at the same time"
                self._report(Violation("one owner", story))

    def _consented(self, lease: Object) -> None:
        """A Lease that has a holder is deleted only when its Node has been missed for the gone time."""
        holder = lease.get("spec", {}).get("holderIdentity")
        seen = self._nodes.get(lease["metadata"]["labels"][NODE_UID_LABEL], NEVER)
        if holder and self._world.loop.time() - seen < self._world.shape.numbers.gone:
            self._report(Violation("consent", f"{lease['metadata']['name']} was deleted while {holder} holds it"))

    def _unused(self, pool: Object) -> None:
        """A pool goes only when nobody uses an address of it, unless a person deleted it: its Lease is there then."""
        key = f"{pool['metadata']['namespace']}/{pool['metadata']['name']}"
        slice_, node = ipaddress.ip_network(pool["spec"]["range"]), _notes(pool).get(NODE_ANNOTATION)
        used = [each for each in self._world.truth.uses() if each.machine == node and _within(each, slice_)]
        if used and key not in leases(self._world):
            self._report(Violation("consent", f"{key} was deleted while {used[0].pod} uses {used[0].address}"))

    def _look_at(self, use: Use) -> None:
        """Look at an address that was given: is it of the node's slice, and may its agent give any at all."""
        name, world = use.machine, self._world
        self._identify(name, world.nodes().get(name))
        places = [each for each in leases(world).values() if _notes(each).get(NODE_ANNOTATION) == name]
        if not any(_within(use, _slice(each)) and each.get("spec", {}).get("holderIdentity") for each in places):
            story = f"{use.pod} was given {use.address} on {name}, which holds no slice that has it"
            raise Violation("containment", story)
        known = self._nodes.get(world.hosts[name].machine.boot_id, NEVER)
        if use.since - known > world.shape.numbers.fence + LOOK:
            story = f"{name} gave {use.address} to {use.pod}, {use.since - known:.0f} s after it was last its Node"
            raise Violation("fenced", story)

    def _report(self, violation: Violation) -> None:
        self._world.loop.call_exception_handler({"message": str(violation), "exception": violation})


def check_slices(world: World) -> None:
    """Look at a world that has had time without faults."""
    found: dict[str, list[Object]] = {}
    for key, pool in pools(world).items():
        _belongs(world, key, pool)
        found.setdefault(_notes(pool)[NODE_ANNOTATION], []).append(pool)
    if len(found) != len(pools(world)):
        raise Violation("nothing leaked", f"{len(pools(world))} pools for {len(found)} nodes")
    for name in world.nodes():
        _holds(world, name, found.get(name, []))
        _written_down(world, name, found.get(name, []))
        _served(world, name, found.get(name, []))
    _shown(world, found)


def _belongs(world: World, key: str, pool: Object) -> None:
    """A pool is of a Node that there is, with a Lease that its agent holds; asked back only while in use."""
    node = world.nodes().get(_notes(pool)[NODE_ANNOTATION])
    lease = leases(world).get(key)
    if node is None or pool["metadata"]["labels"][NODE_UID_LABEL] != node["metadata"]["uid"]:
        raise Violation("nothing leaked", f"{key} is of no Node that there is")
    if lease is None or not lease.get("spec", {}).get("holderIdentity"):
        raise Violation("agreement", f"nobody holds {key}")
    fits = pool["spec"]["range"].endswith(attachments.size(world.store))
    leaves = LEAVE_ANNOTATION in _notes(pool)
    if fits is leaves:
        raise Violation("agreement", f"{key} {'fits, and is' if fits else 'does not fit, and is not'} asked back")
    if leaves and not pool["spec"]["allocations"]:
        raise Violation("agreement", f"{key} is asked back and not in use")


def _holds(world: World, name: str, held: list[Object]) -> None:
    """A node without a slice waits, and waits in vain only when none is free."""
    count = ipaddress.ip_network(world.shape.cidr).num_addresses >> (32 - int(attachments.size(world.store)[1:]))
    moving = any(LEAVE_ANNOTATION in _notes(each) for each in pools(world).values())
    if not held and len(pools(world)) < count and not moving:
        raise Violation("everybody served", f"{name} has no slice, and {count - len(pools(world))} are free")


def _written_down(world: World, name: str, held: list[Object]) -> None:
    """An IPPool has the addresses that are in use, and what a foreign hand wrote."""
    used = {use.address: use.sandbox for use in world.truth.of_machine(name).values()}
    told: dict[str, str] = {}
    for pool in held:
        base = ipaddress.ip_network(pool["spec"]["range"])[0]
        entries: Mapping[str, Any] = pool["spec"]["allocations"]
        told |= {str(base + int(key)): each["id"] for key, each in entries.items() if each["id"] != FOREIGN}
    if used != told:
        raise Violation("agreement", f"{name}: {used} are in use, and its IPPool shows {told}")


def _served(world: World, name: str, held: list[Object]) -> None:
    served = world.truth.of_machine(name)
    waiting = [pod for pod in world.pods_on(name).values() if pod not in served]
    for pool in held:
        room = ipaddress.ip_network(pool["spec"]["range"]).num_addresses - 2 - len(pool["spec"]["allocations"])
        if waiting and room > 0 and LEAVE_ANNOTATION not in _notes(pool):
            raise Violation("everybody served", f"{', '.join(waiting)} on {name} without an address of {room}")


def _shown(world: World, found: Mapping[str, list[Object]]) -> None:
    """The NodeSlicePool shows who has which slice."""
    tables = world.store.objects(SLICE_POOLS.group, SLICE_POOLS.plural)
    listed = tables.get("kube-system/red", {}).get("status", {}).get("allocations", [])
    shown = {each["nodeName"]: each["sliceRange"] for each in listed if each["nodeName"]}
    held = {name: pool["spec"]["range"] for name, each in found.items() for pool in each}
    if shown != held:
        raise Violation("agreement", f"the NodeSlicePool shows {shown}, and nodes have {held}")


def pools(world: World) -> Mapping[str, Object]:
    """List the IPPools by key."""
    return world.store.objects(IP_POOLS.group, IP_POOLS.plural)


def leases(world: World) -> Mapping[str, Object]:
    """List the Leases by key."""
    return world.store.objects(LEASES.group, LEASES.plural)


def _notes(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def _slice(lease: Object) -> Network:
    text = _notes(lease).get(SLICE_ANNOTATION)
    return ipaddress.ip_network(text or "255.255.255.255/32")


def _within(use: Use, slice_: Network) -> bool:
    return ipaddress.ip_address(use.address) in slice_
