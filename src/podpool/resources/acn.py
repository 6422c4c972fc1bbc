"""The objects of `acn.azure.com`: a node's request and what it was given, and the state of a subnet.

The wire names are Azure's to the letter, their misspelling too, so that either side can be exchanged for theirs.
The agent writes an NNC's spec and its own annotation; the controller writes everything else.
"""

from decimal import Decimal

import msgspec

from podpool.resources.meta import Condition, Kind, Object, Slim

AGENT_ANNOTATION = "podpool.io/agent"
LISTING_ANNOTATION = "podpool.io/listed"
"""Asks an agent for what it holds: the number of the listing, which the agent answers with its own report."""
REFUSED_ANNOTATION = "podpool.io/refused"
"""Tells an agent that the container which it takes for its own is closed: it goes on with the one that is shown."""
FINALIZER = "podpool.io/ledger"


class AgentReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the agent tells in its annotation, in the same patch as the spec: JSON."""

    demand: int = 0
    waiting: int = 0
    """Pods that wait although a status answered the node's last request short."""
    batch: int = 0
    rested_seconds: float = msgspec.field(name="restedSeconds", default=0.0)
    """For how long the most recently used of the named grants has rested."""
    boot_id: str = msgspec.field(name="bootID", default="")
    version: int = 0
    """The highest container version that the agent accepted."""
    container: str = ""
    """The container that the agent takes for its own: all of this is about that one."""
    listed: int = 0
    """The last listing that the agent has answered,"""
    knows: "NetworkContainer | None" = None
    """and, where the NNC shows less than that, its container as it knows it, without what it has let go of."""


class NetworkConfigSpec(Slim, frozen=True, kw_only=True):
    """What the agent asks for."""

    requested: int = msgspec.field(name="requestedIPCount", default=0)
    released: tuple[str, ...] = msgspec.field(name="ipsNotInUse", default=())
    """The names (UUIDs) of grants that the node never uses again."""
    availability_zone: int | None = None


class NodeScaler(Slim, frozen=True, kw_only=True):
    """Batch and thresholds for agents that know no ClusterSubnet. All four are always written."""

    batch_size: int = 0
    release_threshold_percent: int = 0
    request_threshold_percent: int = 0
    max_ip_count: int = msgspec.field(name="maxIPCount", default=0)


class IPAssignment(Slim, frozen=True, kw_only=True):
    """A grant: the name is its identity, new each time."""

    name: str = ""
    ip: str = ""


class NetworkContainer(Slim, frozen=True, kw_only=True):
    """What a node was given: one primary address, and the grants for its Pods."""

    id: str = ""
    assignment_mode: str = "dynamic"
    type: str = "vnet"
    primary_ip: str = msgspec.field(name="primaryIP", default="")
    primary_ip_v6: str = msgspec.field(name="primaryIPV6", default="")
    subnet_name: str = ""
    subnet_id: str = msgspec.field(name="subnetID", default="")
    vnet_id: str = msgspec.field(name="vnetID", default="")
    resource_group_id: str = msgspec.field(name="resourceGroupID", default="")
    subscription_id: str = msgspec.field(name="subcriptionID", default="")  # spelled so on the wire
    ip_assignments: tuple[IPAssignment, ...] = ()
    default_gateway: str = ""
    default_gateway_v6: str = msgspec.field(name="defaultGatewayV6", default="")
    mac_address: str = ""
    subnet_address_space: str = ""
    subnet_address_space_v6: str = msgspec.field(name="subnetAddressSpaceV6", default="")
    version: int = 0
    node_ip: str = msgspec.field(name="nodeIP", default="")
    status: str = ""
    """How the last change ended, as `NCUpdateSuccess`; the schema has the words."""


class NetworkConfigStatus(Slim, frozen=True, kw_only=True):
    """What the controller answers."""

    assigned: int = msgspec.field(name="assignedIPCount", default=0)
    scaler: NodeScaler = NodeScaler()
    status: str = ""
    network_containers: tuple[NetworkContainer, ...] = ()


class NodeNetworkConfig(Object, frozen=True, kw_only=True):
    """A node's request and what it was given; named like its Node, in kube-system."""

    spec: NetworkConfigSpec = NetworkConfigSpec()
    status: NetworkConfigStatus = NetworkConfigStatus()


_REPORT = msgspec.json.Decoder(AgentReport)


def report_of(config: NodeNetworkConfig) -> AgentReport | None:
    """Read what the agent tells; None from a foreign agent, or when it cannot be read."""
    told = config.metadata.annotations.get(AGENT_ANNOTATION)
    if told is None:
        return None
    try:
        return _REPORT.decode(told)
    except msgspec.DecodeError:
        return None


class SubnetExhaustion(Slim, frozen=True, kw_only=True):
    """Whether a subnet is short. Both fields are always written."""

    exhausted: bool | None = None
    timestamp: str | None = None


class ClusterSubnetState(Object, frozen=True, kw_only=True):
    """The state of a subnet as agents of the first phase read it; named like the subnet."""

    status: SubnetExhaustion = SubnetExhaustion()


class SubnetScaler(Slim, frozen=True, kw_only=True):
    """Batch and buffer; the buffer is exactly what was written, never a float."""

    batch: int | None = None
    buffer: Decimal | None = None


class ClusterSubnetSpec(Slim, frozen=True, kw_only=True):
    """What a person overrides at run time."""

    scaler: SubnetScaler = SubnetScaler()


class ClusterSubnetStatus(Slim, frozen=True, kw_only=True):
    """What the controller tells the agents."""

    exhausted: bool | None = None
    timestamp: str | None = None
    scaler: SubnetScaler = SubnetScaler()
    message: str = ""
    conditions: tuple[Condition, ...] = ()


class ClusterSubnet(Object, frozen=True, kw_only=True):
    """A subnet as agents read it: scaler and exhaustion; named like the subnet."""

    spec: ClusterSubnetSpec = ClusterSubnetSpec()
    status: ClusterSubnetStatus = ClusterSubnetStatus()


GROUP = "acn.azure.com"
NETWORK_CONFIGS = Kind(
    group=GROUP, version="v1alpha", plural="nodenetworkconfigs", kind="NodeNetworkConfig", type=NodeNetworkConfig
)
SUBNET_STATES = Kind(
    group=GROUP, version="v1alpha1", plural="clustersubnetstates", kind="ClusterSubnetState", type=ClusterSubnetState
)
SUBNETS = Kind(group=GROUP, version="v1alpha1", plural="clustersubnets", kind="ClusterSubnet", type=ClusterSubnet)
