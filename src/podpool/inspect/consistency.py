"""Whether NNCs and agents say what the ledger has: outside recovery its books decide. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from podpool.api.azure import NetworkContainer, NodeNetworkConfig, agent_report
from podpool.inspect.audit_snapshot import LedgerSnapshot
from podpool.inspect.findings import CONSENT, ONE_OWNER, AuditFinding, list_names
from podpool.inspect.view_models import subnet_key
from podpool.ledger.messages import NetworkContainerRecord

REQUEST_RECONCILE = "`podpool audit --repair` asks the controller to look again."


class PublishedNC(msgspec.Struct, frozen=True, kw_only=True):
    """A container as its node's NNC shows it."""

    config: NodeNetworkConfig
    container: NetworkContainer

    @property
    def node(self) -> str:
        """Whose it is."""
        return self.config.metadata.name

    @property
    def grants(self) -> dict[str, str]:
        """The addresses that it has, by the names of their grants."""
        return {each.name: each.ip for each in self.container.ip_assignments}

    @property
    def kept(self) -> dict[str, str]:
        """Those of them that the agent has not let go of."""
        released = set(self.config.spec.pending_release)
        return {name: address for name, address in self.grants.items() if name not in released}


def published_ncs(configs: Iterable[NodeNetworkConfig]) -> list[PublishedNC]:
    """Find every container that is shown."""
    return [
        PublishedNC(config=config, container=each) for config in configs for each in config.status.network_containers
    ]


def compare_with_ledger(books: LedgerSnapshot, shown: Sequence[PublishedNC]) -> Iterator[AuditFinding]:
    """Compare each container with the ledger's, in subnets whose books are not being mended."""
    frozen = {name for name, state in books.subnets.items() if state.frozen}
    records = {each.state.container: each for each in books.containers if _subnet(each) not in frozen}
    seen = {each.container.id for each in shown}
    for each in shown:
        record = records.get(each.container.id)
        if record:
            yield from _differences(each, record)
            yield from _reported(each, record)
        elif subnet_key(each.container.vnet_id, each.container.subnet_name) not in frozen:
            message = f"it shows container {each.container.id}, which the ledger does not have"
            yield AuditFinding(
                invariant=ONE_OWNER,
                code="container-unknown",
                about=_config(each.node),
                message=message,
                action=REQUEST_RECONCILE,
            )
    yield from _unshown(records, seen)
    yield from _doubled(records.values())


def _differences(shown: PublishedNC, record: NetworkContainerRecord) -> Iterator[AuditFinding]:
    has_ledger = {each.id: each.address for each in record.state.grants}
    about = _config(shown.node)
    lost = [address for name, address in shown.kept.items() if name not in has_ledger]
    if lost:
        message = f"the ledger has no longer {list_names(lost)} for it, and its agent did not let go of them"
        yield AuditFinding(invariant=CONSENT, code="grant-taken", about=about, message=message)
    moved = [name for name, address in shown.grants.items() if has_ledger.get(name, address) != address]
    more = [address for name, address in has_ledger.items() if name not in shown.grants]
    if moved or more or shown.container.primary_ip != record.state.primary:
        versions = f"versions {shown.container.version} and {record.state.version}"
        message = f"it does not show what the ledger has for it ({versions})"
        yield AuditFinding(
            invariant=ONE_OWNER, code="books-differ", about=about, message=message, action=REQUEST_RECONCILE
        )


def _reported(shown: PublishedNC, record: NetworkContainerRecord) -> Iterator[AuditFinding]:
    report = agent_report(shown.config)
    if report is None:
        return
    about = f"node/{shown.node}"
    if report.network_container and report.network_container != shown.network_container.id:
        message = f"its agent takes container {report.network_container} for its own, and is shown {shown.network_container.id}"
        yield AuditFinding(invariant=CONSENT, code="agent-elsewhere", about=about, message=message)
    elif report.version > record.state.version:
        message = f"its agent has accepted version {report.version}, and the ledger is at {record.state.version}"
        action = "The ledger was restored, or its books are another's: see `podpool ledger recovery status`."
        yield AuditFinding(invariant=CONSENT, code="ledger-behind", about=about, message=message, action=action)


def _unshown(records: Mapping[str, NetworkContainerRecord], seen: set[str]) -> Iterator[AuditFinding]:
    for container, record in records.items():
        if container not in seen:
            count = len(record.state.grants) + bool(record.state.primary)
            message = f"the ledger holds {count} addresses for it, and no NodeNetworkConfig shows them"
            action = "See whether the controller runs: it makes the NodeNetworkConfig again, or gives the node up."
            yield AuditFinding(
                invariant=ONE_OWNER, code="holding-unshown", about=f"node/{record.node}", message=message, action=action
            )


def _doubled(records: Iterable[NetworkContainerRecord]) -> Iterator[AuditFinding]:
    by_node: defaultdict[tuple[str, str], int] = defaultdict(int)
    for each in records:
        by_node[each.node, _subnet(each)] += 1
    for (node, subnet), count in by_node.items():
        if count > 1:
            message = f"the ledger has {count} containers for it in subnet {subnet}"
            yield AuditFinding(invariant=ONE_OWNER, code="containers-doubled", about=f"node/{node}", message=message)


def _subnet(record: NetworkContainerRecord) -> str:
    return subnet_key(record.state.subnet.network, record.state.subnet.name)


def _config(node: str) -> str:
    return f"nodenetworkconfig/{node}"
