"""Keeps a scene in step with a real cluster and its ledger, and reads only.

What is away is said (`ClusterModel.troubles`) and tried again; what was seen last stays to be looked at. Without a ledger
subnets are what nodes show of them: a cluster of slices alone has none.
"""

import asyncio
import logging
import random
from contextlib import aclosing

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.builtin import EVENTS, NODES
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.core.errors import PodpoolError
from podpool.inspect.cluster_model import ClusterCaches, ClusterModel
from podpool.inspect.objects import OBSERVED_PODS
from podpool.kube.backoff import backoff
from podpool.kube.client import KubeClient
from podpool.kube.cluster_id import cluster_uid
from podpool.kube.informer import Informer
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import SubnetChange
from podpool.runtime.clock import Clock

LEDGER, CLUSTER = "the ledger", "the cluster"
DEADLINE = 10.0
REFRESH = 1.0
"""Seconds between two counts of what is reserved."""
SILENCE = 120.0
"""Seconds after which an API server that tells nothing is said to be away: bookmarks come every minute."""
BACKOFF_BASE, BACKOFF_MOST = 0.2, 10.0

_log = logging.getLogger(__name__)


class Observer:
    """`run` until cancelled; `scene` is what is seen."""

    def __init__(self, kube: KubeClient, ledger: LedgerClient | None, *, clock: Clock, rng: random.Random) -> None:
        self.ledger = ledger
        self.clock = clock
        self.cluster = ""
        """The UID of kube-system, once it is known."""
        self._kube = kube
        self._rng = rng
        self._nodes = Informer(kube, NODES, rng=rng)
        self._configs = Informer(kube, NODE_NETWORK_CONFIGS, rng=rng)
        self._pods = Informer(kube, OBSERVED_PODS, rng=rng)
        self._pools = Informer(kube, IP_POOLS, rng=rng)
        self._slice_pools = Informer(kube, NODE_SLICE_POOLS, rng=rng)
        self._events = Informer(kube, EVENTS, rng=rng)
        self._decided = Informer(kube, CLUSTER_SUBNETS, rng=rng)
        self.scene = ClusterModel(
            ClusterCaches(
                nodes=self._nodes.store,
                configs=self._configs.store,
                pods=self._pods.store,
                pools=self._pools.store,
                slice_pools=self._slice_pools.store,
                events=self._events.store,
                decided=self._decided.store,
            ),
            booked=ledger is not None,
        )

    async def run(self) -> None:
        """Follow everything."""
        async with asyncio.TaskGroup() as group:
            for each in (
                self._nodes,
                self._configs,
                self._decided,
                self._pods,
                self._pools,
                self._slice_pools,
                self._events,
            ):
                group.create_task(each.run())
            group.create_task(self._watch_over())
            if self.ledger:
                group.create_task(self._follow_ledger(self.ledger))
                group.create_task(self._count(self.ledger))

    def missing(self) -> str | None:
        """Tell what has not been seen yet; slices need not be there."""
        mirrors = self.scene.mirrors
        listed = {"Nodes": mirrors.nodes.synced, "Pods": mirrors.pods.synced}
        if self.ledger:
            listed["NodeNetworkConfigs"] = mirrors.configs.synced
        for name, synced in listed.items():
            if not synced.is_set():
                return f"{name} have not been listed yet"
        if not self.ledger or self.scene.subnets:
            return None
        return self.scene.troubles.get(LEDGER, "the ledger has not told of any subnet yet")

    async def _watch_over(self) -> None:
        """Say whether the API server is heard."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            heard = self._nodes.heard
            if loop.time() - (begun if heard is None else heard) > (DEADLINE if heard is None else SILENCE):
                self.scene.troubles[CLUSTER] = "the API server has told nothing for a while: what is shown may be old"
            else:
                self.scene.troubles.pop(CLUSTER, None)
            await asyncio.sleep(1.0)

    async def _follow_ledger(self, ledger: LedgerClient) -> None:
        self.cluster = await cluster_uid(self._kube, rng=self._rng)
        failures = 0
        while True:
            try:
                async with aclosing(ledger.changes(self.cluster)) as changes:
                    async for change in changes:
                        failures = 0
                        self.scene.troubles.pop(LEDGER, None)
                        await self._take(change, ledger)
            except (PodpoolError, TimeoutError) as error:
                self.scene.troubles[LEDGER] = str(error) or "the ledger does not answer"
                _log.info("the ledger's changes cannot be followed, and are tried again: %s", error)
            failures += 1
            await asyncio.sleep(backoff(failures, rng=self._rng, base=BACKOFF_BASE, most=BACKOFF_MOST))

    async def _count(self, ledger: LedgerClient) -> None:
        """Ask how full subnets are: the ledger's stream tells what it decides, not every grant."""
        while True:
            await asyncio.sleep(REFRESH)
            try:
                async with asyncio.timeout(DEADLINE):
                    states = (await ledger.subnets()).subnets
            except (PodpoolError, TimeoutError) as error:  # that it is away, the stream has told
                _log.debug("subnets cannot be counted: %s", error)
                continue
            for each in states:
                self.scene.refresh_subnet(each)

    async def _take(self, change: SubnetChange, ledger: LedgerClient) -> None:
        if change.removed:
            self.scene.drop_subnet(change.state)
            return
        if self.scene.knows(change.state):
            self.scene.set_subnet(change.state)
            return
        async with asyncio.timeout(DEADLINE):
            details = await ledger.details(change.state.subnet)
        self.scene.set_subnet(change.state, details.made)
