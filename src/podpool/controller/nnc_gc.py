"""NNCs that nobody needs: their Node is gone, and the ledger has no container that they tell of.

What must hold: found in two reads, some time apart, of which the last is fresh; and only what was found is removed. A
container without a Node is another matter (`gone`): while there is one, its NNC stays.
"""

import asyncio
import logging

from podpool.api.azure import NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.api.builtin import NODES
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.deps import ControllerDeps
from podpool.controller.node_reconciler import NodeReconciler
from podpool.core.errors import PodpoolError
from podpool.kube.errors import ApiNotFound
from podpool.kube.informer import quorum_get

APART = 60.0
"""Seconds between two reads."""

_log = logging.getLogger(__name__)


class OrphanNNCGC:
    """Looks for NNCs without Node and container."""

    def __init__(self, ground: ControllerDeps, books: AllocationCache, *, reconciler: NodeReconciler) -> None:
        self._ground = ground
        self._books = books
        self._reconciler = reconciler
        self._found: dict[str, NodeNetworkConfig] = {}
        """What the last look found, by UID."""

    async def run(self) -> None:
        """Look now and then."""
        while True:
            with self._ground.metrics.working("garbage"):
                await self.look()
            await asyncio.sleep(min(APART, self._ground.settings.common.node_gc_delay))

    async def look(self) -> None:
        """Note what seems to be left behind, and remove what was left behind the last time already."""
        configs = self._ground.mirrors.configs.values()
        left = {config.metadata.uid: config for config in configs if self._is_left(config)}
        again = [config for uid, config in left.items() if uid in self._found]
        self._found = left
        for config in again:
            try:
                await self._remove(config)
            except PodpoolError as error:
                self._ground.metrics.errors.labels("garbage").inc()
                _log.info("NNC %s: not removed yet: %s", config.metadata.name, error)

    def _is_left(self, config: NodeNetworkConfig) -> bool:
        name = config.metadata.name
        return self._ground.mirrors.nodes.get(name) is None and not self._books.remembers(name)

    async def _remove(self, config: NodeNetworkConfig) -> None:
        kube, mirrors, name = self._ground.kube, self._ground.mirrors, config.metadata.name
        namespace = self._ground.settings.namespace
        try:
            await quorum_get(kube, NODES, name, cache=mirrors.nodes)
        except ApiNotFound:
            now = await quorum_get(kube, NODE_NETWORK_CONFIGS, name, cache=mirrors.configs, namespace=namespace)
        else:
            return
        if now.metadata.uid != config.metadata.uid or not self._is_left(now):
            return
        await self._reconciler.release(now)
        if now.metadata.deletion_timestamp is None:
            await kube.delete(NODE_NETWORK_CONFIGS, name, namespace=namespace, uid=now.metadata.uid)
        _log.warning("NNC %s was left behind by a Node that is gone, and is removed", name)
        self._ground.herald.mended(now, "its Node is gone, and the ledger has no container for it: removed")
        self._ground.metrics.mended.labels("config").inc()
