"""The objects of `acn.azure.com`: a node's request and what it was given, and the state of a subnet.

The wire names are Azure's to the letter, their misspelling too, so that either side can be exchanged for theirs.
The agent writes an NNC's spec and its own annotation; the controller writes everything else.
"""

from decimal import Decimal

import msgspec

from podpool.api.meta import ApiStruct, Condition, Kind, KubeObject

AGENT_ANNOTATION = "podpool.io/agent"
"""On an NNC: what its agent reports."""
INVENTORY_ANNOTATION = "podpool.io/inventory"
"""Asks an agent for what it holds: the number of the listing, which the agent answers with its own report."""
CLOSED_ANNOTATION = "podpool.io/closed"
"""Tells an agent that the container which it takes for its own is closed: it goes on with the one that is shown."""
FINALIZER = "podpool.io/ledger"
"""On an NNC: keeps it until the ledger knows what becomes of its container."""


class AgentReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent tells in its annotation, in the same patch as the spec: JSON."""

    demand: int = 0
    """Addresses that Pods of the node use, let rest, or wait for."""
    waiting: int = 0
    """Pods that wait although a status answered the node's last request short."""
    batch: int = 0
    """The batch that the agent scaled with."""
    cooled_seconds: float = msgspec.field(name="cooledSeconds", default=0.0)
    """For how long the most recently used of the named grants has rested."""
    boot_id: str = msgspec.field(name="bootID", default="")
    """The boot of the machine, as its kubelet reports it."""
    version: int = 0
    """The highest container version that the agent accepted."""
    network_container: str = msgspec.field(name="networkContainer", default="")
    """The container that the agent takes for its own: all of this is about that one."""
    inventory: int = 0
    """The last listing that the agent has answered,"""
    known: "NetworkContainer | None" = None
    """and, where the NNC shows less than that, its container as it knows it, without what it has let go of."""


class NetworkConfigSpec(ApiStruct, frozen=True, kw_only=True):
    """What the agent asks for."""

    requested: int = msgspec.field(name="requestedIPCount", default=0)
    """How many secondary addresses the node should have."""
    pending_release: tuple[str, ...] = msgspec.field(name="ipsNotInUse", default=())
    """The names (UUIDs) of grants that the node never uses again."""
    availability_zone: int | None = None
    """Azure's; kept, not used."""


class NodeScaler(ApiStruct, frozen=True, kw_only=True):
    """Batch and thresholds for agents that know no ClusterSubnet. All four are always written."""

    batch_size: int = 0
    """The batch."""
    release_threshold_percent: int = 0
    """From this share of a batch on, free addresses are given back, a batch at a time."""
    request_threshold_percent: int = 0
    """Below this share of a batch, more is asked for."""
    max_ip_count: int = msgspec.field(name="maxIPCount", default=0)
    """The most addresses of a node."""


class IPAssignment(ApiStruct, frozen=True, kw_only=True):
    """A grant: the name is its identity, new each time."""

    name: str = ""
    """Its identity, a UUID."""
    ip: str = ""
    """The address."""


class NetworkContainer(ApiStruct, frozen=True, kw_only=True):
    """What a node was given: one primary address, and the grants for its Pods."""

    id: str = ""
    """The container's identity, given by the ledger."""
    assignment_mode: str = "dynamic"
    """How addresses come: on request, or all at once."""
    type: str = "vnet"
    """Azure's word for the kind of network."""
    primary_ip: str = msgspec.field(name="primaryIP", default="")
    """The address that comes with the container and is not for Pods."""
    primary_ip_v6: str = msgspec.field(name="primaryIPV6", default="")
    """The same, of the other family."""
    subnet_name: str = ""
    """The subnet: its ClusterSubnet has this name."""
    subnet_id: str = msgspec.field(name="subnetID", default="")
    """Azure's; shown in the agent's metrics."""
    vnet_id: str = msgspec.field(name="vnetID", default="")
    """The network that the subnet is in."""
    resource_group_id: str = msgspec.field(name="resourceGroupID", default="")
    """Azure's; shown in the agent's metrics."""
    subscription_id: str = msgspec.field(name="subcriptionID", default="")  # spelled so on the wire
    """Azure's; shown in the agent's metrics."""
    ip_assignments: tuple[IPAssignment, ...] = ()
    """The grants for Pods."""
    default_gateway: str = ""
    """What Pods route through."""
    default_gateway_v6: str = msgspec.field(name="defaultGatewayV6", default="")
    """The same, of the other family."""
    mac_address: str = ""
    """Azure's; kept, not used."""
    subnet_address_space: str = ""
    """The CIDR whose length is the mask of a Pod's address."""
    subnet_address_space_v6: str = msgspec.field(name="subnetAddressSpaceV6", default="")
    """The same, of the other family."""
    version: int = 0
    """Rises with each change; given by the ledger. An agent ignores a lower one than it has accepted."""
    node_ip: str = msgspec.field(name="nodeIP", default="")
    """The Node's own address."""
    status: str = ""
    """How the last change ended, as `NCUpdateSuccess`; the schema has the words."""


class NetworkConfigStatus(ApiStruct, frozen=True, kw_only=True):
    """What the controller answers."""

    assigned: int = msgspec.field(name="assignedIPCount", default=0)
    """How many secondary addresses the node has."""
    scaler: NodeScaler = NodeScaler()
    status: str = ""
    """Whether the node has what it asked for."""
    network_containers: tuple[NetworkContainer, ...] = ()


class NodeNetworkConfig(KubeObject, frozen=True, kw_only=True):
    """A node's request and what it was given; named like its Node, in kube-system."""

    spec: NetworkConfigSpec = NetworkConfigSpec()
    status: NetworkConfigStatus = NetworkConfigStatus()


_REPORT = msgspec.json.Decoder(AgentReport)


def agent_report(config: NodeNetworkConfig) -> AgentReport | None:
    """Read what the agent tells; None from a foreign agent, or when it cannot be read."""
    told = config.metadata.annotations.get(AGENT_ANNOTATION)
    if told is None:
        return None
    try:
        return _REPORT.decode(told)
    except msgspec.DecodeError:
        return None


class SubnetExhaustion(ApiStruct, frozen=True, kw_only=True):
    """Whether a subnet is short. Both fields are always written."""

    exhausted: bool | None = None
    """Whether the subnet is short."""
    timestamp: str | None = None
    """When this was last told."""


class ClusterSubnetState(KubeObject, frozen=True, kw_only=True):
    """The state of a subnet as agents of the first phase read it; named like the subnet."""

    status: SubnetExhaustion = SubnetExhaustion()


class SubnetScaler(ApiStruct, frozen=True, kw_only=True):
    """Batch and buffer; the buffer is exactly what was written, never a float."""

    batch: int | None = None
    """Addresses move in multiples of it."""
    buffer: Decimal | None = None
    """The share of a batch that a node keeps free."""


class ClusterSubnetSpec(ApiStruct, frozen=True, kw_only=True):
    """What a person overrides at run time."""

    scaler: SubnetScaler = SubnetScaler()


class ClusterSubnetStatus(ApiStruct, frozen=True, kw_only=True):
    """What the controller tells the agents."""

    exhausted: bool | None = None
    """Whether the subnet is short."""
    timestamp: str | None = None
    """When exhaustion or scaler last changed."""
    scaler: SubnetScaler = SubnetScaler()
    message: str = ""
    """Why a person's scaler was refused."""
    conditions: tuple[Condition, ...] = ()
    """`LedgerReachable`: whether the controller reaches the ledger."""


class ClusterSubnet(KubeObject, frozen=True, kw_only=True):
    """A subnet as agents read it: scaler and exhaustion; named like the subnet."""

    spec: ClusterSubnetSpec = ClusterSubnetSpec()
    status: ClusterSubnetStatus = ClusterSubnetStatus()


GROUP = "acn.azure.com"
NODE_NETWORK_CONFIGS = Kind(
    group=GROUP, version="v1alpha", plural="nodenetworkconfigs", kind="NodeNetworkConfig", type=NodeNetworkConfig
)
CLUSTER_SUBNET_STATES = Kind(
    group=GROUP, version="v1alpha1", plural="clustersubnetstates", kind="ClusterSubnetState", type=ClusterSubnetState
)
CLUSTER_SUBNETS = Kind(
    group=GROUP, version="v1alpha1", plural="clustersubnets", kind="ClusterSubnet", type=ClusterSubnet
)
