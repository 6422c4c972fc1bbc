"""Consistency of secondary networks in a settled cluster.

Sources are Multus' network status, the interfaces in the Pods' namespaces, the entries of IPPools, and the journals of
nodes with slices.
"""

from __future__ import annotations

from ipaddress import ip_network
from typing import TYPE_CHECKING, Any

from parts.installation import state
from parts.multus import attached, wanted
from parts.whereabouts import POOLS
from podpool.agent.secondary.slices import Slices
from podpool.api.whereabouts import NODE_UID_LABEL
from tests.cluster.consistency import Addresses, apart, name_of, replayed, shared

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from parts.cluster import Cluster
    from parts.node import Node

Pair = tuple[str, str]
"""An interface and its address."""
FIRST = "eth0"


def network_differences(cluster: Cluster) -> list[str]:
    """Return every difference."""
    pods, pools, nodes = cluster.pods(), cluster.admin.get(POOLS)["items"], cluster.nodes.values()
    reported = collected((who(pod, ifname), ips[0]) for pod in pods for ifname, ips in further(pod).items())
    kernel = collected(each for node in nodes for each in interfaces(node, pods))
    journals = collected(each for node in nodes for each in journalled(node))
    return [
        *(f"{name_of(pod)} has not all of its networks" for pod in pods if len(wanted(pod)) != len(further(pod))),
        *shared("interfaces have", reported.values()),
        *apart("interface", "Multus", reported, "the kernel", kernel),
        *apart("interface", "Multus", reported, "the IPPools", collected(entries(pools))),
        *apart("interface", "slices' IPPools", collected(entries(filter(of_a_node, pools))), "the journals", journals),
    ]


def collected(pairs: Iterable[Pair]) -> Addresses:
    """Addresses by interface; of one that has several, all of them."""
    found: Addresses = {}
    for interface, address in pairs:
        found[interface] = f"{found[interface]} and {address}" if interface in found else address
    return found


def who(pod: Mapping[str, Any], ifname: str) -> str:
    """One interface of one Pod."""
    return f"{name_of(pod)} {ifname}"


def further(pod: Mapping[str, Any]) -> dict[str, list[str]]:
    """What Multus has reported of a Pod's networks beside the first."""
    return {ifname: ips for ifname, ips in attached(pod).items() if ifname != FIRST}


def interfaces(node: Node, pods: Iterable[Mapping[str, Any]]) -> Iterator[Pair]:
    """What the Pods' namespaces on a node have; a Pod is known by its first address."""
    names = {pod["status"].get("podIP"): name_of(pod) for pod in pods}
    for netns, addresses in node.addresses().items():
        pod = names.get(addresses.get(FIRST), netns)
        yield from ((f"{pod} {ifname}", address) for ifname, address in addresses.items() if ifname != FIRST)


def entries(pools: Iterable[Mapping[str, Any]]) -> Iterator[Pair]:
    """What IPPools say."""
    for pool in pools:
        range_ = ip_network(pool["spec"]["range"])
        for distance, entry in pool["spec"]["allocations"].items():
            yield f"{pod_in(entry['podref'])} {entry['ifname']}", str(range_[int(distance)])


def of_a_node(pool: Mapping[str, Any]) -> bool:
    """Whether an IPPool is that of a node's slice."""
    return NODE_UID_LABEL in pool["metadata"].get("labels", {})


def journalled(node: Node) -> Iterator[Pair]:
    """What the agent of a node has written down about its slices."""
    for each in replayed(state(node), Slices()):
        for value, holder in each.assigned.items():
            yield f"{pod_in(holder.podref)} {holder.attachment.ifname}", str(each.address(value))


def pod_in(podref: str) -> str:
    """The name of a Pod that Whereabouts' objects refer to."""
    return podref.partition("/")[2]
