"""NodeSlicePools as the controller writes them. Pure."""

from typing import Any

import msgspec

from podpool.api.meta import Condition, rfc3339
from podpool.api.whereabouts import NETWORK_ANNOTATION, WAITING_ANNOTATION, NodeSlicePool, NodeSlicePoolStatus
from podpool.controller.events import INSUFFICIENT_SLICES
from podpool.whereabouts.network_plan import SliceTableKey
from podpool.whereabouts.slice_assignment import SliceAssignment, slice_allocations

MAX_WAITING_BYTES = 200_000
"""Bytes of waiting nodes in an annotation; all annotations of an object together may have 256 KiB."""


def shortage_message(key: SliceTableKey, assignment: SliceAssignment) -> str:
    """Return how many nodes wait for a slice and what to do, or an empty string."""
    if not assignment.waiting:
        return ""
    remedy = withheld_message(key, assignment) or "use a larger range or a smaller node_slice_size"
    return (
        f"{len(assignment.waiting)} nodes wait for a slice of {key.range}, which has {len(assignment.assigned)}:"
        f" {remedy}; the annotation {WAITING_ANNOTATION} of the NodeSlicePool lists them"
    )


def withheld_message(key: SliceTableKey, assignment: SliceAssignment) -> str:
    """Return how many slices are withheld because of addresses of the shared range, or an empty string."""
    if not assignment.withheld:
        return ""
    return (
        f"{len(assignment.shared)} addresses of {key.range} are in use from before it was divided into slices:"
        f" {assignment.withheld} slices that contain them are not assigned until those Pods are deleted"
    )


def build_slice_pool(
    key: SliceTableKey, assignment: SliceAssignment, *, before: NodeSlicePool | None, now: float
) -> dict[str, Any]:
    """Return the patch that makes a NodeSlicePool show an assignment."""
    annotations = {NETWORK_ANNOTATION: key.network, WAITING_ANNOTATION: _waiting_text(assignment) or None}
    conditions = _conditions(key, assignment, before=before, now=now)
    status = NodeSlicePoolStatus(allocations=slice_allocations(assignment), conditions=conditions)
    return {
        "metadata": {"annotations": annotations},
        "spec": {"range": str(key.range), "sliceSize": f"/{assignment.layout.length}"},
        "status": msgspec.to_builtins(status),
    }


def slice_pool_is_current(pool: NodeSlicePool, wanted: dict[str, Any]) -> bool:
    """Return whether a NodeSlicePool shows an assignment. The condition is not compared: an annotation has the same.

    Whereabouts' own CRD has no conditions, and an API server with that CRD drops them.
    """
    annotations = pool.metadata.annotations
    return (
        all(annotations.get(each) == value for each, value in wanted["metadata"]["annotations"].items())
        and msgspec.to_builtins(pool.spec) == wanted["spec"]
        and msgspec.to_builtins(pool.status.allocations) == wanted["status"]["allocations"]
    )


def _conditions(
    key: SliceTableKey, assignment: SliceAssignment, *, before: NodeSlicePool | None, now: float
) -> tuple[Condition, ...]:
    """Return the conditions with InsufficientSlices set; others are kept."""
    known = before.status.conditions if before and before.status.conditions is not msgspec.UNSET else ()
    last = next((each for each in known if each.type == INSUFFICIENT_SLICES), Condition())
    status = str(bool(assignment.waiting))
    condition = Condition(
        type=INSUFFICIENT_SLICES,
        status=status,
        reason="MoreNodesThanSlices" if assignment.waiting else "Sufficient",
        message=shortage_message(key, assignment),
        last_transition_time=last.last_transition_time if last.status == status else rfc3339(now),
    )
    return (*(each for each in known if each.type != INSUFFICIENT_SLICES), condition)


def _waiting_text(assignment: SliceAssignment) -> str:
    """Return the waiting nodes; if they are too many, those that have waited longest."""
    text = " ".join(assignment.waiting)
    return text if len(text) <= MAX_WAITING_BYTES else text[:MAX_WAITING_BYTES].rpartition(" ")[0]
