"""What a looker is shown of each thing, made from the objects that tell it. Pure: nothing here reads or waiting_for_address.

An address of a node is assigned when a Pod shows it, idle otherwise; resting on a node is idle here, because only the
agent knows. What the ledger has reserved beyond this cluster's nodes and the resting ones is other clusters'.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from podpool.api.azure import ClusterSubnet, NodeNetworkConfig, agent_report
from podpool.api.builtin import FINISHED
from podpool.core.scaling import Scaler
from podpool.inspect.pods import InspectedPod
from podpool.ledger.messages import SubnetSpec, SubnetState

WAITING_SHOWN = 12
"""Pods of a node that are named; of more, the number is message."""
FULL = "NCUpdateSubnetFullError"


class ViewModel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Something that a browser or a terminal is sent; what is as it always is need not be written."""


class Waiting(ViewModel, frozen=True, kw_only=True):
    """A Pod without an address."""

    pod: str
    """Namespace and name."""
    since: str = ""


class NodeView(ViewModel, frozen=True, kw_only=True):
    """A node: what it has, and who waiting_for_address there."""

    name: str
    subnet: str = ""
    """Network and name; empty before the node was given anything."""
    assigned: int = 0
    idle: int = 0
    arriving: int = 0
    """Asked for and not there yet,"""
    leaving: int = 0
    """and let go of, but still shown."""
    primaries: int = 0
    waiting: int = 0
    waiters: tuple[Waiting, ...] = ()
    """The longest first."""
    batch: int = 0
    short: bool = False
    """The subnet could not give all that it asked for."""
    foreign: bool = False
    """Its agent is not podpool's."""
    gone: bool = False
    """It has an NNC and no Node."""

    @property
    def held(self) -> int:
        """Addresses for Pods that it was given and has not let go of."""
        return self.assigned + self.idle


class PodView(ViewModel, frozen=True, kw_only=True):
    """A Pod, and how it stands with its address."""

    name: str
    """Namespace and name."""
    node: str = ""
    addresses: tuple[str, ...] = ()
    state: str
    """served, waiting_for_address, unplaced, leaving (it is being deleted), host (on its node's own network) or finished."""
    since: str = ""
    """When it came to its node; else when it was made."""


class SubnetView(ViewModel, frozen=True, kw_only=True):
    """A subnet: how full, of what, and what was decided for it."""

    name: str
    cidrs: tuple[str, ...]
    capacity: int
    reserved: int = 0
    assigned: int = 0
    idle: int = 0
    primaries: int = 0
    resting: int = 0
    others: int = 0
    """Held by nodes of other clusters."""
    kept_back: int = 0
    reserved_for_primaries: int = 0
    nodes: int = 0
    pods_waiting: int = 0
    batch: int = 0
    full_batch: int = 0
    """The batch when nothing is scarce."""
    buffer: float = 0.0
    """A share of the batch."""
    upper: int = 0
    lower: int = 0
    """Thresholds, in hundredths of the capacity."""
    cooldown: float = 0.0
    exhausted: bool = False
    frozen: bool = False
    draining: bool = False
    short: int = 0
    """Addresses that Pods wait for, in all clusters."""
    revision: int = 0

    @property
    def limit(self) -> int:
        """What Pods and their nodes can have: the rest is kept for the primaries of new nodes."""
        return max(0, self.capacity - self.reserved_for_primaries)

    @property
    def occupied(self) -> int:
        """What no node could give back: the rest is free, or idle."""
        return max(0, self.reserved - self.idle)


def node_view(
    name: str, config: NodeNetworkConfig | None, pods: Sequence[InspectedPod], *, there: bool = True
) -> NodeView:
    """Show a node."""
    used = {address for pod in pods for address in pod.addresses}
    waiting = sorted((each for each in pods if each.waiting_for_address), key=lambda pod: (pod.since or "~", pod.key))
    waiters = tuple(Waiting(pod=pod.key, since=pod.since) for pod in waiting[:WAITING_SHOWN])
    if config is None or not config.status.network_containers:
        return NodeView(name=name, waiting=len(waiting), waiters=waiters, gone=not there)
    containers = config.status.network_containers
    released = set(config.spec.pending_release)
    kept = [each.ip for container in containers for each in container.ip_assignments if each.name not in released]
    shown = sum(len(container.ip_assignments) for container in containers)
    assigned = sum(address in used for address in kept)
    report = agent_report(config)
    return NodeView(
        name=name,
        subnet=subnet_key(containers[0].vnet_id, containers[0].subnet_name),
        assigned=assigned,
        idle=len(kept) - assigned,
        arriving=max(0, config.spec.requested - len(kept)),
        leaving=shown - len(kept),
        primaries=sum(bool(each.primary_ip) for each in containers),
        waiting=len(waiting),
        waiters=waiters,
        batch=report.batch if report else config.status.scaler.batch_size,
        short=any(each.status == FULL for each in containers),
        foreign=report is None,
        gone=not there,
    )


def pod_view(pod: InspectedPod) -> PodView:
    """Show a Pod."""
    return PodView(name=pod.key, node=pod.spec.node_name, addresses=pod.addresses, state=_state(pod), since=pod.since)


def _state(pod: InspectedPod) -> str:
    if pod.status.phase in FINISHED:
        return "finished"
    if pod.spec.host_network:
        return "host"
    if pod.addresses:
        return "served"
    if pod.metadata.deletion_timestamp:
        return "leaving"
    return "waiting_for_address" if pod.waiting_for_address else "unplaced"


def with_cluster_scaler(state: SubnetState, subnet: ClusterSubnet | None) -> SubnetState:
    """Have a subnet scale as this cluster's controller decided: its people may go by other rules than the ledger."""
    if subnet is None or not (batch := subnet.status.scaler.batch):
        return state
    scaler = Scaler(batch, int((subnet.status.scaler.buffer or 0) * 100))
    return msgspec.structs.replace(state, scaler=scaler, exhausted=subnet.status.exhausted)


def subnet_view(state: SubnetState, made: SubnetSpec | None, nodes: Iterable[NodeView]) -> SubnetView:
    """Show a subnet; `nodes` are those of this cluster on it."""
    here = tuple(nodes)
    assigned, idle = sum(each.assigned for each in here), sum(each.idle + each.leaving for each in here)
    primaries = sum(each.primaries for each in here)
    return SubnetView(
        name=subnet_key(state.subnet.network, state.subnet.name),
        cidrs=(state.cidr, *state.further),
        capacity=state.capacity,
        reserved=state.reserved,
        assigned=assigned,
        idle=idle,
        primaries=primaries,
        resting=state.resting,
        others=max(0, state.reserved - state.resting - assigned - idle - primaries),
        kept_back=state.kept_back,
        reserved_for_primaries=state.reserved_for_primaries,
        nodes=len(here),
        pods_waiting=sum(each.waiting for each in here),
        batch=state.scaler.batch,
        full_batch=made.batch if made else state.scaler.batch,
        buffer=state.scaler.buffer / 100,
        upper=made.upper_threshold if made else 0,
        lower=made.lower_threshold if made else 0,
        cooldown=state.cooldown,
        exhausted=state.exhausted,
        frozen=state.frozen,
        draining=state.draining,
        short=state.waiting,
        revision=state.revision,
    )


def subnet_views_without_ledger(
    nodes: Iterable[NodeView], configs: Iterable[NodeNetworkConfig], shown: Iterable[ClusterSubnet]
) -> Iterable[SubnetView]:
    """Show subnets without a ledger, as far as NNCs and ClusterSubnets tell: how large they are, only it knows."""
    decided: Mapping[str, ClusterSubnet] = {each.metadata.name: each for each in shown}
    spaces = {
        subnet_key(each.vnet_id, each.subnet_name): each.subnet_address_space
        for config in configs
        for each in config.status.network_containers
    }
    for name, here in nodes_by_subnet(nodes).items():
        if not name:
            continue
        subnet = decided.get(name.partition(".")[2])
        status = subnet.status if subnet else None
        assigned, idle = sum(each.assigned for each in here), sum(each.idle + each.leaving for each in here)
        primaries = sum(each.primaries for each in here)
        yield SubnetView(
            name=name,
            cidrs=tuple(filter(None, (spaces[name],))),
            capacity=0,
            reserved=assigned + idle + primaries,
            assigned=assigned,
            idle=idle,
            primaries=primaries,
            nodes=len(here),
            pods_waiting=sum(each.waiting for each in here),
            batch=(status.scaler.batch or 0) if status else 0,
            buffer=float(status.scaler.buffer or 0) if status else 0.0,
            exhausted=bool(status and status.exhausted),
        )


def subnet_key(network: str, name: str) -> str:
    """Name a subnet as the ledger's commands do."""
    return f"{network}.{name}" if name else ""


def nodes_by_subnet(nodes: Iterable[NodeView]) -> Mapping[str, list[NodeView]]:
    """Gather nodes by the subnet that they are on."""
    found: dict[str, list[NodeView]] = {}
    for each in nodes:
        found.setdefault(each.subnet, []).append(each)
    return found
