"""What the agent tells of its slices on its Node: which it lost, for as long as Pods have addresses of them.

An API server that was restored from an older copy knows nothing of a slice that was given since: only its agent does,
whose Pods use it. So it tells, and the controller gives such a slice to nobody else. When all depends on it the
controller asks, with a word on the Node that is new each time. The answer follows quorum reads of every Lease, so that
it is about what the server has now; a watch may still show what it had.
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
from podpool.kube.backoff import backoff_delay
from podpool.kube.errors import ApiError, ApiForbidden
from podpool.runtime.transport import Unreachable


class SliceReporter:
    """Keeps the Node's annotation true; `verify` finds out which slices are lost, if it can be told now."""

    def __init__(self, deps: AgentDeps, state: AgentState, *, verify: Callable[[], Awaitable[bool]]) -> None:
        self._deps = deps
        self._state = state
        self._verify = verify
        self._verified = ""
        """The last question for which that was done."""
        self._node: Node | None = None
        self._changed = asyncio.Event()

    def see(self, node: Node) -> None:
        """Take note of the Node as it is."""
        self._node = node
        self._changed.set()

    def look(self) -> None:
        """See whether there is something else to tell."""
        self._changed.set()

    async def run(self) -> None:
        """Tell it for ever."""
        failures = 0
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                await self._tell()
            except ApiForbidden as error:
                self._deps.tell(f"which slices are lost cannot be told on the Node: {error}")
            except (ApiError, Unreachable):
                failures += 1
                await asyncio.sleep(backoff_delay(failures, rng=self._deps.rng, base=0.2, maximum=15.0))
                self._changed.set()
            else:
                failures = 0

    async def _tell(self) -> None:
        node = self._node
        if node is None:
            return
        asked = node.metadata.annotations.get(SLICE_INVENTORY_ANNOTATION, "")
        if asked != self._verified:
            if not await self._verify():
                return
            self._verified = asked
        report = SliceReport(inventory=asked, lost=self._lost())
        if report != (slice_report(node) or SliceReport()):
            await self._deps.kube.merge_patch(
                NODES,
                node.metadata.name,
                {"metadata": {"annotations": {SLICE_REPORT_ANNOTATION: msgspec.json.encode(report).decode()}}},
                precondition=node.metadata.resource_version,
            )

    def _lost(self) -> tuple[LostSlice, ...]:
        now, rest = self._deps.clock.boot(), self._deps.settings.cooldown
        lost = (each for each in self._state.slices if each.closed and each.in_use(now=now, rest=rest))
        told = (LostSlice(network=each.network, range=str(each.range), slice=str(each.prefix)) for each in lost)
        return tuple(sorted(set(told)))
