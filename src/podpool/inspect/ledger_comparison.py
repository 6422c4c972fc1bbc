"""Findings of an audit, and consistency of NodeNetworkConfigs and agent reports with the ledger. Pure.

The ledger decides, except in recovery.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Literal

from podpool.api.azure import agent_report
from podpool.inspect.audit_snapshot import LedgerSnapshot, PublishedNC
from podpool.inspect.view_models import ViewModel, subnet_key
from podpool.ledger.messages import NetworkContainerRecord

Invariant = Literal[1, 2, 3, 7]
"""Numbers of the invariants in docs/architecture.md."""
ONE_OWNER: Invariant = 1
CONTAINMENT: Invariant = 2
CONSENT: Invariant = 3
ALIGNED: Invariant = 7
RULES = {ONE_OWNER: "one owner", CONTAINMENT: "containment", CONSENT: "consent", ALIGNED: "aligned"}
MAX_NAMES = 4
"""Names listed in a message; more are counted."""
REQUEST_RECONCILE = "`podpool audit --repair` requests a reconcile."


class AuditFinding(ViewModel, frozen=True):
    """A violated invariant."""

    invariant: Invariant
    code: str
    """Identifies the kind of finding, for programs."""
    subject: str
    """The object as kubectl names it, or `address/10.0.0.5`."""
    message: str
    action: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Identity of a finding across two snapshots, independent of its text."""
        return self.code, self.subject


def compare_with_ledger(ledger: LedgerSnapshot, published: Sequence[PublishedNC]) -> Iterator[AuditFinding]:
    """Compare each network container with the ledger's, in subnets that are not in recovery."""
    frozen = {name for name, state in ledger.subnets.items() if state.frozen}
    records = {each.state.nc_id: each for each in ledger.ncs if _subnet(each) not in frozen}
    seen = {each.nc.id for each in published}
    for each in published:
        record = records.get(each.nc.id)
        if record:
            yield from _differences(each, record)
            yield from _reported(each, record)
        elif subnet_key(each.nc.vnet_id, each.nc.subnet_name) not in frozen:
            message = f"publishes network container {each.nc.id}, which the ledger does not have"
            yield AuditFinding(ONE_OWNER, "unknown-nc", _nnc(each.node), message, REQUEST_RECONCILE)
    yield from _unpublished_ncs(records, seen)
    yield from _duplicates(records.values())


def _differences(published: PublishedNC, record: NetworkContainerRecord) -> Iterator[AuditFinding]:
    granted = {each.id: each.address for each in record.state.grants}
    about = _nnc(published.node)
    lost = [address for name, address in published.kept.items() if name not in granted]
    if lost:
        message = f"the ledger no longer grants {list_names(lost)} to it, but its agent did not release them"
        yield AuditFinding(CONSENT, "grant-removed", about, message)
    moved = [name for name, address in published.grants.items() if granted.get(name, address) != address]
    more = [address for name, address in granted.items() if name not in published.grants]
    if moved or more or published.nc.primary_ip != record.state.primary:
        versions = f"version {published.nc.version}, ledger {record.state.version}"
        message = f"differs from the ledger ({versions})"
        yield AuditFinding(ONE_OWNER, "nnc-differs", about, message, REQUEST_RECONCILE)


def _reported(published: PublishedNC, record: NetworkContainerRecord) -> Iterator[AuditFinding]:
    report = agent_report(published.nnc)
    if report is None:
        return
    about = f"node/{published.node}"
    if report.network_container and report.network_container != published.nc.id:
        message = f"its agent uses network container {report.network_container}, but {published.nc.id} is published"
        yield AuditFinding(CONSENT, "agent-nc-differs", about, message)
    elif report.version > record.state.version:
        message = f"its agent accepted version {report.version}, but the ledger is at {record.state.version}"
        action = "The ledger was restored or has another database: see `podpool ledger recovery status`."
        yield AuditFinding(CONSENT, "ledger-behind", about, message, action)


def _unpublished_ncs(records: Mapping[str, NetworkContainerRecord], seen: set[str]) -> Iterator[AuditFinding]:
    for nc_id, record in records.items():
        if nc_id not in seen:
            count = len(record.state.grants) + bool(record.state.primary)
            message = f"the ledger grants it {count} addresses that no NodeNetworkConfig publishes"
            action = "Check that the controller runs: it recreates the NodeNetworkConfig or releases the addresses."
            yield AuditFinding(ONE_OWNER, "nc-unpublished", f"node/{record.node}", message, action)


def _duplicates(records: Iterable[NetworkContainerRecord]) -> Iterator[AuditFinding]:
    by_node: defaultdict[tuple[str, str], int] = defaultdict(int)
    for each in records:
        by_node[each.node, _subnet(each)] += 1
    for (node, subnet), count in by_node.items():
        if count > 1:
            message = f"has {count} network containers in subnet {subnet}"
            yield AuditFinding(ONE_OWNER, "duplicate-nc", f"node/{node}", message)


def _subnet(record: NetworkContainerRecord) -> str:
    return subnet_key(record.state.subnet.network, record.state.subnet.name)


def _nnc(node: str) -> str:
    return f"nodenetworkconfig/{node}"


def list_names(names: Iterable[str]) -> str:
    """Return up to `MAX_NAMES` names, and the count of the rest."""
    listed = sorted(names)
    if len(listed) <= MAX_NAMES:
        return " and ".join(filter(None, (", ".join(listed[:-1]), *listed[-1:])))
    return f"{', '.join(listed[:MAX_NAMES])} and {len(listed) - MAX_NAMES} more"
