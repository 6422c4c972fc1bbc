"""Whether a cluster is healthy: what is not as it should be, in words for people. Pure.

Healthy is: API server and ledger are reachable, a controller leads, every Node is ready, has a network container and an
agent that has reported since the machine was booted, and neither a Pod nor a node waits. A subnet that is exhausted is
no fault, as long as no Pod waits.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

from podpool.api.azure import NodeNetworkConfig, agent_report
from podpool.api.builtin import Node
from podpool.inspect.cluster_model import ClusterModel
from podpool.inspect.status import ClusterStatus, Leader
from podpool.inspect.view_models import ViewModel

MAX_NAMES = 3
"""Names in one reason; more are counted."""
LEADER_TIMEOUT = 60.0
"""Seconds without a renewal after which no controller leads: four times the duration of its Lease."""


class HealthReason(ViewModel, frozen=True, kw_only=True):
    """Why a cluster is not healthy."""

    subject: str
    """Such as `nodes` or `controller`."""
    message: str


def unhealthy_reasons(status: ClusterStatus, *, ledger: bool, at: float) -> tuple[HealthReason, ...]:
    """Return all reasons, the one that explains the others first; none if the cluster is healthy."""
    model = status.model
    found = [HealthReason(subject=each.removeprefix("the "), message=error) for each, error in model.problems.items()]
    if found:
        return tuple(found)
    return tuple(_reasons(status, model, ledger=ledger, at=at))


def _reasons(status: ClusterStatus, model: ClusterModel, *, ledger: bool, at: float) -> Iterator[HealthReason]:
    nodes = {each.metadata.name: each for each in model.caches.nodes.values()}
    if not nodes:
        yield HealthReason(subject="nodes", message="the cluster has no nodes")
    if reason := _leader(status.leader, at=at):
        yield HealthReason(subject="controller", message=reason)
    for message, names in _node_reasons(model, nodes, ledger=ledger):
        if names:
            yield HealthReason(subject="nodes", message=f"{message}: {_named(sorted(names))}")
    for subnet in status.subnets:
        if subnet.frozen:
            message = f"{subnet.name} is frozen: `podpool ledger recovery status` shows what it waits for"
            yield HealthReason(subject="subnets", message=message)
    if status.inventory.waits_for_nodes or status.inventory.waits_for_confirmation:
        yield HealthReason(subject="slices", message="the controller waits for nodes, or for a decision")
    waiting = [one.pod for view in model.nodes.values() for one in view.waiting_pods]
    if waiting:
        count = sum(each.waiting for each in model.nodes.values())
        yield HealthReason(subject="Pods", message=f"{count} without an address: {_named(waiting, count)}")


def _leader(leader: Leader, *, at: float) -> str:
    if not leader.name:
        return "no controller leads"
    try:
        renewed = datetime.fromisoformat(leader.renewed).timestamp()
    except ValueError:
        return "the Lease of the leading controller has no time"
    age = at - renewed
    return f"the leader {leader.name} has not renewed its Lease for {age:.0f} s" if age > LEADER_TIMEOUT else ""


def _node_reasons(model: ClusterModel, nodes: dict[str, Node], *, ledger: bool) -> Iterator[tuple[str, list[str]]]:
    yield "not ready", [name for name, each in nodes.items() if each.not_ready]
    views = [each for name, each in model.nodes.items() if name in nodes]
    if ledger:
        yield "without a network container", [each.name for each in views if not each.subnet]
    yield "whose agent has not reported", list(_silent_agents(model, nodes))
    yield "without a slice", [each.name for each in views if each.without_slice]


def _silent_agents(model: ClusterModel, nodes: dict[str, Node]) -> Iterable[str]:
    """Return the nodes whose agent has reported nothing since the machine was booted; none of a third party's."""
    silent = {each.metadata.name for each in model.caches.nncs.values() if not _has_reported(each, nodes)}
    for each in model.caches.node_slices.values():
        node = nodes.get(each.metadata.name)
        if node and each.spec.assignments and each.status.boot_id != node.boot_id:
            silent.add(each.metadata.name)
    return silent


def _has_reported(nnc: NodeNetworkConfig, nodes: dict[str, Node]) -> bool:
    node, report = nodes.get(nnc.metadata.name), agent_report(nnc)
    if node is None or not nnc.status.network_containers:
        return True  # another reason
    return report.boot_id == node.boot_id if report else nnc.spec.requested > 0


def _named(names: list[str], count: int = 0) -> str:
    more = (count or len(names)) - min(len(names), MAX_NAMES)
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
