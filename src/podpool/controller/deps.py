"""Dependencies that the reconcilers share. Slices need no ledger."""

import asyncio
import random
from dataclasses import dataclass
from typing import Any

from podpool.api.azure import CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES, Node
from podpool.controller.events import ControllerEvents
from podpool.controller.metrics import ControllerMetrics
from podpool.controller.settings import ControllerSettings
from podpool.controller.slices.informers import SliceControllerInformers
from podpool.controller.subnet_ranges import SubnetRanges
from podpool.kube.cache import ObjectCache
from podpool.kube.client import KubeClient
from podpool.kube.informer import Informer
from podpool.ledger.client import LedgerClient
from podpool.runtime.clock import Clock


class ControllerInformers:
    """Caches of Nodes, NNCs, ClusterSubnets and ClusterSubnetStates; without a ledger only Nodes are followed.

    They run on every replica, so that a new leader starts with filled caches.
    """

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

    def failure(self) -> str:
        """Return which caches are not filled yet, and why; empty if all are."""
        unfilled = [each for each in self._informers if not each.cache.synced.is_set()]
        return "; ".join(dict.fromkeys(each.failure or "not listed yet" for each in unfilled))

    async def synced(self) -> None:
        """Wait until every cache has been filled."""
        for informer in self._informers:
            await informer.cache.synced.wait()


@dataclass(frozen=True, kw_only=True)
class CommonDeps:
    """Clients and settings of one cluster."""

    kube: KubeClient
    """Writes only while this controller is the leader."""
    events: ControllerEvents
    metrics: ControllerMetrics
    settings: ControllerSettings
    clock: Clock
    rng: random.Random
    subnet_ranges: SubnetRanges
    """CIDRs of the ledger's subnets."""


@dataclass(frozen=True, kw_only=True)
class ControllerDeps(CommonDeps):
    """Dependencies of the ledger-backed reconcilers."""

    ledger: LedgerClient
    informers: ControllerInformers

    @property
    def namespace(self) -> str:
        """Namespace of NNCs and ClusterSubnets."""
        return self.settings.namespace


@dataclass(frozen=True, kw_only=True)
class SliceDeps(CommonDeps):
    """Dependencies of the slice reconcilers."""

    nodes: ObjectCache[Node]
    informers: SliceControllerInformers

    @property
    def namespace(self) -> str:
        """Namespace of Whereabouts' objects."""
        return self.settings.whereabouts_namespace
