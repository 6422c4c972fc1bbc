"""Informers of the controller. They run on every replica, so that a new leader starts with filled caches."""

import asyncio
import random
from typing import Any

from podpool.api.azure import CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.kube.informer import Informer


class ControllerInformers:
    """Caches of Nodes, NNCs, ClusterSubnets and ClusterSubnetStates; without a ledger only Nodes are followed."""

    def __init__(
        self, kube: KubeClient, *, settings: ControllerSettings, rng: random.Random, ledger: bool = True
    ) -> None:
        namespace, relist = settings.namespace, settings.common.relist_interval
        nodes = Informer(kube, NODES, rng=rng, relist_interval=relist)
        nncs = Informer(kube, NODE_NETWORK_CONFIGS, rng=rng, namespace=namespace, relist_interval=relist)
        subnets = Informer(kube, CLUSTER_SUBNETS, rng=rng, namespace=namespace, relist_interval=relist)
        states = Informer(kube, CLUSTER_SUBNET_STATES, rng=rng, namespace=namespace, relist_interval=relist)
        self.nodes = nodes.cache
        self.nncs = nncs.cache
        self.subnets = subnets.cache
        self.subnet_states = states.cache
        self._informers: tuple[Informer[Any], ...] = (nodes, nncs, subnets, states) if ledger else (nodes,)

    async def run(self) -> None:
        """Follow the objects until cancelled."""
        async with asyncio.TaskGroup() as group:
            for informer in self._informers:
                group.create_task(informer.run())

    async def synced(self) -> None:
        """Wait until every cache has been filled."""
        for informer in self._informers:
            await informer.cache.synced.wait()
