"""Which node owns which slice: an index over the IPPools and Leases of nodes, and over slices that agents report.

Invariant: a slice belongs to a node from before its IPPool is created until Lease and IPPool are deleted, and as long
as its agent reports that Pods use addresses of it. A Node that was registered again in the same boot is the same node.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from enum import Enum

import msgspec

from podpool.api.builtin import Lease, Node
from podpool.api.meta import KubeObject
from podpool.api.whereabouts import (
    ACKNOWLEDGED_ANNOTATION,
    BOOT_ANNOTATION,
    CONFIRMED_ANNOTATION,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RETURN_ANNOTATION,
    SLICE_ANNOTATION,
    IPPool,
    LostSlice,
)
from podpool.controller.slices.informers import SliceControllerInformers, WriteThroughCache
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, RANGE_ANNOTATION
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.slice_assignment import HeldSlice


class LeaseState(Enum):
    """State of a slice's Lease.

    | from | to | by |
    |---|---|---|
    | ABSENT | ASSIGNED | the controller creates the Lease |
    | ASSIGNED | ACKNOWLEDGED | the agent sets holder, boot ID and acknowledgement ID; it uses no address yet |
    | ACKNOWLEDGED | CONFIRMED | the controller confirms the acknowledgement ID; the agent uses the slice |
    | CONFIRMED | ACKNOWLEDGED | the agent acknowledges with a new ID |
    | ACKNOWLEDGED, CONFIRMED | RETURNED | the agent clears the holder, and never takes this Lease again |
    | ASSIGNED, RETURNED | ABSENT | the controller deletes the Lease |
    | ACKNOWLEDGED, CONFIRMED | ABSENT | node GC deletes the Lease |
    """

    ABSENT = "absent"
    ASSIGNED = "assigned"
    ACKNOWLEDGED = "acknowledged"
    CONFIRMED = "confirmed"
    RETURNED = "returned"

    @property
    def has_holder(self) -> bool:
        """Whether an agent holds the Lease."""
        return self in {LeaseState.ACKNOWLEDGED, LeaseState.CONFIRMED}


class OwnedSlice(msgspec.Struct, frozen=True, kw_only=True):
    """An IPPool and a Lease of one name, either of which may be missing; or a slice that only an agent reports."""

    name: str
    network: str
    range: Prefix
    """The whole range that the slice is a part of, as last known."""
    slice: Prefix
    node: str
    node_uid: str
    boot_id: str = ""
    """Boot in which the agent took the slice."""
    has_pool: bool = False
    lease_uid: str = ""
    lease_state: LeaseState = LeaseState.ABSENT
    acknowledgement: str = ""
    """The ID with which the agent acknowledged the Lease."""
    has_allocations: bool = False
    """Its IPPool has allocations."""
    reported: bool = False
    """An agent reports that Pods use addresses of it, and that the Lease is lost."""
    return_reason: str = ""
    """Why the node is asked to return it."""

    @property
    def is_held(self) -> bool:
        """Whether a node uses addresses of it, or may start to."""
        return self.lease_state.has_holder or self.has_allocations or self.reported

    @property
    def in_use(self) -> bool:
        """Whether a node may use addresses of it; with a Lease that is not confirmed it does not."""
        return self.shown_in_use or self.reported

    @property
    def shown_in_use(self) -> bool:
        """Whether IPPool or Lease show that a node may use addresses of it."""
        return self.has_allocations or self.lease_state is LeaseState.CONFIRMED

    @property
    def rank(self) -> tuple[bool, bool, bool]:
        """Precedence over other slices with the same addresses."""
        return self.in_use, self.lease_state.has_holder, bool(self.lease_uid)

    def belongs_to(self, node: Node | None) -> bool:
        """Return whether it is this Node's, or was taken in the same boot of the same machine."""
        if node is None or node.metadata.name != self.node:
            return False
        return self.node_uid == node.metadata.uid or (self.boot_id != "" and self.boot_id == node.boot_id)

    def held_slice(self, node: Node | None) -> HeldSlice:
        """Return it as input of the assignment, under the UID that the node has now."""
        return HeldSlice(self.slice, self.node, node.metadata.uid if node and self.belongs_to(node) else self.node_uid)


OnSliceChange = Callable[[OwnedSlice | None, OwnedSlice | None], None]
OnPoolChange = Callable[[IPPool | None, IPPool | None], None]


class SliceOwnership:
    """All owned slices, by name, network and node; follows the caches of IPPools and Leases."""

    def __init__(
        self, informers: SliceControllerInformers, *, on_change: OnSliceChange, on_unowned_change: OnPoolChange
    ) -> None:
        self.pools = WriteThroughCache(informers.pools, on_change=self.refresh)
        self.leases = WriteThroughCache(informers.leases, on_change=self.refresh)
        self.unowned_pools: dict[str, IPPool] = {}
        """IPPools by name that all nodes share, or that Whereabouts' plugins created without podpool's labels."""
        self._on_change = on_change
        self._on_unowned_change = on_unowned_change
        self._reported: dict[str, OwnedSlice] = {}
        """Slices that agents report as lost."""
        self._slices: dict[str, OwnedSlice] = {}
        self._by_network: dict[str, dict[str, OwnedSlice]] = {}
        self._by_node: dict[str, dict[str, OwnedSlice]] = {}

    def get(self, name: str) -> OwnedSlice | None:
        """Return a slice by the name of its IPPool."""
        return self._slices.get(name)

    def values(self) -> tuple[OwnedSlice, ...]:
        """Return all slices."""
        return tuple(self._slices.values())

    def by_network(self, network: str) -> tuple[OwnedSlice, ...]:
        """Return the slices of a network."""
        return tuple(self._by_network.get(network, {}).values())

    def by_node(self, node: str) -> tuple[OwnedSlice, ...]:
        """Return the slices of Nodes of this name."""
        return tuple(self._by_node.get(node, {}).values())

    def networks(self) -> tuple[str, ...]:
        """Return the networks with slices."""
        return tuple(network for network, slices in self._by_network.items() if slices)

    @contextmanager
    def following(self) -> Iterator[None]:
        """Follow the informers within the block."""
        unsubscribe = [self.pools.follow(), self.leases.follow()]
        try:
            yield
        finally:
            for each in unsubscribe:
                each()

    def set_reported(self, node: Node, lost: Iterable[LostSlice], *, complete: bool) -> None:
        """Store the slices that an agent reports as lost; a complete report replaces the former one."""
        current = {each.name: each for each in _reported_by(node, lost)}
        before = [name for name, each in self._reported.items() if each.belongs_to(node)]
        for name in [each for each in before if complete and each not in current]:
            self.drop_reported(name)
        for name, owned in current.items():
            self._reported[name] = owned
            self.refresh(name)

    def has_report_of_former_node(self, node: Node) -> bool:
        """Return whether a report counts that the agent wrote on a former Node of the same boot."""
        return any(each.belongs_to(node) and each.node_uid != node.metadata.uid for each in self._reported.values())

    def drop_reported(self, name: str) -> None:
        """Drop an agent's report of a slice."""
        if self._reported.pop(name, None):
            self.refresh(name)

    def refresh(self, name: str) -> OwnedSlice | None:
        """Update the index for one name, call `on_change` if it differs, and return the slice."""
        pool = self.pools.get(name)
        old, new = self._slices.get(name), _read(pool, self.leases.get(name), self._reported.get(name))
        self._set_unowned(name, pool if pool is not None and not _is_labelled(pool) else None)
        if old == new:
            return new
        for index, key in ((self._by_network, "network"), (self._by_node, "node")):
            if old is not None:
                index[getattr(old, key)].pop(name, None)
            if new is not None:
                index.setdefault(getattr(new, key), {})[name] = new
        if new is None:
            self._slices.pop(name, None)
        else:
            self._slices[name] = new
        self._on_change(old, new)
        return new

    def _set_unowned(self, name: str, pool: IPPool | None) -> None:
        before = self.unowned_pools.pop(name, None)
        if pool is not None:
            self.unowned_pools[name] = pool
        if before != pool:
            self._on_unowned_change(before, pool)


def without_conflicts(slices: Iterable[OwnedSlice]) -> list[OwnedSlice]:
    """Leave out slices that overlap with one of higher rank. Where both may be in use both stay, and are reported."""
    kept: dict[str, OwnedSlice] = {}
    overlapping: list[OwnedSlice] = []
    for owned in sorted(slices, key=lambda each: (each.slice, each.name)):
        overlapping = [each for each in overlapping if each.slice.range.overlaps(owned.slice.range)]
        if not owned.in_use and any(_precedes(each, owned) for each in overlapping):
            continue
        for each in [each for each in overlapping if not each.in_use and _precedes(owned, each)]:
            kept.pop(each.name, None)
            overlapping.remove(each)
        kept[owned.name] = owned
        overlapping.append(owned)
    return list(kept.values())


def _precedes(one: OwnedSlice, other: OwnedSlice) -> bool:
    """Return whether one of two overlapping slices excludes the other.

    Of two slices of one node the one in use does: the other is confirmed only after that is returned.
    """
    if (one.node, one.node_uid) == (other.node, other.node_uid):
        return one.shown_in_use
    return one.rank >= other.rank


def _reported_by(node: Node, lost: Iterable[LostSlice]) -> Iterator[OwnedSlice]:
    for each in lost:
        with suppress(InvalidInput):
            slice_ = parse_prefix(each.slice)
            yield OwnedSlice(
                name=PoolIdentifier(range=slice_, network=each.network, node=node.metadata.name).name,
                network=each.network,
                range=parse_prefix(each.range),
                slice=slice_,
                node=node.metadata.name,
                node_uid=node.metadata.uid,
                boot_id=node.boot_id,
                reported=True,
            )


def _read(pool: IPPool | None, lease: Lease | None, reported: OwnedSlice | None) -> OwnedSlice | None:
    """Return the slice that labelled objects and an agent's report show."""
    pool = pool if pool is not None and _is_labelled(pool) else None
    lease = lease if lease is not None and _is_labelled(lease) else None
    shown = _read_objects(pool, lease)
    if shown is None or reported is None:
        return shown or reported
    return msgspec.structs.replace(shown, node_uid=reported.node_uid, boot_id=reported.boot_id, reported=True)


def _read_objects(pool: IPPool | None, lease: Lease | None) -> OwnedSlice | None:
    one = pool or lease
    if one is None:
        return None
    annotations, lease_annotations = one.metadata.annotations, lease.metadata.annotations if lease else {}
    try:
        slice_ = parse_prefix(pool.spec.range if pool else annotations.get(SLICE_ANNOTATION, ""))
        whole = parse_prefix(annotations.get(RANGE_ANNOTATION, str(slice_)))
    except InvalidInput:
        return None
    return OwnedSlice(
        name=one.metadata.name,
        network=annotations.get(NETWORK_ANNOTATION, ""),
        range=whole,
        slice=slice_,
        node=annotations[NODE_ANNOTATION],
        node_uid=one.metadata.labels[NODE_UID_LABEL],
        boot_id=lease_annotations.get(BOOT_ANNOTATION, annotations.get(BOOT_ANNOTATION, "")),
        has_pool=pool is not None,
        lease_uid=lease.metadata.uid if lease else "",
        lease_state=_lease_state(lease),
        acknowledgement=lease_annotations.get(ACKNOWLEDGED_ANNOTATION, ""),
        has_allocations=bool(pool and pool.spec.allocations),
        return_reason=annotations.get(RETURN_ANNOTATION, "") if pool else "",
    )


def _lease_state(lease: Lease | None) -> LeaseState:
    if lease is None:
        return LeaseState.ABSENT
    annotations = lease.metadata.annotations
    if lease.spec.holder_identity:
        confirmed = annotations.get(ACKNOWLEDGED_ANNOTATION, "") == annotations.get(CONFIRMED_ANNOTATION, "")
        return LeaseState.CONFIRMED if confirmed else LeaseState.ACKNOWLEDGED
    return LeaseState.RETURNED if BOOT_ANNOTATION in annotations else LeaseState.ASSIGNED


def _is_labelled(obj: KubeObject) -> bool:
    return NODE_ANNOTATION in obj.metadata.annotations and NODE_UID_LABEL in obj.metadata.labels
