"""Events of the controller: one method per reason. Each note says what happened and what to do about it."""

from collections.abc import Sequence

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS, ClusterSubnet, NodeNetworkConfig
from podpool.api.builtin import CONFIG_MAPS, NODES, Node, ObjectReference
from podpool.api.meta import Kind, T
from podpool.api.multus import NETWORK_ATTACHMENTS, NetworkAttachmentDefinition
from podpool.api.node_slices import INVENTORY_CONFIG_MAP, NODE_SLICES, NodeSlices
from podpool.api.whereabouts import IP_POOLS, IPPool
from podpool.kube.events import EventRecorder, object_reference
from podpool.ledger.messages import NetworkContainerRecord, NetworkContainerState, SubnetName
from podpool.whereabouts.network_plan import NadRejection, SliceTableKey

INSUFFICIENT_SLICES = "InsufficientSlices"
"""Event reason, and condition type of a NodeSlicePool, when there are more nodes than slices."""


class ControllerEvents:
    """Records Events on the objects that an operator looks at. Recording neither waits nor fails."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    # Nodes, NNCs and subnets

    def insufficient_addresses(self, node: Node, state: NetworkContainerState) -> None:
        """A node requested more addresses than its subnet has."""
        held = len(state.grants)
        remedy = "If Pods wait, grow the subnet: `podpool ledger subnet grow`"
        why = f"more are granted when other nodes release some. {remedy}"
        granted = f"subnet {state.subnet} granted {held} of {held + state.shortage} requested addresses"
        note = f"{granted}; {state.shortage_reason or why}"
        self._warn(NODES, node, reason="InsufficientAddresses", action="Allocate", note=note)

    def allocation_failed(self, node: Node, why: str) -> None:
        """The ledger rejects the node's request."""
        self._warn(NODES, node, reason="AllocationFailed", action="Allocate", note=f"no addresses allocated: {why}")

    def invalid_subnet_label(self, node: Node, why: str) -> None:
        """The node's subnet label cannot be parsed."""
        self._warn(NODES, node, reason="InvalidSubnetLabel", action="SelectSubnet", note=why)

    def invalid_scaler(self, subnet: ClusterSubnet, why: str) -> None:
        """spec.scaler of a ClusterSubnet is invalid."""
        self._warn(CLUSTER_SUBNETS, subnet, reason="InvalidScaler", action="Override", note=why)

    def nc_released(self, record: NetworkContainerRecord) -> None:
        """Node GC released the network container of a deleted Node."""
        self._recorder.record(
            _deleted_node(record.node, record.node_uid),
            reason="NetworkContainerReleased",
            action="Release",
            note=f"the Node is deleted: network container {record.state.nc_id} with {len(record.state.grants)}"
            f" addresses is released to subnet {record.state.subnet}",
        )

    def repaired(self, nnc: NodeNetworkConfig, what: str) -> None:
        """The controller repaired or removed an NNC."""
        regarding = object_reference(NODE_NETWORK_CONFIGS, nnc)
        self._recorder.record(regarding, reason="Repaired", action="Repair", note=what)

    def node_gc_paused(self, subnet: SubnetName, *, namespace: str, why: str) -> None:
        """The ledger's circuit breaker is open: too many Nodes are missing at once."""
        api_version, kind = CLUSTER_SUBNETS.api_version, CLUSTER_SUBNETS.kind
        regarding = ObjectReference(api_version=api_version, kind=kind, namespace=namespace, name=subnet.name)
        self._recorder.record(regarding, reason="NodeGCPaused", action="Release", note=why, warning=True)

    # Slices

    def nad_rejected(self, nad: NetworkAttachmentDefinition, rejection: NadRejection) -> None:
        """A NAD gets no slices, or no new addresses of a range that another NAD divides into slices."""
        missing = "slices" if rejection.sliced else "new addresses"
        note = f"{rejection.rejected} gets no {missing}: {rejection.reason}"
        self._warn(NETWORK_ATTACHMENTS, nad, reason="NetworkRejected", action="Plan", note=note)

    def slice_size_missing(self, nad: NetworkAttachmentDefinition, advice: str) -> None:
        """A NAD has fast_ipam but no node_slice_size."""
        note = f"fast_ipam has no effect without node_slice_size, all nodes share the range: {advice}"
        self._warn(NETWORK_ATTACHMENTS, nad, reason="SliceSizeMissing", action="Plan", note=note)

    def unknown_keys(self, nad: NetworkAttachmentDefinition, keys: Sequence[str]) -> None:
        """A NAD has keys that are skipped: a fork of Whereabouts may give them a meaning."""
        note = f"keys of ipam that podpool does not know have no effect: {', '.join(keys)}"
        self._warn(NETWORK_ATTACHMENTS, nad, reason="UnknownKeys", action="Plan", note=note)

    def insufficient_slices(self, nad: NetworkAttachmentDefinition, why: str) -> None:
        """There are more nodes than slices."""
        self._warn(NETWORK_ATTACHMENTS, nad, reason=INSUFFICIENT_SLICES, action="Assign", note=why)

    def slices_withheld(self, nad: NetworkAttachmentDefinition, why: str) -> None:
        """Slices are not assigned because Pods use addresses of them from before the range was divided."""
        self._warn(NETWORK_ATTACHMENTS, nad, reason="SlicesWithheld", action="Assign", note=why)

    def no_free_slice(self, node: Node, key: SliceTableKey) -> None:
        """A node waits for a slice."""
        network = f" in network {key.network}" if key.network else ""
        wait = "Pods that need one wait until another node is deleted or returns its slice"
        note = f"no slice of {key.range} is free{network}: {wait}"
        self._warn(NODES, node, reason="NoFreeSlice", action="Assign", note=note)

    def slice_conflict(self, slices: NodeSlices, one: str, other: str) -> None:
        """Two nodes may use the same addresses."""
        note = f"slice {one} overlaps with {other}, which the controller did not assign: drain one of the nodes"
        self._warn(NODE_SLICES, slices, reason="SliceConflict", action="Assign", note=note)

    def slice_claims_ignored(self, node: Node, slices: str) -> None:
        """An agent reports slices that it cannot have been assigned."""
        note = f"the agent reports slices that are in no range of their network, which are ignored: {slices}"
        self._warn(NODES, node, reason="SliceClaimsIgnored", action="Assign", note=note)

    def slice_inventory_incomplete(self, nodes: str, *, count: int, namespace: str) -> None:
        """Slices are not assigned because nodes have not reported theirs."""
        note = (
            f"no slice is assigned before {count} nodes have reported theirs ({nodes}): check podpool's agent on them,"
            " delete Nodes that are gone, or run `podpool slices declare-complete`"
        )
        self._on_inventory_map(namespace, reason="SliceInventoryIncomplete", action="Assign", note=note)

    def slice_node_gc_paused(self, *, namespace: str, why: str) -> None:
        """Too many nodes with slices are missing at once."""
        self._on_inventory_map(namespace, reason="NodeGCPaused", action="Release", note=why)

    def slices_released(self, *, node: str, uid: str, count: int) -> None:
        """Node GC released the slices of a deleted Node."""
        note = f"the Node is deleted: {count} {'slice' if count == 1 else 'slices'} released"
        self._recorder.record(_deleted_node(node, uid), reason="SlicesReleased", action="Release", note=note)

    def orphans_released(self, pool: IPPool, *, count: int) -> None:
        """Orphan GC released allocations of deleted Pods."""
        note = f"released {count} {'address' if count == 1 else 'addresses'} of deleted or finished Pods"
        self._recorder.record(object_reference(IP_POOLS, pool), reason="OrphansReleased", action="Release", note=note)

    def _on_inventory_map(self, namespace: str, *, reason: str, action: str, note: str) -> None:
        api_version, kind = CONFIG_MAPS.api_version, CONFIG_MAPS.kind
        regarding = ObjectReference(api_version=api_version, kind=kind, namespace=namespace, name=INVENTORY_CONFIG_MAP)
        self._recorder.record(regarding, reason=reason, action=action, note=note, warning=True)

    def _warn(self, kind: Kind[T], obj: T, *, reason: str, action: str, note: str) -> None:
        self._recorder.record(object_reference(kind, obj), reason=reason, action=action, note=note, warning=True)


def _deleted_node(name: str, uid: str) -> ObjectReference:
    return ObjectReference(api_version=NODES.api_version, kind=NODES.kind, name=name, uid=uid)
