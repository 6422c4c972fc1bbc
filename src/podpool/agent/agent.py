"""The agent of one node: creates its parts, connects them, and runs their tasks.

    Pods, Node, NNC, subnet (informers) -> ScalingInputs -> decision -> NNC patch   pool_monitor
    NNC status -> pool -> waiting ADDs                                              nnc_tracker, pool_ipam
    programmed NC versions -> pool                                                  underlay
    plugin's request -> pool or secondary networks -> journal -> response           cni_handler
    Node and NNC (quorum reads) -> fence                                            node_confirmation
    sandboxes of the runtime, Pods, network namespaces -> releases                  sandbox_gc
    assigned addresses -> proxy entries on the uplink, if Pods are behind the node  neighbor_proxy
    Pods that wait for addresses -> Node condition, taint, Event                    node_condition

A part that changes the state calls `deps.changes.notify()`; `_on_change` then has every other part evaluate it. A
cancelled agent writes the clean-shutdown marker, so that the node's addresses need not cool down after a reboot.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from podpool.agent.abandoned_adds import AbandonedAdds
from podpool.agent.cni_handler import CNIHandler
from podpool.agent.demand import PodDemand
from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.agent.fence import Fence
from podpool.agent.health import AgentHealth
from podpool.agent.informers import AgentInformers
from podpool.agent.lost_grants import LostGrantClearing
from podpool.agent.metrics import MetricsSnapshot
from podpool.agent.neighbor_proxy import NeighborProxy
from podpool.agent.nnc_tracker import NNCTracker
from podpool.agent.node_condition import NodeConditionReporter
from podpool.agent.node_confirmation import NodeConfirmation
from podpool.agent.pool import Pool
from podpool.agent.pool_ipam import PoolIPAM
from podpool.agent.pool_monitor import PoolMonitor
from podpool.agent.sandbox_gc import SandboxGC
from podpool.agent.scaling_input_collector import InputCollector
from podpool.agent.secondary.secondary_networks import SecondaryNetworks
from podpool.agent.state import AgentState, StateClosed
from podpool.agent.underlay_poller import UnderlayPoller
from podpool.agent.unreadable_journal import ReadCheck
from podpool.core.errors import PodpoolError
from podpool.runtime.process import HealthCheck
from podpool.runtime.supervision import keep_running


class AgentStopped(PodpoolError):
    """The agent has stopped: the plugin must retry with its successor."""


class Agent:
    """One node's agent: `run` it until cancelled; `handle` answers plugins meanwhile."""

    def __init__(self, deps: AgentDeps, options: AgentOptions | None = None) -> None:
        options = options or AgentOptions()
        self._deps = deps
        self._log = deps.log
        fence, underlay = deps.settings.fence, deps.underlay is not None
        self._state = state = AgentState(
            deps.disk, deps.clock, fence_limit=fence, underlay=underlay, segment_bytes=options.segment_bytes
        )
        self._read_check = ReadCheck(deps.disk, deps.clock)
        self._nnc = NNCTracker(deps, state)
        self._informers = AgentInformers(deps, on_node=self._on_node, on_nnc=self._on_nnc)
        self._health = AgentHealth(deps, state, self._informers)
        demand = PodDemand()
        self._inputs = InputCollector(deps, options, state, self._nnc, self._informers, demand)
        self._secondary: SecondaryNetworks | None = None
        if options.whereabouts_namespace:
            self._secondary = SecondaryNetworks(deps, options, state, self._informers.pods.cache)
        self._confirmation = NodeConfirmation(deps, state, self._nnc, self._secondary, demand)
        self._condition = NodeConditionReporter(deps, options, self._informers, self._inputs)
        self._monitor = PoolMonitor(deps, state, self._nnc, self._inputs, self._condition, self._confirmation)
        self._proxy: NeighborProxy | None = None
        if deps.uplink:
            self._proxy = NeighborProxy(deps, state, deps.uplink, network=options.routed_network)
        self._ipam = PoolIPAM(deps, options, state, demand, self._inputs, self._proxy)
        sources = (self._ipam, *(self._secondary.sources if self._secondary else ()))
        self._sandbox_gc = SandboxGC(deps, self._informers.pods.cache, sources)
        self._journal_loss_recovery = LostGrantClearing(
            deps, state, self._informers.pods.cache, self._ipam.added, self._sandbox_gc.runtime
        )
        self._underlay = UnderlayPoller(deps, state, deps.underlay) if deps.underlay else None
        self._abandoned_adds = AbandonedAdds(sources)
        self._handler = CNIHandler(
            deps, state, self._ipam, self._secondary, self._inputs, self._confirmation, self._abandoned_adds
        )
        deps.changes.subscribe(self._on_change)
        self.ready = asyncio.Event()
        """Set when addresses of the pool can be assigned for the first time."""
        self._started = asyncio.Event()

    @property
    def pool(self) -> Pool:
        """The node's pool, to read."""
        return self._state.pool

    @property
    def fenced(self) -> bool:
        """Whether no new address is assigned because the Node is not confirmed."""
        return not self._fence.is_open()

    def not_ready_reason(self) -> str | None:
        """Return why no address can be assigned; None when the agent can serve, also without available addresses."""
        return self._state.write_error or self._no_address_reason()

    def health_checks(self) -> Sequence[HealthCheck]:
        """Return the checks of `/readyz`."""
        proxy = self._proxy.failure if self._proxy else None
        return self._health.checks(self._no_address_reason(), proxy=proxy, runtime=self._sandbox_gc.runtime.note)

    def _no_address_reason(self) -> str | None:
        if self._secondary and self._fence is self._state.node_fence:
            return self._secondary.not_ready_reason()
        return self._inputs.not_ready_reason()

    @property
    def lost_dels_held_back(self) -> int:
        """How many sandboxes without a DEL keep their addresses, because too many are missing at once."""
        return self._sandbox_gc.held_back

    def metrics_snapshot(self) -> MetricsSnapshot:
        """Return the numbers of the agent's metrics."""
        pool, nnc, secondary = self.pool, self._nnc.newest, self._secondary
        now, cooldown = self._deps.clock.boot(), self._inputs.cooldown().shortest
        ncs = nnc.status.network_containers if nnc else ()
        cooling_down = {each.id for each in pool.cooling_down(now=now, cooldown=cooldown)}
        pending_programming = {each.id for each in pool.pending_programming()} - cooling_down
        return MetricsSnapshot(
            ncs=ncs,
            parameters=self._inputs.parameters(),
            requested=nnc.spec.requested if nnc else 0,
            primaries=sum(bool(each.primary_ip) for each in ncs),
            granted=pool.granted,
            assigned=len(pool.assigned),
            available=pool.free - len(cooling_down) - len(pending_programming),
            cooling_down=len(cooling_down),
            pending_programming=len(pending_programming),
            pending_release=len(pool.pending_release),
            unusable=len(pool.unusable),
            revoked=sum(each.revoked for each in pool.assigned.values()),
            waiting_adds=len(self._ipam.queue) + (len(secondary.slice_ipam.queue) if secondary else 0),
            waiting_pods=self._condition.waiting,
            fence_age=self._fence.age(),
            fenced=self.fenced,
            journal_bytes=self._state.journal.size,
            journal_records=self._state.journal.appended,
            watch_lag=self._informers.lag(secondary.reconciler.informers.last_contacts() if secondary else {}),
            exhaustion_changes=dict(self._monitor.exhaustion_changes),
            slices=secondary.slice_metrics() if secondary else (),
            listed_sandboxes=self._sandbox_gc.runtime.known,
            runtime_unreachable=self._sandbox_gc.runtime.unreachable,
            lost_dels=self._sandbox_gc.released,
            lost_dels_held_back=self.lost_dels_held_back,
            proxied=self._proxy.entries if self._proxy else 0,
            proxy_failures=self._proxy.failures if self._proxy else 0,
        )

    async def handle(self, body: bytes) -> bytes:
        """Answer the body of a plugin's request with the body of a response; raises `AgentStopped`."""
        await self._started.wait()
        if not self._state.closed:
            with suppress(StateClosed):  # of a request that entered before
                return await self._handler.handle(body)
        raise AgentStopped(f"the agent of node {self._deps.node} has stopped")

    @property
    def _fence(self) -> Fence:
        """The fence that counts: a node that never had an NC has only secondary networks."""
        nnc = self._informers.nnc
        no_nc = nnc.synced and nnc.object is None and not self.pool.adopted_nc
        return self._state.node_fence if self._secondary and no_nc else self._state.fence

    # Tasks

    async def run(self) -> None:
        """Serve until cancelled."""
        await self._state.retry(self._open, self._log)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._state.retry(self._state.run, self._log))
                group.create_task(self._state.retry(self._work, self._log))
        finally:
            self._abandoned_adds.close()
            await self._stop()
            self._ipam.write_log_lines()

    async def _work(self) -> None:
        self._handler.process_deferred_deletes()
        self._deps.changes.notify()
        parts = (
            self._informers,
            self._condition,
            self._deps.recorder,
            self._confirmation,
            self._monitor,
            self._ipam,
            self._handler,
            self._journal_loss_recovery,
            self._sandbox_gc,
            self._secondary,
            self._underlay,
            self._proxy,
        )
        async with asyncio.TaskGroup() as group:
            for part in parts:
                if part:
                    group.create_task(keep_running(part.run, self._log, part=type(part).__name__))

    async def _open(self) -> None:
        try:
            self._read_check.require_readable()
            contents = self._state.open(boot_id=self._deps.boot_id)
        except OSError as error:
            self._state.report_failure(error, self._log)
            self._started.set()  # requests are refused with it
            raise
        self._started.set()
        if contents.damaged:
            self._log.error(
                "journal is damaged, assignments are rebuilt; check the disk, then run podpool audit",
                damage=contents.damage,
                set_aside=contents.set_aside,
            )
        elif contents.torn:
            self._log.info(
                "incomplete last record of the journal truncated, no answered request is lost", bytes=contents.torn
            )

    async def _stop(self) -> None:
        try:
            await self._state.stop()
        except OSError as error:
            self._log.warning(
                "cannot write the clean-shutdown marker, every address cools down after a reboot", error=error
            )

    # Changes

    def _on_change(self) -> None:
        if self.pool.nc:
            self._informers.subnet.follow(self.pool.nc.subnet_name)
        if not self.ready.is_set() and self._inputs.not_ready_reason() is None:
            self.ready.set()
        self._ipam.on_change()
        if self._underlay:
            self._underlay.on_change()
        if self._secondary:
            self._secondary.on_change()
        self._confirmation.on_change()
        self._monitor.on_change()

    def _on_nnc(self) -> None:
        self._nnc.observe(self._informers.nnc.object)
        self._confirmation.nudge()
        self._deps.changes.notify()

    def _on_node(self) -> None:
        self._health.on_node()
        if self._secondary:
            self._secondary.on_node(self._informers.node.object)
        self._confirmation.nudge()
        self._deps.changes.notify()
