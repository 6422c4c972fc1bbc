"""Which range, network and node an IPPool is for, and which slices are in use."""

from collections import defaultdict
from collections.abc import Collection, Iterable

import msgspec

from podpool.api.whereabouts import NETWORK_ANNOTATION, NODE_ANNOTATION, NODE_UID_LABEL, SEALED_ANNOTATION, IPPool
from podpool.core.ranges import Prefix, find_prefix
from podpool.whereabouts.ippool import parse_ippool
from podpool.whereabouts.object_names import PoolIdentifier, parse_pool_name
from podpool.whereabouts.slice_assignment import HeldSlice


class KnownNames(msgspec.Struct, frozen=True, kw_only=True):
    """Names that occur in the names of IPPools, for pools without annotations. Preferably sets."""

    nodes: Collection[str] = ()
    networks: Collection[str] = ()


def identify_pool(pool: IPPool, known: KnownNames) -> PoolIdentifier | None:
    """Return what a pool is for, by its annotations, else by its name; None if neither can be read."""
    range_ = find_prefix(pool.spec.range)
    if range_ is None:
        return None
    annotations = pool.metadata.annotations
    network = annotations.get(NETWORK_ANNOTATION, "")
    if NODE_ANNOTATION in annotations:
        return PoolIdentifier(range=range_, network=network, node=annotations[NODE_ANNOTATION])
    if SEALED_ANNOTATION in annotations:
        return PoolIdentifier(range=range_, network=network)
    return parse_pool_name(pool.metadata.name, range_=range_, nodes=known.nodes, networks=known.networks)


def slices_in_use(pools: Iterable[IPPool], *, known: KnownNames) -> dict[str, tuple[HeldSlice, ...]]:
    """Return by network the slices of which addresses are allocated."""
    found: defaultdict[str, list[HeldSlice]] = defaultdict(list)
    for pool in pools:
        identifier = identify_pool(pool, known)
        if identifier and identifier.node and pool.spec.allocations:
            uid = pool.metadata.labels.get(NODE_UID_LABEL, "")
            found[identifier.network].append(HeldSlice(identifier.range, identifier.node, uid))
    return {network: tuple(sorted(each)) for network, each in found.items()}


def shared_pools(
    pools: Iterable[IPPool], *, network: str, ranges: Collection[Prefix], known: KnownNames
) -> tuple[IPPool, ...]:
    """Return the pools of shared ranges of a network that overlap any of these ranges."""
    identified = ((pool, identify_pool(pool, known)) for pool in pools)
    return tuple(
        pool
        for pool, identifier in identified
        if identifier
        and not identifier.node
        and identifier.network == network
        and any(identifier.range.range.overlaps(each.range) for each in ranges)
    )


def allocated_in_shared_pools(pools: Iterable[IPPool]) -> tuple[HeldSlice, ...]:
    """Return each address that is allocated in shared pools, as a held slice of one address without a node."""
    addresses = (entry.address for pool in pools for entry in parse_ippool(pool.spec).entries)
    return tuple(HeldSlice(Prefix(each.family, each.value, each.family.bits), node="") for each in addresses)
