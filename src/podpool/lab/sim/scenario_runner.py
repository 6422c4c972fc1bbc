"""Runs a scenario: applies its events to the clusters, checks the invariants, and waits for convergence.

Faults end by themselves. Then time passes without any, and the clusters must converge.
"""

import asyncio
import gc
from collections.abc import Callable

from podpool.lab.sim.actions import FaultInjector
from podpool.lab.sim.address_use_oracle import Violation
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.convergence import check_converged, check_quiet, write_state
from podpool.lab.sim.dump import dump_state
from podpool.lab.sim.event_loop import PROCESS
from podpool.lab.sim.invariants import InvariantChecker
from podpool.lab.sim.lost_del_invariants import LostDelChecker
from podpool.lab.sim.network import NetworkConditions
from podpool.lab.sim.profiles import Profile
from podpool.lab.sim.scenario import ScenarioEvent, cluster_prefixes
from podpool.lab.sim.slice_convergence import check_slices_converged
from podpool.lab.sim.slice_faults import SliceFaultInjector
from podpool.lab.sim.slice_invariants import SliceInvariantChecker
from podpool.runtime.logging import get_logger

SETTLING_FACTOR = 1.5
"""Node GC delays that always pass after the last fault."""
CHECK_INTERVAL, QUIET_CHECK_INTERVAL = 0.5, 5.0
"""Seconds between two checks, during and after the faults."""
FAILURES = (Exception, asyncio.CancelledError)
"""What ends a run: all but the end of the whole program."""

log = get_logger(__name__)


class ScenarioRunner:
    """One run of a scenario."""

    def __init__(self, seed: int, profile: Profile) -> None:
        self.profile = profile
        self.state_at_failure = ""
        """The state of every component when `run` failed."""
        self.first = SimCluster(seed, profile.config)
        """The first cluster, with the ledger; the others share its loop, network and ledger."""
        others = cluster_prefixes(profile.config)[1:]
        self.clusters = [self.first]
        self.clusters += (SimCluster(seed, profile.config, first=self.first, name=prefix) for prefix in others)
        slices = profile.config.slices
        injector, checker = (SliceFaultInjector, SliceInvariantChecker) if slices else (FaultInjector, InvariantChecker)
        self._injectors: dict[str, FaultInjector] = {each.name: injector(each, profile) for each in self.clusters}
        self._check_converged = check_slices_converged if slices else check_converged
        for cluster in self.clusters:
            checker(cluster)
            if not slices:
                LostDelChecker(cluster)

    @property
    def steps(self) -> int:
        """The number of callbacks that were run."""
        return self.first.loop.steps

    def run(self, scenario: list[ScenarioEvent]) -> None:
        """Run a scenario to its end; raises violations."""
        collects = gc.isenabled()
        gc.disable()  # a collection closes abandoned coroutines, and so decides which steps follow
        try:
            self.first.loop.run_until_complete(self._run(scenario))
        except FAILURES:
            self.state_at_failure = "\n".join(map(dump_state, self.clusters))
            raise
        finally:
            self.first.loop.shutdown()
            if collects:
                gc.enable()

    async def _run(self, scenario: list[ScenarioEvent]) -> None:
        PROCESS.set(None)
        for cluster in self.clusters:
            await cluster.start()
        profile, network = self.profile, self.first.network
        slow, loss, duplication = profile.slow_messages, profile.message_loss, profile.message_duplication
        network.conditions = NetworkConditions(
            slow=slow, request_loss=loss, response_loss=loss, duplication=duplication
        )
        for event in scenario:
            await self._run_until(event.at)
            log.info("scenario event", action=event.action, node=event.node, amount=event.amount)
            self._action(event)(event)
        await self._run_until(profile.duration)
        network.conditions = NetworkConditions()
        network.heal_all()
        await self._finish_faults()
        for cluster in self.clusters:
            cluster.confirms_losses = True
        await self._converge()

    async def _finish_faults(self) -> None:
        """Wait until every fault has ended, with periodic checks."""
        for injector in self._injectors.values():
            finished = asyncio.ensure_future(injector.finish())
            while not finished.done():
                await asyncio.wait({finished}, timeout=CHECK_INTERVAL)
                self._check()
            finished.result()

    def _action(self, event: ScenarioEvent) -> Callable[[ScenarioEvent], None]:
        injector = self._injectors[event.node.partition("node-")[0]]
        action: Callable[[ScenarioEvent], None] = getattr(injector, event.action.replace("-", "_"))
        return action

    async def _converge(self) -> None:
        """Wait until the convergence checks hold, and stay so."""
        started, node_gc_delay = self.first.loop.time(), self.profile.config.settings.node_gc_delay
        settled = started + SETTLING_FACTOR * node_gc_delay
        await self._run_until(settled, interval=QUIET_CHECK_INTERVAL)
        while True:
            try:
                await self._stay_converged()
            except Violation:
                if self.first.loop.time() > settled + self.profile.convergence_seconds:
                    raise
                await self._run_until(self.first.loop.time() + QUIET_CHECK_INTERVAL, interval=QUIET_CHECK_INTERVAL)
            else:
                return

    async def _stay_converged(self) -> None:
        for cluster in self.clusters:
            self._check_converged(cluster)
        before = [write_state(cluster) for cluster in self.clusters]
        await self._run_until(self.first.loop.time() + self.profile.quiet_seconds, interval=QUIET_CHECK_INTERVAL)
        for cluster, state in zip(self.clusters, before, strict=True):
            self._check_converged(cluster)
            check_quiet(state, write_state(cluster))

    async def _run_until(self, moment: float, *, interval: float = CHECK_INTERVAL) -> None:
        """Let time pass, with periodic checks."""
        while self.first.loop.time() < moment:
            await asyncio.sleep(min(interval, moment - self.first.loop.time()))
            self._check()

    def _check(self) -> None:
        for cluster in self.clusters:
            cluster.check()
