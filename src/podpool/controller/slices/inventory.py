"""Slice inventory: a barrier that stops the assignment of slices while an agent may hold one that is not known.

IPPools and Leases show who holds what, but an API server that was restored has lost what was assigned since: then only
the agents know. So, when a restore is detected, or a held Lease disappears that the controller did not delete, an
inventory request is written on every Node, and all agents reply. Machines may lack their Node too, and have
`node_gc_delay` to register again. A node that does not reply within `inventory_timeout` is logged and not awaited.

When leadership begins without a sign of a restore, only nodes without a slice are asked, and awaited for a short time.
A Node that was registered again is asked too if its agent had reported something on the former Node: that report counts
until then.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from podpool.api.builtin import NODES, Node
from podpool.api.meta import version_number
from podpool.api.whereabouts import SLICE_INVENTORY_ANNOTATION, slice_report
from podpool.controller.deps import SliceDeps
from podpool.controller.slices.ownership import SliceOwnership
from podpool.kube.errors import ApiError, ApiNotFound
from podpool.runtime.entropy import new_uuid
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Unreachable

POLL_INTERVAL, BATCH_DELAY = 2.0, 0.1
"""Seconds between two reads of the replies, and for which one reply waits for others."""
STARTUP_TIMEOUT = 30.0
"""Seconds for which a new leader awaits nodes that should have a slice and have none."""
CONCURRENCY = 64
"""Nodes that are asked at the same time."""

log = get_logger(__name__)


class SliceInventory:
    """One inventory request after the other, each with its own ID."""

    def __init__(
        self,
        deps: SliceDeps,
        ownership: SliceOwnership,
        *,
        lacks_slice: Callable[[Node], bool],
        on_restart: Callable[[], None],
        on_complete: Callable[[], None],
    ) -> None:
        self._deps = deps
        self._kube = deps.kube
        self._ownership = ownership
        self._lacks_slice = lacks_slice
        self._on_restart = on_restart
        self._on_complete = on_complete
        self._wake = asyncio.Event()
        self._request_id = new_uuid(deps.rng)
        self._begun = asyncio.get_running_loop().time()
        self._restores = deps.informers.restores
        self._all_nodes = self._restored = deps.informers.restored_within(deps.settings.common.node_gc_delay)
        self._complete = False
        self._report_versions: dict[str, int] = {}
        """resourceVersion at which each Node's report was last read, by UID."""
        self._unreported: set[str] = set()
        """Nodes without a report whose former Node had one."""

    @property
    def complete(self) -> bool:
        """Whether slices may be assigned."""
        if self._restores != self._deps.informers.restores:
            self.restart(restored=True)
        return self._complete

    def restart(self, *, restored: bool = False) -> None:
        """Ask all agents: what nodes hold is uncertain."""
        log.warning("slice ownership uncertain, assignment paused until agents report", restored=restored)
        self._restored = restored or (self._restored and not self._complete)
        self._request_id, self._begun = new_uuid(self._deps.rng), asyncio.get_running_loop().time()
        self._restores = self._deps.informers.restores
        self._all_nodes, self._complete = True, False
        self._report_versions.clear()
        self._on_restart()
        self.wake()

    def wake(self) -> None:
        """Check the replies now."""
        self._wake.set()

    def on_node(self, node: Node) -> None:
        """Store an agent's report. A slice that its latest report does not list any more is not in use."""
        report, version = slice_report(node), version_number(node.metadata.resource_version)
        if report is None and self._ownership.has_report_of_former_node(node):
            self._unreported.add(node.metadata.name)
            self.wake()
        if report is None or version < self._report_versions.get(node.metadata.uid, 0):
            return
        self._report_versions[node.metadata.uid] = version
        complete = self._complete or report.inventory == self._request_id
        self._ownership.set_reported(node, report.lost, complete=complete)
        if not self._complete:
            self.wake()

    async def run(self) -> None:
        """Ask whenever it is necessary, until cancelled."""
        while True:
            await self._wake.wait()
            await asyncio.sleep(BATCH_DELAY)
            self._wake.clear()
            while self._unreported or not self.complete:
                try:
                    await self._ask_unreported()
                    await self._collect()
                except (ApiError, Unreachable) as error:
                    log.info("slice inventory failed, retrying", error=error)
                await self._pause()

    async def _ask_unreported(self) -> None:
        while self._unreported:
            name = min(self._unreported)
            await self._annotate(name, self._request_id)
            self._unreported.discard(name)

    async def _pause(self) -> None:
        if self._unreported or not self._complete:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL):
                    await self._wake.wait()
                    await asyncio.sleep(BATCH_DELAY)
            self._wake.clear()

    async def _collect(self) -> None:
        """Ask nodes that were not asked, and read the replies from a quorum read."""
        if self.complete:
            return
        request_id, common = self._request_id, self._deps.settings.common
        nodes = (await self._kube.list(NODES)).items
        asked = [each for each in nodes if self._all_nodes or self._lacks_slice(each)]
        await self._ask(asked, request_id)
        for each in nodes:
            self.on_node(each)
        if request_id != self._request_id:
            return
        silent = [each.metadata.name for each in asked if not _has_replied(each, request_id)]
        waited = asyncio.get_running_loop().time() - self._begun
        timeout = common.inventory_timeout if self._all_nodes else min(STARTUP_TIMEOUT, common.node_gc_delay)
        if waited < timeout and (silent or (self._restored and waited < common.node_gc_delay)):
            return
        if silent:
            log.warning("nodes did not reply to the slice inventory, using their Leases", nodes=", ".join(silent))
        self._complete = True
        self._on_complete()

    async def _ask(self, nodes: Sequence[Node], request_id: str) -> None:
        found = [each.metadata for each in nodes]
        names = [each.name for each in found if each.annotations.get(SLICE_INVENTORY_ANNOTATION) != request_id]
        for begin in range(0, len(names), CONCURRENCY):
            await asyncio.gather(*(self._annotate(name, request_id) for name in names[begin : begin + CONCURRENCY]))

    async def _annotate(self, node: str, request_id: str) -> None:
        with suppress(ApiNotFound):
            annotations = {SLICE_INVENTORY_ANNOTATION: request_id}
            await self._kube.merge_patch(NODES, node, {"metadata": {"annotations": annotations}})


def _has_replied(node: Node, request_id: str) -> bool:
    report = slice_report(node)
    return report is not None and report.inventory == request_id
