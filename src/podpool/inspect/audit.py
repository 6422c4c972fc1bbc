"""Audit of the invariants across ledger, NodeNetworkConfigs, agent reports, slices, IPPools and Pods. Pure.

It checks one owner, containment, consent and alignment. Lists are read one after the other, so changes in flight look
like differences: a finding counts only when a second snapshot shows it again (`confirmed`).
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from podpool.api.azure import agent_report
from podpool.api.builtin import FINISHED, AddressedPod
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import RangeSet, parse_range
from podpool.inspect.audit_snapshot import AuditSnapshot, LedgerSnapshot, PublishedNC, published_ncs
from podpool.inspect.ledger_comparison import (
    ALIGNED,
    CONSENT,
    CONTAINMENT,
    ONE_OWNER,
    AuditFinding,
    compare_with_ledger,
    list_names,
)
from podpool.inspect.node_slices import slices_of_nodes
from podpool.inspect.slice_audit import audit_slices
from podpool.inspect.view_models import FULL, ViewModel
from podpool.whereabouts.adoption_findings import MigrationInputs, Problem, build_migration_report
from podpool.whereabouts.ippool import parse_ippool

RELEASE_LEAK = (
    "`podpool audit --repair` releases it from a shared range once the Pod is gone; in a slice, its agent does."
)
_INVARIANT_OF = {
    Problem.DUPLICATE: ONE_OWNER,
    Problem.LEAK: ONE_OWNER,
    Problem.LONE_RESERVATION: ONE_OWNER,
    Problem.OUTSIDE: CONTAINMENT,
    Problem.UNRECORDED: CONTAINMENT,
}


class AuditReport(ViewModel, frozen=True, kw_only=True):
    """Result of an audit."""

    clean: bool
    """No findings, and everything could be checked."""
    findings: tuple[AuditFinding, ...] = ()
    unchecked: tuple[str, ...] = ()
    """What could not be checked, and why."""
    nodes: int = 0
    pods: int = 0
    grants: int = 0
    entries: int = 0
    """Allocations in IPPools."""
    slices: int = 0


def audit(snapshot: AuditSnapshot) -> AuditReport:
    """Check one snapshot."""
    published = published_ncs(snapshot.nncs)
    findings = [
        *_shared_addresses(snapshot, published),
        *_pods_within_grants(snapshot, published),
        *_in_ippools(snapshot),
        *audit_slices(snapshot),
        *_aligned(snapshot, published),
    ]
    unchecked = [f"ledger: {snapshot.problem}"] if snapshot.problem else []
    if snapshot.ledger_state:
        findings += compare_with_ledger(snapshot.ledger_state, published)
        findings += _in_ledger(snapshot.ledger_state)
        unchecked += _unreadable(snapshot.ledger_state)
    return AuditReport(
        clean=not (findings or unchecked),
        findings=tuple(findings),
        unchecked=tuple(unchecked),
        nodes=len({each.metadata.name for each in (*snapshot.nncs, *snapshot.node_slices)}),
        pods=sum(_alive(pod) for pod in snapshot.pods),
        grants=sum(len(each.grants) for each in published),
        entries=sum(len(pool.spec.allocations) for pool in snapshot.pools),
        slices=len(slices_of_nodes(snapshot.node_slices)),
    )


def confirmed(first: AuditReport, second: AuditReport) -> AuditReport:
    """Keep the findings of both snapshots; the others were changes in flight."""
    before = {each.key for each in first.findings}
    findings = tuple(each for each in second.findings if each.key in before)
    return msgspec.structs.replace(second, findings=findings, clean=not (findings or second.unchecked))


def _unreadable(ledger: LedgerSnapshot) -> Iterator[str]:
    for name, state in ledger.subnets.items():
        if state.frozen:
            yield f"subnet {name}: the ledger is in recovery, and its data may still change"
    for name, message in ledger.occupancies.items():
        if not message.complete:
            yield f"subnet {name}: too large to be listed by address"


def _alive(pod: AddressedPod) -> bool:
    """Return whether a Pod owns its addresses; one that is being deleted may have released them."""
    leaving = pod.status.phase in FINISHED or pod.metadata.deletion_timestamp
    return not (pod.spec.host_network or leaving)


def _shared_addresses(snapshot: AuditSnapshot, published: Sequence[PublishedNC]) -> Iterator[AuditFinding]:
    """One owner: no address on two Pods, nor on two nodes that have not released it."""
    pods: defaultdict[str, list[str]] = defaultdict(list)
    for pod in filter(_alive, snapshot.pods):
        for address in {each.ip: None for each in pod.status.pod_ips}:
            pods[address].append(pod.key)
    for address, keys in pods.items():
        if address and len(keys) > 1:
            message = f"{list_names(keys)} have it at the same time"
            action = "Delete all Pods but one; their controllers recreate them with new addresses."
            yield AuditFinding(ONE_OWNER, "pods-share-address", f"address/{address}", message, action)
    nodes: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in published:
        for address in (*each.kept.values(), each.nc.primary_ip):
            if address:
                nodes[each.nc.vnet_id, address].append(each.node)
    for (_, address), names in nodes.items():
        if len(names) > 1:
            message = f"the NodeNetworkConfigs of {list_names(names)} list it, and none has released it"
            yield AuditFinding(ONE_OWNER, "nodes-share-address", f"address/{address}", message)


def _pods_within_grants(snapshot: AuditSnapshot, published: Sequence[PublishedNC]) -> Iterator[AuditFinding]:
    """Containment: a Pod's address is among its node's grants or IPPool entries."""
    kept: defaultdict[str, set[str]] = defaultdict(set)
    released: defaultdict[str, set[str]] = defaultdict(set)
    for each in published:
        kept[each.node].update(each.kept.values())
        released[each.node].update(each.grants.values())
    entries = _ippool_entries(snapshot)
    for pod in filter(_alive, snapshot.pods):
        node = pod.spec.node_name
        for address in (each.ip for each in pod.status.pod_ips if each.ip and node in kept):
            if address in kept[node] or (pod.key, address) in entries:
                continue
            about = f"pod/{pod.key}"
            if address in released[node]:
                message = f"it has {address}, which its node {node} has released"
                yield AuditFinding(CONSENT, "released-in-use", about, message)
            else:
                message = f"it has {address}, which is not granted to its node {node}"
                action = "Delete the Pod: its controller recreates it with an address of its node."
                yield AuditFinding(CONTAINMENT, "pod-outside-grants", about, message, action)


def _ippool_entries(snapshot: AuditSnapshot) -> set[tuple[str, str]]:
    """Return (Pod, address) pairs of all IPPools."""
    found: set[tuple[str, str]] = set()
    for pool in snapshot.pools:
        try:
            entries = parse_ippool(pool.spec).entries
        except InvalidInput:
            continue
        found.update((each.allocation.podref, str(each.address)) for each in entries)
    return found


def _in_ledger(ledger: LedgerSnapshot) -> Iterator[AuditFinding]:
    """One owner and containment in the ledger: each address once, and only addresses of the subnet."""
    for name, message in ledger.occupancies.items():
        if ledger.subnets[name].frozen:
            continue
        members = RangeSet.of(map(parse_range, message.members))
        seen: set[str] = set()
        for each in message.occupants:
            whose = f"node {each.node}" if each.node else "another cluster"
            for address in (*each.primaries, *each.secondaries):
                about = f"address/{address}"
                if address in seen:
                    words = f"the ledger has two owners for it in subnet {name}, one is {whose}"
                    action = "See `podpool ledger check`."
                    yield AuditFinding(ONE_OWNER, "ledger-two-owners", about, words, action)
                seen.add(address)
                if parse_address(address).value not in members:
                    words = f"{whose} holds it, but it is not an address of subnet {name}"
                    yield AuditFinding(CONTAINMENT, "outside-subnet", about, words)


def _in_ippools(snapshot: AuditSnapshot) -> Iterator[AuditFinding]:
    """Check IPPools and reservations against each other and against Pods, as a migration does."""
    nodes = [each.metadata.name for each in snapshot.nodes]
    inputs = MigrationInputs(
        pools=snapshot.pools, reservations=snapshot.reservations, pods=snapshot.pods, nads=snapshot.nads, nodes=nodes
    )
    for each in build_migration_report(inputs).findings:
        if each.problem in _INVARIANT_OF:
            code = f"pool-{each.problem.name.lower().replace('_', '-')}"
            action = RELEASE_LEAK if each.problem is Problem.LEAK else ""
            yield AuditFinding(_INVARIANT_OF[each.problem], code, each.where, each.message, action)


def _aligned(snapshot: AuditSnapshot, published: Sequence[PublishedNC]) -> Iterator[AuditFinding]:
    """Alignment of nodes that have what they requested and use the batch in force.

    Skipped at the node's maximum, and if the subnet is exhausted or does not have enough free addresses.
    The reactive mode counts batches without the primary.
    """
    decided = {each.metadata.name: each.status for each in snapshot.cluster_subnets}
    for each in published:
        status, report = decided.get(each.nc.subnet_name), agent_report(each.nnc)
        batch = (status.scaler.batch or 0) if status else 0
        held, primaries = len(each.grants), int(bool(each.nc.primary_ip))
        follows = report is not None and report.batch == batch
        settled = follows and each.nnc.spec.requested == len(each.kept) == held
        most = each.nnc.status.scaler.max_ip_count
        short = bool(status and status.exhausted) or each.nc.status == FULL
        if not (batch and settled) or short or (most and held >= most):
            continue
        if (held + primaries) % batch and held % batch:
            message = f"it has {held} addresses and {primaries} primary, which is not a multiple of batch {batch}"
            yield AuditFinding(ALIGNED, "unaligned", f"node/{each.node}", message)


def summarize(report: AuditReport) -> str:
    """Return the result of an audit in one line."""
    counts = {"node": report.nodes, "grant": report.grants, "Pod": report.pods, "IPPool entry": report.entries}
    counts |= {"slice": report.slices} if report.slices else {}
    checked = ", ".join(_counted(count, what) for what, count in counts.items())
    return f"{_counted(len(report.findings), 'violation') if report.findings else 'No violations'} in {checked}."


def _counted(count: int, what: str) -> str:
    return f"{count} {what if count == 1 else what.replace('entry', 'entrie') + 's'}"
