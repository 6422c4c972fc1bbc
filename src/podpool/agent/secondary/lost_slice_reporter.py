"""Reports on the Node which slices are lost: their Lease is gone, but Pods still have addresses of them.

An API server that was restored from an older backup does not contain slices that were assigned since. Only the agent
whose Pods use them knows. It reports them, and the controller assigns such a slice to no other node. When the
controller needs all reports, it writes an inventory request with a new ID on the Node. The agent answers after quorum
reads of every Lease, because a watch may still show the state before the restore.
"""

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.agent.state import AgentState
from podpool.api.builtin import NODES, Node
from podpool.api.whereabouts import (
    SLICE_INVENTORY_ANNOTATION,
    SLICE_REPORT_ANNOTATION,
    LostSlice,
    SliceReport,
    slice_report,
)
from podpool.kube.backoff import Backoff
from podpool.kube.errors import ApiError, ApiForbidden
from podpool.runtime.transport import Unreachable


class SliceReporter:
    """Keeps the report on the Node current. `verify` re-reads all Leases; it returns False if that is not possible."""

    def __init__(self, deps: AgentDeps, state: AgentState, *, verify: Callable[[], Awaitable[bool]]) -> None:
        self._deps = deps
        self._state = state
        self._verify = verify
        self._verified = ""
        """The last inventory request that was verified."""
        self._node: Node | None = None
        self._changed = asyncio.Event()
        self._backoff = Backoff(rng=deps.rng, base=0.2, maximum=15.0)

    def on_node(self, node: Node) -> None:
        """Use this Node from now on."""
        self._node = node
        self._changed.set()

    def nudge(self) -> None:
        """Check whether the report has changed."""
        self._changed.set()

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._report()
            except ApiForbidden as error:
                self._deps.log.warning("not allowed to report lost slices on the Node", error=error)
            except (ApiError, Unreachable):
                await self._backoff.wait()
                self._changed.set()
            else:
                self._backoff.reset()

    async def _report(self) -> None:
        node = self._node
        if node is None:
            return
        request = node.metadata.annotations.get(SLICE_INVENTORY_ANNOTATION, "")
        if request != self._verified:
            if not await self._verify():
                return
            self._verified = request
        report = SliceReport(inventory=request, lost=self._lost_slices())
        if report != (slice_report(node) or SliceReport()):
            await self._deps.kube.merge_patch(
                NODES,
                node.metadata.name,
                {"metadata": {"annotations": {SLICE_REPORT_ANNOTATION: msgspec.json.encode(report).decode()}}},
                precondition=node.metadata.resource_version,
            )

    def _lost_slices(self) -> tuple[LostSlice, ...]:
        now, cooldown = self._deps.clock.boot(), self._deps.settings.cooldown_roomy
        lost = (each for each in self._state.slices if each.closed and each.in_use(now=now, cooldown=cooldown))
        return tuple(
            sorted({LostSlice(network=each.network, range=str(each.range), slice=str(each.prefix)) for each in lost})
        )
