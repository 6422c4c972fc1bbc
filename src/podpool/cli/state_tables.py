"""Tables of a cluster's state. Pure functions."""

from collections.abc import Iterable

from podpool.cli.output import BAD, FAINT, GOOD, WARNING, StyledText, TextTable, age, joined
from podpool.inspect.ledger_comparison import RULES, AuditFinding
from podpool.inspect.node_slices import NodeSliceState
from podpool.inspect.repair import Repair
from podpool.inspect.secondary_networks import NetworkView, SliceView
from podpool.inspect.view_models import NodeView, PodView, SubnetView
from podpool.ledger.admin_messages import AllocationPeriod, PodUsage, ReportedPodUsage

_STATES = {"assigned": GOOD, "waiting": BAD, "unscheduled": WARNING}
"""Colors of a Pod's state; others are faint."""


_SLICE_STATES = {
    NodeSliceState.IN_USE: GOOD,
    NodeSliceState.RETURNING: WARNING,
    NodeSliceState.SUSPENDED: WARNING,
    NodeSliceState.LOST: BAD,
    NodeSliceState.FORMER: WARNING,
}


def subnet_table(subnets: Iterable[SubnetView]) -> TextTable:
    """Return address usage per subnet."""
    head = ("SUBNET", "CIDR", "CAPACITY", "RESERVED", "PODS", "IDLE", "COOLING", "FREE", "BATCH", "STATE")
    wide = ("NODES", "PRIMARIES", "OTHER-CLUSTERS", "WAITING", "BUFFER", "EXCLUDED")
    rows = [
        (
            *(each.name, joined(each.cidrs), each.capacity or "?", each.reserved, each.assigned, each.idle),
            *((each.cooling_down, each.capacity - each.reserved) if each.capacity else ("?", "?")),
            *(each.batch or "?", _subnet_state(each), each.nodes, each.primaries, each.other_clusters),
            *(each.pods_waiting, f"{each.buffer:g}", each.excluded),
        )
        for each in subnets
    ]
    return TextTable((*head, *wide), rows, wide=len(wide))


def _subnet_state(view: SubnetView) -> StyledText:
    full = bool(view.pods_waiting and view.addresses_waiting)
    words = ["full"] * full + [word for word in ("exhausted", "frozen", "draining") if getattr(view, word)]
    return StyledText(",".join(words), BAD if full or view.frozen else WARNING) if words else StyledText("ok", GOOD)


def node_table(nodes: Iterable[NodeView], *, now: float, ledger: bool = True) -> TextTable:
    """Return addresses and waiting Pods per node; without a `ledger` a node has no subnet."""
    head = ("NODE", "SUBNET", "PODS", "IDLE", "PENDING", "RELEASING", "WAITING", "STATE")
    wide = ("PRIMARIES", "BATCH", "LONGEST-WAIT", "WAITING-PODS")
    rows = [
        (
            *(each.name, each.subnet or "-", each.assigned, each.idle, each.pending, each.releasing),
            StyledText(str(each.waiting), BAD) if each.waiting else each.waiting,
            *(_node_state(each, ledger=ledger), each.primaries, each.batch or "-"),
            joined(age(one.since, now=now) for one in each.waiting_pods[:1]),
            joined([*(one.pod for one in each.waiting_pods), _more(each.waiting - len(each.waiting_pods))]),
        )
        for each in sorted(nodes, key=lambda each: each.name)
    ]
    return TextTable((*head, *wide), rows, wide=len(wide))


def sliced_node_table(nodes: Iterable[NodeView], *, now: float) -> TextTable:
    """Return slices and waiting Pods per node of a cluster in which podpool serves only secondary networks."""
    rows = [
        (
            *(each.name, each.slices, joined(each.without_slice), _alarming(each.waiting)),
            StyledText("no slice", BAD) if each.without_slice else StyledText("ok" if each.slices else "-", GOOD),
            joined(age(one.since, now=now) for one in each.waiting_pods[:1]),
            joined([*(one.pod for one in each.waiting_pods), _more(each.waiting - len(each.waiting_pods))]),
        )
        for each in sorted(nodes, key=lambda each: each.name)
    ]
    head = ("NODE", "SLICES", "WITHOUT-SLICE-OF", "WAITING", "STATE", "LONGEST-WAIT", "WAITING-PODS")
    return TextTable(head, rows, wide=2)


def _more(count: int) -> str:
    return f"+{count}" if count > 0 else ""


def _node_state(view: NodeView, *, ledger: bool) -> StyledText:
    if view.gone:
        return StyledText("gone", BAD)
    if not view.subnet:
        return StyledText("unserved", WARNING) if ledger else StyledText("-", FAINT)
    if view.short:
        return StyledText("short", WARNING)
    return StyledText("third-party" if view.third_party else "ok", GOOD)


def pod_table(pods: Iterable[PodView], *, now: float) -> TextTable:
    """Return addresses per Pod."""
    rows = [
        (
            each.name,
            each.node or "-",
            joined(each.addresses),
            StyledText(each.state, _STATES.get(each.state, FAINT)),
            age(each.since, now=now) or "-",
        )
        for each in pods
    ]
    return TextTable(("POD", "NODE", "ADDRESS", "STATE", "SINCE"), rows, wide=1)


def network_table(networks: Iterable[NetworkView]) -> TextTable:
    """Return secondary networks and their slices."""
    rows = [
        (
            *(each.name, each.range, each.slice_size or "shared"),
            *((each.slices, each.assigned, each.in_use, each.returning) if each.slice_size else ("-",) * 4),
            *(_alarming(each.waiting) if each.slice_size else "-", each.used, each.size),
            *(_alarming(each.lost), joined(f"{one.node} {one.used}/{one.size}" for one in each.fullest[:3])),
        )
        for each in networks
    ]
    head = ("NETWORK", "RANGE", "SLICE", "SLICES", "ASSIGNED", "IN-USE", "RETURNING", "WAITING", "ADDRESSES", "SIZE")
    return TextTable((*head, "LOST", "FULLEST"), rows, wide=2)


def slice_table(slices: Iterable[SliceView], waiting: Iterable[str] = ()) -> TextTable:
    """Return the slices of a network, and the nodes that wait for one."""
    rows: list[tuple[object, ...]] = [
        (
            *(each.node, each.range, StyledText(each.state, _SLICE_STATES.get(each.state, ""))),
            *(each.used, each.size, each.reason or "-"),
        )
        for each in slices
    ]
    rows += [(node, "-", StyledText("waiting", BAD), "-", "-", "-") for node in waiting]
    return TextTable(("NODE", "SLICE", "STATE", "ADDRESSES", "SIZE", "RETURN-REASON"), rows, wide=1)


def _alarming(count: int) -> StyledText | int:
    return StyledText(str(count), BAD) if count else 0


def history_table(periods: Iterable[AllocationPeriod], uses: Iterable[ReportedPodUsage]) -> TextTable:
    """Return past owners of addresses, the latest first: a row for each Pod, and for each grant that no Pod used.

    SINCE and UNTIL are the Pod's, GRANTED and RELEASED those of the node's grant. What only Pods report has no grant.
    """
    granted = [(each, use) for each in periods for use in (each.pods or (None,))]
    rows = [(use.since if use else each.since, _history_row(each, use)) for each, use in granted]
    rows += [(use.since, _history_row(use, use)) for use in uses]
    rows.sort(key=lambda one: one[0], reverse=True)
    head = ("ADDRESS", "NETWORK", "NODE", "POD", "SINCE", "UNTIL", "GRANTED", "RELEASED", "CLUSTER")
    if granted:
        return TextTable(head, [row for _, row in rows], wide=1)
    return TextTable((*head[:6], head[-1]), [(*row[:6], row[-1]) for _, row in rows], wide=1)


def _history_row(held: AllocationPeriod | ReportedPodUsage, use: PodUsage | None) -> tuple[str, ...]:
    pod = (f"{use.namespace}/{use.name}", use.since, use.until or "now") if use else ("-", "-", "-")
    if isinstance(held, AllocationPeriod):
        return (held.address, str(held.subnet), held.node, *pod, held.since, held.until or "now", held.cluster)
    return (held.address, held.network, held.node or "-", *pod, "-", "-", held.cluster)


def finding_table(findings: Iterable[AuditFinding]) -> TextTable:
    """Return the findings of an audit."""
    rows = [
        (StyledText(RULES[each.invariant], BAD), each.code, each.subject, each.message, each.action or "-")
        for each in findings
    ]
    return TextTable(("INVARIANT", "CODE", "OBJECT", "PROBLEM", "ACTION"), rows, wide=1)


def repair_table(repairs: Iterable[Repair]) -> TextTable:
    """Return the steps of a repair plan."""
    return TextTable(("OBJECT", "REPAIR"), [(each.subject, each.message) for each in repairs])
