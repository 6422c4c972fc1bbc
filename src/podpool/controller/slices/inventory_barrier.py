"""Inventory barrier: no slice is assigned while agents that may hold unknown slices have not reported.

NodeSlices show who holds what, but an API server that was restored has lost what was assigned since: then only the
agents know. So a leader, before it assigns, confirms or withdraws anything, asks all agents, which rewrite their status
from their journals. It is asked only when there is something to decide, or after a sign of a restore.

When leadership begins, the scope is `ready`: Nodes that are not NotReady are awaited for `STARTUP_TIMEOUT`. It is
`all` after a restore was detected, after an assignment in use disappeared, or when an agent reports one that is not
assigned, or a rollback: every Node and every node with slices is awaited until it has answered, is removed by node GC,
or is excused by an operator. A change of leader does not end that: the ConfigMap shows whether the last request of
scope `all` is complete, and a replica that has seen a restore asks all nodes once when it leads.

After a detected restore machines may lack their Node too, and have `node_gc_delay` to register again.
"""

import asyncio
from collections.abc import Callable, Collection
from contextlib import suppress

from podpool.api.builtin import NODES, Node
from podpool.api.node_slices import ALL_NODES
from podpool.controller.deps import SliceDeps
from podpool.controller.slices.inventory_configmap import InventoryConfigMap
from podpool.controller.slices.slice_index import SliceIndex
from podpool.kube.errors import ApiError
from podpool.runtime.entropy import new_uuid
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Unreachable

POLL_INTERVAL, BATCH_DELAY = 2.0, 0.1
"""Seconds between two checks of the answers, and for which one answer waits for others."""
STARTUP_TIMEOUT = 30.0
"""Seconds for which a new leader awaits ready nodes, and after which silent nodes are reported."""
REPEAT_INTERVAL = 30.0
"""Seconds after which silent nodes are asked again."""
LISTED = 20
"""Silent nodes that a log line or an Event names."""

log = get_logger(__name__)


class SliceInventory:
    """One inventory request after the other, each with its own ID."""

    def __init__(
        self,
        deps: SliceDeps,
        index: SliceIndex,
        config_map: InventoryConfigMap,
        *,
        on_ask: Callable[[], None],
        on_restart: Callable[[], None],
        on_complete: Callable[[], None],
    ) -> None:
        self._deps = deps
        self._index = index
        self._map = config_map
        self._on_ask = on_ask
        """Called when every Node needs an object in which its agent can answer."""
        self._on_restart = on_restart
        self._on_complete = on_complete
        self._wake = asyncio.Event()
        self._required = self._asked = self._complete = self._reported = self._all_nodes = False
        self._restores = deps.informers.restores
        self._begun, self._repeats, self._not_before = 0.0, 0, 0.0
        self._signs: dict[str, float] = {}
        """When each node last reported a sign of a restore that was followed."""
        index.request = new_uuid(deps.rng)

    async def start(self) -> None:
        """Ask all nodes if a former leader did and they have not answered, or if this replica has seen a restore."""
        await self._map.read()
        if self._map.is_pending:
            self._not_before = asyncio.get_running_loop().time() + self._deps.settings.common.node_gc_delay
        if self._map.is_pending or self._deps.informers.has_restores_to_inventory:
            self._all_nodes = True
            self._required = self._required or bool(self._index.nodes())

    @property
    def complete(self) -> bool:
        """Whether slices may be assigned, confirmed and withdrawn."""
        if self._restores != self._deps.informers.restores:
            self.restart("the API server was restored")
        return self._complete

    @property
    def collecting(self) -> bool:
        """Whether agents are asked."""
        return self._required and not self.complete

    @property
    def pending(self) -> int:
        """How many nodes are awaited."""
        return len(self._silent(self._deps.nodes.values())) if self.collecting else 0

    def require(self) -> None:
        """Ask the agents, unless they have answered: there is something to decide."""
        if not self._required:
            self._required = True
            self._on_ask()
            self.wake()

    def on_restore_sign(self, reason: str, node: str, *, reported: bool = False) -> None:
        """Ask all agents, unless they are being asked; for what an agent reports, once within the node GC delay."""
        if self._all_nodes and not self._complete:
            return
        now, delay = asyncio.get_running_loop().time(), self._deps.settings.common.node_gc_delay
        if reported and self._signs.get(node, -delay) + delay > now:
            log.warning(
                "agent reports an API server restore again soon after the last, no new inventory for it",
                reason=reason,
                node=node,
            )
            return
        if reported:
            self._signs = {each: at for each, at in self._signs.items() if at + delay > now} | {node: now}
        self.restart(reason, node=node)

    def on_rollback(self, node: str) -> None:
        """Ask all agents because one reports a rollback, unless it did so in its answer to such a request."""
        if not (self._all_nodes and self._index.has_answered(node)):
            self.on_restore_sign("an agent has seen a newer version of its NodeSlices", node, reported=True)

    def restart(self, reason: str, *, node: str = "") -> None:
        """Ask all agents: what nodes hold is uncertain."""
        log.warning("assignment of slices paused until all agents have reported theirs", reason=reason, node=node)
        self._restores = self._deps.informers.restores
        self._all_nodes, self._complete, self._asked, self._reported = True, False, False, False
        self._index.request = new_uuid(self._deps.rng)
        self._required = self._required or bool(self._index.nodes())
        self._on_restart()
        if self._required:
            self._on_ask()
        self.wake()

    def wake(self) -> None:
        """Check the answers now."""
        self._wake.set()

    async def run(self) -> None:
        """Ask whenever it is necessary, until cancelled."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_INTERVAL if self.collecting else None):
                    await self._wake.wait()
                    await asyncio.sleep(BATCH_DELAY)
            self._wake.clear()
            if self.collecting:
                try:
                    await self._collect()
                except (ApiError, Unreachable) as error:
                    log.warning(
                        "cannot ask agents for their slices, none is assigned until all have answered; retrying",
                        error=error,
                    )
                    await asyncio.sleep(POLL_INTERVAL)

    async def _collect(self) -> None:
        request, now = self._index.request, asyncio.get_running_loop().time()
        if not self._asked or now >= self._begun + self._repeats * REPEAT_INTERVAL:
            await self._ask(request)
        if request != self._index.request:
            return
        if not self._is_due(self._deps.nodes.values()):
            return
        nodes = (await self._deps.kube.list(NODES)).items  # a quorum read: the cache may lack a Node
        if request != self._index.request or not self._is_due(nodes):
            return
        if self._all_nodes:
            await self._map.write({"complete": request})
            if request != self._index.request:
                return
            self._deps.informers.on_inventory(self._restores)
        silent = self._silent(nodes)
        if silent:
            log.warning(
                "nodes did not answer the slice inventory: what NodeSlices show of them counts, and slices that only"
                " they know may be assigned to others; check podpool's agent on these nodes",
                nodes=_listed(silent),
                count=len(silent),
            )
        self._complete = True
        self._on_complete()

    async def _ask(self, request: str) -> None:
        """Write the request; again while nodes are silent, because a watch may have missed it after a restore."""
        self._repeats = self._repeats + 1 if self._asked else 1
        scope = ALL_NODES if self._all_nodes else "ready"
        await self._map.write({"request": request, "scope": scope, "repeats": str(self._repeats)})
        if not self._asked and request == self._index.request:
            self._asked, self._begun = True, asyncio.get_running_loop().time()

    def _is_due(self, nodes: Collection[Node]) -> bool:
        """Return whether no node is awaited any more."""
        if self._map.is_excused(self._index.request):
            return True
        now, delay = asyncio.get_running_loop().time(), self._deps.settings.common.node_gc_delay
        waited = now - self._begun
        silent = self._silent(nodes)
        if not self._all_nodes:
            return not silent or waited >= min(STARTUP_TIMEOUT, delay)
        if waited >= STARTUP_TIMEOUT:
            silent = [each for each in silent if not self._has_no_agent(each)]
            self._report(silent)
        return not silent and now >= self._not_before and not self._deps.informers.restored_within(delay)

    def _silent(self, nodes: Collection[Node]) -> list[str]:
        """Return the awaited nodes that have not answered."""
        names = [each.metadata.name for each in nodes if self._all_nodes or not each.not_ready]
        awaited = dict.fromkeys((*names, *self._index.nodes()) if self._all_nodes else names)
        return [each for each in awaited if not self._index.has_answered(each)]

    def _has_no_agent(self, name: str) -> bool:
        """Return whether no agent has ever run on a ready node, and it cannot have slices."""
        node, obj = self._deps.nodes.get(name), self._index.objects.get(name)
        if node is None or node.not_ready or self._index.has_claims(name):
            return False
        confirmed = obj is not None and (obj.spec.former or any(each.confirmed for each in obj.spec.assignments))
        return not confirmed and (obj is None or not obj.status.node_uid)

    def _report(self, silent: list[str]) -> None:
        """Report silent nodes, once per request."""
        if silent and not self._reported:
            self._reported = True
            log.warning(
                "slice inventory waits for these nodes, no slice is assigned: check podpool's agent on them, delete"
                " Nodes that are gone, or run `podpool slices declare-complete`",
                nodes=_listed(silent),
                count=len(silent),
            )
            self._deps.events.slice_inventory_incomplete(
                _listed(silent), count=len(silent), namespace=self._deps.namespace
            )


def _listed(nodes: list[str]) -> str:
    more = f" and {len(nodes) - LISTED} more" if len(nodes) > LISTED else ""
    return ", ".join(sorted(nodes)[:LISTED]) + more
