"""View models of nodes, Pods and subnets, computed from API objects and ledger messages. Pure.

An address of a node is assigned when a Pod shows it, else idle; an address that cools down on the node counts as idle,
because only the agent knows. Reserved addresses that are neither on nodes of this cluster nor cooling down belong to
other clusters.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from podpool.api.annotation_decoder import decode_annotation
from podpool.api.azure import ClusterSubnet, NodeNetworkConfig, agent_report
from podpool.api.builtin import FINISHED, PodSpec, PodStatus
from podpool.api.meta import ApiStruct, Condition, KeyedObject, Kind, ObjectIdentity
from podpool.core.quantities import hundredths
from podpool.core.scaling import Scaler
from podpool.ledger.messages import SubnetSpec, SubnetState

WAITING_SHOWN = 12
"""Waiting Pods listed per node; more are counted."""
FULL = "NCUpdateSubnetFullError"


class InspectedPodAnnotations(ApiStruct, frozen=True, kw_only=True):
    """The used annotations."""

    networks: str = msgspec.field(name="k8s.v1.cni.cncf.io/networks", default="")
    """Secondary networks, as Multus reads them."""


class _NetworkSelection(ApiStruct, frozen=True, kw_only=True):
    name: str
    namespace: str = ""


_SELECTIONS = msgspec.json.Decoder(tuple[_NetworkSelection, ...])


class InspectedPodMeta(ObjectIdentity, frozen=True, kw_only=True):
    """Metadata with the creation time and the secondary networks."""

    creation_timestamp: str | None = None
    annotations: InspectedPodAnnotations = InspectedPodAnnotations()


class InspectedPodStatus(PodStatus, frozen=True, kw_only=True):
    """Status with conditions."""

    conditions: tuple[Condition, ...] = ()


class InspectedPod(KeyedObject, frozen=True, kw_only=True):
    """A Pod."""

    metadata: InspectedPodMeta = InspectedPodMeta()
    spec: PodSpec = PodSpec()
    status: InspectedPodStatus = InspectedPodStatus()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Addresses of the Pod; none when it is finished or on the host network."""
        if self.spec.host_network or self.status.phase in FINISHED:
            return ()
        return tuple(each.ip for each in self.status.pod_ips if each.ip)

    @property
    def secondary_networks(self) -> frozenset[str]:
        """The keys of its NetworkAttachmentDefinitions: `a, ns/b@eth1`, or JSON; none if it cannot be parsed."""
        text = self.metadata.annotations.networks.strip()
        if text.startswith("["):
            selected = decode_annotation(_SELECTIONS, text) or ()
            return frozenset(self._nad_key(each.namespace, each.name) for each in selected)
        named = (each.partition("@")[0].strip().rpartition("/") for each in text.split(","))
        return frozenset(self._nad_key(namespace, name) for namespace, _, name in named if name)

    def _nad_key(self, namespace: str, name: str) -> str:
        return f"{namespace or self.metadata.namespace}/{name}"

    @property
    def waiting_for_address(self) -> bool:
        """Whether it is bound to a node, needs an address and shows none."""
        alive = self.status.phase not in FINISHED and not self.metadata.deletion_timestamp
        return bool(self.spec.node_name) and alive and not self.spec.host_network and not self.addresses

    @property
    def since(self) -> str:
        """When it was bound to its node, else when it was created."""
        bound = (each.last_transition_time for each in self.status.conditions if each.type == "PodScheduled")
        return next(bound, None) or self.metadata.creation_timestamp or ""


INSPECTED_PODS = Kind(group="", version="v1", plural="pods", kind="Pod", type=InspectedPod)


class ViewModel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base of what is sent to a browser or terminal; default values are omitted."""


class Waiting(ViewModel, frozen=True, kw_only=True):
    """A Pod without an address."""

    pod: str
    """Namespace and name."""
    since: str = ""


class NodeView(ViewModel, frozen=True, kw_only=True):
    """A node: its addresses and waiting Pods."""

    name: str
    subnet: str = ""
    """Network and subnet; empty before the node has a network container."""
    assigned: int = 0
    idle: int = 0
    pending: int = 0
    """Requested but not granted yet."""
    releasing: int = 0
    """Pending release."""
    primaries: int = 0
    waiting: int = 0
    waiting_pods: tuple[Waiting, ...] = ()
    """Longest waiting first."""
    batch: int = 0
    short: bool = False
    """The subnet cannot grant the whole request now."""
    limited_by: str = ""
    """Why the request is not granted, if it is not the subnet that is full: a quota, or the scope of the token."""
    third_party: bool = False
    """Its agent is a third party's."""
    gone: bool = False
    """It has a NodeNetworkConfig but no Node."""
    slices: int = 0
    """Slices of secondary networks."""
    without_slice: tuple[str, ...] = ()
    """Secondary networks of which it waits for a slice."""

    @property
    def held(self) -> int:
        """Granted addresses that are not pending release."""
        return self.assigned + self.idle


class PodView(ViewModel, frozen=True, kw_only=True):
    """A Pod and the state of its address."""

    name: str
    """Namespace and name."""
    node: str = ""
    addresses: tuple[str, ...] = ()
    state: str
    """assigned, waiting, unscheduled, terminating, host-network or finished."""
    since: str = ""
    """When it was bound to its node, else when it was created."""


class SubnetView(ViewModel, frozen=True, kw_only=True):
    """A subnet: usage and the decisions for it."""

    name: str
    cidrs: tuple[str, ...]
    capacity: int
    reserved: int = 0
    assigned: int = 0
    idle: int = 0
    primaries: int = 0
    cooling_down: int = 0
    other_clusters: int = 0
    """Held by nodes of other clusters."""
    excluded: int = 0
    reserved_for_primaries: int = 0
    nodes: int = 0
    pods_waiting: int = 0
    batch: int = 0
    configured_batch: int = 0
    """The configured batch."""
    buffer: float = 0.0
    """As a share of the batch."""
    upper: int = 0
    lower: int = 0
    """Thresholds in hundredths of the capacity."""
    cooldown: float = 0.0
    exhausted: bool = False
    frozen: bool = False
    draining: bool = False
    addresses_waiting: int = 0
    """Addresses that Pods wait for, in all clusters."""
    revision: int = 0

    @property
    def limit(self) -> int:
        """Addresses available to Pods and nodes: the capacity less what is reserved for primaries."""
        return max(0, self.capacity - self.reserved_for_primaries)

    @property
    def occupied(self) -> int:
        """Reserved addresses that no node could release."""
        return max(0, self.reserved - self.idle)


def node_view(
    name: str, config: NodeNetworkConfig | None, pods: Sequence[InspectedPod], *, there: bool = True
) -> NodeView:
    """Return the view of a node."""
    used = {address for pod in pods for address in pod.addresses}
    waiting = sorted((each for each in pods if each.waiting_for_address), key=lambda pod: (pod.since or "~", pod.key))
    waiters = tuple(Waiting(pod=pod.key, since=pod.since) for pod in waiting[:WAITING_SHOWN])
    if config is None or not config.status.network_containers:
        return NodeView(name=name, waiting=len(waiting), waiting_pods=waiters, gone=not there)
    containers = config.status.network_containers
    released = set(config.spec.pending_release)
    kept = [each.ip for container in containers for each in container.ip_assignments if each.name not in released]
    shown = sum(len(container.ip_assignments) for container in containers)
    assigned, pending = sum(address in used for address in kept), max(0, config.spec.requested - len(kept))
    report = agent_report(config)
    return NodeView(
        name=name,
        subnet=subnet_key(containers[0].vnet_id, containers[0].subnet_name),
        assigned=assigned,
        idle=len(kept) - assigned,
        pending=pending,
        releasing=shown - len(kept),
        primaries=sum(bool(each.primary_ip) for each in containers),
        waiting=len(waiting),
        waiting_pods=waiters,
        batch=report.batch if report else config.status.scaler.batch_size,
        short=pending > 0 and any(each.status == FULL for each in containers),  # the status is of an earlier request
        limited_by=next((each.status_reason for each in containers if pending > 0 and each.status_reason), ""),
        third_party=report is None,
        gone=not there,
    )


def pod_view(pod: InspectedPod) -> PodView:
    """Return the view of a Pod."""
    return PodView(name=pod.key, node=pod.spec.node_name, addresses=pod.addresses, state=_state(pod), since=pod.since)


def _state(pod: InspectedPod) -> str:
    if pod.status.phase in FINISHED:
        return "finished"
    if pod.spec.host_network:
        return "host-network"
    if pod.addresses:
        return "assigned"
    if pod.metadata.deletion_timestamp:
        return "terminating"
    return "waiting" if pod.waiting_for_address else "unscheduled"


def with_cluster_scaler(state: SubnetState, subnet: ClusterSubnet | None) -> SubnetState:
    """Apply this cluster's ClusterSubnet to a subnet's state: its scaler may override the ledger's."""
    if subnet is None or not (batch := subnet.status.scaler.batch):
        return state
    scaler = Scaler(batch, hundredths(subnet.status.scaler.buffer) or 0)
    return msgspec.structs.replace(state, scaler=scaler, exhausted=subnet.status.exhausted)


def subnet_view(state: SubnetState, made: SubnetSpec | None, nodes: Iterable[NodeView]) -> SubnetView:
    """Return the view of a subnet; `nodes` are those of this cluster on it."""
    here = tuple(nodes)
    assigned, idle = sum(each.assigned for each in here), sum(each.idle + each.releasing for each in here)
    primaries = sum(each.primaries for each in here)
    return SubnetView(
        name=subnet_key(state.subnet.network, state.subnet.name),
        cidrs=(state.cidr, *state.additional_cidrs),
        capacity=state.capacity,
        reserved=state.reserved,
        assigned=assigned,
        idle=idle,
        primaries=primaries,
        cooling_down=state.cooling_down,
        other_clusters=max(0, state.reserved - state.cooling_down - assigned - idle - primaries),
        excluded=state.excluded,
        reserved_for_primaries=state.reserved_for_primaries,
        nodes=len(here),
        pods_waiting=sum(each.waiting for each in here),
        batch=state.scaler.batch,
        configured_batch=made.batch if made else state.scaler.batch,
        buffer=state.scaler.buffer / 100,
        upper=made.upper_threshold if made else 0,
        lower=made.lower_threshold if made else 0,
        cooldown=state.cooldown,
        exhausted=state.exhausted,
        frozen=state.frozen,
        draining=state.draining,
        addresses_waiting=state.waiting,
        revision=state.revision,
    )


def subnet_views_without_ledger(
    nodes: Iterable[NodeView], nncs: Iterable[NodeNetworkConfig], objects: Iterable[ClusterSubnet]
) -> Iterable[SubnetView]:
    """Return subnets as NodeNetworkConfigs and ClusterSubnets describe them; their capacity is unknown."""
    cluster_subnets: Mapping[str, ClusterSubnet] = {each.metadata.name: each for each in objects}
    spaces = {
        subnet_key(each.vnet_id, each.subnet_name): each.subnet_address_space
        for nnc in nncs
        for each in nnc.status.network_containers
    }
    for name, here in nodes_by_subnet(nodes).items():
        if not name:
            continue
        subnet = cluster_subnets.get(name.partition(".")[2])
        status = subnet.status if subnet else None
        assigned, idle = sum(each.assigned for each in here), sum(each.idle + each.releasing for each in here)
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
            buffer=(hundredths(status.scaler.buffer) or 0) / 100 if status else 0.0,
            exhausted=bool(status and status.exhausted),
        )


def subnet_key(network: str, name: str) -> str:
    """Return `network.subnet`, as the ledger commands write it."""
    return f"{network}.{name}" if name else ""


def nodes_by_subnet(nodes: Iterable[NodeView]) -> Mapping[str, list[NodeView]]:
    """Group nodes by subnet."""
    found: dict[str, list[NodeView]] = {}
    for each in nodes:
        found.setdefault(each.subnet, []).append(each)
    return found
