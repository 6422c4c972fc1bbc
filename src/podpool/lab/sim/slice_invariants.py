"""What must always be true of node slices, looked at from outside, and what when all is well again.

One owner and rest are checked where an address is given (`oracle`). Here: whether the address is of a slice that is the
node's (containment), whether slices are one node's each, whether a slice was taken from a machine that lets go of
nothing (consent), whether whoever gives an address may (the fence). And, after the faults, that every node has a slice,
every Pod an address, every object says what is so, and nothing is left of what is gone.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any

from podpool.api.builtin import LEASES
from podpool.api.whereabouts import (
    BOOT_ANNOTATION,
    GRANTED_ANNOTATION,
    IP_POOLS,
    NODE_ANNOTATION,
    NODE_SLICE_POOLS,
    NODE_UID_LABEL,
    RETURN_ANNOTATION,
    SIGNATURE_ANNOTATION,
    SLICE_ANNOTATION,
)
from podpool.lab.apiserver.watch_cache import Object, StoreEvent
from podpool.lab.sim import nads
from podpool.lab.sim.invariants import LOOK, NEVER
from podpool.lab.sim.nads import AttachedNetwork
from podpool.lab.sim.oracle import AddressUse, Violation
from podpool.lab.sim.slice_faults import FOREIGN
from podpool.lab.sim.cluster import SimCluster
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION

LATE = 60.0
"""Seconds after which whoever was cut off when the API server was restored is back, and knows."""
Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SliceInvariantChecker:
    """Looks at everything that changes in a cluster with slices, from the beginning on."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster = cluster
        self._networks = nads.networks(cluster.shape)
        self._was_shared: set[str] = set()
        """Addresses that were last given when all nodes shared their range."""
        self._nodes: dict[str, float] = {}
        """When a Node last had each boot id, and each UID."""
        self._held: dict[str, Object] = {}
        """Every Lease that somebody held, as it last was, by its UID;"""
        self._agreed_at: dict[str, float] = {}
        """and when the last signature on each was agreed to."""
        cluster.oracle.given.append(self._look_at)
        cluster.oracle.restless = self._need_not_rest
        cluster.oracle.exhausted.append(lambda *_: True)  # a slice that has no other left is exhausted
        cluster.oracle.excused = self._is_forgotten
        cluster.looks.append(self._look)
        cluster.store.on_write.append(self._written)

    def _is_shared(self, address: str) -> bool:
        """Tell whether somebody has an address of a range that all nodes share, or did when it was not cut yet.

        There is no fence in those.
        """
        of = (each for each in self._networks if each.has(address))
        return any(each.shared or address in shared_entries(self._cluster, each) for each in of)

    def _need_not_rest(self, address: str) -> bool:
        return address in self._was_shared or self._is_shared(address)

    def _is_forgotten(self, address: str) -> bool:
        """Tell whether an entry may have been lost by a restored server, and not be put back yet."""
        cluster = self._cluster
        late = cluster.restored_at + cluster.shape.settings.relist_interval + LATE
        return self._is_shared(address) and cluster.loop.time() < late

    def _look(self) -> None:
        for name in self._cluster.hosts:
            self._identify(name, self._cluster.nodes().get(name))

    def _identify(self, name: str, node: Object | None) -> None:
        host = self._cluster.hosts.get(name)
        if node and (host or not self._cluster.restores):  # a copy may show a machine that is gone
            self._nodes[node["metadata"]["uid"]] = self._cluster.loop.time()
        if host and node and node["status"]["nodeInfo"]["bootID"] == host.machine.boot_id:
            self._nodes[host.machine.boot_id] = self._cluster.loop.time()

    def _written(self, event: StoreEvent) -> None:
        plural, name = event.id[1], event.key.rpartition("/")[2]
        if plural == "nodes":
            for each in (event.old, self._cluster.nodes().get(name)):
                self._identify(name, each)
        elif plural == LEASES.plural and SLICE_ANNOTATION in _notes(event.new):
            uid = event.new["metadata"]["uid"]
            if _holder(event.new):
                self._held[uid] = event.new
            if _agreed(event.new) and not (event.old and _agreed(event.old)):
                self._agreed_at[uid] = self._cluster.loop.time()
            if event.deleted:
                self._consented(event.new)
            else:
                self._one_owner_each(event.new)
        elif plural == IP_POOLS.plural and event.deleted:
            self._unused(event.new)

    def _one_owner_each(self, lease: Object) -> None:
        """No two nodes are offered the same addresses; or, once somebody has forgotten something, have both got them.

        A restored server forgets, and so does a journal that was spoilt: its agent says what it had, and gets it. Nor
        has a node got them twice, but beside a slice that it is to hand back.
        """
        name = lease["metadata"]["name"]
        for other in [each for each in leases(self._cluster).values() if _slice(each).overlaps(_slice(lease))]:
            two = _notes(lease)[NODE_ANNOTATION] != _notes(other).get(NODE_ANNOTATION)
            has = self._has_to_stay if not two else self._has_got if self._is_forgetful() else self._is_offered
            if has(lease) and has(other) and other["metadata"]["name"] != name:
                story = f"{name} and {other['metadata']['name']} are offered at the same time"
                self._report(Violation("one owner", story))

    def _has_got(self, lease: Object) -> bool:
        """Tell whether it was agreed to since the server was restored: a copy shows agreements of the past."""
        return _agreed(lease) and self._agreed_at.get(lease["metadata"]["uid"], NEVER) > self._cluster.restored_at

    def _is_forgetful(self) -> bool:
        return bool(self._cluster.restores) or any(each.machine.spoilt for each in self._cluster.hosts.values())

    def _has_to_stay(self, lease: Object) -> bool:
        meta = lease["metadata"]
        pool = pools(self._cluster).get(f"{meta['namespace']}/{meta['name']}")
        return _agreed(lease) and pool is not None and _stays(pool)

    def _is_offered(self, lease: Object) -> bool:
        """Tell whether somebody may take it; nobody takes a Lease without its IPPool, as one that was made twice."""
        meta = lease["metadata"]
        return bool(_holder(lease)) or f"{meta['namespace']}/{meta['name']}" in pools(self._cluster)

    def _consented(self, lease: Object) -> None:
        """A Lease that has a holder is deleted only when its Node has been missed for the gone time.

        A copy may show a Node that another machine has made its own since: then it is the holder's boot that counts.
        """
        holder, uid = _holder(lease), lease["metadata"]["labels"][NODE_UID_LABEL]
        seen = self._nodes.get(_notes(lease).get(BOOT_ANNOTATION, "") if self._cluster.restores else uid, NEVER)
        if holder and self._cluster.loop.time() - seen < self._cluster.shape.settings.node_gc_delay:
            self._report(Violation("consent", f"{lease['metadata']['name']} was deleted while {holder} holds it"))

    def _unused(self, pool: Object) -> None:
        """A pool goes only when nobody uses an address of it, or its node has another slice with that in it.

        Unless a person deleted it: its Lease is there then.
        """
        key = f"{pool['metadata']['namespace']}/{pool['metadata']['name']}"
        slice_, node = ipaddress.ip_network(pool["spec"]["range"]), _notes(pool).get(NODE_ANNOTATION)
        uses = [each for each in self._cluster.oracle.uses() if each.machine == node and _within(each, slice_)]
        mine = [each for each in leases(self._cluster).values() if _notes(each).get(NODE_ANNOTATION) == node]
        kept = [_slice(each) for each in mine if _agreed(each)]
        used = [use for use in uses if not any(_within(use, each) for each in kept)]
        if used and key not in leases(self._cluster):
            self._report(Violation("consent", f"{key} was deleted while {used[0].pod} uses {used[0].address}"))

    def _look_at(self, use: AddressUse) -> None:
        """Look at an address that was given: is it of the node's slice, and may its agent give any at all.

        An agent may learn late that a restored server knows nothing of its Lease any more.
        """
        name, cluster = use.machine, self._cluster
        if self._is_shared(use.address):
            self._was_shared.add(use.address)
            return
        self._was_shared.discard(use.address)
        self._identify(name, cluster.nodes().get(name))
        found = (*leases(cluster).values(), *(self._held.values() if cluster.restores else ()))
        places = [each for each in found if _notes(each).get(NODE_ANNOTATION) == name]
        if not any(_within(use, _slice(each)) and _holder(each) for each in places):
            story = f"{use.pod} was given {use.address} on {name}, which holds no slice that has it"
            raise Violation("containment", story)
        known = self._nodes.get(cluster.hosts[name].machine.boot_id, NEVER)
        if use.since - known > cluster.shape.settings.fence + LOOK:
            story = f"{name} gave {use.address} to {use.pod}, {use.since - known:.0f} s after it was last its Node"
            raise Violation("fenced", story)

    def _report(self, violation: Violation) -> None:
        self._cluster.loop.call_exception_handler({"message": str(violation), "exception": violation})


def check_slices(cluster: SimCluster) -> None:
    """Look at a cluster that has had time without faults."""
    for network in nads.networks(cluster.shape):
        if not network.shared:
            _check_cut(cluster, network)
        elif not cluster.restores:
            _written_down(cluster, network, "", [])
    for name in cluster.nodes():
        _served(cluster, name)


def _check_cut(cluster: SimCluster, network: AttachedNetwork) -> None:
    found: dict[str, list[Object]] = {}
    of_network = {
        key: each
        for key, each in pools(cluster).items()
        if _notes(each).get(NETWORK_ANNOTATION) == network.name and NODE_ANNOTATION in _notes(each)
    }
    for key, pool in of_network.items():
        _belongs(cluster, network, key, of_network)
        found.setdefault(_notes(pool)[NODE_ANNOTATION], []).append(pool)
    staying = list(filter(_stays, of_network.values()))  # beside one that is asked back, and in use
    if len({_notes(each)[NODE_ANNOTATION] for each in staying}) != len(staying):
        raise Violation("nothing leaked", f"{len(of_network)} pools for {len(found)} nodes")
    for name in cluster.nodes():
        _holds(cluster, network, name, of_network)
        _written_down(cluster, network, name, found.get(name, []))
    _shown(cluster, network, found)


def _belongs(cluster: SimCluster, network: AttachedNetwork, key: str, found: Mapping[str, Object]) -> None:
    """A pool is of a Node that there is, with a Lease that its agent holds; asked back only while in use."""
    pool, lease = found[key], leases(cluster).get(key)
    node = cluster.nodes().get(_notes(pool)[NODE_ANNOTATION])
    if node is None or pool["metadata"]["labels"][NODE_UID_LABEL] != node["metadata"]["uid"]:
        raise Violation("nothing leaked", f"{key} is of no Node that there is")
    if lease is None or not _holder(lease) or not (_agreed(lease) or _is_kept_by_another(cluster, pool)):
        raise Violation("agreement", f"nobody holds {key}")
    fits, leaves = _fits(cluster, network, pool), not _stays(pool)
    beside = [each for each in found.values() if _stays(each) and _is_of_one_node(each, pool)]
    if fits is leaves and not (leaves and beside):  # the range was another meanwhile, or a copy was restored
        raise Violation("agreement", f"{key} {'fits, and is' if fits else 'does not fit, and is not'} asked back")
    if leaves and not pool["spec"]["allocations"] and _agreed(lease):
        raise Violation("agreement", f"{key} is asked back and not in use")


def _fits(cluster: SimCluster, network: AttachedNetwork, pool: Object) -> bool:
    """Tell whether a pool is of a slice as the definition has them cut."""
    range_, length = nads.cut(cluster.store, network)
    slice_ = ipaddress.ip_network(pool["spec"]["range"])
    return slice_.prefixlen == length and slice_.overlaps(ipaddress.ip_network(range_))


def _is_of_one_node(one: Object, other: Object) -> bool:
    return _notes(one)[NODE_ANNOTATION] == _notes(other)[NODE_ANNOTATION]


def _is_kept_by_another(cluster: SimCluster, pool: Object) -> bool:
    """Tell whether its node still has to hand back another slice of the same addresses; after a restore, any node."""
    slice_ = ipaddress.ip_network(pool["spec"]["range"])
    others = [
        each
        for each in pools(cluster).values()
        if each is not pool and NODE_ANNOTATION in _notes(each) and (cluster.restores or _is_of_one_node(each, pool))
    ]
    return any(not _stays(each) and slice_.overlaps(ipaddress.ip_network(each["spec"]["range"])) for each in others)


def _holds(cluster: SimCluster, network: AttachedNetwork, name: str, found: Mapping[str, Object]) -> None:
    """A node without a slice waits, and waits in vain only when none is free."""
    range_, length = nads.cut(cluster.store, network)
    count = ipaddress.ip_network(range_).num_addresses >> (32 - length)
    moving = any(RETURN_ANNOTATION in _notes(each) for each in found.values())
    held = any(_notes(each)[NODE_ANNOTATION] == name for each in found.values())
    shared = {ipaddress.ip_network(f"{each}/{length}", strict=False) for each in shared_entries(cluster, network)}
    free = count - len({*shared, *(ipaddress.ip_network(each["spec"]["range"]) for each in found.values())})
    if not held and free > 0 and not moving:
        raise Violation("everybody served", f"{name} has no slice, and {free} are free")


def _written_down(cluster: SimCluster, network: AttachedNetwork, name: str, held: list[Object]) -> None:
    """An IPPool has the addresses that are in use, on a node or on all of them, and what a foreign hand wrote.

    The one that all nodes share has what was given when its range was not cut, and nothing of Pods that are gone. A
    restore may bring a Pod back that has another address by then: its old entry goes with it.
    """
    trying = {pod for host in cluster.hosts for pod in cluster.waiting_on(host)}
    uses = [use for use in cluster.oracle.uses() if name in ("", use.machine) and network.has(use.address)]
    used = {use.address: use.pod for use in uses if use.pod not in trying}
    told: dict[str, str] = {}
    for pool in held:
        base = ipaddress.ip_network(pool["spec"]["range"])[0]
        entries: Mapping[str, Any] = pool["spec"]["allocations"]
        told |= {str(base + int(key)): each["podref"] for key, each in entries.items() if each["id"] != FOREIGN}
    everywhere = {use.address: use.pod for use in cluster.oracle.uses() if network.has(use.address)}
    entered = shared_entries(cluster, network).items()
    back = {*everywhere.values()} if cluster.restores else set()
    left = {address for address, pod in entered if address not in everywhere and pod not in back}
    told |= {address: pod for address, pod in entered if address in used or address in left}
    shown = {address: pod for address, pod in told.items() if pod not in trying}
    if used != shown:
        raise Violation("agreement", f"{name or network.name}: {used} are in use, and IPPools show {shown}")


def _served(cluster: SimCluster, name: str) -> None:
    """A Pod waits only where one of its networks has no address left."""
    waiting = cluster.waiting_on(name)
    rooms = [_room(cluster, network, name) for network in nads.sliced(cluster.shape)]
    if waiting and min(rooms) >= len(waiting):
        raise Violation("everybody served", f"{', '.join(waiting)} on {name} without an address of {min(rooms)}")


def _room(cluster: SimCluster, network: AttachedNetwork, name: str) -> int:
    """Count what a node's slice has left to give to Pods of the network as it is now."""
    range_ = ipaddress.ip_network(nads.cut(cluster.store, network)[0])
    for pool in sorted(pools(cluster).values(), key=_stays, reverse=True):
        notes = _notes(pool)
        of_range = range_.overlaps(ipaddress.ip_network(pool["spec"]["range"]))
        if of_range and notes.get(NODE_ANNOTATION) == name and notes.get(NETWORK_ANNOTATION) == network.name:
            return ipaddress.ip_network(pool["spec"]["range"]).num_addresses - 2 - len(pool["spec"]["allocations"])
    return 0


def _shown(cluster: SimCluster, network: AttachedNetwork, found: Mapping[str, list[Object]]) -> None:
    """The NodeSlicePool shows who has which slice of the range as it is now."""
    range_ = ipaddress.ip_network(nads.cut(cluster.store, network)[0])
    tables = cluster.store.objects(NODE_SLICE_POOLS.group, NODE_SLICE_POOLS.plural)
    listed = tables.get(f"kube-system/{network.name}", {}).get("status", {}).get("allocations", [])
    shown = {each["nodeName"]: each["sliceRange"] for each in listed if each["nodeName"]}
    slices = {name: [pool["spec"]["range"] for pool in sorted(each, key=_stays)] for name, each in found.items()}
    held = {
        name: slice_
        for name, each in slices.items()
        for slice_ in each
        if range_.overlaps(ipaddress.ip_network(slice_))
    }
    if shown != held:
        raise Violation("agreement", f"the NodeSlicePool shows {shown}, and nodes have {held}")


def shared_entries(cluster: SimCluster, network: AttachedNetwork) -> dict[str, str]:
    """Tell which Pod has which address of a network's range through the IPPool that all nodes share."""
    pool = pools(cluster).get(f"kube-system/{network.pool}")
    base = ipaddress.ip_network(network.range)[0]
    return {str(base + int(key)): each["podref"] for key, each in pool["spec"]["allocations"].items()} if pool else {}


def pools(cluster: SimCluster) -> Mapping[str, Object]:
    """List the IPPools by key."""
    return cluster.store.objects(IP_POOLS.group, IP_POOLS.plural)


def leases(cluster: SimCluster) -> Mapping[str, Object]:
    """List the Leases by key."""
    return cluster.store.objects(LEASES.group, LEASES.plural)


def _notes(obj: Object) -> Mapping[str, str]:
    return obj["metadata"].get("annotations") or {}


def _stays(pool: Object) -> bool:
    """Tell whether a pool is not asked back."""
    return RETURN_ANNOTATION not in _notes(pool)


def _holder(lease: Object) -> str:
    return lease.get("spec", {}).get("holderIdentity") or ""


def _agreed(lease: Object) -> bool:
    """Tell whether whoever signed it may give addresses."""
    signature, granted = (_notes(lease).get(each) for each in (SIGNATURE_ANNOTATION, GRANTED_ANNOTATION))
    return bool(_holder(lease)) and signature == granted


def _slice(lease: Object) -> Network:
    text = _notes(lease).get(SLICE_ANNOTATION)
    return ipaddress.ip_network(text or "255.255.255.255/32")


def _within(use: AddressUse, slice_: Network) -> bool:
    return ipaddress.ip_address(use.address) in slice_
