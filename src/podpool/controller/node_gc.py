"""Node GC: releases the network container of a deleted Node, and deletes orphaned NNCs.

Invariant: that a Node is deleted is decided on quorum reads after `node_gc_delay`, never on a cache. No Node has the
NC; no Node of that name reports the boot ID that the agent wrote, unless its agent claims another NC; and while no Node
of that name exists, no unfinished Pod is bound to it. The delay is longer than the fence: by then the agent assigns no
new address. An NC without grants whose Node's agent claims another is released at once: it keeps the claimed one from
being transferred.
"""

import asyncio
from collections.abc import Awaitable, Callable

from podpool.api.azure import NODE_NETWORK_CONFIGS, NodeNetworkConfig, agent_report
from podpool.api.builtin import NODES, Node
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.bound_pods import BoundPods
from podpool.controller.deps import ControllerDeps
from podpool.controller.network_sessions import NetworkSessions
from podpool.controller.nnc_conversion import claimed_nc, report_is_about
from podpool.controller.node_reconciler import NodeReconciler
from podpool.core.errors import PodpoolError
from podpool.core.two_observations import OBSERVATION_INTERVAL, TwoObservations
from podpool.kube.cache import ObjectCache
from podpool.kube.informer import quorum_find, quorum_get
from podpool.ledger.errors import BreakerOpen
from podpool.ledger.messages import NetworkContainerRecord, ReconcileItem
from podpool.runtime.logging import get_logger
from podpool.runtime.supervision import report_defect

SCAN_INTERVAL = 10.0
"""Seconds between two scans; short compared to the delay."""
CONCURRENCY = 256
"""Nodes that are released at the same time, after one list of Pods; the transport limits concurrent requests."""

log = get_logger(__name__)


async def run_node_gc(
    nodes: ObjectCache[Node], scan: Callable[[], Awaitable[None]], *, on_node: Callable[[Node], None], delay: float
) -> None:
    """Scan several times within a delay. `on_node` is called for each Node that appears between two scans."""
    unsubscribe = nodes.subscribe(lambda _, node: on_node(node) if node else None)
    try:
        while True:
            await scan()
            await asyncio.sleep(min(SCAN_INTERVAL, delay / 4))
    finally:
        unsubscribe()


class NodeGC:
    """Releases NCs whose Node has been missing for the delay."""

    def __init__(
        self,
        deps: ControllerDeps,
        session: NetworkSessions,
        allocations: AllocationCache,
        *,
        reconciler: NodeReconciler,
    ) -> None:
        self.paused = False
        """The ledger's circuit breaker is open: too many Nodes are missing at once."""
        self._deps = deps
        self._kube = deps.kube
        self._session = session
        self._allocations = allocations
        self._nodes = deps.informers.nodes
        self._nncs = deps.informers.nncs
        self._reconciler = reconciler
        self._settings = deps.settings
        self._bound_pods = BoundPods(deps.kube)
        self._missing = TwoObservations[str](deps.settings.common.node_gc_delay)
        """NCs whose Node is missing."""

    async def run(self) -> None:
        """Scan until cancelled."""

        async def scan() -> None:
            with self._deps.metrics.measure("node_gc"):
                await self.scan()

        await run_node_gc(self._nodes, scan, on_node=self._on_node, delay=self._settings.common.node_gc_delay)

    def _on_node(self, node: Node) -> None:
        record = self._nc_of(node) if self._missing else None
        if record:
            self._missing.forget(record.state.nc_id)

    async def scan(self) -> None:
        """Record which NCs have no Node, and release those whose Node has been missing for the delay."""
        in_use = {record.state.nc_id for node in self._nodes.values() if (record := self._nc_of(node))}
        records = {each.state.nc_id: each for each in self._allocations.values()}
        missing = [nc for nc in records if nc not in in_use]
        self._session.set_missing(records[nc].state.subnet.network for nc in missing)
        superseded = [nc for nc in missing if self._is_superseded(records[nc])]
        observed = self._missing.observe(missing, now=asyncio.get_running_loop().time())
        due = [records[nc] for nc in dict.fromkeys((*superseded, *observed))]
        if not due:
            self.paused = False
        while due and self.paused:  # while the breaker is open, one NC a scan finds out, and not each
            if await self._try_release(due.pop(0)):
                return
        for begin in range(0, len(due), CONCURRENCY):
            if any(await asyncio.gather(*map(self._try_release, due[begin : begin + CONCURRENCY]))):
                return

    def _is_superseded(self, record: NetworkContainerRecord) -> bool:
        """Return whether an NC has no grants, and the agent of its node claims another: no agent has adopted it."""
        node = self._nodes.get(record.node)
        return bool(node and not record.state.grants and claimed_nc(node, self._nnc_of(node)))

    async def _try_release(self, record: NetworkContainerRecord) -> bool:
        """Release an NC if its node is gone; returns whether the circuit breaker forbids it."""
        try:
            await self._release(record)
        except BreakerOpen as error:
            if not self.paused:
                log.warning(
                    "too many nodes gone at once, node GC paused until they return or the loss is confirmed",
                    reason=error,
                )
                self._deps.events.node_gc_paused(record.state.subnet, namespace=self._deps.namespace, why=str(error))
            self.paused = True
            return True
        except PodpoolError as error:
            self._deps.metrics.errors.labels("node_gc").inc()
            log.info("cannot release network container, retrying", node=record.node, nc=record.state.nc_id, error=error)
        except Exception as error:  # noqa: BLE001  one NC must not keep the others from being released
            report_defect(log, "release failed unexpectedly, retrying", error, node=record.node, nc=record.state.nc_id)
        return False

    async def _release(self, record: NetworkContainerRecord) -> None:
        if not await self._is_deleted(record):
            return
        nc, subnet, node, uid = record.state.nc_id, record.state.subnet, record.node, record.node_uid
        item = ReconcileItem(subnet=subnet, node=node, node_uid=uid, nc_id=nc, node_gone=True)
        state = await self._session.reconcile(item)
        self.paused = False
        released = {"nc": nc, "subnet": subnet, "count": len(record.state.grants)}
        log.info("node is gone, network container released", node=node, node_uid=uid, **released)
        self._allocations.update(item, state)
        self._deps.events.nc_released(record)
        self._deps.metrics.orphans.labels("network_container").inc()
        await self._delete_nnc(record)

    async def _is_deleted(self, record: NetworkContainerRecord) -> bool:
        nnc = await self._read_nnc(record)
        node = await quorum_find(self._kube, NODES, record.node, cache=self._nodes)
        if node is None:
            return await self._bound_pods.none_on(record.node)
        if self._nc_of(node) is record:
            return False
        if claimed_nc(node, nnc):
            return claimed_nc(node, nnc) != record.state.nc_id
        report = agent_report(nnc) if nnc and report_is_about(nnc, record.state.nc_id) else None
        return node.boot_id not in {record.boot_id, report.boot_id if report else None} - {None, ""}

    def _nc_of(self, node: Node) -> NetworkContainerRecord | None:
        return self._allocations.for_node(node, self._nnc_of(node))

    def _nnc_of(self, node: Node) -> NodeNetworkConfig | None:
        return self._nncs.get(f"{self._settings.namespace}/{node.metadata.name}")

    async def _read_nnc(self, record: NetworkContainerRecord) -> NodeNetworkConfig | None:
        namespace = self._settings.namespace
        return await quorum_find(self._kube, NODE_NETWORK_CONFIGS, record.node, cache=self._nncs, namespace=namespace)

    async def _delete_nnc(self, record: NetworkContainerRecord) -> None:
        """Delete the NNC if it is about this NC."""
        nnc = await self._read_nnc(record)
        if nnc is None or not report_is_about(nnc, record.state.nc_id):
            return
        await self._reconciler.remove_finalizer(nnc)
        if nnc.metadata.deletion_timestamp is None:
            namespace, uid = self._settings.namespace, nnc.metadata.uid
            await self._kube.delete(NODE_NETWORK_CONFIGS, record.node, namespace=namespace, uid=uid)


class OrphanNNCGC:
    """Deletes NNCs without a Node whose NC no longer exists; while an NC exists, node GC decides about it.

    Invariant: an NNC is deleted after two observations, and a quorum read confirms the second.
    """

    def __init__(self, deps: ControllerDeps, allocations: AllocationCache, *, reconciler: NodeReconciler) -> None:
        self._deps = deps
        self._allocations = allocations
        self._reconciler = reconciler
        self._interval = min(OBSERVATION_INTERVAL, deps.settings.common.node_gc_delay)
        self._orphans = TwoObservations[str](self._interval)
        """By UID."""

    async def run(self) -> None:
        """Scan until cancelled."""
        while True:
            with self._deps.metrics.measure("nnc_gc"):
                await self.scan()
            await asyncio.sleep(self._interval)

    async def scan(self) -> None:
        """Record orphaned NNCs, and delete those that were orphaned at the last scan too."""
        orphans = {nnc.metadata.uid: nnc for nnc in self._deps.informers.nncs.values() if self._is_orphan(nnc)}
        for uid in self._orphans.observe(orphans, now=asyncio.get_running_loop().time()):
            try:
                await self._delete(orphans[uid])
            except PodpoolError as error:
                self._deps.metrics.errors.labels("nnc_gc").inc()
                log.info("cannot delete orphaned NNC, retrying", node=orphans[uid].metadata.name, error=error)
            except Exception as error:  # noqa: BLE001  one NNC must not keep the others from being deleted
                report_defect(log, "deletion failed unexpectedly, retrying", error, node=orphans[uid].metadata.name)

    def _is_orphan(self, nnc: NodeNetworkConfig) -> bool:
        name = nnc.metadata.name
        return self._deps.informers.nodes.get(name) is None and not self._allocations.has_node(name)

    async def _delete(self, nnc: NodeNetworkConfig) -> None:
        kube, informers, name = self._deps.kube, self._deps.informers, nnc.metadata.name
        namespace = self._deps.settings.namespace
        if await quorum_find(kube, NODES, name, cache=informers.nodes):
            return
        current = await quorum_get(kube, NODE_NETWORK_CONFIGS, name, cache=informers.nncs, namespace=namespace)
        if current.metadata.uid != nnc.metadata.uid or not self._is_orphan(current):
            return
        await self._reconciler.remove_finalizer(current)
        if current.metadata.deletion_timestamp is None:
            await kube.delete(NODE_NETWORK_CONFIGS, name, namespace=namespace, uid=current.metadata.uid)
        log.info("orphaned NNC deleted", node=name)
        self._deps.events.repaired(current, "deleted: its Node is gone and the ledger has no network container for it")
        self._deps.metrics.orphans.labels("nnc").inc()
