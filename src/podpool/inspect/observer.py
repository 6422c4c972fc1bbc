"""Keeps a model in step with a real cluster and its ledger, and reads only.

What is away is said (`ClusterModel.problems`) and tried again; what was seen last stays to be looked at. Without a ledger
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
from podpool.inspect.pods import INSPECTED_PODS
from podpool.kube.backoff import backoff
from podpool.kube.client import KubeClient
from podpool.kube.cluster_id import cluster_uid
from podpool.kube.informer import Informer
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import SubnetChange
from podpool.runtime.clock import Clock

LEDGER, CLUSTER = "the ledger", "the cluster"
DEADLINE = 10.0
REFRESH_INTERVAL = 1.0
"""Seconds between two counts of what is reserved."""
STALE_AFTER = 120.0
"""Seconds after which an API server that tells nothing is said to be away: bookmarks come every minute."""
BACKOFF_BASE, BACKOFF_MOST = 0.2, 10.0

_log = logging.getLogger(__name__)


class Observer:
    """`run` until cancelled; `model` is what is seen."""

    def __init__(self, kube: KubeClient, ledger: LedgerClient | None, *, clock: Clock, rng: random.Random) -> None:
        self.ledger = ledger
        self.clock = clock
        self.cluster = ""
        """The UID of kube-system, once it is known."""
        self._kube = kube
        self._rng = rng
        self._nodes = Informer(kube, NODES, rng=rng)
        self._configs = Informer(kube, NODE_NETWORK_CONFIGS, rng=rng)
        self._pods = Informer(kube, INSPECTED_PODS, rng=rng)
        self._pools = Informer(kube, IP_POOLS, rng=rng)
        self._slice_pools = Informer(kube, NODE_SLICE_POOLS, rng=rng)
        self._events = Informer(kube, EVENTS, rng=rng)
        self._decided = Informer(kube, CLUSTER_SUBNETS, rng=rng)
        self.model = ClusterModel(
            ClusterCaches(
                nodes=self._nodes.cache,
                configs=self._configs.cache,
                pods=self._pods.cache,
                pools=self._pools.cache,
                slice_pools=self._slice_pools.cache,
                events=self._events.cache,
                decided=self._decided.cache,
            ),
            has_ledger=ledger is not None,
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
        caches = self.model.caches
        listed = {"Nodes": caches.nodes.synced, "Pods": caches.pods.synced}
        if self.ledger:
            listed["NodeNetworkConfigs"] = caches.configs.synced
        for name, synced in listed.items():
            if not synced.is_set():
                return f"{name} have not been listed yet"
        if not self.ledger or self.model.subnets:
            return None
        return self.model.problems.get(LEDGER, "the ledger has not message of any subnet yet")

    async def _watch_over(self) -> None:
        """Say whether the API server is heard."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            heard = self._nodes.last_contact
            if loop.time() - (begun if heard is None else heard) > (DEADLINE if heard is None else STALE_AFTER):
                self.model.problems[CLUSTER] = (
                    "the API server has message nothing for a while: what is shown may be old"
                )
            else:
                self.model.problems.pop(CLUSTER, None)
            await asyncio.sleep(1.0)

    async def _follow_ledger(self, ledger: LedgerClient) -> None:
        self.cluster = await cluster_uid(self._kube, rng=self._rng)
        failures = 0
        while True:
            try:
                async with aclosing(ledger.changes(self.cluster)) as changes:
                    async for change in changes:
                        failures = 0
                        self.model.problems.pop(LEDGER, None)
                        await self._take(change, ledger)
            except (PodpoolError, TimeoutError) as error:
                self.model.problems[LEDGER] = str(error) or "the ledger does not answer"
                _log.info("the ledger's changes cannot be followed, and are tried again: %s", error)
            failures += 1
            await asyncio.sleep(backoff(failures, rng=self._rng, base=BACKOFF_BASE, most=BACKOFF_MOST))

    async def _count(self, ledger: LedgerClient) -> None:
        """Ask how full subnets are: the ledger's stream tells what it decides, not every grant."""
        while True:
            await asyncio.sleep(REFRESH_INTERVAL)
            try:
                async with asyncio.timeout(DEADLINE):
                    states = (await ledger.subnets()).subnets
            except (PodpoolError, TimeoutError) as error:  # that it is away, the stream has message
                _log.debug("subnets cannot be counted: %s", error)
                continue
            for each in states:
                self.model.refresh_subnet(each)

    async def _take(self, change: SubnetChange, ledger: LedgerClient) -> None:
        if change.removed:
            self.model.drop_subnet(change.state)
            return
        if self.model.knows(change.state):
            self.model.set_subnet(change.state)
            return
        async with asyncio.timeout(DEADLINE):
            details = await ledger.details(change.state.subnet)
        self.model.set_subnet(change.state, details.made)
