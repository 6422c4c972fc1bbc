"""Objects of `whereabouts.cni.cncf.io`: IPPool, OverlappingRangeIPReservation and NodeSlicePool.

They have no status subresource, so the status of a NodeSlicePool is an ordinary field. Fields that the upstream schema
requires are always written.
"""

from collections.abc import Mapping

import msgspec

from podpool.api.meta import ApiStruct, Condition, Kind, KubeObject

NODE_ANNOTATION = "podpool.io/node"
"""On an IPPool and a slice Lease: the node that owns them. Only its agent may write them."""
NODE_UID_LABEL = "podpool.io/node-uid"
"""On an IPPool and a slice Lease: the UID of that Node."""
NETWORK_ANNOTATION = "podpool.io/network"
"""On an IPPool and a slice Lease: the network name, empty for the unnamed network."""
RANGE_ANNOTATION = "podpool.io/range"
"""On an IPPool and a slice Lease: the range that the slice is part of."""
SEALED_ANNOTATION = "podpool.io/sealed"
"""On a shared IPPool: it assigns no new address, because its range is divided into slices. The value is a leader ID."""
SHARED_POOLS_SELECTOR = f"!{NODE_UID_LABEL}"
"""Label selector of the shared IPPools, which are few; those of slices are as many as nodes."""
SLICE_ANNOTATION = "podpool.io/slice"
"""On a slice Lease: the slice, as in the range of its IPPool."""
WAITING_ANNOTATION = "podpool.io/waiting"
"""On a NodeSlicePool: the nodes without a slice, longest waiting first."""


class Allocation(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """Holder of an address."""

    id: str = ""
    """ID of the container (sandbox)."""
    podref: str = ""
    """The Pod, as `namespace/name`."""
    ifname: str = ""
    """Interface in the Pod."""


class IPPoolSpec(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """A range and the holders of its addresses."""

    range: str = ""
    """The range, or a node's slice of it."""
    allocations: Mapping[str, Allocation] = {}
    """Holders by the offset of the address in the range, in decimal."""


class IPPool(KubeObject, frozen=True, kw_only=True):
    """The allocations of a range or of a node's slice."""

    spec: IPPoolSpec = IPPoolSpec()


class ReservationSpec(ApiStruct, frozen=True, kw_only=True):
    """Holder of the address that the object is named after."""

    podref: str = ""
    """The Pod, as `namespace/name`."""
    ifname: str = ""
    """Interface in the Pod."""
    containerid: str = ""
    """ID of the container (sandbox)."""


class OverlappingRangeIPReservation(KubeObject, frozen=True, kw_only=True):
    """An address that is allocated in every range that contains it."""

    spec: ReservationSpec = ReservationSpec()


class NodeSlicePoolSpec(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """A range and the size of its slices."""

    range: str = ""
    """The whole range."""
    slice_size: str = ""
    """Prefix length of a slice, as `/24`."""


class SliceAllocation(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """A slice and its node."""

    node_name: str = ""
    """The node; empty if the slice is free."""
    slice_range: str = ""
    """The slice."""


class NodeSlicePoolStatus(ApiStruct, frozen=True, kw_only=True, omit_defaults=False):
    """The slice of each node."""

    allocations: tuple[SliceAllocation, ...] = ()
    conditions: tuple[Condition, ...] | msgspec.UnsetType = msgspec.UNSET
    """`InsufficientSlices`: whether nodes wait for a slice."""


class NodeSlicePool(KubeObject, frozen=True, kw_only=True):
    """A network's range, divided into slices of nodes."""

    spec: NodeSlicePoolSpec = NodeSlicePoolSpec()
    status: NodeSlicePoolStatus = NodeSlicePoolStatus()


def waiting_nodes(pool: NodeSlicePool) -> tuple[str, ...]:
    """Return the nodes that wait for a slice, the longest waiting first."""
    return tuple(pool.metadata.annotations.get(WAITING_ANNOTATION, "").split())


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
