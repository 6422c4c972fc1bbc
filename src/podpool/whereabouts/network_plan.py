"""Which slice tables a cluster's attachments need: one for each network and range, whoever shares it.

What must hold: within a network no address is in two tables, nor in a table and in a range without slices. Where two
attachments would have it so, the one that came later is refused, by a sentence that names both; the others go on.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import combinations

import msgspec

from podpool.core.errors import InvalidInput
from podpool.core.range_spec import RangeSpec
from podpool.core.ranges import Prefix
from podpool.core.slice_table import SliceLayout
from podpool.whereabouts.config import RangeConfig
from podpool.whereabouts.nads import ParsedNad
from podpool.whereabouts.object_names import range_text


class SliceTableKey(msgspec.Struct, frozen=True, order=True):
    """What a slice table is one of."""

    network: str
    range: Prefix


class SliceTablePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A slice table that is needed."""

    key: SliceTableKey
    cut: SliceLayout
    allowed: tuple[RangeSpec, ...] = ()
    """What each attachment may give from the range."""
    attachments: tuple[str, ...] = ()


class NadRejection(msgspec.Struct, frozen=True, kw_only=True):
    """Why an attachment gets no slices, or nothing new of a range that is cut; told on all that are named."""

    refused: str
    attachments: tuple[str, ...]
    reason: str
    sliced: bool = True
    """It asks for slices; else it shares its range."""


class NetworkPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What the attachments of a cluster need."""

    plans: tuple[SliceTablePlan, ...] = ()
    slice_pools: Mapping[str, SliceTableKey] = {}
    """NodeSlicePools by name, and which table each shows."""
    refusals: tuple[NadRejection, ...] = ()


def plan_networks(
    attachments: Collection[ParsedNad], *, published: Mapping[str, SliceTableKey] | None = None
) -> NetworkPlan:
    """Find the tables that are needed; those that are published already come before newcomers."""
    published = published or {}
    running = set(published.values())
    accepted: list[ParsedNad] = []
    refusals: list[NadRejection] = []
    for attachment in sorted(attachments, key=lambda each: (not _runs(each, running), each.created, each.key)):
        refusal = _refusal(attachment, accepted)
        if refusal:
            refusals.append(refusal)
        else:
            accepted.append(attachment)
    sliced = [attachment for attachment in accepted if attachment.config.sliced]
    return NetworkPlan(plans=_plans(sliced), slice_pools=_pool_names(sliced, published), refusals=tuple(refusals))


def _runs(attachment: ParsedNad, running: Collection[SliceTableKey]) -> bool:
    keys = [SliceTableKey(attachment.config.network_name, each.prefix) for each in attachment.config.ranges]
    return attachment.config.sliced and all(key in running for key in keys)


def _refusal(attachment: ParsedNad, accepted: Sequence[ParsedNad]) -> NadRejection | None:
    try:
        if attachment.config.sliced:
            _check(attachment)
    except InvalidInput as error:
        return NadRejection(refused=attachment.key, attachments=(attachment.key,), reason=str(error))
    for other in accepted:
        reason = _clash(attachment, other)
        if reason:
            named, sliced = (other.key, attachment.key), attachment.config.sliced
            return NadRejection(refused=attachment.key, attachments=named, reason=reason, sliced=sliced)
    return None


def _check(attachment: ParsedNad) -> None:
    """Refuse what could not serve a single Pod."""
    _ = attachment.pool_name
    attachment.config.check_sizes()
    for wanted in attachment.config.ranges:
        _ = wanted.cut, wanted.allocation.members
    for one, other in combinations(attachment.config.ranges, 2):
        if one.prefix.range.overlaps(other.prefix.range):
            raise InvalidInput("ipRanges", f"{one.prefix}, {other.prefix}", "overlap: give each its own addresses")


def _clash(attachment: ParsedNad, other: ParsedNad) -> str:
    """Say why two attachments cannot both be served; empty when they can."""
    if attachment.config.network_name != other.config.network_name:
        return ""
    if not (attachment.config.sliced or other.config.sliced):
        return ""
    for wanted in attachment.config.ranges:
        for theirs in other.config.ranges:
            if wanted.prefix.range.overlaps(theirs.prefix.range):
                difference = _difference(wanted, theirs)
                if difference:
                    cure = "make them equal, or set another network_name"
                    return f"{attachment.key} and {other.key} share addresses but not {difference}: {cure}"
    return ""


def _difference(one: RangeConfig, other: RangeConfig) -> str:
    if one.prefix != other.prefix:
        return f"the range ({one.prefix}, {other.prefix})"
    if bool(one.slice_size) != bool(other.slice_size):
        return f"node_slice_size ({one.slice_size or 'none'}, {other.slice_size or 'none'})"
    if one.cut != other.cut:
        return f"node_slice_size (/{one.cut.length}, /{other.cut.length})"
    return ""


def _plans(attachments: Sequence[ParsedNad]) -> tuple[SliceTablePlan, ...]:
    plans: dict[SliceTableKey, SliceTablePlan] = {}
    for attachment in attachments:
        for wanted in attachment.config.ranges:
            key = SliceTableKey(attachment.config.network_name, wanted.prefix)
            plan = plans.get(key) or SliceTablePlan(key=key, cut=wanted.cut)
            plans[key] = msgspec.structs.replace(
                plan, allowed=(*plan.allowed, wanted.allocation), attachments=(*plan.attachments, attachment.key)
            )
    return tuple(plans.values())


def _pool_names(attachments: Sequence[ParsedNad], published: Mapping[str, SliceTableKey]) -> dict[str, SliceTableKey]:
    """Name the NodeSlicePools: the first range has the network's name, every further one its range's beside it."""
    wanted = [
        (attachment.pool_name, SliceTableKey(attachment.config.network_name, each.prefix))
        for attachment in attachments
        for each in attachment.config.ranges
    ]
    names = {name: published[name] for name, key in wanted if published.get(name) == key}
    for name, key in wanted:
        if names.setdefault(name, key) != key:
            names[f"{name}-{range_text(key.range)}"] = key
    return names
