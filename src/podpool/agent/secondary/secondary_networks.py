"""Secondary networks of a node, wired together.

| input | parts | effect |
|---|---|---|
| request of the plugin | Router, SliceIPAM | answered from the journal |
| request of the plugin | Router, SharedRangeIPAM, IPPoolBatcher | IPPool that all nodes share |
| NodeSlices of this node | SliceInformers, SliceReconciler | slices acquired and returned; its status |
| journal | IPPoolWriter | IPPools and Leases of slices |
| Pods of this node | SliceOrphanGC, SliceRecovery | addresses without a record released or recovered |
"""

import asyncio

from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.agent.metrics import SliceMetricsSnapshot
from podpool.agent.refusal_reasons import fenced_reason
from podpool.agent.secondary.node_slices_reconciler import SliceReconciler
from podpool.agent.secondary.router import Router
from podpool.agent.secondary.shared_range_ipam import SharedRangeIPAM
from podpool.agent.secondary.shared_range_journal import SharedRangeLog
from podpool.agent.secondary.slice_ipam import SliceIPAM
from podpool.agent.secondary.slice_orphan_gc import SliceOrphanGC
from podpool.agent.secondary.slice_recovery import SliceRecovery
from podpool.agent.state import AgentState
from podpool.api.builtin import Node, Pod
from podpool.kube.cache import ObjectCache


class SecondaryNetworks:
    """All address sources except the node's pool."""

    def __init__(self, deps: AgentDeps, options: AgentOptions, state: AgentState, pods: ObjectCache[Pod]) -> None:
        self._deps = deps
        self._state = state
        log = SharedRangeLog(deps)
        self.reconciler = SliceReconciler(deps, state, options.whereabouts_namespace, on_change=self.on_change)
        self.slice_ipam = SliceIPAM(deps, state, self.reconciler, log)
        self._shared = SharedRangeIPAM(deps, options, log, state.slices)
        self._orphan_gc = SliceOrphanGC(deps, state, self.slice_ipam, pods)
        self._recovery = SliceRecovery(deps, state, self.slice_ipam, self.reconciler)
        self.reconciler.informers.on_restored = self._shared.on_restored
        self.router = Router(deps, sliced=self.slice_ipam, shared=self._shared)
        self.sources = (self.slice_ipam, self._shared)
        """What sandboxes have addresses of."""

    async def run(self) -> None:
        """Run all parts until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part in (self.reconciler, self.slice_ipam, self._shared, self._orphan_gc, self._recovery):
                group.create_task(part.run())

    def on_node(self, node: Node | None) -> None:
        """Use NodeSlices if it is of the Node that reports this boot."""
        self.reconciler.follow(node.metadata.uid if node and node.boot_id == self._state.pool.boot_id else "")

    def on_change(self) -> None:
        """Serve waiting requests, and acknowledge slices if the Node is confirmed now."""
        self.reconciler.on_fence_change()
        self.slice_ipam.serve()

    def not_ready_reason(self) -> str | None:
        """Return why no address can be assigned; a missing slice does not count."""
        fence = self._state.node_fence
        return None if fence.is_open() else fenced_reason(self._deps.node, fence, self._deps.settings)

    def slice_metrics(self) -> tuple[SliceMetricsSnapshot, ...]:
        """Return the metrics of the open slices."""
        now, cooldown = self._deps.clock.boot(), self._deps.settings.cooldown_exhausted
        return tuple(
            SliceMetricsSnapshot(
                network=each.network,
                range=str(each.range),
                slice=str(each.prefix),
                size=each.prefix.usable.size,
                assigned=len(each.assigned),
                cooling_down=each.cooling_down(now=now, cooldown=cooldown),
                lag=self.reconciler.pools.lag(each),
            )
            for each in self._state.slices
            if not each.closed
        )
