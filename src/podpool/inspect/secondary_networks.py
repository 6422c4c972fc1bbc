"""Further networks in slices: how the range is divided, who has a slice, and how full each is. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from podpool.api.whereabouts import IPPool, NodeSlicePool
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.core.slice_table import parse_slice_size
from podpool.inspect.view_models import View
from podpool.whereabouts.object_names import PoolPlace

FULLEST_SHOWN = 24
"""Slices of a network that are named; of the others, the sums are told."""


class SliceView(View, frozen=True, kw_only=True):
    """A node's slice."""

    node: str
    range: str
    used: int = 0
    size: int = 0


class NetworkView(View, frozen=True, kw_only=True):
    """A network: a range that is divided among the nodes, or, without slices, shared by them."""

    name: str
    range: str
    slice_size: str = ""
    """Empty when it is shared."""
    slices: int = 0
    taken: int = 0
    used: int = 0
    """Addresses that Pods have."""
    size: int = 0
    """Addresses in the slices that are taken; of a shared range, in all of it."""
    fullest: tuple[SliceView, ...] = ()


def network_views(divided: Iterable[NodeSlicePool], pools: Sequence[IPPool]) -> list[NetworkView]:
    """Show every network that has objects in the cluster."""
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
                slices=_count(each),
                taken=len(slices),
                used=sum(one.used for one in slices),
                size=sum(one.size for one in slices),
                fullest=tuple(sorted(slices, key=lambda one: (-one.used, one.node))[:FULLEST_SHOWN]),
            )
        )
    shared = [pool for pool in pools if pool.metadata.name not in owned]
    views += [
        NetworkView(
            name=pool.metadata.name,
            range=pool.spec.range,
            used=len(pool.spec.allocations),
            size=_size(_prefix(pool.spec.range)),
        )
        for pool in shared
    ]
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
    """Find a slice's pool; a network that is known by its name in CNI alone has pools without a network's name."""
    for named in (network, ""):
        try:
            found = by_name.get(PoolPlace(network=named, node=node, range=range_).name)
        except InvalidInput:
            continue
        if found:
            return found
    return None


def _count(pool: NodeSlicePool) -> int:
    """Count from how the range is cut: a table may list no more than the slices that are taken."""
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
