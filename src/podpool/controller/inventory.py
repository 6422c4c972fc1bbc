"""After the ledger was restored: tell it what the cluster has.

What must hold: the listing is read after a write to each NNC. A status that a leader before us sent, and that is still
under way, names an older version of its NNC as precondition, so it cannot arrive any more once ours has.

The API server may have been restored too, and then only the agents know what they hold. So the write is a question, and
the list waits for their answers, or until whoever would answer is gone. When one answer shows that the API server was
restored, a machine may even lack its Node and its NNC: then it has the gone time to come back. The list does not wait
for ever: a node that has not answered in time is listed as its NNC shows it, and named in the log.
"""

import asyncio
import logging
from collections.abc import Sequence

import msgspec

from podpool.api.azure import (
    INVENTORY_ANNOTATION,
    NODE_NETWORK_CONFIGS,
    AgentReport,
    NetworkContainer,
    NodeNetworkConfig,
    agent_report,
)
from podpool.api.builtin import FINISHED, NODES, PODS, Node
from podpool.controller.convert import config_for, item_of, owner_of, speaks_of, subnet_of
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiAlreadyExists, ApiNotFound
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import Grant, Inventory, InventoryItem, InventoryResponse, SubnetName

LOOK = 2.0
"""Seconds between two looks at the answers."""

_log = logging.getLogger(__name__)


async def send_listing(
    kube: KubeClient, ledger: LedgerClient, *, cluster: str, term: int, seen: int, settings: ControllerSettings
) -> InventoryResponse:
    """Ask each agent through its NNC, and send what the answers show."""
    configs = await _Question(kube, term, settings).answers()
    listed = [each for config in configs for each in _listed(config, term, settings)]
    return await ledger.send_listing(Inventory(cluster=cluster, term=term, seen=seen, containers=tuple(listed)))


class _Question:
    """One listing's question to all nodes."""

    def __init__(self, kube: KubeClient, term: int, settings: ControllerSettings) -> None:
        self._kube = kube
        self._term = term
        self._settings = settings
        self._begun = asyncio.get_running_loop().time()
        self._was_restored = False
        self._missed: dict[str, float] = {}
        """NNCs whose Node is not there, since when."""

    async def answers(self) -> list[NodeNetworkConfig]:
        """Ask until everybody has answered; gives the NNCs as they then are, all from one read."""
        while True:
            nodes = {node.metadata.name: node for node in (await self._kube.list(NODES)).items}
            configs = (await self._kube.list(NODE_NETWORK_CONFIGS, namespace=self._settings.namespace)).items
            await self._ask(nodes, configs)
            left = [config for config in configs if not await self._is_gone(config, nodes)]
            silent = [config.metadata.name for config in left if not self._answered(config)]
            complete = not silent and nodes.keys() <= {config.metadata.name for config in left}
            waited = asyncio.get_running_loop().time() - self._begun
            if complete and (waited >= self._settings.common.node_gc_delay or not self._restored(left)):
                return left
            if waited >= self._settings.common.inventory_timeout and all(map(self._asked, left)):
                _log.error("no agent told what these nodes hold, their NNCs are believed: %s", ", ".join(silent))
                return left
            await asyncio.sleep(LOOK)

    async def _ask(self, nodes: dict[str, Node], configs: Sequence[NodeNetworkConfig]) -> None:
        """Write the question into every NNC, and make one for each Node that has none to write into."""
        for config in configs:
            if not self._asked(config):
                await self._touch(config)
        for name in nodes.keys() - {config.metadata.name for config in configs}:
            try:
                await self._kube.create(
                    NODE_NETWORK_CONFIGS, config_for(nodes[name], namespace=self._settings.namespace, record=None)
                )
            except ApiAlreadyExists:
                continue

    async def _touch(self, config: NodeNetworkConfig) -> None:
        asked = {"metadata": {"annotations": {INVENTORY_ANNOTATION: str(self._term)}}}
        try:
            await self._kube.merge(NODE_NETWORK_CONFIGS, config.metadata.name, asked, namespace=self._settings.namespace)
        except ApiNotFound:
            return

    def _asked(self, config: NodeNetworkConfig) -> bool:
        return config.metadata.annotations.get(INVENTORY_ANNOTATION) == str(self._term)

    def _answered(self, config: NodeNetworkConfig) -> bool:
        report = agent_report(config)
        foreign = report is None and config.spec.requested > 0  # it asks, but not as our agents do
        return self._asked(config) and (foreign or _told(config, self._term) is not None)

    def _restored(self, configs: Sequence[NodeNetworkConfig]) -> bool:
        """Tell whether an agent knows more than the API server."""
        answers = (_told(config, self._term) for config in configs)
        self._was_restored = self._was_restored or any(told and told.knows for told in answers)
        return self._was_restored

    async def _is_gone(self, config: NodeNetworkConfig, nodes: dict[str, Node]) -> bool:
        """Tell whether nobody can answer: no Node of that name for the gone time, and nothing runs there."""
        name, now = config.metadata.name, asyncio.get_running_loop().time()
        if name in nodes:
            self._missed.pop(name, None)
            return False
        if now - self._missed.setdefault(name, now) < self._settings.common.node_gc_delay:
            return False
        bound = await self._kube.list(PODS, fields=f"spec.nodeName={name}")
        return all(pod.status.phase in FINISHED for pod in bound.items)


def _told(config: NodeNetworkConfig, term: int) -> AgentReport | None:
    """Find an agent's answer to this listing."""
    report = agent_report(config)
    return report if report and report.listed == term else None


def _listed(config: NodeNetworkConfig, term: int, settings: ControllerSettings) -> list[InventoryItem]:
    """List what an agent says that it holds, else what its NNC shows."""
    told = _told(config, term)
    known = (told.knows,) if told and told.knows else config.status.network_containers
    return [_as_shown(config, container, settings) for container in known]


def _as_shown(config: NodeNetworkConfig, container: NetworkContainer, settings: ControllerSettings) -> InventoryItem:
    default = subnet_of(Node(metadata=config.metadata), settings)
    subnet = SubnetName(network=container.vnet_id or default.network, name=container.subnet_name or default.name)
    owner = owner_of(config)
    item = item_of(config, node_uid=owner, container=container.id, subnet=subnet, settings=settings.common)
    if not speaks_of(config, container.id):
        item = msgspec.structs.replace(item, boot_id=None, report=None)
    return InventoryItem(
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
        rested=item.rested,
        report=item.report,
        maximum=item.maximum,
    )
