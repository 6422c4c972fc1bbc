"""When a container is given up: its Node is gone.

What must hold: gone is decided on quorum reads that are made after the gone time, never on a cache. No Node keeps the
container; no Node of that name reports the boot id that the agent wrote, unless its machine claims another container;
and while no Node of that name exists, no unfinished Pod is bound to it. The gone time is longer than the fence: by then
the agent gives no new address.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from podpool.api.azure import NODE_NETWORK_CONFIGS, NodeNetworkConfig, agent_report
from podpool.api.builtin import FINISHED, NODES, PODS, Node
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.convert import claim_of, speaks_of
from podpool.controller.deps import ControllerDeps
from podpool.controller.ledger_session import LedgerSession
from podpool.controller.node_reconciler import NodeReconciler
from podpool.core.errors import PodpoolError
from podpool.kube.cache import ObjectCache
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound
from podpool.kube.informer import quorum_get
from podpool.ledger.errors import BreakerOpen
from podpool.ledger.messages import NetworkContainerRecord, ReconcileItem

LOOK = 10.0
"""Seconds between two looks; short beside the gone time."""
AT_ONCE = 16
"""Nodes that are decided on at the same time."""

_log = logging.getLogger(__name__)


async def watch_over(
    nodes: ObjectCache[Node], look: Callable[[], Awaitable[None]], *, see: Callable[[Node], None], gone: float
) -> None:
    """Look several times in a gone time, for ever; who is there between two looks, however briefly, is seen."""
    unsubscribe = nodes.subscribe(lambda _, node: see(node) if node else None)
    try:
        while True:
            await look()
            await asyncio.sleep(min(LOOK, gone / 4))
    finally:
        unsubscribe()


class NodeGC:
    """Watches over containers whose Node is not there."""

    def __init__(
        self, ground: ControllerDeps, session: LedgerSession, books: AllocationCache, *, reconciler: NodeReconciler
    ) -> None:
        self.braked = False
        """The ledger holds everything back: too many were lost at once."""
        self._ground = ground
        self._kube = ground.kube
        self._session = session
        self._books = books
        self._nodes = ground.mirrors.nodes
        self._configs = ground.mirrors.configs
        self._reconciler = reconciler
        self._settings = ground.settings
        self._missed: dict[str, float] = {}
        """Containers by when their Node was first missed."""

    async def run(self) -> None:
        """Look now and then."""

        async def look() -> None:
            with self._ground.metrics.working("gone"):
                await self.look()

        await watch_over(self._nodes, look, see=self._see, gone=self._settings.common.node_gc_delay)

    def _see(self, node: Node) -> None:
        kept = self._kept(node) if self._missed else None
        if kept:
            self._missed.pop(kept.state.container, None)

    async def look(self) -> None:
        """Note who is missed, and give up whose time is over."""
        now = asyncio.get_running_loop().time()
        kept = {record.state.container for node in self._nodes.values() if (record := self._kept(node))}
        missed = [record for record in self._books.values() if record.state.container not in kept]
        self._missed = {each.state.container: self._missed.get(each.state.container, now) for each in missed}
        self._session.missing = len(missed)
        due = [
            each for each in missed if now - self._missed[each.state.container] >= self._settings.common.node_gc_delay
        ]
        if not due:
            self.braked = False
        for begin in range(0, len(due), AT_ONCE):
            await asyncio.gather(*map(self._try, due[begin : begin + AT_ONCE]))

    async def _try(self, record: NetworkContainerRecord) -> None:
        try:
            await self._decide(record)
        except BreakerOpen as error:
            if not self.braked:
                self._ground.herald.braked(record.state.subnet, namespace=self._settings.namespace, why=str(error))
            self.braked = True
        except PodpoolError as error:
            self._ground.metrics.errors.labels("gone").inc()
            _log.info("node %s: not given up yet: %s", record.node, error)

    async def _decide(self, record: NetworkContainerRecord) -> None:
        if not await self._is_gone(record):
            return
        item = ReconcileItem(
            subnet=record.state.subnet,
            node=record.node,
            node_uid=record.node_uid,
            container=record.state.container,
            gone=True,
        )
        state = await self._session.reconcile(item)
        self.braked = False
        _log.warning("node %s (%s) is gone: container %s ends", record.node, record.node_uid, record.state.container)
        self._books.note(item, state)
        self._ground.herald.given_up(record)
        self._ground.metrics.mended.labels("container").inc()
        await self._clear(record)

    async def _is_gone(self, record: NetworkContainerRecord) -> bool:
        config = await self._config(record)
        try:
            node = await quorum_get(self._kube, NODES, record.node, cache=self._nodes)
        except ApiNotFound:
            return await nothing_bound(self._kube, record.node)
        if self._kept(node) is record:
            return False
        if claim_of(node, config):
            return claim_of(node, config) != record.state.container  # the machine itself has another
        report = agent_report(config) if config and speaks_of(config, record.state.container) else None
        return node.boot_id not in {record.boot_id, report.boot_id if report else None} - {None, ""}

    def _kept(self, node: Node) -> NetworkContainerRecord | None:
        return self._books.of_node(node, self._configs.get(f"{self._settings.namespace}/{node.metadata.name}"))

    async def _config(self, record: NetworkContainerRecord) -> NodeNetworkConfig | None:
        try:
            return await quorum_get(
                self._kube, NODE_NETWORK_CONFIGS, record.node, cache=self._configs, namespace=self._settings.namespace
            )
        except ApiNotFound:
            return None

    async def _clear(self, record: NetworkContainerRecord) -> None:
        """Let the NNC that is about this container go; another's says nothing about it."""
        config = await self._config(record)
        if config is None or not speaks_of(config, record.state.container):
            return
        await self._reconciler.release(config)
        if config.metadata.deletion_timestamp is None:
            await self._kube.delete(
                NODE_NETWORK_CONFIGS, record.node, namespace=self._settings.namespace, uid=config.metadata.uid
            )


async def nothing_bound(kube: KubeClient, node: str) -> bool:
    """Tell, by a quorum read, whether no unfinished Pod is bound to a node."""
    bound = await kube.list(PODS, fields=f"spec.nodeName={node}")
    return all(pod.status.phase in FINISHED for pod in bound.items)
