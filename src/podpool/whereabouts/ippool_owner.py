"""Whose an IPPool is, and which slices may be in use."""

from collections import defaultdict
from collections.abc import Collection, Iterable

import msgspec

from podpool.api.whereabouts import NODE_ANNOTATION, NODE_UID_LABEL, SEALED_ANNOTATION, IPPool
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.whereabouts.ippool import parse_ippool
from podpool.whereabouts.object_names import PoolIdentifier, parse_pool_name
from podpool.whereabouts.slice_assignment import HeldSlice

NETWORK_ANNOTATION = "podpool.io/network"
"""On an IPPool: the network's name, empty for the unnamed one,"""
RANGE_ANNOTATION = "podpool.io/range"
"""and the range that its slice is cut from."""


class KnownNames(msgspec.Struct, frozen=True, kw_only=True):
    """What names are made of: for pools that say it nowhere else. Best as sets."""

    nodes: Collection[str] = ()
    networks: Collection[str] = ()


def identify_pool(pool: IPPool, known: KnownNames) -> PoolIdentifier | None:
    """Tell whose a pool is: from our annotations, else from its name; None when nobody can tell."""
    try:
        range_ = parse_prefix(pool.spec.range)
    except InvalidInput:
        return None
    notes = pool.metadata.annotations
    if NODE_ANNOTATION in notes:
        return PoolIdentifier(range=range_, network=notes.get(NETWORK_ANNOTATION, ""), node=notes[NODE_ANNOTATION])
    if SEALED_ANNOTATION in notes:
        return PoolIdentifier(range=range_, network=notes.get(NETWORK_ANNOTATION, ""))
    return parse_pool_name(pool.metadata.name, range_=range_, nodes=known.nodes, networks=known.networks)


def slices_in_use(
    pools: Iterable[IPPool], *, leased: Collection[str], known: KnownNames
) -> dict[str, tuple[HeldSlice, ...]]:
    """Find by network which slices may be in use: their Lease has a holder, or their pool has entries.

    Pools of foreign plugins have no Lease that lasts; their entries are all there is to go by.
    """
    found: defaultdict[str, list[HeldSlice]] = defaultdict(list)
    for pool in pools:
        place = identify_pool(pool, known)
        if place and place.node and (pool.metadata.name in leased or pool.spec.allocations):
            uid = pool.metadata.labels.get(NODE_UID_LABEL, "")
            found[place.network].append(HeldSlice(place.range, place.node, uid))
    return {network: tuple(sorted(each)) for network, each in found.items()}


def shared_pools(
    pools: Iterable[IPPool], *, network: str, ranges: Collection[Prefix], known: KnownNames
) -> tuple[IPPool, ...]:
    """Find the pools that all nodes share and that have addresses of ranges of a network."""
    found = ((pool, identify_pool(pool, known)) for pool in pools)
    return tuple(
        pool
        for pool, place in found
        if place
        and not place.node
        and place.network == network
        and any(place.range.range.overlaps(each.range) for each in ranges)
    )


def allocated_in_shared_pools(pools: Iterable[IPPool]) -> tuple[HeldSlice, ...]:
    """Find the single addresses that somebody has through pools that all nodes share: they are no node's to give."""
    listed = (entry.address for pool in pools for entry in parse_ippool(pool.spec).listed)
    return tuple(HeldSlice(Prefix(each.family, each.value, each.family.bits), node="") for each in listed)
