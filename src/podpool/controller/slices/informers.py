"""Informers of the slice controller."""

import asyncio
import math
import random
from typing import Generic

from podpool.api.builtin import CONFIG_MAPS, ConfigMap
from podpool.api.meta import Kind, T, version_number
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import INVENTORY_CONFIG_MAP, NODE_SLICES
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.kube.cluster_discovery import wait_until_served
from podpool.kube.informer import Informer

CRD_POLL_INTERVAL = 60.0
"""Seconds between two checks whether Multus' CRD is installed."""


class TrackedInformer(Generic[T]):
    """An informer that counts restores of the API server."""

    def __init__(
        self,
        kube: KubeClient,
        kind: Kind[T],
        *,
        settings: ControllerSettings,
        rng: random.Random,
        namespace: str | None = None,
        name: str | None = None,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.restores = 0
        """How often the API server was restored to an older state."""
        self.restored_at = -math.inf
        """Time of the last restore, by the event loop's clock."""
        self._informer = Informer(
            kube,
            kind,
            rng=rng,
            namespace=namespace,
            fields=f"metadata.name={name}" if name else None,
            relist_interval=settings.common.relist_interval,
        )
        self._informer.on_restored = self._on_restored
        self.cache = self._informer.cache
        self.run = self._informer.run

    @property
    def resource_version(self) -> int:
        """The newest resourceVersion that the watch has shown."""
        return version_number(self._informer.resource_version)

    def _on_restored(self, _seen: int, _found: int) -> None:
        self.restores += 1
        self.restored_at = asyncio.get_running_loop().time()


class SliceControllerInformers:
    """Informers of NADs, NodeSlices, NodeSlicePools, IPPools and the inventory's ConfigMap; on every replica."""

    def __init__(self, kube: KubeClient, *, settings: ControllerSettings, rng: random.Random) -> None:
        namespace = settings.whereabouts_namespace
        nads = TrackedInformer(kube, NETWORK_ATTACHMENTS, settings=settings, rng=rng)
        self.nads = nads.cache
        self.pools = TrackedInformer(kube, IP_POOLS, settings=settings, rng=rng, namespace=namespace)
        self.node_slices = TrackedInformer(kube, NODE_SLICES, settings=settings, rng=rng)
        self.slice_pools = TrackedInformer(kube, NODE_SLICE_POOLS, settings=settings, rng=rng, namespace=namespace)
        self.inventory: TrackedInformer[ConfigMap] = TrackedInformer(
            kube, CONFIG_MAPS, settings=settings, rng=rng, namespace=namespace, name=INVENTORY_CONFIG_MAP
        )
        self._informers = (nads, self.pools, self.node_slices, self.slice_pools, self.inventory)
        self._kube = kube
        self._rng = rng

    @property
    def restores(self) -> int:
        """How often a restore of the API server was detected."""
        return sum(each.restores for each in self._informers)

    def restored_within(self, seconds: float) -> bool:
        """Return whether a restore was detected within the last seconds."""
        return max(each.restored_at for each in self._informers) + seconds > asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Follow the objects until cancelled, once Multus' CRD is installed."""
        await wait_until_served(self._kube, NETWORK_ATTACHMENTS, rng=self._rng, interval=CRD_POLL_INTERVAL)
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())

    async def synced(self) -> None:
        """Wait until every cache has been filled; without Multus' CRD this never returns."""
        for informer in self._informers:
            await informer.cache.synced.wait()
