"""Whether what must always be true is true: one owner, containment, consent, and alignment when settled. Pure.

Looked at from outside, across the ledger's books, NNCs, agents' reports, IPPools and Pods.

While something is under way, lists that were read one after the other may differ. So a fault counts when a second look
finds it again (`confirmed`): what was on its way has arrived by then.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence

import msgspec

from podpool.api.azure import agent_report
from podpool.api.builtin import FINISHED, AddressedPod
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, RangeSet, parse_prefix, parse_range
from podpool.inspect.audit_snapshot import AuditSnapshot, LedgerSnapshot
from podpool.inspect.consistency import PublishedNC, compare_with_ledger, published_ncs
from podpool.inspect.findings import ALIGNED, CONSENT, CONTAINMENT, ONE_OWNER, AuditFinding, list_names
from podpool.inspect.view_models import FULL, ViewModel
from podpool.whereabouts.ippool import parse_ippool
from podpool.whereabouts.ippool_owner import KnownNames, slices_in_use
from podpool.whereabouts.migration_report import MigrationInputs, Problem, build_migration_report

LEAKED = "`podpool audit --repair` releases it from a shared pool, if its Pod stays gone; from a slice its agent does."
_SURVEYED = {
    Problem.DUPLICATE: ONE_OWNER,
    Problem.LEAK: ONE_OWNER,
    Problem.LONE_RESERVATION: ONE_OWNER,
    Problem.OUTSIDE: CONTAINMENT,
    Problem.UNRECORDED: CONTAINMENT,
}


class AuditReport(ViewModel, frozen=True, kw_only=True):
    """What an audit came to."""

    clean: bool
    """Nothing is wrong, and everything could be checked."""
    findings: tuple[AuditFinding, ...] = ()
    unchecked: tuple[str, ...] = ()
    """What could not be looked at, and why."""
    nodes: int = 0
    pods: int = 0
    grants: int = 0
    entries: int = 0
    """In IPPools."""


def audit(evidence: AuditSnapshot) -> AuditReport:
    """Check one look at everything."""
    shown = published_ncs(evidence.configs)
    findings = [
        *_shared_addresses(evidence, shown),
        *_contained(evidence, shown),
        *_in_pools(evidence),
        *_slices(evidence),
        *_aligned(evidence, shown),
    ]
    unchecked = [f"the ledger's books: {evidence.problem}"] if evidence.problem else []
    if evidence.books:
        findings += compare_with_ledger(evidence.books, shown)
        findings += _in_books(evidence.books)
        unchecked += _unreadable(evidence.books)
    return AuditReport(
        clean=not (findings or unchecked),
        findings=tuple(findings),
        unchecked=tuple(unchecked),
        nodes=len(evidence.configs),
        pods=sum(_alive(pod) for pod in evidence.pods),
        grants=sum(len(each.grants) for each in shown),
        entries=sum(len(pool.spec.allocations) for pool in evidence.pools),
    )


def confirmed(first: AuditReport, second: AuditReport) -> AuditReport:
    """Keep what two looks found: the rest was under way."""
    before = {each.key for each in first.findings}
    findings = tuple(each for each in second.findings if each.key in before)
    return msgspec.structs.replace(second, findings=findings, clean=not (findings or second.unchecked))


def _unreadable(books: LedgerSnapshot) -> Iterator[str]:
    for name, state in books.subnets.items():
        if state.frozen:
            yield f"subnet {name}: the ledger recovers, and its books may still be mended"
    for name, message in books.occupancies.items():
        if not message.complete:
            yield f"subnet {name}: it is too large to be message address by address"


def _alive(pod: AddressedPod) -> bool:
    """Tell whether a Pod has its addresses for itself; one that is being deleted may have let go of them."""
    leaving = pod.status.phase in FINISHED or pod.metadata.deletion_timestamp
    return not (pod.spec.host_network or leaving)


def _shared_addresses(evidence: AuditSnapshot, shown: Sequence[PublishedNC]) -> Iterator[AuditFinding]:
    """One owner: no address on two Pods, and none on two nodes that have not let go of it."""
    pods: defaultdict[str, list[str]] = defaultdict(list)
    for pod in filter(_alive, evidence.pods):
        for address in {each.ip: None for each in pod.status.pod_ips}:
            pods[address].append(pod.key)
    for address, keys in pods.items():
        if address and len(keys) > 1:
            message = f"{list_names(keys)} have it at the same time"
            action = "Delete all of them but one; each is made again with an address of its own."
            yield AuditFinding(
                invariant=ONE_OWNER,
                code="pods-share-address",
                about=f"address/{address}",
                message=message,
                action=action,
            )
    nodes: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    for each in shown:
        for address in (*each.kept.values(), each.container.primary_ip):
            if address:
                nodes[each.container.vnet_id, address].append(each.node)
    for (_, address), names in nodes.items():
        if len(names) > 1:
            message = f"the NodeNetworkConfigs of {list_names(names)} show it, and neither has let go of it"
            yield AuditFinding(
                invariant=ONE_OWNER, code="nodes-share-address", about=f"address/{address}", message=message
            )


def _contained(evidence: AuditSnapshot, shown: Sequence[PublishedNC]) -> Iterator[AuditFinding]:
    """Containment: a Pod's address is among what its node has; entries of a pool count as well as grants."""
    kept: defaultdict[str, set[str]] = defaultdict(set)
    released: defaultdict[str, set[str]] = defaultdict(set)
    for each in shown:
        kept[each.node].update(each.kept.values())
        released[each.node].update(each.grants.values())
    entered = _entered(evidence)
    for pod in filter(_alive, evidence.pods):
        node = pod.spec.node_name
        for address in (each.ip for each in pod.status.pod_ips if each.ip and node in kept):
            if address in kept[node] or (pod.key, address) in entered:
                continue
            about = f"pod/{pod.key}"
            if address in released[node]:
                message = f"it has {address}, which its node {node} has let go of"
                yield AuditFinding(invariant=CONSENT, code="released-in-use", about=about, message=message)
            else:
                message = f"it has {address}, which is not among what its node {node} was given"
                action = "Delete the Pod: it is made again with an address of its node."
                yield AuditFinding(
                    invariant=CONTAINMENT, code="pod-outside-grants", about=about, message=message, action=action
                )


def _entered(evidence: AuditSnapshot) -> set[tuple[str, str]]:
    """Find the Pods and addresses that pools tell of."""
    found: set[tuple[str, str]] = set()
    for pool in evidence.pools:
        try:
            entries = parse_ippool(pool.spec).listed
        except InvalidInput:
            continue
        found.update((each.allocation.podref, str(each.address)) for each in entries)
    return found


def _in_books(books: LedgerSnapshot) -> Iterator[AuditFinding]:
    """One owner and containment inside the ledger: each address once, and only what the subnet may give."""
    for name, message in books.occupancies.items():
        if books.subnets[name].frozen:
            continue
        members = RangeSet.of(map(parse_range, message.members))
        seen: set[str] = set()
        for each in message.occupants:
            whose = f"node {each.node}" if each.node else "another cluster"
            for address in (*each.primaries, *each.secondaries):
                about = f"address/{address}"
                if address in seen:
                    words = f"the ledger has it twice in subnet {name}, once for {whose}"
                    action = "See `podpool ledger check`."
                    yield AuditFinding(
                        invariant=ONE_OWNER, code="ledger-two-owners", about=about, message=words, action=action
                    )
                seen.add(address)
                if parse_address(address).value not in members:
                    words = f"{whose} holds it, and subnet {name} may not give it"
                    yield AuditFinding(invariant=CONTAINMENT, code="outside-subnet", about=about, message=words)


def _in_pools(evidence: AuditSnapshot) -> Iterator[AuditFinding]:
    """Check IPPools and reservations against each other and the Pods, as whoever adopts a cluster does."""
    found = build_migration_report(
        MigrationInputs(
            pools=evidence.pools,
            reservations=evidence.reservations,
            pods=evidence.pods,
            attachments=evidence.attachments,
            nodes=[each.metadata.name for each in evidence.nodes],
        )
    )
    for each in found.findings:
        if each.problem in _SURVEYED:
            yield AuditFinding(
                invariant=_SURVEYED[each.problem],
                code=f"pool-{each.problem.name.lower().replace('_', '-')}",
                about=each.where,
                message=each.message,
                action=LEAKED * (each.problem is Problem.LEAK),
            )


def _slices(evidence: AuditSnapshot) -> Iterator[AuditFinding]:
    """Consent: no slice is given to a node while another may use it."""
    known = KnownNames(
        nodes=frozenset(each.metadata.name for each in evidence.nodes),
        networks=frozenset(each.config.network_name for each in evidence.attachments) - {""},
    )
    leased = frozenset(each.metadata.name for each in evidence.leases if each.spec.holder_identity)
    in_use = slices_in_use(evidence.pools, leased=leased, known=known)
    for pool in evidence.slice_pools:
        name = pool.metadata.name
        held = in_use.get(name if name in known.networks else "", ())
        for given in (each for each in pool.status.allocations if each.node_name):
            for each in held:
                if each.node != given.node_name and _overlap(given.slice_range, each.slice):
                    message = (
                        f"slice {given.slice_range} is given to node {given.node_name}, and {each.node} still has it"
                    )
                    yield AuditFinding(
                        invariant=CONSENT, code="slice-taken", about=f"nodeslicepool/{name}", message=message
                    )


def _overlap(text: str, held: Prefix) -> bool:
    try:
        return parse_prefix(text).range.overlaps(held.range)
    except InvalidInput:
        return False


def _aligned(evidence: AuditSnapshot, shown: Sequence[PublishedNC]) -> Iterator[AuditFinding]:
    """Alignment, of nodes that have what they asked for and follow the batch in force, in subnets that are not short.

    The reactive mode counts batches without the primary.
    """
    decided = {each.metadata.name: each.status for each in evidence.decided}
    for each in shown:
        status, report = decided.get(each.container.subnet_name), agent_report(each.config)
        batch = (status.scaler.batch or 0) if status else 0
        held, primaries = len(each.grants), int(bool(each.container.primary_ip))
        follows = report is not None and report.batch == batch
        settled = follows and each.config.spec.requested == len(each.kept) == held
        most = each.config.status.scaler.max_ip_count
        short = bool(status and status.exhausted) or each.container.status == FULL
        if not (batch and settled) or short or (most and held >= most):
            continue
        if (held + primaries) % batch and held % batch:
            message = f"it has {held} addresses and {primaries} primary, which are no whole batches of {batch}"
            yield AuditFinding(invariant=ALIGNED, code="unaligned", about=f"node/{each.node}", message=message)


def summarize(report: AuditReport) -> str:
    """Return the result of an audit in one line."""
    counts = {"node": report.nodes, "grant": report.grants, "Pod": report.pods, "IPPool entry": report.entries}
    checked = ", ".join(_count(count, what) for what, count in counts.items())
    return f"{_count(len(report.findings), 'violation') if report.findings else 'No violations'} in {checked}."


def _count(count: int, what: str) -> str:
    return f"{count} {what if count == 1 else what.replace('entry', 'entrie') + 's'}"
