"""Consistency of a settled cluster: every source agrees on each Pod's address.

Sources are the API server's Pods, the kubelets, the interfaces in the Pods' namespaces, the agents' journals, the
NodeNetworkConfigs and the ledger. Every difference, and everything that is left over, is reported as one line.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from parts.cluster import NODES, runs
from parts.installation import state
from podpool.agent.pool import Pool
from podpool.agent.secondary.slices import Slices
from podpool.agent.state import read_agent_journal
from podpool.runtime.disk import LocalDisk

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from parts.cluster import Cluster
    from parts.installation import Installation
    from parts.node import Node

Addresses = dict[str, str]
"""Addresses by Pod, or by grant."""
Part = TypeVar("Part", Pool, Slices)
DEFERRED_DELETES = "/run/podpool/deletes"


@dataclass(frozen=True, kw_only=True)
class NCState:
    """Version and grants of a network container, according to one source."""

    version: int
    grants: Addresses


def differences(cluster: Cluster, installation: Installation) -> list[str]:
    """Return every difference, and everything that is left over."""
    pods, nncs, ncs = cluster.pods(), installation.nncs(), installation.ledger_ncs()
    ledger = {each["node"]: given(each["state"]) for each in ncs}
    nodes = {each["metadata"]["name"] for each in cluster.admin.get(NODES)["items"]}
    found_differences = [f"Pod {name_of(pod)} does not run: {pod['status']['phase']}" for pod in pods if not runs(pod)]
    found_differences += shared("Pods have", (pod["status"].get("podIP", "none") for pod in pods))
    found_differences += shared(
        "network containers hold", (ip for each in ncs for ip in given(each["state"]).grants.values())
    )
    found_differences += shared("network containers in the ledger belong to", (each["node"] for each in ncs))
    found_differences += miscounted(installation.ledger_subnet(), ncs)
    found_differences += apart_names("Nodes", nodes, "machines", set(cluster.nodes))
    found_differences += apart_names("Nodes", nodes, "NodeNetworkConfigs", set(nncs))
    found_differences += apart_names("Nodes", nodes, "the ledger's nodes", set(ledger))
    for name in sorted(nodes & set(cluster.nodes) & set(nncs) & set(ledger)):
        here = {name_of(pod): pod["status"].get("podIP", "") for pod in pods if pod["spec"].get("nodeName") == name}
        found = [
            *on_the_node(cluster.nodes[name], here),
            *in_agent_and_ledger(cluster.nodes[name], here, nncs[name], ledger[name]),
        ]
        found_differences += [f"{name}: {each}" for each in found]
    return found_differences


def miscounted(subnet: Mapping[str, Any], ncs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What the ledger cannot grant beside what the nodes hold: one primary each, and their grants."""
    held = sum(1 + len(given(each["state"]).grants) for each in ncs)
    found_differences = f"{subnet['reserved']} addresses of the subnet are taken, and nodes hold {held}"
    return [found_differences] if subnet["reserved"] != held else []


def on_the_node(node: Node, pods: Addresses) -> list[str]:
    """What the kubelet, the runtime and the kernel have, beside what the API server has.

    A namespace without an interface is not counted: a containerd that is killed between making one and saving its
    sandbox leaves it for good (containerd/cri#568).
    """
    kubelet = {name_of(pod): pod["status"].get("podIP", "") for pod in node.kubelet_pods()}
    counts = {
        "connected network namespaces": (len(node.addresses()), len(pods)),
        "ports of the bridge": (len(node.ports()), len(pods)),
        "workloads and sandboxes": (len(node.tasks()), 2 * len(pods)),
        "deferred DELs": (len(node.run("sh", "-c", f"ls {DEFERRED_DELETES} 2>/dev/null || true").split()), 0),
    }
    return [
        *apart("Pod", "the API server", pods, "the kubelet", kubelet),
        *apart_names("Pods' addresses", set(pods.values()), "interfaces", set(node.interfaces().values())),
        *(f"{has} {what} for {len(pods)} Pods" for what, (has, wanted) in counts.items() if has != wanted),
    ]


def in_agent_and_ledger(node: Node, pods: Addresses, config: Mapping[str, Any], ledger: NCState) -> list[str]:
    """What the agent, the NodeNetworkConfig and the ledger have."""
    pool = replayed(state(node), Pool())
    ncs = config.get("status", {}).get("networkContainers", [])
    if len(ncs) != 1 or pool.nc is None:
        return [f"{len(ncs)} network containers in its status, {pool.nc and 1} in its agent's journal"]
    shown = NCState(
        version=ncs[0].get("version", 0),
        grants={each["name"]: each["ip"] for each in ncs[0].get("ipAssignments", [])},
    )
    accepted = {each.name: each.ip for each in pool.nc.ip_assignments}
    held = {each.pod.name: each.grant.address for each in pool.assigned.values()}
    spec = config["spec"]
    found_differences = [
        *apart("Pod", "the API server", pods, "the agent", held),
        *apart("grant", "the agent", accepted, "the NodeNetworkConfig", shown.grants),
        *apart("grant", "the NodeNetworkConfig", shown.grants, "the ledger", ledger.grants),
    ]
    versions = {"agent": pool.version, "NodeNetworkConfig": shown.version, "ledger": ledger.version}
    if len(set(versions.values())) > 1:
        found_differences += [f"versions differ: {versions}"]
    if spec.get("ipsNotInUse") or spec["requestedIPCount"] != len(shown.grants):
        named = len(spec.get("ipsNotInUse") or [])
        found_differences += [
            f"asks for {spec['requestedIPCount']} and has {len(shown.grants)}, of which {named} are let go of"
        ]
    return found_differences


def replayed(journal: Path, part: Part) -> Part:
    """What an agent has, as its journal tells: its pool, or its slices."""
    disk = LocalDisk(journal)
    try:
        for record in read_agent_journal(disk).records:
            part.apply(record)
    finally:
        disk.close()
    return part


def given(container: Mapping[str, Any]) -> NCState:
    """A container in the ledger's words."""
    grants = {each["id"]: each["address"] for each in container.get("grants", [])}
    return NCState(version=container["version"], grants=grants)


def apart(what: str, one: str, ones: Addresses, other: str, others: Addresses) -> list[str]:
    """Where two lists of addresses differ."""
    return [
        f"{what} {key} has {ones.get(key, 'nothing')} with {one}, {others.get(key, 'nothing')} with {other}"
        for key in sorted(ones.keys() | others.keys())
        if ones.get(key) != others.get(key)
    ]


def apart_names(what: str, ones: set[str], other: str, others: set[str]) -> list[str]:
    """Where two sets differ."""
    return [
        *(f"{each} is among the {what}, not among the {other}" for each in sorted(ones - others)),
        *(f"{each} is among the {other}, not among the {what}" for each in sorted(others - ones)),
    ]


def shared(what: str, names: Iterable[str]) -> list[str]:
    """What is there more than once."""
    return [f"{count} {what} {name}" for name, count in Counter(names).items() if count > 1]


def name_of(pod: Mapping[str, Any]) -> str:
    """A Pod's name."""
    return str(pod["metadata"]["name"])
