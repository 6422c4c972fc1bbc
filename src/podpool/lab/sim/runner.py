"""Where a plan is played: each event done to the cluster that it is about, and the checks that follow.

Faults end by themselves. Then time passes without any, and the world must be well.
"""

import asyncio
import logging
from collections.abc import Callable

from podpool.lab.sim.convergence import check_quiet, check_settled
from podpool.lab.sim.dump import describe
from podpool.lab.sim.event_loop import PROCESS
from podpool.lab.sim.faults import Acts
from podpool.lab.sim.invariants import Auditor
from podpool.lab.sim.network import Weather
from podpool.lab.sim.oracle import Violation
from podpool.lab.sim.scenario import Climate, Event, homes
from podpool.lab.sim.slice_faults import SliceActs
from podpool.lab.sim.slice_invariants import SliceAuditor, check_slices
from podpool.lab.sim.world import World

SETTLING, PATIENCE = 1.5, 300.0
"""After the last fault: gone times after which whatever was to go is gone, and seconds more for all to be well."""
LOOK, CALM_LOOK = 0.5, 5.0
"""Seconds between two looks."""


_log = logging.getLogger(__name__)


class Stage:
    """One run."""

    def __init__(self, seed: int, climate: Climate) -> None:
        self.climate = climate
        self.world = World(seed, climate.shape)
        """The first cluster;"""
        others = homes(climate.shape)[1:]
        self.worlds = [self.world, *(World(seed, climate.shape, beside=self.world, name=home) for home in others)]
        """the others stand beside it."""
        acts, audit = (SliceActs, SliceAuditor) if climate.shape.slices else (Acts, Auditor)
        self._acts: dict[str, Acts] = {world.name: acts(world, climate) for world in self.worlds}
        self._check_settled = check_slices if climate.shape.slices else check_settled
        for world in self.worlds:
            audit(world)

    @property
    def steps(self) -> int:
        """Count the callbacks that were run."""
        return self.world.loop.steps

    def play(self, plan: list[Event]) -> None:
        """Play a plan to its end; raises what it shows to be wrong."""
        try:
            self.world.loop.run_until_complete(self._play(plan))
        finally:
            self.world.loop.end()

    def describe(self) -> str:
        """Tell the state of every part."""
        return "\n".join(map(describe, self.worlds))

    async def _play(self, plan: list[Event]) -> None:
        PROCESS.set(None)
        for world in self.worlds:
            await world.begin()
        climate = self.climate
        self.world.network.weather = Weather(
            slow=climate.slow, lost_before=climate.lost, lost_after=climate.lost, repeated=climate.repeated
        )
        for event in plan:
            await self._until(event.at)
            _log.info("%s", event)
            self._act(event)(event)
        await self._until(climate.seconds)
        self.world.network.weather = Weather()
        self.world.network.mend_all()
        for acts in self._acts.values():
            await acts.ended()
        await self._settle()

    def _act(self, event: Event) -> Callable[[Event], None]:
        acts = self._acts[event.node.partition("node-")[0]]
        act: Callable[[Event], None] = getattr(acts, event.what.replace("-", "_"))
        return act

    async def _settle(self) -> None:
        """Give everybody time to mend what was broken, and see that all is well, and stays so."""
        begun, gone = self.world.loop.time(), self.climate.shape.settings.node_gc_delay
        await self._until(begun + SETTLING * gone, look=CALM_LOOK)
        while True:
            try:
                await self._stay_well()
            except Violation:
                if self.world.loop.time() > begun + SETTLING * gone + PATIENCE:
                    raise
                await self._until(self.world.loop.time() + CALM_LOOK, look=CALM_LOOK)
            else:
                return

    async def _stay_well(self) -> None:
        for world in self.worlds:
            self._check_settled(world)
        before = [world.written() for world in self.worlds]
        await self._until(self.world.loop.time() + self.climate.quiet, look=CALM_LOOK)
        for world, then in zip(self.worlds, before, strict=True):
            self._check_settled(world)
            check_quiet(then, world.written())

    async def _until(self, moment: float, *, look: float = LOOK) -> None:
        """Let time pass, looking at the world all the while."""
        while self.world.loop.time() < moment:
            await asyncio.sleep(min(look, moment - self.world.loop.time()))
            for world in self.worlds:
                world.look()
