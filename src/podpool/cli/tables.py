"""What is seen of a cluster, in columns. Pure."""

from collections.abc import Iterable

from podpool.cli.output import BAD, FAINT, GOOD, WARNING, Sheet, Styled, age, joined
from podpool.inspect.findings import RULES, Finding
from podpool.inspect.pods import PodView
from podpool.inspect.repair import Repair
from podpool.inspect.secondary_networks import NetworkView, SliceView
from podpool.inspect.view_models import NodeView, SubnetView
from podpool.ledger.admin_messages import PodUse, ReportedUse, Tenure

_STATES = {"served": GOOD, "waits": BAD, "unplaced": WARNING, "leaving": FAINT, "host": FAINT, "finished": FAINT}


def subnet_sheet(subnets: Iterable[SubnetView]) -> Sheet:
    """Show how full subnets are."""
    head = ("SUBNET", "CIDR", "CAPACITY", "RESERVED", "PODS", "IDLE", "RESTING", "FREE", "BATCH", "STATE")
    wide = ("NODES", "PRIMARIES", "OTHERS", "WAITING", "BUFFER", "KEPT-BACK")
    rows = [
        (
            each.name,
            joined(each.cidrs),
            each.capacity or "?",
            each.reserved,
            each.assigned,
            each.idle,
            each.resting if each.capacity else "?",
            each.capacity - each.reserved if each.capacity else "?",
            each.batch or "?",
            _subnet_state(each),
            each.nodes,
            each.primaries,
            each.others,
            each.pods_waiting,
            f"{each.buffer:g}",
            each.kept_back,
        )
        for each in subnets
    ]
    return Sheet((*head, *wide), rows, wide=len(wide))


def _subnet_state(view: SubnetView) -> Styled:
    full = bool(view.pods_waiting and view.short)
    words = ["full"] * full + [word for word in ("exhausted", "frozen", "draining") if getattr(view, word)]
    return Styled(",".join(words), BAD if full or view.frozen else WARNING) if words else Styled("ok", GOOD)


def node_sheet(nodes: Iterable[NodeView], *, at: float) -> Sheet:
    """Show what nodes have, and who waits there."""
    head = ("NODE", "SUBNET", "PODS", "IDLE", "ARRIVING", "LEAVING", "WAITING", "STATE")
    wide = ("PRIMARIES", "BATCH", "LONGEST", "WAITERS")
    rows = [
        (
            each.name,
            each.subnet or "-",
            each.assigned,
            each.idle,
            each.arriving,
            each.leaving,
            Styled(str(each.waiting), BAD) if each.waiting else each.waiting,
            _node_state(each),
            each.primaries,
            each.batch or "-",
            joined(age(one.since, at=at) for one in each.waiters[:1]),
            joined(one.pod for one in each.waiters),
        )
        for each in sorted(nodes, key=lambda each: each.name)
    ]
    return Sheet((*head, *wide), rows, wide=len(wide))


def _node_state(view: NodeView) -> Styled:
    if view.gone:
        return Styled("gone", BAD)
    if not view.subnet:
        return Styled("unserved", WARNING)
    if view.short:
        return Styled("short", WARNING)
    return Styled("foreign" if view.foreign else "ok", GOOD)


def pod_sheet(pods: Iterable[PodView], *, at: float) -> Sheet:
    """Show which Pod has which address."""
    rows = [
        (
            each.name,
            each.node or "-",
            joined(each.addresses),
            Styled(each.state, _STATES[each.state]),
            age(each.since, at=at) or "-",
        )
        for each in pods
    ]
    return Sheet(("POD", "NODE", "ADDRESS", "STATE", "SINCE"), rows, wide=1)


def network_sheet(networks: Iterable[NetworkView]) -> Sheet:
    """Show further networks, and how they are divided."""
    rows = [
        (
            each.name,
            each.range,
            each.slice_size or "shared",
            each.slices or "-",
            each.taken or "-",
            each.used,
            each.size,
            joined(f"{one.node} {one.used}/{one.size}" for one in each.fullest[:3]),
        )
        for each in networks
    ]
    return Sheet(("NETWORK", "RANGE", "SLICE", "SLICES", "TAKEN", "USED", "SIZE", "FULLEST"), rows, wide=1)


def slice_sheet(slices: Iterable[SliceView]) -> Sheet:
    """Show the slices of a network."""
    rows = [(each.node, each.range, each.used, each.size) for each in slices]
    return Sheet(("NODE", "SLICE", "USED", "SIZE"), rows)


def past_sheet(tenures: Iterable[Tenure], uses: Iterable[ReportedUse]) -> Sheet:
    """Show which addresses were in whose hands; the latest first."""
    given: list[tuple[Tenure | ReportedUse, str, str]]
    given = [(each, str(each.subnet), joined(map(_pod_name, each.pods))) for each in tenures]
    further = [(each, each.network, _pod_name(each)) for each in uses]
    found = sorted([*given, *further], key=lambda one: one[0].since, reverse=True)
    rows = [
        (each.address, network, each.node or "-", each.since, each.until or "now", pods, each.cluster)
        for each, network, pods in found
    ]
    return Sheet(("ADDRESS", "NETWORK", "NODE", "SINCE", "UNTIL", "PODS", "CLUSTER"), rows, wide=1)


def _pod_name(use: PodUse) -> str:
    return f"{use.namespace}/{use.name}"


def finding_sheet(findings: Iterable[Finding]) -> Sheet:
    """Show what an audit found."""
    rows = [
        (Styled(RULES[each.invariant], BAD), each.code, each.about, each.told, each.todo or "-") for each in findings
    ]
    return Sheet(("RULE", "FAULT", "OBJECT", "WHAT IS WRONG", "WHAT TO DO"), rows, wide=1)


def repair_sheet(repairs: Iterable[Repair]) -> Sheet:
    """Show what would be done."""
    return Sheet(("OBJECT", "WHAT WOULD BE DONE"), [(each.about, each.told) for each in repairs])
