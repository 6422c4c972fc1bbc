"""Informers of the slice controller."""

import asyncio
import random
from typing import Any

from podpool.api.builtin import CONFIG_MAPS
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import INVENTORY_CONFIG_MAP, NODE_SLICES
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.kube.cluster_discovery import wait_until_served
from podpool.kube.informer import Informer

CRD_POLL_INTERVAL = 60.0
"""Seconds between two checks whether Multus' CRD is installed."""


class SliceControllerInformers:
    """Informers of NADs, NodeSlices, NodeSlicePools, IPPools and the inventory's ConfigMap; on every replica."""

    def __init__(self, kube: KubeClient, *, settings: ControllerSettings, rng: random.Random) -> None:
        namespace, relist = settings.whereabouts_namespace, settings.common.relist_interval
        nads = Informer(kube, NETWORK_ATTACHMENTS, rng=rng, relist_interval=relist)
        self.nads = nads.cache
        self.pools = Informer(kube, IP_POOLS, rng=rng, namespace=namespace, relist_interval=relist)
        self.node_slices = Informer(kube, NODE_SLICES, rng=rng, relist_interval=relist)
        self.slice_pools = Informer(kube, NODE_SLICE_POOLS, rng=rng, namespace=namespace, relist_interval=relist)
        fields = f"metadata.name={INVENTORY_CONFIG_MAP}"
        self.inventory = Informer(
            kube, CONFIG_MAPS, rng=rng, namespace=namespace, fields=fields, relist_interval=relist
        )
        self._informers: tuple[Informer[Any], ...] = (
            nads,
            self.pools,
            self.node_slices,
            self.slice_pools,
            self.inventory,
        )
        self._inventoried = 0
        """How many of the detected restores an inventory of all nodes has followed."""
        self._kube = kube
        self._rng = rng

    @property
    def restores(self) -> int:
        """How often a restore of the API server was detected."""
        return sum(each.restores for each in self._informers)

    @property
    def has_restores_to_inventory(self) -> bool:
        """Whether a restore was detected after which this replica has not completed an inventory of all nodes."""
        return self.restores != self._inventoried

    def on_inventory(self, restores: int) -> None:
        """Record that all nodes have reported after so many detected restores."""
        self._inventoried = restores

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
