"""The cluster's objects as the controller sees them: mirrors that are kept whether it leads or not."""

import asyncio
import random

from podpool.controller.settings import Settings
from podpool.kube.client import KubeClient
from podpool.kube.reflector import Reflector
from podpool.resources.acn import NETWORK_CONFIGS, SUBNET_STATES, SUBNETS
from podpool.resources.builtin import NODES


class Mirrors:
    """One for each kind that the controller acts on."""

    def __init__(self, kube: KubeClient, *, settings: Settings, rng: random.Random) -> None:
        namespace, trust = settings.namespace, settings.numbers.relist
        self._nodes = Reflector(kube, NODES, rng=rng, trust=trust)
        self._configs = Reflector(kube, NETWORK_CONFIGS, rng=rng, namespace=namespace, trust=trust)
        self._subnets = Reflector(kube, SUBNETS, rng=rng, namespace=namespace, trust=trust)
        self._states = Reflector(kube, SUBNET_STATES, rng=rng, namespace=namespace, trust=trust)
        self.nodes = self._nodes.store
        self.configs = self._configs.store
        self.subnets = self._subnets.store
        self.states = self._states.store

    async def run(self) -> None:
        """Keep them."""
        async with asyncio.TaskGroup() as group:
            for mirror in (self._nodes, self._configs, self._subnets, self._states):
                group.create_task(mirror.run())

    async def synced(self) -> None:
        """Wait until each has been seen as a whole."""
        for store in (self.nodes, self.configs, self.subnets, self.states):
            await store.synced.wait()
