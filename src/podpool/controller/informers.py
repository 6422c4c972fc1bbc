"""The cluster's objects as the controller sees them: mirrors that are kept whether it leads or not."""

import asyncio
import random

from podpool.api.azure import (
    CLUSTER_SUBNET_STATES,
    CLUSTER_SUBNETS,
    NODE_NETWORK_CONFIGS,
    ClusterSubnet,
    ClusterSubnetState,
    NodeNetworkConfig,
)
from podpool.api.builtin import NODES, Node
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.kube.informer import Informer

_Mirror = Informer[Node] | Informer[NodeNetworkConfig] | Informer[ClusterSubnet] | Informer[ClusterSubnetState]


class ControllerInformers:
    """One for each kind that the controller acts on; without a ledger only Nodes."""

    def __init__(
        self, kube: KubeClient, *, settings: ControllerSettings, rng: random.Random, ledger: bool = True
    ) -> None:
        namespace, trust = settings.namespace, settings.common.relist_interval
        nodes = Informer(kube, NODES, rng=rng, trust=trust)
        configs = Informer(kube, NODE_NETWORK_CONFIGS, rng=rng, namespace=namespace, trust=trust)
        subnets = Informer(kube, CLUSTER_SUBNETS, rng=rng, namespace=namespace, trust=trust)
        states = Informer(kube, CLUSTER_SUBNET_STATES, rng=rng, namespace=namespace, trust=trust)
        self.nodes = nodes.store
        self.configs = configs.store
        self.subnets = subnets.store
        self.states = states.store
        self._kept: tuple[_Mirror, ...] = (nodes, configs, subnets, states) if ledger else (nodes,)

    async def run(self) -> None:
        """Keep them."""
        async with asyncio.TaskGroup() as group:
            for mirror in self._kept:
                group.create_task(mirror.run())

    async def synced(self) -> None:
        """Wait until each has been seen as a whole."""
        for mirror in self._kept:
            await mirror.store.synced.wait()
