"""Consistency of NodeNetworkConfigs and agent reports with the ledger, which decides outside recovery. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from podpool.api.azure import NetworkContainer, NodeNetworkConfig, agent_report
from podpool.inspect.audit_snapshot import LedgerSnapshot
from podpool.inspect.findings import CONSENT, ONE_OWNER, AuditFinding, list_names
from podpool.inspect.view_models import subnet_key
from podpool.ledger.messages import NetworkContainerRecord

REQUEST_RECONCILE = "`podpool audit --repair` requests a reconcile."


class PublishedNC(msgspec.Struct, frozen=True, kw_only=True):
    """A network container as its node's NodeNetworkConfig publishes it."""

    nnc: NodeNetworkConfig
    nc: NetworkContainer

    @property
    def node(self) -> str:
        """Name of the node."""
        return self.nnc.metadata.name

    @property
    def grants(self) -> dict[str, str]:
        """Addresses by grant ID."""
        return {each.name: each.ip for each in self.nc.ip_assignments}

    @property
    def kept(self) -> dict[str, str]:
        """Grants that are not pending release."""
        released = set(self.nnc.spec.pending_release)
        return {name: address for name, address in self.grants.items() if name not in released}


def published_ncs(nncs: Iterable[NodeNetworkConfig]) -> list[PublishedNC]:
    """Return every published network container."""
    return [PublishedNC(nnc=nnc, nc=each) for nnc in nncs for each in nnc.status.network_containers]


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
            yield AuditFinding(
                invariant=ONE_OWNER,
                code="unknown-nc",
                subject=_nnc(each.node),
                message=message,
                action=REQUEST_RECONCILE,
            )
    yield from _unpublished_ncs(records, seen)
    yield from _duplicates(records.values())


def _differences(published: PublishedNC, record: NetworkContainerRecord) -> Iterator[AuditFinding]:
    has_ledger = {each.id: each.address for each in record.state.grants}
    about = _nnc(published.node)
    lost = [address for name, address in published.kept.items() if name not in has_ledger]
    if lost:
        message = f"the ledger no longer grants {list_names(lost)} to it, but its agent did not release them"
        yield AuditFinding(invariant=CONSENT, code="grant-removed", subject=about, message=message)
    moved = [name for name, address in published.grants.items() if has_ledger.get(name, address) != address]
    more = [address for name, address in has_ledger.items() if name not in published.grants]
    if moved or more or published.nc.primary_ip != record.state.primary:
        versions = f"version {published.nc.version}, ledger {record.state.version}"
        message = f"differs from the ledger ({versions})"
        yield AuditFinding(
            invariant=ONE_OWNER, code="nnc-differs", subject=about, message=message, action=REQUEST_RECONCILE
        )


def _reported(published: PublishedNC, record: NetworkContainerRecord) -> Iterator[AuditFinding]:
    report = agent_report(published.nnc)
    if report is None:
        return
    about = f"node/{published.node}"
    if report.network_container and report.network_container != published.nc.id:
        message = f"its agent uses network container {report.network_container}, but {published.nc.id} is published"
        yield AuditFinding(invariant=CONSENT, code="agent-nc-differs", subject=about, message=message)
    elif report.version > record.state.version:
        message = f"its agent accepted version {report.version}, but the ledger is at {record.state.version}"
        action = "The ledger was restored or has another database: see `podpool ledger recovery status`."
        yield AuditFinding(invariant=CONSENT, code="ledger-behind", subject=about, message=message, action=action)


def _unpublished_ncs(records: Mapping[str, NetworkContainerRecord], seen: set[str]) -> Iterator[AuditFinding]:
    for nc_id, record in records.items():
        if nc_id not in seen:
            count = len(record.state.grants) + bool(record.state.primary)
            message = f"the ledger grants it {count} addresses that no NodeNetworkConfig publishes"
            action = "Check that the controller runs: it recreates the NodeNetworkConfig or releases the addresses."
            yield AuditFinding(
                invariant=ONE_OWNER,
                code="nc-unpublished",
                subject=f"node/{record.node}",
                message=message,
                action=action,
            )


def _duplicates(records: Iterable[NetworkContainerRecord]) -> Iterator[AuditFinding]:
    by_node: defaultdict[tuple[str, str], int] = defaultdict(int)
    for each in records:
        by_node[each.node, _subnet(each)] += 1
    for (node, subnet), count in by_node.items():
        if count > 1:
            message = f"has {count} network containers in subnet {subnet}"
            yield AuditFinding(invariant=ONE_OWNER, code="duplicate-nc", subject=f"node/{node}", message=message)


def _subnet(record: NetworkContainerRecord) -> str:
    return subnet_key(record.state.subnet.network, record.state.subnet.name)


def _nnc(node: str) -> str:
    return f"nodenetworkconfig/{node}"
