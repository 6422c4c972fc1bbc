"""Confirms every few minutes by quorum reads that this machine is still its Node, which keeps the fence open.

Two quorum reads, counted from when the first was sent, must show a Node with this machine's boot ID, and an NNC that is
owned by that Node and has our NC, our boot ID and no other journal. Without the boot ID in it, a Node deleted and
registered again would be taken for another machine, and its addresses assigned to others while its Pods run. The first
reads also show whether the journal is older than what an agent of this boot reported: then its Pods may use any grant
without a record.

An ADD at a closed fence starts a confirmation at once, while it waits: a wall clock that was set closes the fence, too,
and the API server can confirm the Node within milliseconds.

For slices the Node is enough, together with NodeSlices of that Node if it holds any: node GC counts from when that UID
is missing. A node that never had an NNC needs no more than that.
"""

import asyncio

import msgspec

from podpool.agent.demand import PodDemand
from podpool.agent.deps import NAMESPACE, AgentDeps, event_or_timeout
from podpool.agent.duplicate_agent import other_journal
from podpool.agent.fence import Fence, own_nc, own_report
from podpool.agent.network_container import unsupported_reason
from podpool.agent.nnc_tracker import NNCTracker
from podpool.agent.records import CooldownForced, NCAdopted, NodeConfirmed
from podpool.agent.refusal_reasons import fenced_reason
from podpool.agent.secondary.secondary_networks import SecondaryNetworks
from podpool.agent.state import AgentState
from podpool.api.azure import NODE_NETWORK_CONFIGS, NetworkContainer, NodeNetworkConfig
from podpool.api.builtin import NODES, Node
from podpool.kube.backoff import Backoff
from podpool.kube.errors import ApiError, ApiNotFound
from podpool.kube.events import object_reference
from podpool.runtime.transport import Unreachable

MAX_REFUSED = 100
"""Refused network containers that are reported: a node has one or two."""
ADD_INTERVAL = 1.0
"""Seconds between two confirmations for ADDs: a Pod waits little, and 5,000 nodes at once are no load."""
QUICK_ATTEMPTS = 5
"""Failed confirmations after which changes of Node and NNC are confirmed at `ADD_INTERVAL`: a new node needs four."""


class _JournalLoss(msgspec.Struct, frozen=True):
    """Why the journal is incomplete, and which grants Pods may use without a record."""

    reason: str
    lost: tuple[str, ...]


class NodeConfirmation:
    """Reads Node and NNC, and opens the fences."""

    def __init__(
        self,
        deps: AgentDeps,
        state: AgentState,
        nnc: NNCTracker,
        secondary: SecondaryNetworks | None,
        demand: PodDemand,
    ) -> None:
        self._deps = deps
        self._state = state
        self._nnc = nnc
        self._secondary = secondary
        self._demand = demand
        self._due = asyncio.Event()
        self._pause: asyncio.Timeout | None = None
        self._attempted = self._next = 0.0
        """Loop times of the last and the next confirmation."""
        self._requested = False
        """The next confirmation was requested during the present one, or since."""
        self._failures = 0
        """Failed confirmations since the last successful one."""
        self._unanswered = False
        """The API server did not answer the last confirmation."""
        self._refused: set[str] = set()
        self._first = True
        self._journalled_version: int | None = None
        self._loss: _JournalLoss | None = None
        self._logged_open: bool | None = None

    def nudge(self) -> None:
        """Confirm if a fence is closed or the NNC shows another NC: now, after failures `ADD_INTERVAL` after the last.

        The agent's own patches cause this, too: each ADD may lead to one.
        """
        newest = self._nnc.newest
        other_nc = newest is not None and newest.status.network_containers and self._nnc.own_nc() is None
        closed = self._secondary and not self._state.node_fence.is_open()
        if other_nc or closed or not self._fence.is_open():
            if self._unanswered or self._failures >= QUICK_ATTEMPTS:
                self._confirm_soon()
            else:
                self._due.set()

    def on_add(self, fence: Fence) -> None:
        """Confirm for a request at a closed fence."""
        if not fence.is_open():
            self._confirm_soon()

    def on_change(self) -> None:
        """Confirm if a fence has closed on waiting ADDs: an address may be free for them now."""
        if self._waiting_adds():
            self._wake(asyncio.get_running_loop().time() + ADD_INTERVAL)
            self._check_waiting()

    def _check_waiting(self) -> None:
        if any(not fence.is_open() for fence in self._waiting_adds()):
            self._confirm_soon()

    def _confirm_soon(self) -> None:
        """Confirm at once, or `ADD_INTERVAL` after the last confirmation."""
        self._requested = True
        self._next = min(self._next, self._attempted + ADD_INTERVAL)
        self._wake(self._next)

    def _wake(self, at: float) -> None:
        if self._pause and not self._pause.expired():
            due = self._pause.when()
            if due is None or at < due:
                self._pause.reschedule(at)

    def _waiting_adds(self) -> list[Fence]:
        """Return the fences that waiting ADDs depend on."""
        slices = len(self._secondary.slice_ipam.queue) if self._secondary else 0
        waiting = (len(self._demand.queue), self._state.fence), (slices, self._state.node_fence)
        return [fence for count, fence in waiting if count]

    @property
    def _fence(self) -> Fence:
        return self._state.node_fence if self._secondary and self._nnc.newest is None else self._state.fence

    async def run(self) -> None:
        """Confirm until cancelled."""
        # often enough to open soon, and seldom enough for 5,000 nodes at once
        backoff = Backoff(rng=self._deps.rng, base=0.5, maximum=15.0)
        if self._journalled_version is None:
            self._journalled_version = max(self._state.pool.version, 0)  # before any watch raises it
        while True:
            self._due.clear()
            self._requested = False
            self._attempted = asyncio.get_running_loop().time()
            confirmed = await self._confirm()
            self._failures = 0 if confirmed else self._failures + 1
            if confirmed:
                backoff.reset()
            self._log_fence()
            self._deps.changes.notify()
            interval = self._deps.settings.confirmation_interval if confirmed else backoff.fail()
            self._next = asyncio.get_running_loop().time() + interval
            if self._requested:
                self._confirm_soon()
            while not self._due.is_set() and asyncio.get_running_loop().time() < self._next:
                await self._rest()

    async def _rest(self) -> None:
        """Wait for the next confirmation; while ADDs wait, for a moment: setting a clock closes a fence silently."""
        soon = asyncio.get_running_loop().time() + ADD_INTERVAL
        self._pause = asyncio.timeout_at(min(self._next, soon) if self._waiting_adds() else self._next)
        try:
            await event_or_timeout(self._due, self._pause)
        finally:
            self._pause = None
        self._check_waiting()

    def _log_fence(self) -> None:
        is_open = self._fence.is_open()
        if is_open and not self._logged_open:
            self._deps.log.info("Node confirmed, addresses can be assigned")
        elif self._logged_open and not is_open and not self._fence.suspended:
            reason = fenced_reason(self._deps.node, self._fence, self._deps.settings)
            self._deps.log.error("fenced, no new address is assigned", reason=reason)
        self._logged_open = is_open

    async def _confirm(self) -> bool:
        boot, wall = self._deps.clock.boot(), self._deps.clock.wall()
        before = self._nnc.newest
        try:
            node = await self._deps.kube.get(NODES, self._deps.node)
            ours = node.boot_id == self._state.pool.boot_id
            secondary = self._secondary if ours else None
            node_only = secondary is not None and await secondary.reconciler.confirms(node.metadata.uid)
        except (ApiError, Unreachable) as error:
            self._unanswered = not isinstance(error, ApiNotFound)
            return False
        if node_only:
            reopened = not self._state.node_fence.is_open()
            self._state.write(NodeConfirmed(boot=boot, wall=wall, node_only=True, reopened=reopened))
        try:
            nnc = await self._deps.kube.get(NODE_NETWORK_CONFIGS, self._deps.node, namespace=NAMESPACE)
        except (ApiError, Unreachable) as error:
            self._unanswered = not isinstance(error, ApiNotFound)
            return node_only and not self._unanswered and not self._state.pool.adopted_nc
        self._unanswered = False
        self._report_refused(node, nnc)
        adopted = self._adopt(node, nnc)
        self._nnc.observe_response(nnc, since=before)
        if not adopted or own_report(nnc).boot_id != self._state.pool.boot_id or other_journal(nnc, self._state):
            return False
        self._state.write(NodeConfirmed(boot=boot, wall=wall))
        return node_only or self._secondary is None

    def _adopt(self, node: Node, nnc: NodeNetworkConfig) -> bool:
        """Adopt the NC that is ours; if it is another than before, that one is closed for good."""
        pool = self._state.pool
        nc = own_nc(node, nnc, pool=pool)
        if nc is None:
            return False
        former = pool.adopted_nc
        if former != nc.id or self._loss is None:  # one that could not be written yet is kept
            self._loss = self._find_loss(nc, nnc)
        if former != nc.id:
            self._state.write(NCAdopted(nc=nc.id, incomplete=self._loss is not None))
            event = (
                "network container replaced, the former one is not used again"
                if former
                else "network container adopted"
            )
            self._deps.log.info(event, nc=nc.id, former=former or "none")
        if self._loss:
            self._force_cooldown(self._loss)
        self._first, self._loss = False, None
        return True

    def _report_refused(self, node: Node, nnc: NodeNetworkConfig) -> None:
        """Log each NC of a kind that is not served, once, and write an Event."""
        for nc in nnc.status.network_containers:
            reason = unsupported_reason(nc)
            if reason and nc.id not in self._refused and len(self._refused) < MAX_REFUSED:
                self._refused.add(nc.id)
                self._deps.log.error(
                    "network container refused, it cannot be served and no Pod gets its addresses",
                    nc=nc.id,
                    reason=reason,
                )
                if self._deps.recorder:
                    regarding = object_reference(NODES, node)
                    self._deps.recorder.record(
                        regarding, reason="NetworkContainerRefused", action="Refused", note=reason, warning=True
                    )

    def _find_loss(self, nc: NetworkContainer, nnc: NodeNetworkConfig) -> _JournalLoss | None:
        """Return whether grants of an NC may be in use without a record in the journal."""
        pool, report = self._state.pool, self._nnc.inherited_report(nnc)
        # an agent of this boot reported it, unless the NNC was created anew since; its sandboxes may still run
        same_boot = report.boot_id in ("", pool.boot_id)
        dynamic = [each for each in nnc.status.network_containers if not unsupported_reason(each)]
        shown = (nc, *(each for each in dynamic if each.id not in {nc.id, *pool.closed_ncs}))
        listed = tuple(grant.name for each in shown for grant in each.ip_assignments)
        if nc.id != pool.adopted_nc:
            unknown = (not pool.adopted_nc or pool.incomplete) and same_boot
            reason = "the journal has no record of this network container"
            return _JournalLoss(reason, listed if unknown else ()) if listed or pool.incomplete else None
        if self._first and (report.version > (self._journalled_version or 0) or pool.incomplete):
            reason = "the journal is damaged, or older than what this node's agent reported"
            return _JournalLoss(reason, listed if same_boot else ())
        return None

    def _force_cooldown(self, loss: _JournalLoss) -> None:
        self._state.write(CooldownForced(at=self._deps.clock.boot(), lost=loss.lost))
        event = "all addresses cool down once, use without a record is possible"
        if loss.lost:
            event += "; none is assigned until no Pod can have it"
        self._deps.log.warning(event, nc=self._state.pool.adopted_nc, reason=loss.reason, lost=len(loss.lost))
