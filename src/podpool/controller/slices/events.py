"""What people are told about slices, as Events: on the definition, the Node or the pool that they would look at."""

from podpool.api.builtin import NODES, Node, ObjectReference
from podpool.api.multus import NETWORK_ATTACHMENTS, NetworkAttachmentDefinition
from podpool.api.whereabouts import IP_POOLS, IPPool
from podpool.controller.slices.objects import SHORT
from podpool.kube.events import EventRecorder, object_reference
from podpool.whereabouts.network_plan import NadRejection, SliceTableKey


class ControllerEvents:
    """Each sentence once, with what to do about it."""

    def __init__(self, recorder: EventRecorder) -> None:
        self._recorder = recorder

    def refused(self, definition: NetworkAttachmentDefinition, refusal: NadRejection) -> None:
        """A definition gets no slices, perhaps because of another, which is told too; or shares what that has cut."""
        lacks = "slices" if refusal.sliced else "new addresses"
        self._recorder.tell(
            object_reference(NETWORK_ATTACHMENTS, definition),
            reason="SlicesRefused",
            action="Plan",
            note=f"{refusal.refused} gets no {lacks}: {refusal.reason}",
            warning=True,
        )

    def unsized(self, definition: NetworkAttachmentDefinition, cure: str) -> None:
        """A definition wishes for slices, and says not how large."""
        self._recorder.tell(
            object_reference(NETWORK_ATTACHMENTS, definition),
            reason="SliceSizeMissing",
            action="Plan",
            note=f"fast_ipam alone changes nothing, its nodes share the range: {cure}",
            warning=True,
        )

    def short(self, definition: NetworkAttachmentDefinition, why: str) -> None:
        """There are more nodes than slices."""
        self._recorder.tell(object_reference(NETWORK_ATTACHMENTS, definition), reason=SHORT, action="Divide", note=why, warning=True)

    def kept_back(self, definition: NetworkAttachmentDefinition, why: str) -> None:
        """Slices are nobody's because of addresses in use from before the range was cut."""
        self._recorder.tell(
            object_reference(NETWORK_ATTACHMENTS, definition), reason="SlicesKeptBack", action="Divide", note=why, warning=True
        )

    def waits(self, node: Node, key: SliceTableKey) -> None:
        """A node has no slice."""
        self._recorder.tell(
            object_reference(NODES, node),
            reason="NoSlice",
            action="Divide",
            note=f"no slice of {key.range} is free{_in(key.network)}: Pods that need one wait until another node"
            f" is gone or hands one back",
            warning=True,
        )

    def disputed(self, pool: IPPool, other: str) -> None:
        """Two nodes may use the same addresses."""
        self._recorder.tell(
            object_reference(IP_POOLS, pool),
            reason="SliceDisputed",
            action="Divide",
            note=f"it shares addresses with {other}, which somebody wrote past the controller: drain one of the nodes",
            warning=True,
        )

    def given_up(self, *, node: str, uid: str, pools: int) -> None:
        """The slices of a Node that is gone are free."""
        gone = ObjectReference(api_version=NODES.api_version, kind=NODES.kind, name=node, uid=uid)
        free = "its slice is free" if pools == 1 else f"its {pools} slices are free"
        self._recorder.tell(gone, reason="SlicesFreed", action="Close", note=f"the Node is gone: {free}")

    def swept(self, pool: IPPool, *, entries: int) -> None:
        """Entries of Pods that are gone were released."""
        what = (
            "1 address of a Pod that is gone is" if entries == 1 else f"{entries} addresses of Pods that are gone are"
        )
        self._recorder.tell(
            object_reference(IP_POOLS, pool),
            reason="Released",
            action="IPPoolOrphanGC",
            note=f"{what} free again",
        )


def _in(network: str) -> str:
    return f" in network {network}" if network else ""
