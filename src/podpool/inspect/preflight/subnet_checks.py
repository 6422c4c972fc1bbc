"""Checks of the ledger and of the subnets that the cluster's nodes use. Pure."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

import msgspec

from podpool.api.builtin import FINISHED
from podpool.controller.nnc_conversion import subnet_label_error
from podpool.controller.settings import SUBNET_LABEL
from podpool.core.scaling import Scaler, target
from podpool.core.settings import Settings
from podpool.inspect.observer import LEDGER
from podpool.inspect.preflight.cluster_checks import check_clock
from podpool.inspect.preflight.objects import Machine
from podpool.inspect.preflight.report import PreflightFinding, Severity, finding, names, unread
from podpool.inspect.preflight.snapshot import LedgerReading, PreflightSnapshot
from podpool.ledger.admin_messages import SubnetDetails


class SubnetNeeds(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes of one subnet need."""

    nodes: int
    pods: int
    settled: int
    """Addresses that the nodes hold with the configured batch, primaries included."""

    @property
    def minimum(self) -> int:
        """Addresses without which a Pod waits: one for each Pod, and one primary for each node."""
        return self.nodes + self.pods


def check_ledger(snapshot: PreflightSnapshot) -> Iterator[PreflightFinding]:
    """Check that the ledger answers, accepts the token, and has the time."""
    reading = snapshot.ledger
    if reading is None:
        yield finding("ledger", Severity.OK, LEDGER, "none: podpool serves secondary networks only")
        return
    if reading.rejected:
        remedy = "create a token (`podpool ledger token create NAME`), and name its file with --ledger-token-file"
        yield finding("ledger", Severity.ERROR, LEDGER, f"it rejects the token: {reading.problem}", remedy)
    elif reading.problem:
        remedy = "start it, or name its URL with --ledger and its CA with --ledger-ca-file"
        yield finding("ledger", Severity.ERROR, LEDGER, reading.problem, remedy)
    else:
        message = f"it answers, accepts the token and has {len(reading.subnets)} subnets"
        yield finding("ledger", Severity.OK, LEDGER, message)
    if not reading.problem or reading.clock.remote is not None:
        yield check_clock("clock", LEDGER, reading.clock)


def check_subnets(snapshot: PreflightSnapshot, *, default: str) -> Iterator[PreflightFinding]:
    """Check that each node's subnet exists and is large enough; `default` is that of Nodes without the label."""
    reading = snapshot.ledger
    if reading is None:
        return
    if reading.problem or snapshot.nodes.problem:
        yield unread("subnet", "subnets", reading.problem or snapshot.nodes.problem)
        return
    default = _default(reading, default)
    users = nodes_by_subnet(snapshot.nodes.value, default=default)
    for each in snapshot.nodes.value:
        if error := subnet_label_error(each):
            remedy = f"set the label {SUBNET_LABEL} to NETWORK.SUBNET as an administrator, or remove it"
            yield finding("subnet", Severity.WARNING, f"node/{each.metadata.name}", error, remedy)
    if without := users.pop("", []):
        message = f"no subnet for {names(without)}: they have no label {SUBNET_LABEL}"
        remedy = "name the controller's subnet with --subnet, or label the Nodes"
        yield finding("subnet", Severity.WARNING, "subnets", message, remedy)
    if default and default not in users:  # the controller refuses to start without it
        users[default] = []
    for name, nodes in sorted(users.items()):
        yield from _check_subnet(snapshot, reading, name, nodes)


def used_subnets(snapshot: PreflightSnapshot, *, default: str) -> set[str]:
    """Return the subnets of this cluster's Nodes; the ledger may have others, of other clusters."""
    default = _default(snapshot.ledger, default)
    return {default, *nodes_by_subnet(snapshot.nodes.value, default=default)}


def _default(reading: LedgerReading | None, named: str) -> str:
    """Return the subnet of Nodes without a label: the named one, or the only one there is."""
    only = list(reading.subnets) if reading and len(reading.subnets) == 1 else [""]
    return named or only[0]


def nodes_by_subnet(nodes: Sequence[Machine], *, default: str) -> dict[str, list[str]]:
    """Return the Nodes that use each subnet; those without any under the empty name."""
    found = defaultdict[str, list[str]](list)
    for each in nodes:
        label = each.metadata.labels.get(SUBNET_LABEL, "")
        found[default if subnet_label_error(each) else label or default].append(each.metadata.name)
    return dict(found)


def _check_subnet(
    snapshot: PreflightSnapshot, reading: LedgerReading, name: str, nodes: Sequence[str]
) -> Iterator[PreflightFinding]:
    what, details = f"subnet/{name}", reading.subnets.get(name)
    if details is None:
        message = f"does not exist in the ledger, and {len(nodes)} Nodes use it"
        remedy = f"run `podpool ledger subnet create {name} CIDR`; existing: {names(sorted(reading.subnets)) or 'none'}"
        yield finding("subnet", Severity.ERROR, what, message, remedy)
        return
    for word, remedy in _STATES.items():
        if getattr(details.state, word):
            yield finding("subnet", Severity.ERROR, what, f"is {word}: it grants nothing", remedy)
    if snapshot.pods.problem:
        yield unread("subnet", what, snapshot.pods.problem)
        return
    yield _check_capacity(what, details, _needs(snapshot, nodes, details), cluster=snapshot.cluster.value)


_STATES: Mapping[str, str] = {
    "frozen": "`podpool ledger recovery status` shows what it waits for",
    "draining": "`podpool ledger subnet reopen` resumes grants, or name another subnet",
}


def _needs(snapshot: PreflightSnapshot, nodes: Sequence[str], details: SubnetDetails) -> SubnetNeeds:
    pods = Counter(
        each.spec.node_name
        for each in snapshot.pods.value
        if not each.spec.host_network and each.status.phase not in FINISHED
    )
    scaler = Scaler(batch=details.spec.batch, buffer=details.spec.buffer)
    maximum = Settings().node_maximum
    held = [1 + target(demand=pods[each], scaler=scaler, primaries=1, maximum=maximum) for each in nodes]
    return SubnetNeeds(nodes=len(nodes), pods=sum(pods[each] for each in nodes), settled=sum(held))


def _check_capacity(what: str, details: SubnetDetails, needs: SubnetNeeds, *, cluster: str) -> PreflightFinding:
    state = details.state
    own = sum(each.held for each in details.clusters if each.cluster == cluster)
    available = max(0, state.capacity - max(0, state.reserved - own))
    of = f"{available} of {state.capacity} addresses for this cluster"
    for_ = f"{needs.nodes} Nodes with {needs.pods} Pods"
    grow = f"`podpool ledger subnet grow {details.state.subnet} CIDR` adds addresses"
    if available < needs.minimum:
        message = f"{of}, and {for_} need at least {needs.minimum}: Pods will wait"
        return finding("subnet", Severity.ERROR, what, message, grow)
    comfortable = -(-100 * needs.settled // details.spec.upper_threshold)
    if available < comfortable:
        message = f"{of}; {for_} hold {needs.settled} with batch {details.spec.batch}: {comfortable} are recommended"
        remedy = f"{grow}; otherwise nodes get smaller batches, which costs requests"
        return finding("subnet", Severity.WARNING, what, message, remedy)
    message = f"{of}, and {for_} hold about {needs.settled} with batch {details.spec.batch}"
    return finding("subnet", Severity.OK, what, message)
