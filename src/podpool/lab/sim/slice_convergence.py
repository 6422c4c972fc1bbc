"""What must hold for node slices after the faults.

Every node has one slice of each network or none is free; NodeSlices, journals, IPPools and NodeSlicePools agree with
the addresses in use; every Pod is served, and nothing of removed nodes is left.
"""

import ipaddress
from typing import TYPE_CHECKING, Any

from podpool.api.node_slices import PROTOCOL, NodeSlices
from podpool.api.whereabouts import (
    NETWORK_ANNOTATION,
    NODE_ANNOTATION,
    NODE_SLICE_POOLS,
    NODE_UID_LABEL,
    SLICE_ANNOTATION,
)
from podpool.lab.apiserver.registry import Object
from podpool.lab.sim import nads
from podpool.lab.sim.address_use_oracle import Violation
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.nads import AttachedNetwork
from podpool.lab.sim.slice_faults import THIRD_PARTY
from podpool.lab.sim.slice_state import (
    OwnedAssignment,
    all_owned,
    annotations,
    held_slices,
    ippools,
    leases,
    node_slices,
    owned,
    shared_entries,
)

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_slices_converged(cluster: SimCluster) -> None:
    """Check a cluster after some time without faults."""
    for name, of in node_slices(cluster).items():
        _check_node_slices(cluster, name, of)
    _check_derived_objects(cluster)
    for network in nads.networks(cluster.config):
        if not network.shared:
            _check_sliced_network(cluster, network)
        elif not cluster.restores:  # else an address may have had two owners, of which the oracle keeps the last
            _check_entries(cluster, network, "", [])
    for name in cluster.nodes():
        _check_served(cluster, name)


def _check_node_slices(cluster: SimCluster, name: str, of: NodeSlices) -> None:
    """Check that an object belongs to a Node, and that its agent's status and journal agree with its spec."""
    node = cluster.nodes().get(name)
    if node is None or of.spec.node_uid != node["metadata"]["uid"] or of.metadata.deletion_timestamp:
        raise Violation("no leaks", f"NodeSlices {name} has no Node")
    if of.spec.former:
        raise Violation("no leaks", f"NodeSlices {name} lists {len(of.spec.former)} former Nodes")
    host, status = cluster.hosts[name], of.status
    if (status.protocol, status.boot_id) != (PROTOCOL, host.machine.boot_id):
        raise Violation("agreement", f"the status of NodeSlices {name} is not of its agent")
    assigned = {each.id for each in of.spec.assignments}
    shown = {each.id for each in status.slices}
    if shown - assigned:
        raise Violation("agreement", f"the status of NodeSlices {name} shows {min(shown - assigned)}, which spec lacks")
    unconfirmed = {
        each.assignment.id for each in owned(name, of) if not each.is_confirmed and _is_blocked(cluster, each)
    }
    held = {each.assignment for each in held_slices(host)}
    if held - unconfirmed != assigned - unconfirmed:
        raise Violation("agreement", f"{name} holds {len(held)} slices, NodeSlices lists {len(assigned)}")


def _check_derived_objects(cluster: SimCluster) -> None:
    """Check that IPPools and Leases of slices are of slices that their node has."""
    slices = {(each.node, each.assignment.network, each.assignment.slice) for each in all_owned(cluster)}
    pools = {key: each for key, each in ippools(cluster).items() if NODE_ANNOTATION in annotations(each)}
    for key, pool in pools.items():
        notes = annotations(pool)
        if (notes[NODE_ANNOTATION], notes.get(NETWORK_ANNOTATION, ""), pool["spec"]["range"]) not in slices:
            raise Violation("no leaks", f"IPPool {key} is of no slice of {notes[NODE_ANNOTATION]}")
        node = cluster.nodes().get(notes[NODE_ANNOTATION])
        if key not in cluster.edited_ippools and (
            node is None or pool["metadata"].get("labels", {}).get(NODE_UID_LABEL) != node["metadata"]["uid"]
        ):
            raise Violation("no leaks", f"IPPool {key} has no Node")
    for key, lease in leases(cluster).items():
        notes = annotations(lease)
        of_slice = (notes.get(NODE_ANNOTATION), notes.get(NETWORK_ANNOTATION, ""), notes.get(SLICE_ANNOTATION))
        if NODE_ANNOTATION in notes and of_slice not in slices:
            raise Violation("no leaks", f"Lease {key} is of no slice")


def _check_sliced_network(cluster: SimCluster, network: AttachedNetwork) -> None:
    slices = [each for each in all_owned(cluster) if each.assignment.network == network.name]
    for each in slices:
        _check_assignment(cluster, network, each, slices)
    kept = [each for each in slices if each.is_kept]  # a node may have another that it is to return, and that is in use
    if len({each.node for each in kept}) != len(kept):
        raise Violation(
            "no leaks", f"{network.name} has {len(kept)} slices for {len({each.node for each in kept})} nodes"
        )
    for name in cluster.nodes():
        _check_has_slice(cluster, network, name, slices)
        own = [each for each in ippools(cluster).values() if annotations(each).get(NODE_ANNOTATION) == name]
        _check_entries(
            cluster, network, name, [each for each in own if annotations(each).get(NETWORK_ANNOTATION) == network.name]
        )
    _check_node_slice_pool(cluster, network, slices)


def _check_assignment(
    cluster: SimCluster, network: AttachedNetwork, each: OwnedAssignment, slices: list[OwnedAssignment]
) -> None:
    """Check that an assignment is confirmed and held, and is to be returned only while in use."""
    what = f"{each.assignment.slice} of {each.node}"
    held = each.status is not None and each.status.held and not each.status.returned
    if not (held and each.is_confirmed) and not _is_blocked(cluster, each):
        raise Violation("agreement", f"{what} is not held, or not confirmed")
    fits, leaves = _fits_layout(cluster, network, each), not each.is_kept
    has_other = any(other.is_kept and other.node == each.node for other in slices)
    if fits is leaves and not (leaves and has_other):  # the range was another meanwhile, or a copy was restored
        state = "fits, but is to be returned" if fits else "does not fit, but is not to be returned"
        raise Violation("agreement", f"{what} {state}")
    if leaves and each.is_confirmed and not _uses(cluster, each) and not _third_party_entries(cluster, each):
        raise Violation("agreement", f"{what} is to be returned and not in use")


def _uses(cluster: SimCluster, each: OwnedAssignment) -> set[str]:
    """Return the addresses of a slice that sandboxes of its node use."""
    uses = (use.address for use in cluster.oracle.uses() if use.machine == each.node)
    return {address for address in uses if ipaddress.ip_address(address) in each.slice}


def _third_party_entries(cluster: SimCluster, each: OwnedAssignment) -> set[str]:
    """Return the addresses of a slice that third-party entries of its IPPool have."""
    found: set[str] = set()
    for pool in ippools(cluster).values():
        notes, base = annotations(pool), ipaddress.ip_network(pool["spec"]["range"])[0]
        if notes.get(NODE_ANNOTATION) == each.node and pool["spec"]["range"] == each.assignment.slice:
            entries = pool["spec"]["allocations"].items()
            found |= {str(base + int(key)) for key, entry in entries if entry["id"] == THIRD_PARTY}
    return found


def _fits_layout(cluster: SimCluster, network: AttachedNetwork, each: OwnedAssignment) -> bool:
    """Return whether it is a slice of the NAD's range and size."""
    range_, length = nads.slice_layout(cluster.store, network)
    return each.slice.prefixlen == length and each.slice.overlaps(ipaddress.ip_network(range_))


def _is_blocked(cluster: SimCluster, each: OwnedAssignment) -> bool:
    """Return whether its node, or after a restore any node, still has to return an overlapping slice."""
    others = (other for other in all_owned(cluster) if other.assignment.id != each.assignment.id)
    others = (other for other in others if cluster.restores or other.node == each.node)
    return any(not other.is_kept and other.overlaps(each) for other in others)


def _check_has_slice(cluster: SimCluster, network: AttachedNetwork, name: str, slices: list[OwnedAssignment]) -> None:
    """Check that a node has a slice, or none is free."""
    range_, length = nads.slice_layout(cluster.store, network)
    count = ipaddress.ip_network(range_).num_addresses >> (32 - length)
    moving = any(not each.is_kept for each in slices)
    has = any(each.node == name for each in slices)
    shared = {ipaddress.ip_network(f"{each}/{length}", strict=False) for each in shared_entries(cluster, network)}
    free = count - len({*shared, *(each.slice for each in slices)})
    if not has and free > 0 and not moving:
        raise Violation("all served", f"{name} has no slice of {network.name}, and {free} are free")


def _check_entries(cluster: SimCluster, network: AttachedNetwork, name: str, pools: list[Object]) -> None:
    """Check that IPPools show the addresses in use, on a node or on all, and otherwise only third-party entries.

    The shared IPPool shows what was assigned while the range was shared, and nothing of deleted Pods. A restore may
    bring a Pod back that has another address by then: its old entry is removed with it. So are those that a Pod has of
    an earlier boot, if its agent has lost the log of them. An agent does not watch the IPPools of its slices: what a
    person or a third party did to one counts until the agent writes it next.
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
    edited = _edited_ranges(cluster, name)
    shown = {address: pod for address, pod in entries.items() if pod not in waiting}
    differing = {each for each, pod in used.items() ^ shown.items()}
    if any(not any(ipaddress.ip_address(each) in range_ for range_ in edited) for each in differing):
        raise Violation("agreement", f"{name or network.name}: {used} are in use, but IPPools show {shown}")


def _edited_ranges(cluster: SimCluster, name: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Return the slices of a node whose IPPools a person or a third party wrote or deleted last."""
    found = []
    for each in (slice_ for slice_ in all_owned(cluster) if slice_.node == name):
        suffix = f"-{name}-{each.assignment.slice.replace('/', '-')}"
        for key, version in cluster.edited_ippools.items():
            pool = ippools(cluster).get(key)
            if key.endswith(suffix) and (pool["metadata"]["resourceVersion"] if pool else "") == version:
                found.append(each.slice)
    return found


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
    slices = [each for each in all_owned(cluster) if each.node == name and each.assignment.network == network.name]
    for each in sorted(slices, key=lambda slice_: slice_.is_kept, reverse=True):
        if range_.overlaps(each.slice):
            return each.slice.num_addresses - 2 - len(_uses(cluster, each) | _third_party_entries(cluster, each))
    return 0


def _check_node_slice_pool(cluster: SimCluster, network: AttachedNetwork, slices: list[OwnedAssignment]) -> None:
    """Check that the NodeSlicePool shows the node of each slice in the present range."""
    range_ = ipaddress.ip_network(nads.slice_layout(cluster.store, network)[0])
    found = cluster.store.objects(NODE_SLICE_POOLS.group, NODE_SLICE_POOLS.plural)
    listed = found.get(f"kube-system/{network.name}", {}).get("status", {}).get("allocations", [])
    shown = {each["nodeName"]: each["sliceRange"] for each in listed if each["nodeName"]}
    present = sorted((each for each in slices if range_.overlaps(each.slice)), key=lambda each: each.is_kept)
    held = {each.node: each.assignment.slice for each in present}
    if shown != held:
        raise Violation("agreement", f"NodeSlicePool {network.name} shows {shown}, but nodes have {held}")
