"""What `podpool adopt whereabouts` says about a cluster before anything is changed: what is there, and what is wrong.

Running Pods are the truth, the entries are what Whereabouts remembers of it. Where the two differ an address is lost
to everybody (a leak), or is about to be given twice.
"""

import enum
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress

import msgspec

from podpool.api.builtin import FINISHED, AddressedPod
from podpool.api.whereabouts import Allocation, IPPool
from podpool.api.whereabouts import OverlappingRangeIPReservation as Reservation
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, RangeSet
from podpool.whereabouts.config import RangeConfig
from podpool.whereabouts.ippool import IPPoolEntry, parse_ippool
from podpool.whereabouts.ippool_owner import KnownNames, identify_pool
from podpool.whereabouts.nads import ParsedNad
from podpool.whereabouts.network_status import network_statuses
from podpool.whereabouts.object_names import PoolIdentifier, reservation_name


class Problem(enum.Enum):
    """What is wrong."""

    DUPLICATE = "duplicate"
    """An address has two owners."""
    LEAK = "leak"
    """An address is kept for a Pod that is not there, or has another."""
    OUTSIDE = "outside"
    """An entry leads out of its pool's range, or out of what the configuration allows."""
    UNKNOWN = "unknown"
    """A pool that no attachment asks for, or that cannot be read."""
    LONE_RESERVATION = "reservation without entry"
    SHARED = "shared"
    """Addresses of a range that is cut into slices are in use from the pool that all nodes share."""
    UNRECORDED = "unrecorded"
    """A running Pod's address has no entry: it would be given to another."""


class MigrationFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    trouble: Problem
    where: str
    """The object, as kubectl names it."""
    told: str

    def __str__(self) -> str:
        return f"{self.trouble.value}: {self.where}: {self.told}"


class PodAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address of a range that a running Pod has."""

    pod: str
    """`namespace/name`."""
    node: str
    interface: str
    attachment: str
    network: str
    wanted: RangeConfig
    address: Address


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found."""

    pools: int
    entries: int
    reservations: int
    findings: tuple[MigrationFinding, ...] = ()
    unrecorded: tuple[PodAddress, ...] = ()
    """What running Pods have and no pool knows of."""

    def of(self, trouble: Problem) -> tuple[MigrationFinding, ...]:
        """Pick the findings of one kind."""
        return tuple(each for each in self.findings if each.trouble is trouble)


class MigrationInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a build_migration_report looks at."""

    pools: Sequence[IPPool] = ()
    reservations: Sequence[Reservation] = ()
    pods: Sequence[AddressedPod] = ()
    attachments: Sequence[ParsedNad] = ()
    nodes: Collection[str] = ()


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """An entry and where it stands."""

    pool: str
    place: PoolIdentifier
    entry: IPPoolEntry

    @property
    def told(self) -> str:
        return f"{self.entry.address} of {owner_text(self.entry.allocation)} in ippool/{self.pool}"


def build_migration_report(objects: MigrationInputs) -> MigrationReport:
    """Look at everything, and change nothing."""
    networks = frozenset(each.config.network_name for each in objects.attachments) - {""}
    known = KnownNames(nodes=frozenset(objects.nodes), networks=networks)
    records: list[_Record] = []
    findings: list[MigrationFinding] = []
    for pool in objects.pools:
        place = identify_pool(pool, known)
        if place is None:
            told = f"range {pool.spec.range!r} or the name cannot be read"
            findings.append(MigrationFinding(trouble=Problem.UNKNOWN, where=f"ippool/{pool.metadata.name}", told=told))
            continue
        entries = parse_ippool(pool.spec)
        findings += _strays(pool, entries.outside, entries.prefix)
        records += (_Record(pool=pool.metadata.name, place=place, entry=entry) for entry in entries.listed)
        if not _asking(place, objects.attachments):
            told = "no network attachment asks for its range"
            findings.append(MigrationFinding(trouble=Problem.UNKNOWN, where=f"ippool/{pool.metadata.name}", told=told))
    apart = _apart(records, objects.attachments)
    findings += _duplicates(records, apart)
    findings += _leaks(records, objects.pods)
    findings += _disallowed(records, objects.attachments)
    findings += _under_slices(records, objects.attachments)
    findings += _lone_reservations(records, objects.reservations)
    unrecorded = tuple(_unrecorded(records, objects, apart))
    findings += map(_told_unrecorded, unrecorded)
    return MigrationReport(
        pools=len(objects.pools),
        entries=sum(len(pool.spec.allocations) for pool in objects.pools),
        reservations=len(objects.reservations),
        findings=tuple(findings),
        unrecorded=unrecorded,
    )


def owner_text(allocation: Allocation) -> str:
    """Name an entry's owner."""
    return " ".join(filter(None, (allocation.podref or "nobody", allocation.ifname)))


def _asking(place: PoolIdentifier, attachments: Sequence[ParsedNad]) -> list[ParsedNad]:
    """Find the attachments that a pool is for: theirs is the range, or its slice is cut from it."""
    return [
        each
        for each in attachments
        if each.config.network_name == place.network
        and any(
            wanted.prefix == place.range or (place.node and wanted.prefix.range.overlaps(place.range.range))
            for wanted in each.config.ranges
        )
    ]


def _strays(pool: IPPool, keys: Sequence[str], prefix: Prefix) -> Iterator[MigrationFinding]:
    for key in keys:
        told = f"entry {key!r} of {owner_text(pool.spec.allocations[key])} leads out of {prefix}"
        yield MigrationFinding(trouble=Problem.OUTSIDE, where=f"ippool/{pool.metadata.name}", told=told)


def _apart(records: Sequence[_Record], attachments: Sequence[ParsedNad]) -> frozenset[PoolIdentifier]:
    """Find the pools whose addresses are their own, whichever other ranges have them: all who ask want it so."""
    asked = {place: _asking(place, attachments) for place in {record.place for record in records} if not place.node}
    return frozenset(
        place for place, asking in asked.items() if asking and not any(each.config.overlap_checked for each in asking)
    )


def _realm(place: PoolIdentifier, apart: Collection[PoolIdentifier]) -> PoolIdentifier | str:
    """Tell within what an address has one owner: the pool, or its whole network."""
    return place if place in apart else place.network


def _duplicates(records: Sequence[_Record], apart: Collection[PoolIdentifier]) -> Iterator[MigrationFinding]:
    holders: defaultdict[tuple[PoolIdentifier | str, Address], list[_Record]] = defaultdict(list)
    for record in records:
        holders[_realm(record.place, apart), record.entry.address].append(record)
    for (_, address), held in holders.items():
        if len({each.entry.owned_by for each in held}) > 1:
            told = f"{address} has {len(held)} owners: {'; '.join(each.told for each in held)}"
            yield MigrationFinding(trouble=Problem.DUPLICATE, where=f"ippool/{held[0].pool}", told=told)


def _leaks(records: Sequence[_Record], pods: Sequence[AddressedPod]) -> Iterator[MigrationFinding]:
    phases = {pod.key: pod.status.phase for pod in pods}
    shown = {pod.key: {address for each in network_statuses(pod) for address in each.addresses} for pod in pods}
    for record in records:
        podref = record.entry.allocation.podref
        if podref not in phases:
            why = "there is no such Pod"
        elif phases[podref] in FINISHED:
            why = f"the Pod has {phases[podref].lower()}"
        elif shown[podref] and record.entry.address not in shown[podref]:
            why = "the Pod does not have this address"
        else:
            continue
        yield MigrationFinding(trouble=Problem.LEAK, where=f"ippool/{record.pool}", told=f"{record.told}: {why}")


def _disallowed(records: Sequence[_Record], attachments: Sequence[ParsedNad]) -> Iterator[MigrationFinding]:
    places = dict.fromkeys(record.place for record in records)
    asked = {place: _asking(place, attachments) for place in places}
    members = {each.key: tuple(_members(each)) for each in attachments}
    for record in records:
        asking = asked[record.place]
        value = record.entry.address.value
        if asking and not any(value in allowed for each in asking for allowed in members[each.key]):
            told = f"{record.told} is outside of what {', '.join(each.key for each in asking)} may give"
            yield MigrationFinding(trouble=Problem.OUTSIDE, where=f"ippool/{record.pool}", told=told)


def _under_slices(records: Sequence[_Record], attachments: Sequence[ParsedNad]) -> Iterator[MigrationFinding]:
    """Count, pool by pool, what is shared of ranges that are cut."""
    cut = [
        (each.config.network_name, wanted.prefix)
        for each in attachments
        for wanted in each.config.ranges
        if wanted.slice_size
    ]
    shared = Counter(
        record.pool
        for record in records
        if not record.place.node
        and any(network == record.place.network and record.entry.address in range_ for network, range_ in cut)
    )
    for pool, count in shared.items():
        told = f"{count} of its addresses are of a range that is cut: slices with them wait until their Pods are gone"
        yield MigrationFinding(trouble=Problem.SHARED, where=f"ippool/{pool}", told=told)


def _lone_reservations(records: Sequence[_Record], reservations: Sequence[Reservation]) -> Iterator[MigrationFinding]:
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for record in records:
        name = reservation_name(record.entry.address, network=record.place.network)
        owners[name].add(record.entry.allocation.podref)
    for reservation in reservations:
        name, podref = reservation.metadata.name, reservation.spec.podref
        if podref not in owners[name]:
            others = f": the entry is of {', '.join(sorted(owners[name]))}" if owners[name] else ""
            told = f"kept for {podref or 'nobody'}, which has no entry{others}"
            where = f"overlappingrangeipreservation/{name}"
            yield MigrationFinding(trouble=Problem.LONE_RESERVATION, where=where, told=told)


def _unrecorded(
    records: Sequence[_Record], objects: MigrationInputs, apart: Collection[PoolIdentifier]
) -> Iterator[PodAddress]:
    held = {(_realm(record.place, apart), record.entry.address) for record in records}
    for each in _lent(objects):
        place = PoolIdentifier(range=each.wanted.prefix, network=each.network)
        if (_realm(place, apart), each.address) not in held:
            yield each


def _told_unrecorded(lent: PodAddress) -> MigrationFinding:
    told = f"{lent.address} on {lent.interface} ({lent.attachment}) has no entry in any pool"
    return MigrationFinding(trouble=Problem.UNRECORDED, where=f"pod/{lent.pod}", told=told)


def _lent(objects: MigrationInputs) -> Iterator[PodAddress]:
    """Find the addresses of ranges that running Pods have, by what Multus says of them."""
    attachments = {each.key: each.config for each in objects.attachments}
    for pod in objects.pods:
        shown = [] if pod.status.phase in FINISHED else network_statuses(pod)
        running = [each for each in shown if each.name in attachments]
        for status in running:
            config = attachments[status.name]
            for address in status.addresses:
                for wanted in config.ranges:
                    if wanted.prefix.family is address.family and address.value in wanted.prefix.range:
                        yield PodAddress(
                            pod=pod.key,
                            node=pod.spec.node_name,
                            interface=status.interface,
                            attachment=status.name,
                            network=config.network_name,
                            wanted=wanted,
                            address=address,
                        )
                        break


def _members(attachment: ParsedNad) -> Iterator[RangeSet]:
    for wanted in attachment.config.ranges:
        with suppress(InvalidInput):
            yield wanted.allocation.members
