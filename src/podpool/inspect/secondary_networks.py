"""Secondary networks: how a range is divided, which nodes have slices, and how full each is. Pure.

A slice and its node come from the NodeSlicePool; what the node does with it from its NodeSlices, which also has slices
of networks that no longer exist. Addresses in use come from IPPools, which agents write behind an ADD.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import msgspec

from podpool.api.node_slices import NodeSlices
from podpool.api.whereabouts import (
    NETWORK_ANNOTATION,
    NODE_ANNOTATION,
    SEALED_ANNOTATION,
    IPPool,
    NodeSlicePool,
    waiting_nodes,
)
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, find_prefix
from podpool.core.slice_table import SliceLayout, parse_slice_size
from podpool.inspect.node_slices import NodeSlice, NodeSliceState, slices_of_nodes
from podpool.inspect.view_models import ViewModel
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.slice_shortage import shortage_remedy

FULLEST_SHOWN = 24
"""Slices listed per network; the others are only counted."""


class SliceView(ViewModel, frozen=True, kw_only=True):
    """A node's slice."""

    node: str
    range: str
    state: NodeSliceState = NodeSliceState.ASSIGNED
    used: int = 0
    """Addresses assigned to Pods."""
    size: int = 0
    reason: str = ""
    """Why it is to be returned."""


class NetworkView(ViewModel, frozen=True, kw_only=True):
    """A network: a range divided into slices, or shared by all nodes."""

    name: str
    range: str
    slice_size: str = ""
    """Empty for a shared range."""
    slices: int = 0
    assigned: int = 0
    """Slices that belong to nodes."""
    in_use: int = 0
    """Slices with addresses that are assigned or cooling down."""
    returning: int = 0
    """Slices that nodes must return when nothing in them is in use."""
    lost: int = 0
    """Slices that a node holds although they are not assigned to it, as after a restore."""
    waiting: int = 0
    """Nodes without a slice, because all are assigned."""
    used: int = 0
    """Addresses assigned to Pods."""
    size: int = 0
    """Addresses in assigned slices; for a shared range, in the range."""
    fullest: tuple[SliceView, ...] = ()
    remedy: str = ""
    """What to do for the waiting nodes."""


class Network(msgspec.Struct, frozen=True, kw_only=True):
    """A network with all its slices, of which a view has the fullest."""

    view: NetworkView
    slices: tuple[SliceView, ...] = ()
    """The fullest first."""
    waiting: tuple[str, ...] = ()
    """Nodes without a slice, the longest waiting first."""


def network_views(
    divided: Iterable[NodeSlicePool], pools: Sequence[IPPool], nodes: Iterable[NodeSlices] = ()
) -> list[NetworkView]:
    """Return a view of every network that has objects in the cluster."""
    return [each.view for each in read_networks(divided, pools, nodes)]


def read_networks(
    divided: Iterable[NodeSlicePool], pools: Sequence[IPPool], nodes: Iterable[NodeSlices] = ()
) -> list[Network]:
    """Return every network that has objects in the cluster, with its slices."""
    by_name = {pool.metadata.name: pool for pool in pools}
    by_range: dict[tuple[str, str], list[NodeSlice]] = {}
    for each in slices_of_nodes(nodes):
        by_range.setdefault((each.network, each.range), []).append(each)
    found: list[Network] = []
    owned: set[str] = set()
    known: set[tuple[str, str]] = set()
    for pool in divided:
        keys = [key for key, slices in by_range.items() if is_slice_of(slices[0], pool)]
        known.update(keys)
        own = [each for key in keys for each in by_range[key]]
        rows = (*own, *_rows_without_object(pool, own))
        found.append(_divided_network(pool, [_slice(each, by_name, owned) for each in rows], _withheld(pool, pools)))
    for (network, range_), ended in by_range.items():
        if (network, range_) not in known:
            found.append(_ended_network(network, range_, [_slice(each, by_name, owned) for each in ended]))
    shared = (pool for pool in pools if pool.metadata.name not in owned and not _is_hidden(pool))
    found += [Network(view=_shared_view(pool)) for pool in shared]
    return sorted(found, key=lambda network: network.view.name)


def is_slice_of(each: NodeSlice, pool: NodeSlicePool) -> bool:
    """Return whether a slice belongs to a pool, whose range may have changed since."""
    same = each.range == pool.spec.range or _overlap(each.range, pool.spec.range)
    return each.network in networks_of(pool) and same


def networks_of(pool: NodeSlicePool) -> tuple[str, ...]:
    """Return the network that a pool is for; a pool of Whereabouts' own controller has no annotation."""
    noted = pool.metadata.annotations.get(NETWORK_ANNOTATION)
    return (pool.metadata.name, "") if noted is None else (noted,)


def _divided_network(pool: NodeSlicePool, slices: Iterable[SliceView], withheld: str) -> Network:
    layout, waiting = _layout(pool), waiting_nodes(pool)
    network = _network(pool.metadata.name, pool.spec.range, slices)
    view = msgspec.structs.replace(
        network.view,
        slice_size=pool.spec.slice_size,
        slices=layout.count if layout else len(pool.status.allocations),
        waiting=len(waiting),
        remedy=withheld or _remedy(layout, network.view, len(waiting)) if waiting else "",
    )
    return Network(view=view, slices=network.slices, waiting=waiting)


def _remedy(layout: SliceLayout | None, view: NetworkView, waiting: int) -> str:
    if layout is None:
        return "use a larger range or a smaller node_slice_size"
    return shortage_remedy(layout, available=view.assigned, nodes=view.assigned + waiting)


def _ended_network(network: str, range_: str, slices: Sequence[SliceView]) -> Network:
    """Return a network without a NodeSlicePool, of which nodes still have slices."""
    found = _network(f"{network}-{re.sub('[:/]', '-', range_)}" if network else range_, range_, slices)
    size = max((parsed.length for each in slices if (parsed := find_prefix(each.range))), default=0)
    view = msgspec.structs.replace(found.view, slice_size=f"/{size}" if size else "-", slices=len(slices))
    return msgspec.structs.replace(found, view=view)


def _network(name: str, range_: str, slices: Iterable[SliceView]) -> Network:
    ordered = tuple(sorted(slices, key=lambda each: (-each.used, each.node, each.range)))
    states = Counter(each.state for each in ordered)
    view = NetworkView(
        name=name,
        range=range_,
        assigned=len(ordered),
        in_use=states[NodeSliceState.IN_USE],
        returning=states[NodeSliceState.RETURNING],
        lost=states[NodeSliceState.LOST],
        used=sum(each.used for each in ordered),
        size=sum(each.size for each in ordered),
        fullest=ordered[:FULLEST_SHOWN],
    )
    return Network(view=view, slices=ordered)


def _rows_without_object(pool: NodeSlicePool, own: Iterable[NodeSlice]) -> Iterable[NodeSlice]:
    """Return the rows of a pool that no NodeSlices has: a third party wrote them, or it is not written yet."""
    listed = {(each.node, each.slice) for each in own}
    network = pool.metadata.annotations.get(NETWORK_ANNOTATION, pool.metadata.name)
    for row in pool.status.allocations:
        if row.node_name and (row.node_name, row.slice_range) not in listed and find_prefix(row.slice_range):
            yield NodeSlice(node=row.node_name, network=network, range=pool.spec.range, slice=row.slice_range)


def _slice(each: NodeSlice, by_name: Mapping[str, IPPool], owned: set[str]) -> SliceView:
    prefix = find_prefix(each.slice)
    pool = _pool_of(by_name, network=each.network, node=each.node, range_=prefix) if prefix else None
    if pool:
        owned.add(pool.metadata.name)
    used = len(pool.spec.allocations) if pool else 0
    unused = each.state is NodeSliceState.HELD or not each.id
    state = NodeSliceState.IN_USE if used and unused else each.state
    return SliceView(node=each.node, range=each.slice, state=state, used=used, size=_size(prefix), reason=each.reason)


def _pool_of(by_name: Mapping[str, IPPool], *, network: str, node: str, range_: Prefix) -> IPPool | None:
    """Return the IPPool of a slice; pools of an unnamed network have no network in their name."""
    for named in (network, ""):
        try:
            found = by_name.get(PoolIdentifier(network=named, node=node, range=range_).name)
        except InvalidInput:
            continue
        if found:
            return found
    return None


def _withheld(pool: NodeSlicePool, pools: Iterable[IPPool]) -> str:
    """Return what frees slices that are not assigned because of addresses from before the range was divided."""
    for each in pools:
        sealed = SEALED_ANNOTATION in each.metadata.annotations and each.spec.allocations
        network = each.metadata.annotations.get(NETWORK_ANNOTATION, "")
        if sealed and network in networks_of(pool) and _overlap(pool.spec.range, each.spec.range):
            count = len(each.spec.allocations)
            return f"restart the Pods with the {count} addresses in IPPool {each.metadata.name}, which withhold slices"
    return ""


def _overlap(one: str, other: str) -> bool:
    first, second = find_prefix(one), find_prefix(other)
    return bool(first and second and first.range.overlaps(second.range))


def _is_hidden(pool: IPPool) -> bool:
    """Return whether a pool is no network: an empty seal of a sliced range, or a slice that is being removed."""
    annotations = pool.metadata.annotations
    return NODE_ANNOTATION in annotations or (SEALED_ANNOTATION in annotations and not pool.spec.allocations)


def _shared_view(pool: IPPool) -> NetworkView:
    size, used = _size(find_prefix(pool.spec.range)), len(pool.spec.allocations)
    return NetworkView(name=pool.metadata.name, range=pool.spec.range, used=used, size=size)


def _layout(pool: NodeSlicePool) -> SliceLayout | None:
    """Return the division of the range: a NodeSlicePool may list only assigned slices."""
    range_ = find_prefix(pool.spec.range)
    with suppress(InvalidInput):
        return parse_slice_size(pool.spec.slice_size, of=range_) if range_ else None
    return None


def _size(prefix: Prefix | None) -> int:
    return prefix.usable.size if prefix else 0
