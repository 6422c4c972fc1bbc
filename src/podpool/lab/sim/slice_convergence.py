"""What must hold for node slices after the faults.

Every node has one slice of each network or none is free, IPPools and NodeSlicePools show the real state, every Pod is
served, and nothing of removed nodes is left.
"""

import ipaddress
from collections.abc import Mapping
from typing import Any

from podpool.api.whereabouts import NODE_ANNOTATION, NODE_SLICE_POOLS, NODE_UID_LABEL, RETURN_ANNOTATION
from podpool.lab.apiserver.registry import Object
from podpool.lab.sim import nads
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.nads import AttachedNetwork
from podpool.lab.sim.oracle import Violation
from podpool.lab.sim.slice_actions import THIRD_PARTY
from podpool.lab.sim.slice_invariants import annotations, holder, ippools, is_confirmed, is_kept, leases, shared_entries
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION


def check_slices_converged(cluster: SimCluster) -> None:
    """Check a cluster after some time without faults."""
    for network in nads.networks(cluster.config):
        if not network.shared:
            _check_sliced_network(cluster, network)
        elif not cluster.restores:
            _check_entries(cluster, network, "", [])
    for name in cluster.nodes():
        _check_served(cluster, name)


def _check_sliced_network(cluster: SimCluster, network: AttachedNetwork) -> None:
    by_node: dict[str, list[Object]] = {}
    of_nodes = ((key, each) for key, each in ippools(cluster).items() if NODE_ANNOTATION in annotations(each))
    pools = {key: each for key, each in of_nodes if annotations(each).get(NETWORK_ANNOTATION) == network.name}
    for key, pool in pools.items():
        _check_pool(cluster, network, key, pools)
        by_node.setdefault(annotations(pool)[NODE_ANNOTATION], []).append(pool)
    kept = list(filter(is_kept, pools.values()))  # a node may have another that it is to return, and that is in use
    if len({annotations(each)[NODE_ANNOTATION] for each in kept}) != len(kept):
        raise Violation("no leaks", f"{network.name} has {len(pools)} IPPools for {len(by_node)} nodes")
    for name in cluster.nodes():
        _check_has_slice(cluster, network, name, pools)
        _check_entries(cluster, network, name, by_node.get(name, []))
    _check_node_slice_pool(cluster, network, by_node)


def _check_pool(cluster: SimCluster, network: AttachedNetwork, key: str, pools: Mapping[str, Object]) -> None:
    """Check that a pool has a Node and a confirmed Lease, and is to be returned only while in use."""
    pool, lease = pools[key], leases(cluster).get(key)
    node = cluster.nodes().get(annotations(pool)[NODE_ANNOTATION])
    if node is None or pool["metadata"]["labels"][NODE_UID_LABEL] != node["metadata"]["uid"]:
        raise Violation("no leaks", f"IPPool {key} has no Node")
    if lease is None or not holder(lease) or not (is_confirmed(lease) or _is_blocked(cluster, pool)):
        raise Violation("agreement", f"IPPool {key} has no confirmed Lease")
    fits, leaves = _fits_layout(cluster, network, pool), not is_kept(pool)
    has_other = any(is_kept(each) and _is_same_node(each, pool) for each in pools.values())
    if fits is leaves and not (leaves and has_other):  # the range was another meanwhile, or a copy was restored
        state = "fits, but is to be returned" if fits else "does not fit, but is not to be returned"
        raise Violation("agreement", f"IPPool {key} {state}")
    if leaves and not pool["spec"]["allocations"] and is_confirmed(lease):
        raise Violation("agreement", f"IPPool {key} is to be returned and not in use")


def _fits_layout(cluster: SimCluster, network: AttachedNetwork, pool: Object) -> bool:
    """Return whether a pool is a slice of the NAD's range and size."""
    range_, length = nads.slice_layout(cluster.store, network)
    slice_ = ipaddress.ip_network(pool["spec"]["range"])
    return slice_.prefixlen == length and slice_.overlaps(ipaddress.ip_network(range_))


def _is_same_node(one: Object, other: Object) -> bool:
    return annotations(one)[NODE_ANNOTATION] == annotations(other)[NODE_ANNOTATION]


def _is_blocked(cluster: SimCluster, pool: Object) -> bool:
    """Return whether its node, or after a restore any node, still has to return an overlapping slice."""
    slice_ = ipaddress.ip_network(pool["spec"]["range"])
    others = (each for each in ippools(cluster).values() if each is not pool and NODE_ANNOTATION in annotations(each))
    others = (each for each in others if cluster.restores or _is_same_node(each, pool))
    return any(not is_kept(each) and slice_.overlaps(ipaddress.ip_network(each["spec"]["range"])) for each in others)


def _check_has_slice(cluster: SimCluster, network: AttachedNetwork, name: str, pools: Mapping[str, Object]) -> None:
    """Check that a node has a slice, or none is free."""
    range_, length = nads.slice_layout(cluster.store, network)
    count = ipaddress.ip_network(range_).num_addresses >> (32 - length)
    moving = any(RETURN_ANNOTATION in annotations(each) for each in pools.values())
    has = any(annotations(each)[NODE_ANNOTATION] == name for each in pools.values())
    shared = {ipaddress.ip_network(f"{each}/{length}", strict=False) for each in shared_entries(cluster, network)}
    free = count - len({*shared, *(ipaddress.ip_network(each["spec"]["range"]) for each in pools.values())})
    if not has and free > 0 and not moving:
        raise Violation("all served", f"{name} has no slice of {network.name}, and {free} are free")


def _check_entries(cluster: SimCluster, network: AttachedNetwork, name: str, pools: list[Object]) -> None:
    """Check that IPPools show the addresses in use, on a node or on all, and otherwise only third-party entries.

    The shared IPPool shows what was assigned while the range was shared, and nothing of deleted Pods. A restore may
    bring a Pod back that has another address by then: its old entry is removed with it. So are those that a Pod has of
    an earlier boot, if its agent has lost the log of them.
    """
    waiting = {pod for host in cluster.hosts for pod in cluster.waiting_pods(host)}
    uses = [use for use in cluster.oracle.uses() if name in ("", use.machine) and network.has(use.address)]
    used = {use.address: use.pod for use in uses if use.pod not in waiting}
    entries: dict[str, str] = {}
    for pool in pools:
        base = ipaddress.ip_network(pool["spec"]["range"])[0]
        found: Mapping[str, Any] = pool["spec"]["allocations"]
        entries |= {str(base + int(key)): each["podref"] for key, each in found.items() if each["id"] != THIRD_PARTY}
    everywhere = {use.address: use for use in cluster.oracle.uses() if network.has(use.address)}
    shared = shared_entries(cluster, network).items()
    unknown = {use.pod for use in everywhere.values() if cluster.restores or _has_lost_log(cluster, use.machine)}
    orphans = {address for address, pod in shared if address not in everywhere and pod not in unknown}
    entries |= {address: pod for address, pod in shared if address in used or address in orphans}
    shown = {address: pod for address, pod in entries.items() if pod not in waiting}
    if used != shown:
        raise Violation("agreement", f"{name or network.name}: {used} are in use, but IPPools show {shown}")


def _has_lost_log(cluster: SimCluster, machine: str) -> bool:
    return machine in cluster.hosts and cluster.hosts[machine].machine.journal_faults > 0


def _check_served(cluster: SimCluster, name: str) -> None:
    """Check that a Pod waits only if one of its networks has no free address."""
    waiting = cluster.waiting_pods(name)
    free = min(_free_addresses(cluster, network, name) for network in nads.sliced_networks(cluster.config))
    if waiting and free >= len(waiting):
        raise Violation("all served", f"{', '.join(waiting)} on {name} without an address, with {free} free")


def _free_addresses(cluster: SimCluster, network: AttachedNetwork, name: str) -> int:
    """Return the free addresses of a node's slice in the present range of a network."""
    range_ = ipaddress.ip_network(nads.slice_layout(cluster.store, network)[0])
    for pool in sorted(ippools(cluster).values(), key=is_kept, reverse=True):
        notes, slice_ = annotations(pool), ipaddress.ip_network(pool["spec"]["range"])
        is_own = notes.get(NODE_ANNOTATION) == name and notes.get(NETWORK_ANNOTATION) == network.name
        if is_own and range_.overlaps(slice_):
            return slice_.num_addresses - 2 - len(pool["spec"]["allocations"])
    return 0


def _check_node_slice_pool(cluster: SimCluster, network: AttachedNetwork, by_node: Mapping[str, list[Object]]) -> None:
    """Check that the NodeSlicePool shows the node of each slice in the present range."""
    range_ = ipaddress.ip_network(nads.slice_layout(cluster.store, network)[0])
    found = cluster.store.objects(NODE_SLICE_POOLS.group, NODE_SLICE_POOLS.plural)
    listed = found.get(f"kube-system/{network.name}", {}).get("status", {}).get("allocations", [])
    shown = {each["nodeName"]: each["sliceRange"] for each in listed if each["nodeName"]}
    slices = {name: [pool["spec"]["range"] for pool in sorted(each, key=is_kept)] for name, each in by_node.items()}
    pairs = ((name, slice_) for name, each in slices.items() for slice_ in each)
    held = {name: slice_ for name, slice_ in pairs if range_.overlaps(ipaddress.ip_network(slice_))}
    if shown != held:
        raise Violation("agreement", f"NodeSlicePool {network.name} shows {shown}, but nodes have {held}")
