"""Keeps a ClusterModel up to date from a real cluster and its ledger. Read only.

An unreachable component is reported in `ClusterModel.problems` and retried; the last known state stays visible.
Without a ledger, subnets are derived from NodeNetworkConfigs. If no ledger is configured, the cluster's objects decide
whether one is missing.
"""

import asyncio
import random
from contextlib import aclosing

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.builtin import EVENTS, NODES
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import NODE_SLICES
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS
from podpool.core.errors import PodpoolError
from podpool.inspect.cluster_model import ClusterCaches, ClusterModel
from podpool.inspect.view_models import INSPECTED_PODS
from podpool.kube.backoff import Backoff
from podpool.kube.client import KubeClient
from podpool.kube.cluster_discovery import cluster_uid
from podpool.kube.informer import Informer
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import SubnetChange
from podpool.runtime.clock import Clock
from podpool.runtime.logging import get_logger

LEDGER, CLUSTER = "the ledger", "the cluster"
DEADLINE = 10.0
REFRESH_INTERVAL = 1.0
"""Seconds between two reads of subnet counters."""
STALE_AFTER = 120.0
"""Seconds without any event after which the API server counts as unreachable; bookmarks arrive every minute."""
BACKOFF_BASE, BACKOFF_MAX = 0.2, 10.0

_log = get_logger(__name__)


class Observer:
    """Runs informers and the ledger stream until cancelled; `model` is the result."""

    def __init__(
        self,
        kube: KubeClient,
        ledger: LedgerClient | None,
        *,
        clock: Clock,
        rng: random.Random,
        ledger_configured: bool = True,
    ) -> None:
        self.ledger = ledger
        self.clock = clock
        self.cluster = ""
        """The UID of kube-system, once it is known."""
        self._kube = kube
        self._rng = rng
        self._nodes = nodes = Informer(kube, NODES, rng=rng)
        nncs, pods = Informer(kube, NODE_NETWORK_CONFIGS, rng=rng), Informer(kube, INSPECTED_PODS, rng=rng)
        pools, slice_pools = Informer(kube, IP_POOLS, rng=rng), Informer(kube, NODE_SLICE_POOLS, rng=rng)
        events, subnets = Informer(kube, EVENTS, rng=rng), Informer(kube, CLUSTER_SUBNETS, rng=rng)
        nads, node_slices = Informer(kube, NETWORK_ATTACHMENTS, rng=rng), Informer(kube, NODE_SLICES, rng=rng)
        self._informers = (nodes, nncs, subnets, pods, pools, slice_pools, node_slices, nads, events)
        caches = ClusterCaches(
            nodes=nodes.cache,
            nncs=nncs.cache,
            pods=pods.cache,
            pools=pools.cache,
            node_slice_pools=slice_pools.cache,
            node_slices=node_slices.cache,
            nads=nads.cache,
            events=events.cache,
            cluster_subnets=subnets.cache,
        )
        self.model = ClusterModel(
            caches, has_ledger=ledger is not None if ledger is None or ledger_configured else None
        )

    async def run(self) -> None:
        """Follow all sources."""
        async with asyncio.TaskGroup() as group:
            for each in self._informers:
                group.create_task(each.run())
            group.create_task(self._check_api_server())
            if self.ledger:
                group.create_task(self._follow_ledger(self.ledger))
                group.create_task(self._read_counters(self.ledger))

    def missing(self) -> str | None:
        """Return what has not been read yet, or None; slices are optional."""
        caches = self.model.caches
        listed = {"Nodes": caches.nodes.synced, "Pods": caches.pods.synced}
        if self.model.has_ledger:
            listed["NodeNetworkConfigs"] = caches.nncs.synced
        for name, synced in listed.items():
            if not synced.is_set():
                return f"{name} have not been listed yet"
        if not self.model.has_ledger or self.model.subnets:
            return None
        return self.model.problems.get(LEDGER, "the ledger has not reported any subnet yet")

    async def _check_api_server(self) -> None:
        """Report whether the API server is reachable."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        while True:
            last = self._nodes.last_contact
            if loop.time() - (begun if last is None else last) > (DEADLINE if last is None else STALE_AFTER):
                self.model.problems[CLUSTER] = "no event from the API server for a while: data may be stale"
            else:
                self.model.problems.pop(CLUSTER, None)
            if not self.model.has_ledger:
                self.model.problems.pop(LEDGER, None)
            await asyncio.sleep(1.0)

    async def _follow_ledger(self, ledger: LedgerClient) -> None:
        self.cluster = await cluster_uid(self._kube, rng=self._rng)
        backoff = Backoff(rng=self._rng, base=BACKOFF_BASE, maximum=BACKOFF_MAX)
        while True:
            try:
                async with aclosing(ledger.changes(self.cluster)) as changes:
                    async for change in changes:
                        backoff.reset()
                        self.model.problems.pop(LEDGER, None)
                        await self._take(change, ledger)
            except (PodpoolError, TimeoutError) as error:
                if self.model.has_ledger:
                    self.model.problems[LEDGER] = str(error) or "the ledger does not respond"
                _log.info("ledger stream failed, retrying", error=str(error))
            await backoff.wait()

    async def _read_counters(self, ledger: LedgerClient) -> None:
        """Read subnet counters: the ledger's stream carries decisions, not every grant."""
        while True:
            await asyncio.sleep(REFRESH_INTERVAL)
            try:
                async with asyncio.timeout(DEADLINE):
                    states = (await ledger.subnets()).subnets
            except (PodpoolError, TimeoutError) as error:  # the stream reports an unreachable ledger
                _log.debug("subnet counters not available", error=str(error))
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
        self.model.set_subnet(change.state, details.spec)
