"""The objects of `whereabouts.cni.cncf.io`: the pools of a range or of a node's slice, and who has which slice.

As its plugins and controllers write them: no status of their own, so that a NodeSlicePool's is a field like any other.
Fields that their schema demands are always written.
"""

from collections.abc import Mapping

from podpool.resources.meta import Kind, Object, Slim

NODE_ANNOTATION = "podpool.io/node"
"""On an IPPool and a Lease: the node whose they are. Its agent may write them, and no other's."""
NODE_UID_LABEL = "podpool.io/node-uid"


class Allocation(Slim, frozen=True, kw_only=True, omit_defaults=False):
    """Who has an address."""

    id: str = ""
    """The container's."""
    podref: str = ""
    """The Pod's namespace and name, as `namespace/name`."""
    ifname: str = ""


class IPPoolSpec(Slim, frozen=True, kw_only=True, omit_defaults=False):
    """A range and who has what of it."""

    range: str = ""
    allocations: Mapping[str, Allocation] = {}
    """By the address' distance from the start of the range, in decimal."""


class IPPool(Object, frozen=True, kw_only=True):
    """The addresses of a range, or of a node's slice of it."""

    spec: IPPoolSpec = IPPoolSpec()


class ReservationSpec(Slim, frozen=True, kw_only=True):
    """Who has the address that the object is named after."""

    podref: str = ""
    ifname: str = ""
    containerid: str = ""


class OverlappingRangeIPReservation(Object, frozen=True, kw_only=True):
    """An address that is taken in every range that has it."""

    spec: ReservationSpec = ReservationSpec()


class NodeSlicePoolSpec(Slim, frozen=True, kw_only=True, omit_defaults=False):
    """A range, and how large a slice of it each node gets."""

    range: str = ""
    slice_size: str = ""


class SliceAllocation(Slim, frozen=True, kw_only=True, omit_defaults=False):
    """A slice and whose it is; nobody's has no name."""

    node_name: str = ""
    slice_range: str = ""


class NodeSlicePoolStatus(Slim, frozen=True, kw_only=True, omit_defaults=False):
    """Who has which slice."""

    allocations: tuple[SliceAllocation, ...] = ()


class NodeSlicePool(Object, frozen=True, kw_only=True):
    """A network's range, divided among the nodes."""

    spec: NodeSlicePoolSpec = NodeSlicePoolSpec()
    status: NodeSlicePoolStatus = NodeSlicePoolStatus()


GROUP = "whereabouts.cni.cncf.io"
IP_POOLS = Kind(group=GROUP, version="v1alpha1", plural="ippools", kind="IPPool", type=IPPool)
RESERVATIONS = Kind(
    group=GROUP,
    version="v1alpha1",
    plural="overlappingrangeipreservations",
    kind="OverlappingRangeIPReservation",
    type=OverlappingRangeIPReservation,
)
SLICE_POOLS = Kind(group=GROUP, version="v1alpha1", plural="nodeslicepools", kind="NodeSlicePool", type=NodeSlicePool)
