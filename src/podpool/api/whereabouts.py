"""The objects of `whereabouts.cni.cncf.io`: the pools of a range or of a node's slice, and who has which slice.

As its plugins and controllers write them: no status of their own, so that a NodeSlicePool's is a field like any other.
Fields that their schema demands are always written.
"""

from collections.abc import Mapping

import msgspec

from podpool.api.meta import ApiStruct, Condition, Kind, KubeObject

NODE_ANNOTATION = "podpool.io/node"
"""On an IPPool and a Lease: the node whose they are. Its agent may write them, and no other's."""
NODE_UID_LABEL = "podpool.io/node-uid"
"""On an IPPool and a Lease: the UID of that Node, for the agent's watch."""
BOOT_ANNOTATION = "podpool.io/boot-id"
"""On a Lease and an IPPool: the boot of the machine whose agent took them, written by that agent."""
SIGNATURE_ANNOTATION = "podpool.io/signature"
"""On a Lease: drawn by the agent that takes it, new each time,"""
GRANTED_ANNOTATION = "podpool.io/granted"
"""and the signature that the controller has agreed to: nothing is given before."""
RETURN_ANNOTATION = "podpool.io/return"
"""On an IPPool: its node is to give nothing more of it, and to hand it back when nothing is in use; says why."""
SEALED_ANNOTATION = "podpool.io/sealed"
"""On an IPPool that all nodes share: its range is cut into slices, it gives no new address; a word of the leader's."""
SHARED_POOLS_SELECTOR = f"!{NODE_UID_LABEL}"
"""Selects the IPPools that are no node's own, of which there are as many as nodes."""
SLICE_ANNOTATION = "podpool.io/slice"
"""On a Lease: the slice that it is about, as the IPPool's range has it."""
WAITING_ANNOTATION = "podpool.io/waiting"
"""On a NodeSlicePool: the nodes for which there is no slice, longest waiting first."""
SLICE_INVENTORY_ANNOTATION = "podpool.io/slice-inventory"
"""On a Node: the controller's question, a word that is new each time, to which the agent tells what it has lost;"""
SLICE_REPORT_ANNOTATION = "podpool.io/slice-report"
"""and what the agent tells, as JSON: a `SliceReport`."""


class Allocation(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Who has an address."""

    id: str = ""
    """The container's."""
    podref: str = ""
    """The Pod's namespace and name, as `namespace/name`."""
    ifname: str = ""
    """The interface in the Pod."""


class IPPoolSpec(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """A range and who has what of it."""

    range: str = ""
    """The range, or the node's slice of it."""
    allocations: Mapping[str, Allocation] = {}
    """By the address' distance from the start of the range, in decimal."""


class IPPool(KubeObject, frozen=True, kw_only=True):
    """The addresses of a range, or of a node's slice of it."""

    spec: IPPoolSpec = IPPoolSpec()


class ReservationSpec(ApiStruct, frozen=True, kw_only=True):
    """Who has the address that the object is named after."""

    podref: str = ""
    """The Pod's namespace and name, as `namespace/name`."""
    ifname: str = ""
    """The interface in the Pod."""
    containerid: str = ""
    """The container's."""


class OverlappingRangeIPReservation(KubeObject, frozen=True, kw_only=True):
    """An address that is taken in every range that has it."""

    spec: ReservationSpec = ReservationSpec()


class NodeSlicePoolSpec(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """A range, and how large a slice of it each node gets."""

    range: str = ""
    """The whole range."""
    slice_size: str = ""
    """The length of a slice's prefix, as `/24`."""


class SliceAllocation(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """A slice and whose it is; nobody's has no name."""

    node_name: str = ""
    """The node; empty for a slice that is free."""
    slice_range: str = ""
    """The slice."""


class NodeSlicePoolStatus(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Who has which slice."""

    allocations: tuple[SliceAllocation, ...] = ()
    conditions: tuple[Condition, ...] | msgspec.UnsetType = msgspec.UNSET
    """`SlicesShort`: whether nodes wait for a slice."""


class NodeSlicePool(KubeObject, frozen=True, kw_only=True):
    """A network's range, divided among the nodes."""

    spec: NodeSlicePoolSpec = NodeSlicePoolSpec()
    status: NodeSlicePoolStatus = NodeSlicePoolStatus()


class LostSlice(ApiStruct, frozen=True, kw_only=True, order=True):
    """A slice whose Lease is gone although nobody handed it back, and of which Pods have addresses."""

    network: str = ""
    range: str
    slice: str


class SliceReport(ApiStruct, frozen=True, kw_only=True):
    """What an agent tells of its slices, on its Node."""

    inventory: str = ""
    """The question that it answers."""
    lost: tuple[LostSlice, ...] = ()


_REPORT = msgspec.json.Decoder(SliceReport)


def slice_report(node: KubeObject) -> SliceReport | None:
    """Read what a Node's agent tells; None when it has told nothing, or it cannot be read."""
    try:
        return _REPORT.decode(node.metadata.annotations.get(SLICE_REPORT_ANNOTATION, ""))
    except msgspec.DecodeError:
        return None


GROUP = "whereabouts.cni.cncf.io"
IP_POOLS = Kind(group=GROUP, version="v1alpha1", plural="ippools", kind="IPPool", type=IPPool)
IP_RESERVATIONS = Kind(
    group=GROUP,
    version="v1alpha1",
    plural="overlappingrangeipreservations",
    kind="OverlappingRangeIPReservation",
    type=OverlappingRangeIPReservation,
)
NODE_SLICE_POOLS = Kind(
    group=GROUP, version="v1alpha1", plural="nodeslicepools", kind="NodeSlicePool", type=NodeSlicePool
)
