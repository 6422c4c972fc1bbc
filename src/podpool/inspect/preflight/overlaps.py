"""Checks that no address of a subnet or a secondary network is in use for something else. Pure."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress

import msgspec

from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Range, RangeSet, find_prefix, parse_exclusion, parse_range
from podpool.inspect.preflight.report import PreflightFinding, Severity, finding, names, unread
from podpool.inspect.preflight.snapshot import PreflightSnapshot
from podpool.whereabouts.config import RangeConfig
from podpool.whereabouts.nad import parse_nad

CHECK = "overlaps"


class UsedRange(msgspec.Struct, frozen=True, kw_only=True):
    """Addresses, and whose they are."""

    range: Range
    owner: str
    group: str
    """Ranges of one group may overlap: NADs of one network do."""
    remedy: str = ""
    severity: Severity = Severity.ERROR


def check_overlaps(snapshot: PreflightSnapshot, *, subnets: Collection[str]) -> Iterator[PreflightFinding]:
    """Compare the named subnets and NADs with each other, and with Services, Node addresses and podCIDRs."""
    problems = {
        "nodes": snapshot.nodes.problem,
        "services": snapshot.services.problem,
        "servicecidrs": snapshot.service_ranges.problem,
        "nads": snapshot.nads.problem,
    }
    for what, problem in problems.items():
        if problem:
            yield unread(CHECK, what, problem)
    own = [*_subnets(snapshot, subnets), *_nads(snapshot)]
    found = list(_overlaps(own, [*_services(snapshot), *_nodes(snapshot)]))
    yield from found
    if not found and not all(problems.values()):
        count = len({each.owner for each in own})
        message = f"{count} subnets and secondary networks overlap with nothing else"
        yield finding(CHECK, Severity.OK, "ranges", message)


def _overlaps(own: list[UsedRange], others: list[UsedRange]) -> Iterator[PreflightFinding]:
    pairs = [(one, other) for one in own for other in others if one.range.overlaps(other.range)]
    pairs += [
        (one, other)
        for place, one in enumerate(own)
        for other in own[place + 1 :]
        if one.group != other.group and one.range.overlaps(other.range)
    ]
    shared = defaultdict[tuple[str, str, Severity, str], list[str]](list)
    for one, other in pairs:
        place = shared[one.owner, other.group, other.severity, other.remedy]
        text = f"{other.owner} ({_shown(other.range)})"
        if text not in place:
            place.append(text)
    for (owner, _, severity, remedy), texts in sorted(shared.items()):
        yield finding(CHECK, severity, owner, f"has addresses of {names(texts)}", remedy)


def _shown(found: Range) -> str:
    return str(found) if found.size > 1 else str(found).partition("-")[0]


def _subnets(snapshot: PreflightSnapshot, subnets: Collection[str]) -> Iterator[UsedRange]:
    """Return what can be granted: an excluded address may be used for anything."""
    for name, occupancy in (snapshot.ledger.occupancies if snapshot.ledger else {}).items():
        for each in occupancy.members if name in subnets else ():
            with suppress(InvalidInput):
                remedy = f"exclude the range from one of them, or use another CIDR for subnet {name}"
                yield UsedRange(range=parse_range(each), owner=f"subnet/{name}", group="subnets", remedy=remedy)


def _nads(snapshot: PreflightSnapshot) -> Iterator[UsedRange]:
    for each in snapshot.nads.value:
        with suppress(InvalidInput):  # the controller reports NADs that cannot be parsed
            parsed = parse_nad(each)
            for one in parsed.config.ranges if parsed else ():
                for used in _assigned(one):
                    remedy = "use another range in one of them, or `exclude`"
                    yield UsedRange(range=used, owner=f"nad/{each.key}", group="nads", remedy=remedy)


def _assigned(range_: RangeConfig) -> tuple[Range, ...]:
    """Return the addresses of a range that Pods may get."""
    whole = range_.prefix.range
    first = range_.start.value if range_.start else whole.first
    last = range_.end.value if range_.end else whole.last
    excluded = RangeSet.of(parse_exclusion(each) for each in range_.exclude)
    return (RangeSet.of([Range(whole.family, first, max(first, last))]) - excluded).ranges


def _services(snapshot: PreflightSnapshot) -> Iterator[UsedRange]:
    remedy = "kube-proxy takes these addresses: use another CIDR for Pods"
    for each in snapshot.service_ranges.value:
        for cidr in each.spec.cidrs:
            yield from _cidr(cidr, owner=f"the Service range {each.metadata.name}", group="services", remedy=remedy)
    for service in snapshot.services.value:
        for address in service.addresses:
            yield from _address(address, owner=f"Service {service.key}", group="services", remedy=remedy)


def _nodes(snapshot: PreflightSnapshot) -> Iterator[UsedRange]:
    exclude = "exclude the addresses of Nodes from the subnet or range"
    for each in snapshot.nodes.value:
        name = each.metadata.name
        for address in each.status.addresses:
            if address.type in {"InternalIP", "ExternalIP"}:
                yield from _address(address.address, owner=f"Node {name}", group="nodes", remedy=exclude)
        for cidr in each.cidrs:
            remedy = "if another plugin assigns addresses of podCIDRs, use another CIDR, or remove that plugin"
            for used in _cidr(cidr, owner=f"the podCIDR of Node {name}", group="podCIDRs", remedy=remedy):
                yield msgspec.structs.replace(used, severity=Severity.WARNING)


def _cidr(text: str, *, owner: str, group: str, remedy: str) -> Iterable[UsedRange]:
    prefix = find_prefix(text)
    return [] if prefix is None else [UsedRange(range=prefix.range, owner=owner, group=group, remedy=remedy)]


def _address(text: str, *, owner: str, group: str, remedy: str) -> Iterator[UsedRange]:
    with suppress(InvalidInput):
        address = parse_address(text)
        single = Range(address.family, address.value, address.value)
        yield UsedRange(range=single, owner=owner, group=group, remedy=remedy)
