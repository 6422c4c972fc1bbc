"""The report of `podpool adopt whereabouts`: what a cluster has, and what is wrong, before anything is changed.

Running Pods are authoritative. Where the allocations in IPPools differ from them, an address has leaked, or is about to
be allocated twice.
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
from podpool.whereabouts.ippool_identity import KnownNames, identify_pool
from podpool.whereabouts.nad import ParsedNad, network_statuses
from podpool.whereabouts.network_plan import plan_networks
from podpool.whereabouts.object_names import PoolIdentifier, reservation_name
from podpool.whereabouts.slice_shortage import available_slices, shortage_remedy


class Problem(enum.Enum):
    """Kinds of findings."""

    DUPLICATE = "duplicate"
    """An address has two owners."""
    LEAK = "leak"
    """An address is allocated to a Pod that does not exist, or has another address."""
    OUTSIDE = "outside"
    """An allocation is outside its pool's range, or outside what the configuration allows."""
    UNKNOWN = "unknown"
    """No NAD uses the pool, or it cannot be read."""
    LONE_RESERVATION = "reservation without entry"
    SHARED = "shared"
    """Addresses of a sliced range are allocated from the shared pool."""
    UNRECORDED = "unrecorded"
    """A running Pod's address is in no pool, so it could be allocated again."""
    INSUFFICIENT = "insufficient slices"
    """A range has fewer slices than the cluster has nodes."""


class MigrationFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One problem."""

    problem: Problem
    where: str
    """The object, as kubectl names it."""
    message: str

    def __str__(self) -> str:
        return f"{self.problem.value}: {self.where}: {self.message}"


class PodAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address that a running Pod has from a range."""

    pod: str
    """`namespace/name`."""
    node: str
    interface: str
    nad: str
    network: str
    range: RangeConfig
    address: Address


class MigrationReport(msgspec.Struct, frozen=True, kw_only=True):
    """Counts and findings."""

    pools: int
    entries: int
    reservations: int
    findings: tuple[MigrationFinding, ...] = ()
    unrecorded: tuple[PodAddress, ...] = ()
    """Addresses of running Pods that are in no pool."""

    def of(self, problem: Problem) -> tuple[MigrationFinding, ...]:
        """Return the findings of one kind."""
        return tuple(each for each in self.findings if each.problem is problem)


class MigrationInputs(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a report is about."""

    pools: Sequence[IPPool] = ()
    reservations: Sequence[Reservation] = ()
    pods: Sequence[AddressedPod] = ()
    nads: Sequence[ParsedNad] = ()
    nodes: Collection[str] = ()


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """An allocation and the pool that it is in."""

    pool: str
    identifier: PoolIdentifier
    entry: IPPoolEntry

    @property
    def text(self) -> str:
        return f"{self.entry.address} of {owner_text(self.entry.allocation)} in ippool/{self.pool}"


def build_migration_report(inputs: MigrationInputs) -> MigrationReport:
    """Compare pools, reservations, Pods and NADs."""
    networks = frozenset(each.config.network_name for each in inputs.nads) - {""}
    known = KnownNames(nodes=frozenset(inputs.nodes), networks=networks)
    records: list[_Record] = []
    findings: list[MigrationFinding] = []
    for pool in inputs.pools:
        identifier = identify_pool(pool, known)
        if identifier is None:
            findings.append(_unknown_pool(pool, f"range {pool.spec.range!r} or the name cannot be read"))
            continue
        parsed = parse_ippool(pool.spec)
        findings += _invalid_keys(pool, parsed.invalid_keys, parsed.prefix)
        records += (_Record(pool=pool.metadata.name, identifier=identifier, entry=entry) for entry in parsed.entries)
        if not _users(identifier, inputs.nads):
            findings.append(_unknown_pool(pool, "no NetworkAttachmentDefinition uses its range"))
    separate = _separate_pools(records, inputs.nads)
    unrecorded = tuple(_unrecorded(records, inputs, separate))
    findings += _duplicates(records, separate)
    findings += _leaks(records, inputs.pods)
    findings += _disallowed(records, inputs.nads)
    findings += _shared_in_sliced_ranges(records, inputs.nads)
    findings += _lone_reservations(records, inputs.reservations)
    findings += map(_unrecorded_finding, unrecorded)
    findings += _insufficient_slices(inputs)
    return MigrationReport(
        pools=len(inputs.pools),
        entries=sum(len(pool.spec.allocations) for pool in inputs.pools),
        reservations=len(inputs.reservations),
        findings=tuple(findings),
        unrecorded=unrecorded,
    )


def owner_text(allocation: Allocation) -> str:
    """Return the Pod and interface of an allocation."""
    return " ".join(filter(None, (allocation.podref or "no Pod", allocation.ifname)))


def _users(identifier: PoolIdentifier, nads: Sequence[ParsedNad]) -> list[ParsedNad]:
    """Return the NADs that use a pool: it has their range, or a slice of it."""

    def uses(range_: Prefix) -> bool:
        return range_ == identifier.range or (identifier.node != "" and range_.range.overlaps(identifier.range.range))

    same_network = (nad for nad in nads if nad.config.network_name == identifier.network)
    return [nad for nad in same_network if any(uses(each.prefix) for each in nad.config.ranges)]


def _unknown_pool(pool: IPPool, message: str) -> MigrationFinding:
    return MigrationFinding(problem=Problem.UNKNOWN, where=f"ippool/{pool.metadata.name}", message=message)


def _invalid_keys(pool: IPPool, keys: Sequence[str], prefix: Prefix) -> Iterator[MigrationFinding]:
    for key in keys:
        message = f"entry {key!r} of {owner_text(pool.spec.allocations[key])} is outside {prefix}"
        yield MigrationFinding(problem=Problem.OUTSIDE, where=f"ippool/{pool.metadata.name}", message=message)


def _separate_pools(records: Sequence[_Record], nads: Sequence[ParsedNad]) -> frozenset[PoolIdentifier]:
    """Return the shared pools whose users all disable the check for overlapping ranges."""
    shared = {record.identifier for record in records if not record.identifier.node}
    users = {identifier: _users(identifier, nads) for identifier in shared}
    checked = {identifier: [nad.config.overlap_checked for nad in nads] for identifier, nads in users.items()}
    return frozenset(identifier for identifier, checks in checked.items() if checks and not any(checks))


def _scope(identifier: PoolIdentifier, separate: Collection[PoolIdentifier]) -> PoolIdentifier | str:
    """Return within what an address has one owner: the pool, or its whole network."""
    return identifier if identifier in separate else identifier.network


def _duplicates(records: Sequence[_Record], separate: Collection[PoolIdentifier]) -> Iterator[MigrationFinding]:
    by_address: defaultdict[tuple[PoolIdentifier | str, Address], list[_Record]] = defaultdict(list)
    for record in records:
        by_address[_scope(record.identifier, separate), record.entry.address].append(record)
    for (_, address), group in by_address.items():
        if len({each.entry.owner for each in group}) > 1:
            message = f"{address} has {len(group)} owners: {'; '.join(each.text for each in group)}"
            yield MigrationFinding(problem=Problem.DUPLICATE, where=f"ippool/{group[0].pool}", message=message)


def _leaks(records: Sequence[_Record], pods: Sequence[AddressedPod]) -> Iterator[MigrationFinding]:
    phases = {pod.key: pod.status.phase for pod in pods}
    statuses = {pod.key: network_statuses(pod) for pod in pods}
    reported = {key: {address for each in found for address in each.addresses} for key, found in statuses.items()}
    for record in records:
        podref = record.entry.allocation.podref
        if podref not in phases:
            reason = "the Pod does not exist"
        elif phases[podref] in FINISHED:
            reason = f"the Pod has {phases[podref].lower()}"
        elif statuses[podref] and record.entry.address not in reported[podref]:
            reason = "the Pod does not have this address"
        else:
            continue
        message = f"{record.text}: {reason}"
        yield MigrationFinding(problem=Problem.LEAK, where=f"ippool/{record.pool}", message=message)


def _disallowed(records: Sequence[_Record], nads: Sequence[ParsedNad]) -> Iterator[MigrationFinding]:
    identifiers = dict.fromkeys(record.identifier for record in records)
    users = {identifier: _users(identifier, nads) for identifier in identifiers}
    members = {nad.key: tuple(_members(nad)) for nad in nads}
    for record in records:
        used_by = users[record.identifier]
        value = record.entry.address.value
        if used_by and not any(value in allowed for nad in used_by for allowed in members[nad.key]):
            message = f"{record.text} is outside what {', '.join(nad.key for nad in used_by)} may allocate"
            yield MigrationFinding(problem=Problem.OUTSIDE, where=f"ippool/{record.pool}", message=message)


def _shared_in_sliced_ranges(records: Sequence[_Record], nads: Sequence[ParsedNad]) -> Iterator[MigrationFinding]:
    """Count per shared pool the addresses of sliced ranges."""
    sliced = [(nad.config.network_name, each.prefix) for nad in nads for each in nad.config.ranges if each.slice_size]
    shared = ((each.pool, each.identifier.network, each.entry.address) for each in records if not each.identifier.node)
    counts = Counter(
        pool for pool, of, address in shared if any(of == network and address in r for network, r in sliced)
    )
    for pool, count in counts.items():
        effect = "the slices that contain them are not assigned until their Pods are gone"
        message = f"{count} of its addresses are in a sliced range: {effect}"
        yield MigrationFinding(problem=Problem.SHARED, where=f"ippool/{pool}", message=message)


def _insufficient_slices(inputs: MigrationInputs) -> Iterator[MigrationFinding]:
    """Compare the slices of each range with the nodes: Pods with the network do not start on a node without one."""
    nodes = len(inputs.nodes)
    for table in plan_networks(inputs.nads).tables:
        available = available_slices(table)
        if available < nodes:
            remedy = shortage_remedy(table.layout, available=available, nodes=nodes)
            size = f"{available} slices of /{table.layout.length}"
            message = f"{table.key.range} has {size} for {nodes} nodes, {nodes - available} get none: {remedy}"
            where = f"net-attach-def/{table.nads[0]}"
            yield MigrationFinding(problem=Problem.INSUFFICIENT, where=where, message=message)


def _lone_reservations(records: Sequence[_Record], reservations: Sequence[Reservation]) -> Iterator[MigrationFinding]:
    owners: defaultdict[str, set[str]] = defaultdict(set)
    for record in records:
        name = reservation_name(record.entry.address, network=record.identifier.network)
        owners[name].add(record.entry.allocation.podref)
    for reservation in reservations:
        name, podref = reservation.metadata.name, reservation.spec.podref
        if podref not in owners[name]:
            others = f": the entry is of {', '.join(sorted(owners[name]))}" if owners[name] else ""
            message = f"reserved for {podref or 'no Pod'}, which has no entry{others}"
            where = f"overlappingrangeipreservation/{name}"
            yield MigrationFinding(problem=Problem.LONE_RESERVATION, where=where, message=message)


def _unrecorded(
    records: Sequence[_Record], inputs: MigrationInputs, separate: Collection[PoolIdentifier]
) -> Iterator[PodAddress]:
    recorded = {(_scope(record.identifier, separate), record.entry.address) for record in records}
    for each in _pod_addresses(inputs):
        identifier = PoolIdentifier(range=each.range.prefix, network=each.network)
        if (_scope(identifier, separate), each.address) not in recorded:
            yield each


def _unrecorded_finding(each: PodAddress) -> MigrationFinding:
    message = f"{each.address} on {each.interface} ({each.nad}) has no entry in any pool"
    return MigrationFinding(problem=Problem.UNRECORDED, where=f"pod/{each.pod}", message=message)


def _pod_addresses(inputs: MigrationInputs) -> Iterator[PodAddress]:
    """Return the addresses that running Pods have from ranges, as Multus reports them."""
    configs = {nad.key: nad.config for nad in inputs.nads}
    for pod in inputs.pods:
        reported = () if pod.status.phase in FINISHED else network_statuses(pod)
        for status in reported:
            config = configs.get(status.name)
            if config is None:
                continue
            for address in status.addresses:
                range_ = next((each for each in config.ranges if address in each.prefix), None)
                if range_:
                    yield PodAddress(
                        pod=pod.key,
                        node=pod.spec.node_name,
                        interface=status.interface,
                        nad=status.name,
                        network=config.network_name,
                        range=range_,
                        address=address,
                    )


def _members(nad: ParsedNad) -> Iterator[RangeSet]:
    for range_ in nad.config.ranges:
        with suppress(InvalidInput):
            yield range_.spec.members
