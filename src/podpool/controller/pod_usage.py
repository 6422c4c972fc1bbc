"""Which Pods have which addresses, told to the ledger for its history: from a slim watch, in batches.

What must hold: nothing waits for it, and nothing fails with it. A new leader tells everything again, which changes
nothing. Addresses are those of the Pod's status, in the network of its node's container, and those of further networks,
as the annotation of Multus names them. A Pod that goes while nobody leads is ended by whoever has its address next.
"""

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import aclosing

import msgspec

from podpool.api.builtin import ADDRESSED_PODS, FINISHED, AddressedPod
from podpool.api.meta import rfc3339
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.deps import ControllerDeps
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.kube.backoff import backoff
from podpool.kube.informer import Applied, Deleted, Informer, Replaced
from podpool.ledger.admin_messages import PodReport, PodUsage
from podpool.ledger.errors import Invalid, LedgerError
from podpool.runtime.transport import Unreachable

GATHER = 2.0
"""Seconds for which news wait for company."""
BATCH = 1000
"""Addresses in one report."""
KEPT = 100_000
"""Addresses that wait while the ledger is away; of more than that the oldest are never told."""
DEADLINE = 15.0
BACKOFF_BASE, BACKOFF_MOST = 1.0, 60.0

_log = logging.getLogger(__name__)


class _Network(msgspec.Struct, frozen=True):
    """One entry of the annotation."""

    name: str = ""
    ips: tuple[str, ...] = ()
    default: bool = False


class PodUsageReporter:
    """Follows all Pods, and tells who has which address, since when, until when."""

    def __init__(self, ground: ControllerDeps, books: AllocationCache, *, cluster: str) -> None:
        self._ground = ground
        self._books = books
        self._cluster = cluster
        self._uses: dict[str, tuple[PodUsage, ...]] = {}
        """What each Pod has now, by its key."""
        self._news: dict[tuple[str, str, str], PodUsage] = {}
        self._some = asyncio.Event()

    @property
    def unreported(self) -> int:
        """Count the addresses that wait to be told."""
        return len(self._news)

    async def run(self) -> None:
        """Follow and tell."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._send())

    async def _follow(self) -> None:
        settings = self._ground.settings.common
        pods = Informer(self._ground.kube, ADDRESSED_PODS, rng=self._ground.rng, trust=settings.relist_interval)
        async with aclosing(pods.stream()) as events:
            async for event in events:
                match event:
                    case Applied():
                        self._see(event.object)
                    case Deleted():
                        self._end(event.object.key)
                    case Replaced():
                        there = {pod.key for pod in event.objects}
                        for key in [each for each in self._uses if each not in there]:
                            self._end(key)
                        for pod in event.objects:
                            self._see(pod)

    def _see(self, pod: AddressedPod) -> None:
        before = self._uses.get(pod.key, ())
        if before and before[0].uid != pod.metadata.uid:
            self._end(pod.key)
            before = ()
        had = {(use.network, use.address): use for use in before}
        has = dict.fromkeys(self._addresses(pod))
        lost = [use for place, use in had.items() if place not in has]
        since = self._now() if lost or pod.status.start_time is None else pod.status.start_time
        came = [
            PodUsage(
                network=network,
                address=address,
                namespace=pod.metadata.namespace,
                name=pod.metadata.name,
                uid=pod.metadata.uid,
                since=since,
                node=pod.spec.node_name,
            )
            for network, address in has
            if (network, address) not in had
        ]
        if came or lost:
            self._tell([*self._ended(lost), *came])
            self._uses[pod.key] = (*(use for use in before if use not in lost), *came)
            if not self._uses[pod.key]:
                del self._uses[pod.key]

    def _end(self, key: str) -> None:
        self._tell(self._ended(self._uses.pop(key, ())))

    def _ended(self, uses: Sequence[PodUsage]) -> list[PodUsage]:
        return [msgspec.structs.replace(use, until=max(use.since, self._now())) for use in uses]

    def _addresses(self, pod: AddressedPod) -> Iterator[tuple[str, str]]:
        """List networks and addresses of a Pod that runs on a node of ours."""
        record = self._books.of_name(pod.spec.node_name)
        if record is None or pod.spec.host_network or pod.status.phase in FINISHED:
            return
        for each in pod.status.pod_ips:
            yield record.state.subnet.network, each.ip
        for network in _further(pod.metadata.annotations.status):
            for address in network.ips:
                yield network.name, address

    def _tell(self, uses: Sequence[PodUsage]) -> None:
        for use in uses:
            self._news.pop((use.uid, use.network, use.address), None)
            self._news[use.uid, use.network, use.address] = use
        while len(self._news) > KEPT:
            del self._news[next(iter(self._news))]
            self._ground.metrics.pods_dropped.inc()
        if self._news:
            self._some.set()

    async def _send(self) -> None:
        failures = 0
        while True:
            await self._some.wait()
            await asyncio.sleep(GATHER if not failures else self._patience(failures))
            batch = dict(list(self._news.items())[:BATCH])
            for key in batch:
                del self._news[key]
            try:
                async with asyncio.timeout(DEADLINE):
                    await self._ground.ledger.report_pods(PodReport(cluster=self._cluster, pods=tuple(batch.values())))
            except Invalid as error:  # it will not be better the next time
                _log.warning("addresses of %d Pods are not told: %s", len(batch), error)
                self._ground.metrics.pods_dropped.inc(len(batch))
            except (Unreachable, LedgerError, TimeoutError) as error:
                failures += 1
                _log.info("addresses of Pods are told later: %s", error)
                self._news = batch | self._news
            else:
                failures = 0
                self._ground.metrics.pods.inc(len(batch))
            if not self._news:
                self._some.clear()

    def _patience(self, failures: int) -> float:
        return backoff(failures, rng=self._ground.rng, base=BACKOFF_BASE, most=BACKOFF_MOST)

    def _now(self) -> str:
        return rfc3339(self._ground.clock.wall())


def _further(annotation: str | None) -> list[_Network]:
    """Read the further networks of a Pod; what cannot be read is none."""
    if not annotation:
        return []
    try:
        told = msgspec.convert(json.loads(annotation), list[_Network])
    except (ValueError, msgspec.ValidationError):
        return []
    return [network for network in told if network.name and not network.default and all(map(_readable, network.ips))]


def _readable(address: str) -> bool:
    try:
        parse_address(address)
    except InvalidInput:
        return False
    return True
