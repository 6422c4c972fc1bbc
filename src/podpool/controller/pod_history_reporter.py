"""Reports which Pods use which addresses to the ledger's history: from a slim watch, in batches.

Invariants: nothing waits for it, and nothing fails with it. A new leader reports everything again, which changes
nothing. Addresses are those of the Pod's status, in the network of its node's NC, and those of secondary networks from
Multus' annotation. A Pod that is deleted while there is no leader ends in the history when its address is used again.
"""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import aclosing
from itertools import islice

import msgspec

from podpool.api.builtin import ADDRESSED_PODS, FINISHED, AddressedPod
from podpool.api.meta import rfc3339
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.deps import ControllerDeps
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.kube.backoff import Backoff
from podpool.kube.informer import Applied, Deleted, Informer, Replaced
from podpool.ledger.admin_messages import PodReport, PodUsage
from podpool.ledger.errors import Invalid, LedgerError
from podpool.runtime.logging import get_logger
from podpool.runtime.supervision import report_defect
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.nad import network_statuses

BATCH_DELAY = 2.0
"""Seconds for which a report waits for more changes."""
BATCH_SIZE = 1000
"""Addresses in one report."""
MAX_PENDING = 100_000
"""Addresses that are kept while the ledger is unreachable; beyond that the oldest are dropped."""
MAX_SECONDARY = 64
"""Addresses of secondary networks of one Pod: the author of a Pod writes as many as fit into its annotations."""
MAX_NETWORK_LENGTH = 253
"""Characters of a network's name, by the ledger."""
CALL_TIMEOUT = 15.0
BACKOFF_BASE, BACKOFF_MAX = 1.0, 60.0

log = get_logger(__name__)


class PodUsageReporter:
    """Follows all Pods, and reports who uses which address, from when to when."""

    def __init__(self, deps: ControllerDeps, allocations: AllocationCache, *, cluster: str) -> None:
        self._deps = deps
        self._allocations = allocations
        self._cluster = cluster
        self._uses: dict[str, tuple[PodUsage, ...]] = {}
        """Current addresses of each Pod, by its key."""
        self._pending: dict[tuple[str, str, str], PodUsage] = {}
        self._wake = asyncio.Event()

    @property
    def pending(self) -> int:
        """Number of addresses that are not reported yet."""
        return len(self._pending)

    async def run(self) -> None:
        """Follow Pods and report until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._follow())
            group.create_task(self._send())

    async def _follow(self) -> None:
        settings = self._deps.settings.common
        pods = Informer(self._deps.kube, ADDRESSED_PODS, rng=self._deps.rng, relist_interval=settings.relist_interval)
        async with aclosing(pods.stream()) as events:
            async for event in events:
                match event:
                    case Applied():
                        self._observe(event.object)
                    case Deleted():
                        self._on_delete(event.object.key)
                    case Replaced():
                        present = {pod.key for pod in event.objects}
                        for key in [each for each in self._uses if each not in present]:
                            self._on_delete(key)
                        for pod in event.objects:
                            self._observe(pod)

    def _observe(self, pod: AddressedPod) -> None:
        try:
            self._on_pod(pod)
        except Exception as error:  # noqa: BLE001  one Pod must not end the history of all others
            report_defect(log, "Pod failed unexpectedly, left out of the history", error, pod=pod.key)

    def _on_pod(self, pod: AddressedPod) -> None:
        before = self._uses.get(pod.key, ())
        if before and before[0].uid != pod.metadata.uid:
            self._on_delete(pod.key)
            before = ()
        before_by_address = {(use.network, use.address): use for use in before}
        addresses = dict.fromkeys(self._addresses(pod))
        removed = [use for key, use in before_by_address.items() if key not in addresses]
        since = self._now() if removed or pod.status.start_time is None else pod.status.start_time
        meta = pod.metadata
        user = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid, "node": pod.spec.node_name}
        added = [
            PodUsage(network=network, address=address, since=since, **user)
            for network, address in addresses
            if (network, address) not in before_by_address
        ]
        if added or removed:
            self._queue([*self._ended(removed), *added])
            self._uses[pod.key] = (*(use for use in before if use not in removed), *added)
            if not self._uses[pod.key]:
                del self._uses[pod.key]

    def _on_delete(self, key: str) -> None:
        self._queue(self._ended(self._uses.pop(key, ())))

    def _ended(self, uses: Sequence[PodUsage]) -> list[PodUsage]:
        return [msgspec.structs.replace(use, until=max(use.since, self._now())) for use in uses]

    def _addresses(self, pod: AddressedPod) -> Iterator[tuple[str, str]]:
        """Yield network and address of a running Pod on a node with an NC."""
        record = self._allocations.by_node_name(pod.spec.node_name)
        if record is None or pod.spec.host_network or pod.status.phase in FINISHED:
            return
        for each in pod.status.pod_ips:
            yield record.state.subnet.network, each.ip
        yield from islice(_secondary_addresses(pod), MAX_SECONDARY)

    def _queue(self, uses: Sequence[PodUsage]) -> None:
        for use in uses:
            self._pending.pop((use.uid, use.network, use.address), None)
            self._pending[use.uid, use.network, use.address] = use
        while len(self._pending) > MAX_PENDING:
            del self._pending[next(iter(self._pending))]
            self._deps.metrics.pod_addresses_dropped.inc()
        if self._pending:
            self._wake.set()

    async def _send(self) -> None:
        backoff = Backoff(rng=self._deps.rng, base=BACKOFF_BASE, maximum=BACKOFF_MAX)
        delay = BATCH_DELAY
        while True:
            await self._wake.wait()
            await asyncio.sleep(delay)
            delay = BATCH_DELAY
            batch = dict(list(self._pending.items())[:BATCH_SIZE])
            for key in batch:
                del self._pending[key]
            try:
                await self._report(tuple(batch.values()))
            except (Unreachable, LedgerError, TimeoutError) as error:
                delay = backoff.fail()
                log.info("cannot report Pod addresses to the ledger, retrying", count=len(batch), error=error)
                self._pending = batch | self._pending
            else:
                backoff.reset()
            if not self._pending:
                self._wake.clear()

    async def _report(self, uses: Sequence[PodUsage]) -> None:
        """Report uses; if the ledger rejects all of them, in halves, until only the invalid one is dropped."""
        try:
            async with asyncio.timeout(CALL_TIMEOUT):
                await self._deps.ledger.report_pods(PodReport(cluster=self._cluster, pods=tuple(uses)))
        except (Invalid, UnicodeEncodeError) as error:  # a retry would fail too
            if len(uses) > 1:
                middle = len(uses) // 2
                await self._report(uses[:middle])
                await self._report(uses[middle:])
                return
            self._deps.metrics.pod_addresses_dropped.inc()
            pod = ",".join(f"{each.namespace}/{each.name}" for each in uses)
            log.warning(
                "ledger rejected a Pod's address as invalid, this use is not recorded in the history",
                pod=pod,
                error=error,
            )
        else:
            self._deps.metrics.pod_addresses.inc(len(uses))

    def _now(self) -> str:
        return rfc3339(self._deps.clock.wall())


def _secondary_addresses(pod: AddressedPod) -> Iterator[tuple[str, str]]:
    """Yield network and address of a Pod's secondary networks; one that cannot be valid counts as none."""
    for network in network_statuses(pod):
        named = not network.default and 0 < len(network.name) <= MAX_NETWORK_LENGTH
        if named and all(map(_is_address, network.ips)):
            yield from ((network.name, address) for address in network.ips)


def _is_address(address: str) -> bool:
    try:
        parse_address(address)
    except InvalidInput:
        return False
    return True
