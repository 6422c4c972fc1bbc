"""After the ledger was restored: tell it what the cluster has.

What must hold: the listing is read after a write to each NNC. A status that a leader before us sent, and that is still
under way, names an older version of its NNC as precondition, so it cannot arrive any more once ours has.
"""

from podpool.controller.settings import Settings
from podpool.controller.wording import item_of, report_of, subnet_of
from podpool.kube.client import KubeClient
from podpool.kube.errors import NotFound
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import Grant, ListedContainer, Listing, ListingAnswer, SubnetName
from podpool.resources.acn import NETWORK_CONFIGS, NetworkContainer, NodeNetworkConfig
from podpool.resources.builtin import Node

LISTED = "podpool.io/listed"
"""The annotation that makes the write: the term that the listing is for."""


async def send_listing(
    kube: KubeClient, ledger: LedgerClient, *, cluster: str, term: int, seen: int, settings: Settings
) -> ListingAnswer:
    """Write to each NNC, read all of them, and send what they show."""
    for config in (await kube.list(NETWORK_CONFIGS, namespace=settings.namespace)).items:
        await _touch(kube, config, term, settings)
    configs = (await kube.list(NETWORK_CONFIGS, namespace=settings.namespace)).items
    listed = [
        _listed(config, container, settings) for config in configs for container in config.status.network_containers
    ]
    return await ledger.send_listing(Listing(cluster=cluster, term=term, seen=seen, containers=tuple(listed)))


async def _touch(kube: KubeClient, config: NodeNetworkConfig, term: int, settings: Settings) -> None:
    try:
        await kube.merge(
            NETWORK_CONFIGS,
            config.metadata.name,
            {"metadata": {"annotations": {LISTED: str(term)}}},
            namespace=settings.namespace,
        )
    except NotFound:
        return


def _listed(config: NodeNetworkConfig, container: NetworkContainer, settings: Settings) -> ListedContainer:
    report = report_of(config)
    default = subnet_of(Node(metadata=config.metadata), settings)
    subnet = SubnetName(network=default.network, name=container.subnet_name or default.name)
    owner = next((each.uid for each in config.metadata.owner_references if each.controller), "")
    item = item_of(config, node_uid=owner, container=container.id, subnet=subnet, numbers=settings.numbers)
    return ListedContainer(
        container=container.id,
        subnet=subnet,
        node=item.node,
        node_uid=owner,
        boot_id=item.boot_id,
        version=container.version,
        primary=container.primary_ip,
        grants=tuple(Grant(id=each.name, address=each.ip) for each in container.ip_assignments),
        wanted=item.wanted,
        released=item.released,
        rested=report.rested_seconds if report else 0.0,
        report=item.report,
        maximum=item.maximum,
    )
