"""NodeSlices of `podpool.io`: the slices of one node. The object is named like the node, which alone watches it.

The controller writes spec, the agent writes status through the status subresource; each with the resourceVersion that
it read, so that an assignment and a return cannot cross. A slice is used after the controller has confirmed the agent's
acknowledgement, and belongs to the node until the status shows it as returned, or node GC finds the node gone.
"""

import msgspec

from podpool.api.meta import ApiStruct, Kind, KubeObject

FINALIZER = "podpool.io/slices"
"""On NodeSlices: delays its deletion until the node holds no slice."""
INVENTORY_CONFIG_MAP = "podpool-slice-inventory"
"""The ConfigMap whose `request` asks every agent to report its slices."""
ALL_NODES = "all"
"""Its `scope` if every node is awaited: the API server may have been restored."""
INVENTORY_COMPLETE_ANNOTATION = "podpool.io/inventory-complete"
"""On that ConfigMap: the request whose silent nodes an operator has excused."""
CONFIRM_LOSS_ANNOTATION = "podpool.io/confirm-loss"
"""On that ConfigMap: the ID of the mass loss that an operator has confirmed."""
PROTOCOL = 1
"""Version of the protocol that agents write. A status without one counts as holding everything that is assigned."""


class Assignment(ApiStruct, frozen=True, kw_only=True):
    """A slice that is assigned to the node."""

    id: str
    """A UUID, new each time a slice is assigned."""
    network: str = ""
    """The name of the network; unnamed networks are one."""
    range: str
    """The whole range that the slice is a part of."""
    slice: str
    """The slice."""
    confirmed: str = ""
    """The acknowledgement that the controller has confirmed."""
    return_reason: str = ""
    """Why the node must assign nothing more and return the slice when it is unused; empty if it need not."""


class FormerNode(ApiStruct, frozen=True, kw_only=True):
    """An earlier Node of this name, which may still use its slices until node GC finds it gone."""

    node_uid: str = msgspec.field(name="nodeUID", default="")
    """Its UID."""
    boot_id: str = msgspec.field(name="bootID", default="")
    """The boot in which its agent last wrote the status; empty if that is not known."""
    assignments: tuple[Assignment, ...] = ()
    """Its slices."""


class NodeSlicesSpec(ApiStruct, frozen=True, kw_only=True):
    """Assignments of the controller."""

    node_uid: str = msgspec.field(name="nodeUID", default="")
    """The UID of the Node to which the slices are assigned."""
    assignments: tuple[Assignment, ...] = ()
    """Slices of that Node."""
    former: tuple[FormerNode, ...] = ()
    """Earlier Nodes of this name."""


class SliceStatus(ApiStruct, frozen=True, kw_only=True):
    """What the agent knows of a slice."""

    id: str
    """The ID of the assignment."""
    network: str = ""
    """As in the assignment."""
    range: str = ""
    """As in the assignment, or as the controller last changed it."""
    slice: str = ""
    """As in the assignment."""
    acknowledgement: str = ""
    """The ID of the agent's acknowledgement, new each time."""
    held: bool = False
    """The journal has the slice: addresses of it may be assigned."""
    in_use: bool = False
    """Addresses of it are assigned or cooling down."""
    returned: bool = False
    """The agent does not use it again."""


class NodeSlicesStatus(ApiStruct, frozen=True, kw_only=True):
    """Report of the agent."""

    protocol: int = 0
    """Version of the protocol."""
    node_uid: str = msgspec.field(name="nodeUID", default="")
    """The UID of the Node on which the agent ran when it was written."""
    boot_id: str = msgspec.field(name="bootID", default="")
    """The boot in which it was written."""
    inventory: str = ""
    """The last inventory request that the agent answered."""
    rolled_back: str = ""
    """The newest resourceVersion of this object that the agent has seen, if the API server shows an older one."""
    slices: tuple[SliceStatus, ...] = ()
    """All slices that the agent has acknowledged, holds, or has returned and the controller still lists."""


class NodeSlices(KubeObject, frozen=True, kw_only=True):
    """The slices of one node."""

    spec: NodeSlicesSpec = NodeSlicesSpec()
    status: NodeSlicesStatus = NodeSlicesStatus()


NODE_SLICES = Kind(
    group="podpool.io", version="v1alpha1", plural="nodeslices", kind="NodeSlices", type=NodeSlices, namespaced=False
)
