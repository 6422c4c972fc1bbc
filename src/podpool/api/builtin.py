"""Objects of Kubernetes itself, as far as we look at them."""

import msgspec

from podpool.api.meta import ApiStruct, KeyedObject, Kind, KubeObject, ObjectIdentity

FINISHED = frozenset({"Succeeded", "Failed"})
SHORT_CONDITION = "PodAddressesShort"
"""The condition of a Node whose subnet cannot give what its Pods need,"""
SHORT_TAINT = "podpool.io/addresses-short"
"""and the taint that keeps further Pods away from it."""


class NodeSystemInfo(ApiStruct, frozen=True, kw_only=True):
    """What the kubelet tells of its machine."""

    boot_id: str = msgspec.field(name="bootID", default="")


class NodeAddress(ApiStruct, frozen=True, kw_only=True):
    """One address of a node."""

    type: str
    address: str


class NodeStatus(ApiStruct, frozen=True, kw_only=True):
    """The status that we use."""

    node_info: NodeSystemInfo = NodeSystemInfo()
    addresses: tuple[NodeAddress, ...] = ()


class Node(KubeObject, frozen=True, kw_only=True):
    """A machine of the cluster."""

    status: NodeStatus = NodeStatus()

    @property
    def boot_id(self) -> str:
        """The boot that its kubelet reports; empty before the first report."""
        return self.status.node_info.boot_id

    @property
    def internal_address(self) -> str:
        """Its own address in the cluster's network; empty when none is told."""
        return next((each.address for each in self.status.addresses if each.type == "InternalIP"), "")


class PodAnnotations(ApiStruct, frozen=True, kw_only=True):
    """The annotations that we use."""

    mirror: str | None = msgspec.field(name="kubernetes.io/config.mirror", default=None)


class PodMeta(ObjectIdentity, frozen=True, kw_only=True):
    """The metadata that we use: of all kinds this one is cached most often, so it holds no more."""

    annotations: PodAnnotations = PodAnnotations()


class PodSpec(ApiStruct, frozen=True, kw_only=True):
    """The spec that we use."""

    node_name: str = ""
    host_network: bool = False


class PodIP(ApiStruct, frozen=True, kw_only=True):
    """One address of a Pod."""

    ip: str = ""


class PodStatus(ApiStruct, frozen=True, kw_only=True):
    """The status that we use."""

    phase: str = ""
    pod_ips: tuple[PodIP, ...] = msgspec.field(name="podIPs", default=())


class Pod(KeyedObject, frozen=True, kw_only=True):
    """A Pod."""

    metadata: PodMeta = PodMeta()
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def mirrored(self) -> bool:
        """Tell whether it is the picture of a Pod that the kubelet started by itself: the runtime's UID is another."""
        return self.metadata.annotations.mirror is not None

    @property
    def needs_address(self) -> bool:
        """Tell whether it counts as demand: not on the host's network, and not finished."""
        return not self.spec.host_network and self.status.phase not in FINISHED


class NetworkAnnotations(ApiStruct, frozen=True, kw_only=True):
    """What Multus tells of a Pod's networks."""

    status: str | None = msgspec.field(name="k8s.v1.cni.cncf.io/network-status", default=None)
    wanted: str | None = msgspec.field(name="k8s.v1.cni.cncf.io/networks", default=None)


class AddressedMeta(ObjectIdentity, frozen=True, kw_only=True):
    """The metadata of a Pod that tells where it is reached."""

    annotations: NetworkAnnotations = NetworkAnnotations()


class AddressedStatus(PodStatus, frozen=True, kw_only=True):
    """The status of one."""

    start_time: str | None = None


class AddressedPod(KeyedObject, frozen=True, kw_only=True):
    """A Pod as far as its addresses go: for whoever keeps a record of them."""

    metadata: AddressedMeta = AddressedMeta()
    spec: PodSpec = PodSpec()
    status: AddressedStatus = AddressedStatus()


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    """Who holds a lease, and until when."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True, kw_only=True):
    """A lease."""

    spec: LeaseSpec = LeaseSpec()


class Namespace(KubeObject, frozen=True, kw_only=True):
    """A namespace; the UID of kube-system is the cluster's own."""


class ObjectReference(ApiStruct, frozen=True, kw_only=True):
    """Which object is meant."""

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


class EventSeries(ApiStruct, frozen=True, kw_only=True):
    """How often it happened, and when last."""

    count: int = 0
    last_observed_time: str | None = None


class Event(KubeObject, frozen=True, kw_only=True):
    """Something that happened to an object, for people to read."""

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
NAMESPACES = Kind(group="", version="v1", plural="namespaces", kind="Namespace", type=Namespace, namespaced=False)
EVENTS = Kind(group="events.k8s.io", version="v1", plural="events", kind="Event", type=Event)
LEASES = Kind(group="coordination.k8s.io", version="v1", plural="leases", kind="Lease", type=Lease)
