"""When a container is given up: its Node is gone.

What must hold: gone is decided on quorum reads that are made after the gone time, never on a cache. No Node keeps the
container; no Node of that name reports the boot id that the agent wrote, unless its machine claims another container;
and while no Node of that name exists, no unfinished Pod is bound to it. The gone time is longer than the fence: by then
the agent gives no new address.
"""

import asyncio
import logging

from podpool.controller.books import Books
from podpool.controller.nodes import Nodes
from podpool.controller.session import Session
from podpool.controller.settings import Settings
from podpool.controller.wording import claim_of, speaks_of
from podpool.core.errors import PodpoolError
from podpool.kube.client import KubeClient
from podpool.kube.errors import NotFound
from podpool.kube.reflector import fresh
from podpool.kube.store import Store
from podpool.ledger.messages import ContainerRecord, Item
from podpool.resources.acn import NETWORK_CONFIGS, NodeNetworkConfig, report_of
from podpool.resources.builtin import FINISHED, NODES, PODS, Node

LOOK = 10.0
"""Seconds between two looks; short beside the gone time."""

_log = logging.getLogger(__name__)


class Gone:
    """Watches over containers whose Node is not there."""

    def __init__(
        self,
        kube: KubeClient,
        session: Session,
        books: Books,
        *,
        nodes: Store[Node],
        configs: Store[NodeNetworkConfig],
        reconciler: Nodes,
        settings: Settings,
    ) -> None:
        self._kube = kube
        self._session = session
        self._books = books
        self._nodes = nodes
        self._configs = configs
        self._reconciler = reconciler
        self._settings = settings
        self._missed: dict[str, float] = {}
        """Containers by when their Node was first missed."""

    async def run(self) -> None:
        """Look now and then."""
        while True:
            await self.look()
            await asyncio.sleep(LOOK)

    async def look(self) -> None:
        """Note who is missed, and give up whose time is over."""
        now = asyncio.get_running_loop().time()
        kept = {record.state.container for node in self._nodes.values() if (record := self._kept(node))}
        missed = [record for record in self._books.values() if record.state.container not in kept]
        self._missed = {each.state.container: self._missed.get(each.state.container, now) for each in missed}
        self._session.missing = len(missed)
        for record in missed:
            if now - self._missed[record.state.container] < self._settings.numbers.gone:
                continue
            try:
                await self._decide(record)
            except PodpoolError as error:
                _log.info("node %s: not given up yet: %s", record.node, error)

    async def _decide(self, record: ContainerRecord) -> None:
        if not await self._is_gone(record):
            return
        _log.warning("node %s (%s) is gone: container %s ends", record.node, record.node_uid, record.state.container)
        item = Item(
            subnet=record.state.subnet,
            node=record.node,
            node_uid=record.node_uid,
            container=record.state.container,
            gone=True,
        )
        outcome = await self._session.reconcile(item)
        self._books.note(item, outcome.state)
        await self._clear(record)

    async def _is_gone(self, record: ContainerRecord) -> bool:
        config = await self._config(record)
        try:
            node = await fresh(self._kube, NODES, record.node, cache=self._nodes)
        except NotFound:
            bound = await self._kube.list(PODS, fields=f"spec.nodeName={record.node}")
            return all(pod.status.phase in FINISHED for pod in bound.items)
        if self._kept(node) is record:
            return False
        if claim_of(node, config):
            return claim_of(node, config) != record.state.container  # the machine itself has another
        report = report_of(config) if config and speaks_of(config, record.state.container) else None
        return node.boot_id not in {record.boot_id, report.boot_id if report else None} - {None, ""}

    def _kept(self, node: Node) -> ContainerRecord | None:
        return self._books.of_node(node, self._configs.get(f"{self._settings.namespace}/{node.metadata.name}"))

    async def _config(self, record: ContainerRecord) -> NodeNetworkConfig | None:
        try:
            return await fresh(
                self._kube, NETWORK_CONFIGS, record.node, cache=self._configs, namespace=self._settings.namespace
            )
        except NotFound:
            return None

    async def _clear(self, record: ContainerRecord) -> None:
        """Let the NNC that is about this container go; another's says nothing about it."""
        config = await self._config(record)
        if config is None or not speaks_of(config, record.state.container):
            return
        await self._reconciler.release(config)
        if config.metadata.deletion_timestamp is None:
            await self._kube.delete(
                NETWORK_CONFIGS, record.node, namespace=self._settings.namespace, uid=config.metadata.uid
            )
