"""Which slice tables a cluster needs: one per network and range, shared by all NADs that use it.

Invariant: within a network no address is in two slice tables, nor in a slice table and a shared range. Of two NADs that
would break this, the later one is rejected, with a reason that names both. The others are not affected. A NAD without a
network name is also rejected if it overlaps a subnet of the ledger, whose addresses the primary network of Pods has.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations, product

import msgspec

from podpool.core.errors import InvalidInput
from podpool.core.range_spec import RangeSpec
from podpool.core.ranges import Prefix
from podpool.core.slice_table import SliceLayout
from podpool.whereabouts.config import RangeConfig
from podpool.whereabouts.nad import ParsedNad
from podpool.whereabouts.object_names import range_text


class SliceTableKey(msgspec.Struct, frozen=True, order=True):
    """Identifies a slice table."""

    network: str
    range: Prefix


class SliceTablePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A slice table that is needed."""

    key: SliceTableKey
    layout: SliceLayout
    range_specs: tuple[RangeSpec, ...] = ()
    """What each NAD may allocate from the range."""
    nads: tuple[str, ...] = ()


class NadRejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why a NAD gets no slices, or no new addresses of a sliced range. Reported on all NADs that are involved."""

    rejected: str
    nads: tuple[str, ...]
    reason: str
    sliced: bool = True
    """Whether the rejected NAD asks for slices."""


class NetworkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the NADs of a cluster need."""

    tables: tuple[SliceTablePlan, ...] = ()
    slice_pools: Mapping[str, SliceTableKey] = {}
    """NodeSlicePools by name, and the slice table of each."""
    rejections: tuple[NadRejection, ...] = ()
    refused_ranges: tuple[Prefix, ...] = ()
    """Shared ranges of the unnamed network that overlap a subnet of the ledger."""


def plan_networks(
    nads: Collection[ParsedNad],
    *,
    published: Mapping[str, SliceTableKey] | None = None,
    subnets: Mapping[str, Collection[Prefix]] | None = None,
) -> NetworkPlan:
    """Return the slice tables that are needed. NADs of published ones take precedence over others, then by age.

    `subnets` are the CIDRs of the ledger's subnets by name.
    """
    published = published or {}
    running = set(published.values())
    accepted: list[ParsedNad] = []
    rejections: list[NadRejection] = []
    refused: list[Prefix] = []
    for nad in sorted(nads, key=lambda each: (not _is_running(each, running), each.created, each.key)):
        overlap = _subnet_overlap(nad, subnets or {})
        rejection = overlap or _rejection(nad, accepted)
        if rejection:
            rejections.append(rejection)
            refused += (each.prefix for each in nad.config.ranges if overlap and not nad.config.sliced)
        else:
            accepted.append(nad)
    sliced = [nad for nad in accepted if nad.config.sliced]
    return NetworkPlan(
        tables=_tables(sliced),
        slice_pools=_pool_names(sliced, published),
        rejections=tuple(rejections),
        refused_ranges=tuple(refused),
    )


def _subnet_overlap(nad: ParsedNad, subnets: Mapping[str, Collection[Prefix]]) -> NadRejection | None:
    """Return the rejection of a NAD without a network name that shares addresses with a subnet of the ledger."""
    ranges = () if nad.config.network_name else nad.config.ranges
    for name, cidrs in subnets.items():
        for cidr, each in product(cidrs, ranges):
            if each.prefix.range.overlaps(cidr.range):
                remedy = "use another range, or set network_name if it is another network"
                reason = f"{each.prefix} overlaps {cidr} of subnet {name} in the ledger: {remedy}"
                return NadRejection(rejected=nad.key, nads=(nad.key,), reason=reason, sliced=nad.config.sliced)
    return None


def _is_running(nad: ParsedNad, running: Collection[SliceTableKey]) -> bool:
    keys = [SliceTableKey(nad.config.network_name, each.prefix) for each in nad.config.ranges]
    return nad.config.sliced and all(key in running for key in keys)


def _rejection(nad: ParsedNad, accepted: Sequence[ParsedNad]) -> NadRejection | None:
    try:
        if nad.config.sliced:
            _check(nad)
    except InvalidInput as error:
        return NadRejection(rejected=nad.key, nads=(nad.key,), reason=str(error))
    for other in accepted:
        reason = _conflict(nad, other)
        if reason:
            return NadRejection(rejected=nad.key, nads=(other.key, nad.key), reason=reason, sliced=nad.config.sliced)
    return None


def _check(nad: ParsedNad) -> None:
    """Raise `InvalidInput` for a NAD from which no Pod could get an address."""
    _ = nad.pool_name
    nad.config.check_slice_sizes()
    for range_ in nad.config.ranges:
        _ = range_.layout, range_.spec.members
    for one, other in combinations(nad.config.ranges, 2):
        if one.prefix.range.overlaps(other.prefix.range):
            raise InvalidInput("ipRanges", f"{one.prefix}, {other.prefix}", "overlap: use disjoint ranges")


def _conflict(nad: ParsedNad, other: ParsedNad) -> str:
    """Return why two NADs cannot both be served; empty when they can."""
    one, another = nad.config, other.config
    if one.network_name != another.network_name or not (one.sliced or another.sliced):
        return ""
    for range_, other_range in product(one.ranges, another.ranges):
        overlap = range_.prefix.range.overlaps(other_range.prefix.range)
        if overlap and (difference := _difference(range_, other_range)):
            remedy = "make them equal, or set another network_name"
            return f"{nad.key} and {other.key} share addresses but not {difference}: {remedy}"
    return ""


def _difference(one: RangeConfig, other: RangeConfig) -> str:
    if one.prefix != other.prefix:
        return f"the range ({one.prefix}, {other.prefix})"
    if bool(one.slice_size) != bool(other.slice_size):
        return f"node_slice_size ({one.slice_size or 'none'}, {other.slice_size or 'none'})"
    if one.layout != other.layout:
        return f"node_slice_size (/{one.layout.length}, /{other.layout.length})"
    return ""


def _tables(nads: Sequence[ParsedNad]) -> tuple[SliceTablePlan, ...]:
    tables: dict[SliceTableKey, SliceTablePlan] = {}
    for nad in nads:
        for range_ in nad.config.ranges:
            key = SliceTableKey(nad.config.network_name, range_.prefix)
            table = tables.get(key) or SliceTablePlan(key=key, layout=range_.layout)
            specs, users = (*table.range_specs, range_.spec), (*table.nads, nad.key)
            tables[key] = msgspec.structs.replace(table, range_specs=specs, nads=users)
    return tuple(tables.values())


def _pool_names(nads: Sequence[ParsedNad], published: Mapping[str, SliceTableKey]) -> dict[str, SliceTableKey]:
    """Return the NodeSlicePools by name. The first range has the network's name, others have the range appended."""
    ranges = ((nad, each.prefix) for nad in nads for each in nad.config.ranges)
    needed = [(nad.pool_name, SliceTableKey(nad.config.network_name, prefix)) for nad, prefix in ranges]
    names = {name: published[name] for name, key in needed if published.get(name) == key}
    for name, key in needed:
        if names.setdefault(name, key) != key:
            names[f"{name}-{range_text(key.range)}"] = key
    return names
