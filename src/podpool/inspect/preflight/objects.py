"""Kubernetes objects that only preflight reads, with the used fields."""

from collections.abc import Mapping

import msgspec

from podpool.api.builtin import Node, NodeStatus, NodeSystemInfo
from podpool.api.meta import ApiStruct, KeyedObject, Kind


class MachineInfo(NodeSystemInfo, frozen=True, kw_only=True):
    """The machine of a Node, as its kubelet reports it."""

    architecture: str = ""
    operating_system: str = ""
    container_runtime_version: str = ""
    kubelet_version: str = ""


class MachineStatus(NodeStatus, frozen=True, kw_only=True):
    """The used status of a Node."""

    node_info: MachineInfo = MachineInfo()
    allocatable: Mapping[str, str] = {}


class MachineSpec(ApiStruct, frozen=True, kw_only=True):
    """The used spec of a Node."""

    unschedulable: bool = False
    pod_cidr: str = msgspec.field(name="podCIDR", default="")
    pod_cidrs: tuple[str, ...] = msgspec.field(name="podCIDRs", default=())


class Machine(Node, frozen=True, kw_only=True):
    """A Node with what it says about its machine."""

    spec: MachineSpec = MachineSpec()
    status: MachineStatus = MachineStatus()

    @property
    def cidrs(self) -> tuple[str, ...]:
        """Its podCIDRs, of which the first is in an older field too."""
        return self.spec.pod_cidrs or tuple(filter(None, (self.spec.pod_cidr,)))


class ServiceSpec(ApiStruct, frozen=True, kw_only=True):
    """The used spec of a Service."""

    cluster_ip: str = msgspec.field(name="clusterIP", default="")
    cluster_ips: tuple[str, ...] = msgspec.field(name="clusterIPs", default=())


class Service(KeyedObject, frozen=True, kw_only=True):
    """A Service."""

    spec: ServiceSpec = ServiceSpec()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Its cluster addresses; none of a headless one."""
        found = self.spec.cluster_ips or (self.spec.cluster_ip,)
        return tuple(each for each in found if each and each != "None")


class ServiceRangeSpec(ApiStruct, frozen=True, kw_only=True):
    """The used spec of a ServiceCIDR."""

    cidrs: tuple[str, ...] = ()


class ServiceRange(KeyedObject, frozen=True, kw_only=True):
    """A ServiceCIDR: ranges from which Services get their addresses."""

    spec: ServiceRangeSpec = ServiceRangeSpec()


class ReviewStatus(ApiStruct, frozen=True, kw_only=True):
    """The answer to an access review."""

    allowed: bool


class AccessReview(KeyedObject, frozen=True, kw_only=True):
    """A SelfSubjectAccessReview or SubjectAccessReview: a question, which stores nothing."""

    status: ReviewStatus


MACHINES = Kind(group="", version="v1", plural="nodes", kind="Node", type=Machine, namespaced=False)
SERVICES = Kind(group="", version="v1", plural="services", kind="Service", type=Service)
SERVICE_RANGES = Kind(
    group="networking.k8s.io",
    version="v1",
    plural="servicecidrs",
    kind="ServiceCIDR",
    type=ServiceRange,
    namespaced=False,
)
DAEMON_SETS = Kind(group="apps", version="v1", plural="daemonsets", kind="DaemonSet", type=KeyedObject)
SERVICE_ACCOUNTS = Kind(group="", version="v1", plural="serviceaccounts", kind="ServiceAccount", type=KeyedObject)
ADMISSION_POLICIES = Kind(
    group="admissionregistration.k8s.io",
    version="v1",
    plural="validatingadmissionpolicies",
    kind="ValidatingAdmissionPolicy",
    type=KeyedObject,
    namespaced=False,
)
OWN_ACCESS = Kind(
    group="authorization.k8s.io",
    version="v1",
    plural="selfsubjectaccessreviews",
    kind="SelfSubjectAccessReview",
    type=AccessReview,
    namespaced=False,
)
ACCOUNT_ACCESS = Kind(
    group="authorization.k8s.io",
    version="v1",
    plural="subjectaccessreviews",
    kind="SubjectAccessReview",
    type=AccessReview,
    namespaced=False,
)
