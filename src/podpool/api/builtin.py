"""Built-in Kubernetes kinds, with the used fields."""

from collections.abc import Mapping

import msgspec

from podpool.api.meta import ApiStruct, KeyedObject, Kind, KubeObject, ObjectIdentity

FINISHED = frozenset({"Succeeded", "Failed"})
SHORT_CONDITION = "PodAddressesShort"
"""Condition of a Node whose subnet cannot grant what its Pods need."""
SHORT_TAINT = "podpool.io/addresses-short"
"""Taint that keeps further Pods off such a Node."""


class NodeSystemInfo(ApiStruct, frozen=True, kw_only=True):
    """The machine, as reported by the kubelet."""

    boot_id: str = msgspec.field(name="bootID", default="")


class NodeAddress(ApiStruct, frozen=True, kw_only=True):
    """One address of a Node."""

    type: str
    address: str


class NodeCondition(ApiStruct, frozen=True, kw_only=True):
    """One condition of a Node, without its times: a heartbeat does not change it."""

    type: str
    status: str = ""


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    """The used status."""

    conditions: tuple[NodeCondition, ...] = ()
    node_info: NodeSystemInfo = NodeSystemInfo()
    addresses: tuple[NodeAddress, ...] = ()


class Node(KubeObject, frozen=True, kw_only=True):
    """A Node."""

    status: NodeStatus = NodeStatus()

    @property
    def boot_id(self) -> str:
        """Boot ID that its kubelet reports; empty before the first report."""
        return self.status.node_info.boot_id

    @property
    def not_ready(self) -> bool:
        """Whether its kubelet reports that it is not ready, or reports nothing in time."""
        return any(each.type == "Ready" and each.status != "True" for each in self.status.conditions)

    @property
    def internal_address(self) -> str:
        """InternalIP of the Node; empty if it has none."""
        return next((each.address for each in self.status.addresses if each.type == "InternalIP"), "")


class PodAnnotations(ApiStruct, frozen=True, kw_only=True):
    """The used annotations."""

    config_hash: str | None = msgspec.field(name="kubernetes.io/config.hash", default=None)
    """Of a static Pod: its UID in the runtime."""


class PodMeta(ObjectIdentity, frozen=True, kw_only=True):
    """The used metadata; as small as possible, because Pods are the most numerous cached objects."""

    annotations: PodAnnotations = PodAnnotations()


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """The used spec."""

    node_name: str = ""
    host_network: bool = False


class PodIP(ApiStruct, frozen=True, kw_only=True):
    """One address of a Pod."""

    ip: str = ""


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """The used status."""

    phase: str = ""
    pod_ips: tuple[PodIP, ...] = msgspec.field(name="podIPs", default=())


class Pod(KeyedObject, frozen=True, kw_only=True):
    """A Pod."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def add_keys(self) -> tuple[str, ...]:
        """What an ADD of its sandbox names it by: its UID, of a static Pod the config hash, else namespace/name."""
        return self.metadata.uid, self.metadata.annotations.config_hash or self.metadata.uid, self.key

    @property
    def needs_address(self) -> bool:
        """Whether it counts as demand: not on the host network, and not finished."""
        return not self.spec.host_network and self.status.phase not in FINISHED


class NetworkAnnotations(ApiStruct, frozen=True, kw_only=True):
    """Annotations of Multus."""

    status: str | None = msgspec.field(name="k8s.v1.cni.cncf.io/network-status", default=None)
    wanted: str | None = msgspec.field(name="k8s.v1.cni.cncf.io/networks", default=None)


class AddressedMeta(ObjectIdentity, frozen=True, kw_only=True):
    """Metadata of an `AddressedPod`."""

    annotations: NetworkAnnotations = NetworkAnnotations()


class AddressedStatus(PodStatus, frozen=True, kw_only=True):
    """Status of an `AddressedPod`."""

    start_time: str | None = None


class AddressedPod(KeyedObject, frozen=True, kw_only=True):
    """A Pod with its addresses, for the history of addresses."""

    metadata: AddressedMeta = AddressedMeta()
    spec: PodSpec = PodSpec()
    status: AddressedStatus = AddressedStatus()


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    """Holder and times of a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True, kw_only=True):
    """A coordination Lease."""

    spec: LeaseSpec = LeaseSpec()


class ConfigMap(KubeObject, frozen=True, kw_only=True):
    """A ConfigMap."""

    data: Mapping[str, str] = {}


class Namespace(KubeObject, frozen=True, kw_only=True):
    """A namespace; the UID of kube-system is the cluster ID."""


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Reference to an object."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(ApiStruct, frozen=True, kw_only=True):
    """Count and last time of a repeated Event."""

    count: int = 0
    last_observed_time: str | None = None


class Event(KubeObject, frozen=True, kw_only=True):
    """An Event."""

    event_time: str | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference = ObjectReference()
    note: str = ""
    type: str = ""
    series: EventSeries | None = None


NODES = Kind(group="", version="v1", plural="nodes", kind="Node", type=Node, namespaced=False)
PODS = Kind(group="", version="v1", plural="pods", kind="Pod", type=Pod)
ADDRESSED_PODS = Kind(group="", version="v1", plural="pods", kind="Pod", type=AddressedPod)
CONFIG_MAPS = Kind(group="", version="v1", plural="configmaps", kind="ConfigMap", type=ConfigMap)
NAMESPACES = Kind(group="", version="v1", plural="namespaces", kind="Namespace", type=Namespace, namespaced=False)
EVENTS = Kind(group="events.k8s.io", version="v1", plural="events", kind="Event", type=Event)
LEASES = Kind(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", type=Lease)
