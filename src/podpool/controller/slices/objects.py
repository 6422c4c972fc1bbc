"""IPPools, Leases and NodeSlicePools as they are written."""

from typing import Any

import msgspec

from podpool.api.builtin import LEASES, Lease
from podpool.api.meta import Condition, ObjectMeta, rfc3339
from podpool.api.whereabouts import (
    IP_POOLS,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RETURN_ANNOTATION,
    SLICE_ANNOTATION,
    WAITING_ANNOTATION,
    IPPool,
    IPPoolSpec,
    NodeSlicePool,
    NodeSlicePoolStatus,
)
from podpool.core.ranges import Prefix
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, RANGE_ANNOTATION
from podpool.whereabouts.network_plan import SliceTableKey
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.slice_assignment import SliceAssignment, slice_allocations

SHORT = "SlicesShort"
"""The condition of a NodeSlicePool that has more nodes than slices."""
LARGEST_NOTE = 200_000
"""Bytes of waiting nodes in an annotation; all annotations of an object may have 256 KiB."""


class DesiredSlice(msgspec.Struct, frozen=True, kw_only=True):
    """A slice that a node should have."""

    place: PoolIdentifier
    """Its range is the slice."""
    uid: str
    range: Prefix
    """The range that the slice is of."""
    leave: str = ""
    """Why it is asked back."""
    disputed: bool = False
    """Another may use addresses of it: nobody is given it who has it not."""

    @property
    def labels(self) -> dict[str, str]:
        """What its agent finds it by."""
        return {NODE_UID_LABEL: self.uid}

    @property
    def notes(self) -> dict[str, str]:
        """What IPPool and Lease have in common."""
        return {
            NODE_ANNOTATION: self.place.node,
            NETWORK_ANNOTATION: self.place.network,
            RANGE_ANNOTATION: str(self.range),
        }


def pool_for(offer: DesiredSlice, *, namespace: str) -> IPPool:
    """Write the IPPool of a slice, without entries."""
    notes = offer.notes | ({RETURN_ANNOTATION: offer.leave} if offer.leave else {})
    meta = ObjectMeta(name=offer.place.name, namespace=namespace, labels=offer.labels, annotations=notes)
    spec = IPPoolSpec(range=str(offer.place.range))
    return IPPool(api_version=IP_POOLS.api_version, kind=IP_POOLS.kind, metadata=meta, spec=spec)


def lease_for(offer: DesiredSlice, *, namespace: str) -> Lease:
    """Write the Lease with which a slice is offered: nobody holds it."""
    notes = offer.notes | {SLICE_ANNOTATION: str(offer.place.range)}
    meta = ObjectMeta(name=offer.place.lease, namespace=namespace, labels=offer.labels, annotations=notes)
    return Lease(api_version=LEASES.api_version, kind=LEASES.kind, metadata=meta)


def shortage(key: SliceTableKey, table: SliceAssignment) -> str:
    """Say that there are more nodes than slices, and what to do; nothing when there are enough."""
    if not table.waiting:
        return ""
    cure = kept_back(key, table) or "use a larger range or a smaller node_slice_size"
    return (
        f"{len(table.waiting)} nodes wait for a slice of {key.range}, which has {len(table.assigned)}: {cure}; "
        f"the annotation {WAITING_ANNOTATION} of the NodeSlicePool names them"
    )


def kept_back(key: SliceTableKey, table: SliceAssignment) -> str:
    """Say that slices are nobody's because of addresses that Pods have from the whole range; nothing without any."""
    if not table.withheld:
        return ""
    return (
        f"{len(table.shared)} addresses of {key.range} are in use from before it was cut: {table.withheld} slices"
        " with them are given to nobody until those Pods are gone"
    )


def shown_table(
    key: SliceTableKey, table: SliceAssignment, *, before: NodeSlicePool | None, now: float
) -> dict[str, Any]:
    """Write what a NodeSlicePool shows of a table."""
    return {
        "metadata": {
            "annotations": {NETWORK_ANNOTATION: key.network, WAITING_ANNOTATION: _waiting(table) or None},
        },
        "spec": {"range": str(key.range), "sliceSize": f"/{table.layout.length}"},
        "status": msgspec.to_builtins(
            NodeSlicePoolStatus(
                allocations=slice_allocations(table), conditions=_conditions(key, table, before=before, now=now)
            )
        ),
    }


def shows(pool: NodeSlicePool, wanted: dict[str, Any]) -> bool:
    """Tell whether a NodeSlicePool shows a table as it should. Its condition says what an annotation says too.

    Whereabouts' own definition of the kind has no conditions, and a server that has that one drops them.
    """
    notes = pool.metadata.annotations
    return (
        all(notes.get(each) == value for each, value in wanted["metadata"]["annotations"].items())
        and msgspec.to_builtins(pool.spec) == wanted["spec"]
        and msgspec.to_builtins(pool.status.allocations) == wanted["status"]["allocations"]
    )


def waiting_in(pool: NodeSlicePool) -> tuple[str, ...]:
    """Read which nodes wait, longest waiting first."""
    return tuple(pool.metadata.annotations.get(WAITING_ANNOTATION, "").split())


def _conditions(
    key: SliceTableKey, table: SliceAssignment, *, before: NodeSlicePool | None, now: float
) -> tuple[Condition, ...]:
    """Say whether there are enough slices, and since when; what others say stays."""
    known = before.status.conditions if before and before.status.conditions is not msgspec.UNSET else ()
    last = next((each for each in known if each.type == SHORT), Condition())
    status = str(bool(table.waiting))
    told = Condition(
        type=SHORT,
        status=status,
        reason="MoreNodesThanSlices" if table.waiting else "Enough",
        message=shortage(key, table),
        last_transition_time=last.last_transition_time if last.status == status else rfc3339(now),
    )
    return (*(each for each in known if each.type != SHORT), told)


def _waiting(table: SliceAssignment) -> str:
    """List who waits; of very many those who have waited longest."""
    text = " ".join(table.waiting)
    return text if len(text) <= LARGEST_NOTE else text[:LARGEST_NOTE].rpartition(" ")[0]
