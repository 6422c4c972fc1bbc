"""Objects of `acn.azure.com`: NodeNetworkConfig (NNC), ClusterSubnet and ClusterSubnetState.

The wire names are Azure's, including a misspelling, so that either side can be replaced by Azure's component. The agent
writes an NNC's spec and its own annotation; the controller writes everything else.
"""

from decimal import Decimal

import msgspec

from podpool.api.annotation_decoder import decode_annotation
from podpool.api.meta import ApiStruct, Condition, Kind, KubeObject

AGENT_ANNOTATION = "podpool.io/agent"
"""On an NNC: the agent's report, as JSON (`AgentReport`)."""
INVENTORY_ANNOTATION = "podpool.io/inventory"
"""On an NNC: the number of the current inventory; the agent replies with that number in its report."""
CLOSED_ANNOTATION = "podpool.io/closed"
"""On an NNC: the ID of a closed NC; an agent that still uses it switches to the NC in the status."""
FINALIZER = "podpool.io/ledger"
"""On an NNC: delays its deletion until its NC is recorded in the ledger."""


class AgentReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Report of the agent, in the annotation that it patches together with the spec."""

    demand: int = 0
    """Addresses that are assigned, were used recently, or are missing for scheduled Pods."""
    waiting: int = 0
    """Pods that wait after a status granted less than the node's last request."""
    batch: int = 0
    """The batch of the agent's last request."""
    cooled_seconds: float = msgspec.field(name="cooledSeconds", default=0.0)
    """Seconds for which the most recently used grant pending release has cooled down."""
    boot_id: str = msgspec.field(name="bootID", default="")
    """The machine's boot ID, as its kubelet reports it."""
    journal: str = ""
    """When the agent's journal was created, which identifies it: a node has one agent, with one journal."""
    version: int = 0
    """The highest NC version that the agent accepted."""
    network_container: str = msgspec.field(name="networkContainer", default="")
    """ID of the NC that the agent uses; the report is about this NC."""
    inventory: int = 0
    """Number of the last inventory that the agent replied to."""
    known: "NetworkContainer | None" = None
    """The agent's NC less released grants, if the NNC shows less than the agent holds."""


class NetworkConfigSpec(ApiStruct, frozen=True, kw_only=True):
    """Request of the agent."""

    requested: int = msgspec.field(name="requestedIPCount", default=0)
    """Requested number of secondary addresses."""
    pending_release: tuple[str, ...] = msgspec.field(name="ipsNotInUse", default=())
    """IDs of the grants pending release: the node does not use them again."""
    availability_zone: int | None = None
    """Azure's; kept, not used."""


class NodeScaler(ApiStruct, frozen=True, kw_only=True):
    """Batch and thresholds for agents that do not read ClusterSubnets. All four are always written."""

    batch_size: int = 0
    """The batch."""
    release_threshold_percent: int = 0
    """Free addresses, in percent of the batch, from which a batch is released."""
    request_threshold_percent: int = 0
    """Free addresses, in percent of the batch, below which a batch is requested."""
    max_ip_count: int = msgspec.field(name="maxIPCount", default=0)
    """Maximum addresses of a node."""


class IPAssignment(ApiStruct, frozen=True, kw_only=True):
    """A grant."""

    name: str = ""
    """ID of the grant, a UUID that is new each time."""
    ip: str = ""
    """The address."""


class NetworkContainer(ApiStruct, frozen=True, kw_only=True):
    """Network container (NC): a node's addresses on one subnet, one primary and the grants for Pods."""

    id: str = ""
    """ID of the NC, issued by the ledger."""
    assignment_mode: str = "dynamic"
    """`dynamic`: addresses are granted on request; `static`: all at once."""
    type: str = "vnet"
    """Azure's type of network."""
    primary_ip: str = msgspec.field(name="primaryIP", default="")
    """The primary address, not assigned to Pods."""
    primary_ip_v6: str = msgspec.field(name="primaryIPV6", default="")
    """The same for IPv6."""
    subnet_name: str = ""
    """Name of the subnet and of its ClusterSubnet."""
    subnet_id: str = msgspec.field(name="subnetID", default="")
    """Azure's; shown in the agent's metrics."""
    vnet_id: str = msgspec.field(name="vnetID", default="")
    """Network of the subnet."""
    resource_group_id: str = msgspec.field(name="resourceGroupID", default="")
    """Azure's; shown in the agent's metrics."""
    subscription_id: str = msgspec.field(name="subcriptionID", default="")  # spelled so on the wire
    """Azure's; shown in the agent's metrics."""
    ip_assignments: tuple[IPAssignment, ...] = ()
    """The grants for Pods."""
    default_gateway: str = ""
    """Default gateway of Pods."""
    default_gateway_v6: str = msgspec.field(name="defaultGatewayV6", default="")
    """The same for IPv6."""
    mac_address: str = ""
    """Azure's; kept, not used."""
    subnet_address_space: str = ""
    """CIDR whose prefix length is used for Pod addresses."""
    subnet_address_space_v6: str = msgspec.field(name="subnetAddressSpaceV6", default="")
    """The same for IPv6."""
    version: int = 0
    """Version of the NC's state, issued by the ledger; agents ignore versions below the highest accepted."""
    node_ip: str = msgspec.field(name="nodeIP", default="")
    """Address of the Node."""
    status: str = ""
    """Result of the last change, such as `NCUpdateSuccess`."""
    status_reason: str = ""
    """Extension: why addresses are missing if it is not the subnet that lacks them, such as a quota."""


class NetworkConfigStatus(ApiStruct, frozen=True, kw_only=True):
    """Assignment by the controller."""

    assigned: int = msgspec.field(name="assignedIPCount", default=0)
    """Number of secondary addresses of the node."""
    scaler: NodeScaler = NodeScaler()
    status: str = ""
    """Whether the request is fulfilled: Updating, Updated or Error."""
    network_containers: tuple[NetworkContainer, ...] = ()


class NodeNetworkConfig(KubeObject, frozen=True, kw_only=True):
    """A node's request and assignment; named like its Node, in kube-system."""

    spec: NetworkConfigSpec = NetworkConfigSpec()
    status: NetworkConfigStatus = NetworkConfigStatus()


_REPORT = msgspec.json.Decoder(AgentReport)


def agent_report(config: NodeNetworkConfig) -> AgentReport | None:
    """Return the agent's report; None for a third-party agent or if it cannot be decoded."""
    return decode_annotation(_REPORT, config.metadata.annotations.get(AGENT_ANNOTATION))


class SubnetExhaustion(ApiStruct, frozen=True, kw_only=True):
    """Exhaustion of a subnet. Both fields are always written."""

    exhausted: bool | None = None
    """Whether the subnet is exhausted."""
    timestamp: str | None = None
    """When this was last written."""


class ClusterSubnetState(KubeObject, frozen=True, kw_only=True):
    """Exhaustion of a subnet, for agents that do not read ClusterSubnets; named like the subnet."""

    status: SubnetExhaustion = SubnetExhaustion()


class SubnetScaler(ApiStruct, frozen=True, kw_only=True):
    """Batch and buffer; the buffer is an exact decimal, never a float."""

    batch: int | None = None
    """Nodes request addresses in multiples of it."""
    buffer: Decimal | None = None
    """Minimum free addresses of a node, as a share of the batch."""


class PublishedScaler(SubnetScaler, frozen=True, kw_only=True):
    """Batch, buffer and cooldown in force."""

    cooldown_seconds: float | None = None
    """Seconds after use before which an address is not assigned to another Pod, while there is another."""
    shortest_cooldown_seconds: float | None = None
    """Seconds after use before which it is not assigned to another Pod, even if there is no other."""


class ClusterSubnetSpec(ApiStruct, frozen=True, kw_only=True):
    """Overrides by an operator."""

    scaler: SubnetScaler = SubnetScaler()


class ClusterSubnetStatus(ApiStruct, frozen=True, kw_only=True):
    """Exhaustion and scaler, for the agents."""

    exhausted: bool | None = None
    """Whether the subnet is exhausted."""
    timestamp: str | None = None
    """When the status last changed."""
    scaler: PublishedScaler = PublishedScaler()
    nodes: int | None = None
    """About how many nodes share the subnet, in all clusters: they release addresses one after the other."""
    message: str = ""
    """Why the scaler in spec was rejected."""
    conditions: tuple[Condition, ...] = ()
    """`LedgerReachable`: whether the controller reaches the ledger."""


class ClusterSubnet(KubeObject, frozen=True, kw_only=True):
    """Scaler and exhaustion of a subnet; named like the subnet."""

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
