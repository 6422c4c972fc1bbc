"""Secondary networks: how a range is divided, which nodes hold slices, and how full each is. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from podpool.api.whereabouts import IPPool, NodeSlicePool, waiting_nodes
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.core.slice_table import parse_slice_size
from podpool.inspect.view_models import ViewModel
from podpool.whereabouts.object_names import PoolIdentifier

FULLEST_SHOWN = 24
"""Slices listed per network; the others are only counted."""


class SliceView(ViewModel, frozen=True, kw_only=True):
    """A node's slice."""

    node: str
    range: str
    used: int = 0
    size: int = 0


class NetworkView(ViewModel, frozen=True, kw_only=True):
    """A network: a range divided into slices, or shared by all nodes."""

    name: str
    range: str
    slice_size: str = ""
    """Empty for a shared range."""
    slices: int = 0
    taken: int = 0
    used: int = 0
    """Addresses assigned to Pods."""
    size: int = 0
    """Addresses in assigned slices; for a shared range, in the range."""
    fullest: tuple[SliceView, ...] = ()
    nodes_waiting: int = 0
    """Nodes without a slice, because all are assigned."""


def network_views(divided: Iterable[NodeSlicePool], pools: Sequence[IPPool]) -> list[NetworkView]:
    """Return a view of every network that has objects in the cluster."""
    by_name = {pool.metadata.name: pool for pool in pools}
    views: list[NetworkView] = []
    owned: set[str] = set()
    for each in divided:
        slices = _slices(each, by_name, owned)
        views.append(
            NetworkView(
                name=each.metadata.name,
                range=each.spec.range,
                slice_size=each.spec.slice_size,
                slices=_count_slices(each),
                taken=len(slices),
                used=sum(one.used for one in slices),
                size=sum(one.size for one in slices),
                fullest=tuple(sorted(slices, key=lambda one: (-one.used, one.node))[:FULLEST_SHOWN]),
                nodes_waiting=len(waiting_nodes(each)),
            )
        )
    shared = [pool for pool in pools if pool.metadata.name not in owned]
    for pool in shared:
        size, used = _size(_prefix(pool.spec.range)), len(pool.spec.allocations)
        views.append(NetworkView(name=pool.metadata.name, range=pool.spec.range, used=used, size=size))
    return sorted(views, key=lambda view: view.name)


def _slices(pool: NodeSlicePool, by_name: Mapping[str, IPPool], owned: set[str]) -> list[SliceView]:
    slices = []
    for each in pool.status.allocations:
        prefix = _prefix(each.slice_range)
        if not each.node_name or prefix is None:
            continue
        found = _pool_of(by_name, network=pool.metadata.name, node=each.node_name, range_=prefix)
        if found:
            owned.add(found.metadata.name)
        used = len(found.spec.allocations) if found else 0
        slices.append(SliceView(node=each.node_name, range=each.slice_range, used=used, size=_size(prefix)))
    return slices


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


def _count_slices(pool: NodeSlicePool) -> int:
    """Count slices from the division of the range: a NodeSlicePool may list only assigned slices."""
    range_ = _prefix(pool.spec.range)
    with suppress(InvalidInput):
        if range_:
            return parse_slice_size(pool.spec.slice_size, of=range_).count
    return len(pool.status.allocations)


def _prefix(text: str) -> Prefix | None:
    try:
        return parse_prefix(text)
    except InvalidInput:
        return None


def _size(prefix: Prefix | None) -> int:
    return prefix.usable.size if prefix else 0
