"""Where a plan is played: each event done to the world, and the checks that follow.

Faults end by themselves: what is killed is started again after a while, what is cut is mended, so that every plan ends
in a world that could be well. Then time passes without faults, and the world must be well.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from podpool.pocket.kinds import PODS
from podpool.sim.checks import Auditor, check_quiet, check_settled
from podpool.sim.loop import PROCESS
from podpool.sim.network import Weather
from podpool.sim.plan import Climate, Event
from podpool.sim.truth import Violation
from podpool.sim.world import World

if TYPE_CHECKING:
    from podpool.pocket.store import Snapshot

SETTLING, PATIENCE = 1.5, 300.0
"""After the last fault: gone times after which whatever was to go is gone, and seconds more for all to be well."""
LOOK, CALM_LOOK = 0.5, 5.0
"""Seconds between two looks."""


class Stage:
    """One run."""

    def __init__(self, world: World, climate: Climate) -> None:
        self.world = world
        self.climate = climate
        self.dice = world.dice("stage")
        Auditor(world)
        self._later: list[asyncio.Task[None]] = []
        self._acts: Mapping[str, Callable[[Event], Awaitable[None]]] = {
            "join": self._join,
            "bind": self._bind,
            "burst": self._burst,
            "delete-pod": self._delete_pod,
            "finish-pod": self._finish_pod,
            "edit-request": self._edit_request,
            "edit-scaler": self._edit_scaler,
            "kill-agent": self._kill_agent,
            "kill-controller": self._kill_controller,
            "kill-ledger": self._kill_ledger,
            "kill-api": self._kill_api,
            "pause-controller": self._pause_controller,
            "pause-machine": self._pause_machine,
            "reboot": self._reboot,
            "cut-api": self._cut_api,
            "cut-ledger": self._cut_ledger,
            "delete-and-register": self._delete_and_register,
            "stale-lists": self._stale_lists,
            "leave": self._leave,
            "replace": self._replace,
            "back-up": self._back_up,
            "restore-ledger": self._restore_ledger,
            "restore-api": self._restore_api,
            "restore-both": self._restore_both,
        }
        self._image: bytes | None = None
        self._copy: Snapshot | None = None

    def play(self, plan: list[Event]) -> None:
        """Play a plan to its end; raises what it shows to be wrong."""
        try:
            self.world.loop.run_until_complete(self._play(plan))
        finally:
            self.world.loop.end()

    async def _play(self, plan: list[Event]) -> None:
        PROCESS.set(None)
        await self.world.begin()
        climate = self.climate
        self.world.network.weather = Weather(
            slow=climate.slow, lost_before=climate.lost, lost_after=climate.lost, repeated=climate.repeated
        )
        for event in plan:
            await self._until(event.at)
            await self._acts[event.what](event)
        await self._until(climate.seconds)
        await self._calm()
        await self._settle()

    async def _settle(self) -> None:
        """Give everybody time to mend what was broken, and see that all is well, and stays so."""
        begun, gone = self.world.loop.time(), self.climate.shape.numbers.gone
        await self._until(begun + SETTLING * gone, look=CALM_LOOK)
        while True:
            try:
                check_settled(self.world)
                before = self.world.written()
                await self._until(self.world.loop.time() + self.climate.quiet, look=CALM_LOOK)
                check_settled(self.world)
                check_quiet(before, self.world.written())
            except Violation:
                if self.world.loop.time() > begun + SETTLING * gone + PATIENCE:
                    raise
                await self._until(self.world.loop.time() + CALM_LOOK, look=CALM_LOOK)
            else:
                return

    async def _until(self, moment: float, *, look: float = LOOK) -> None:
        """Let time pass, looking at the world all the while."""
        while self.world.loop.time() < moment:
            await asyncio.sleep(min(look, moment - self.world.loop.time()))
            self.world.look()

    async def _calm(self) -> None:
        """End every fault."""
        self.world.network.weather = Weather()
        self.world.network.mend_all()
        self.world.store.lag = lambda: 0
        for task in self._later:
            if not task.done():
                await task

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        async def later() -> None:
            await asyncio.sleep(seconds)
            act()

        self._later.append(self.world.loop.create_task(later()))

    # The workload

    async def _join(self, event: Event) -> None:
        if event.node not in self.world.hosts:
            self.world.add_host(event.node)

    async def _bind(self, event: Event) -> None:
        if event.node in self.world.hosts:
            self.world.bind(event.node)

    async def _burst(self, event: Event) -> None:
        for _ in range(self.climate.burst):
            await self._bind(event)

    async def _delete_pod(self, event: Event) -> None:
        pods = sorted(self.world.pods_on(event.node).values())
        if pods:
            self.world.delete_pod(self.dice.choice(pods))

    async def _finish_pod(self, event: Event) -> None:
        pods = sorted(self.world.pods_on(event.node).values())
        if pods:
            key = self.dice.choice(pods)
            self.world.store.update(PODS, key, lambda pod: {**pod, "status": {"phase": "Succeeded"}}, sub="status")

    async def _edit_request(self, event: Event) -> None:
        """Somebody edits a request by hand."""
        self.world.edit_request(event.node, int(event.amount))

    async def _edit_scaler(self, event: Event) -> None:
        """Somebody insists on a batch, or no longer does."""
        self.world.edit_scaler({"batch": 2, "buffer": 0.5} if int(event.amount) % 2 else {})

    # The faults

    async def _kill_agent(self, event: Event) -> None:
        if event.node in self.world.hosts:
            self.world.kill_agent(event.node)
            boot = self.world.hosts[event.node].machine.boot_id
            self._after(event.amount, lambda: self._agent_again(event.node, boot))

    def _agent_again(self, node: str, boot: str) -> None:
        host = self.world.hosts.get(node)
        if host and host.machine.boot_id == boot and not (host.agent_process and host.agent_process.alive):
            self.world.start_agent(node)

    async def _kill_controller(self, event: Event) -> None:
        name = self.dice.choice(sorted(self.world.controllers))
        self.world.controllers[name].kill()
        self._after(event.amount, lambda: self._controller_again(name))

    def _controller_again(self, name: str) -> None:
        if not self.world.controllers[name].alive:
            self.world.start_controller(name)

    async def _pause_controller(self, event: Event) -> None:
        process = self.world.controllers[self.dice.choice(sorted(self.world.controllers))]
        process.pause()
        self._after(event.amount, process.resume)

    async def _pause_machine(self, event: Event) -> None:
        """Let nothing run on a machine, while its clocks go on."""
        if event.node in self.world.hosts:
            for process in tuple(self.world.hosts[event.node].machine.processes):
                process.pause()
                self._after(event.amount, process.resume)

    async def _kill_ledger(self, event: Event) -> None:
        process = self.world.ledger.process
        if process and process.alive:
            process.kill()
            self._after(event.amount, self.world.start_ledger)

    async def _kill_api(self, event: Event) -> None:
        process = self.world.api.process
        if process and process.alive:
            process.kill()
            self.world.store.end_watches()
            self._after(event.amount, self.world.start_api)

    async def _reboot(self, event: Event) -> None:
        if event.node in self.world.hosts:
            self.world.reboot(event.node)

    async def _cut_api(self, event: Event) -> None:
        self.world.network.cut(event.node, "api")
        self._after(10 * event.amount, lambda: self.world.network.mend(event.node, "api"))

    async def _cut_ledger(self, event: Event) -> None:
        name = self.dice.choice(sorted(self.world.controllers))
        self.world.network.cut(name, "ledger")
        self._after(event.amount, lambda: self.world.network.mend(name, "ledger"))

    async def _delete_and_register(self, event: Event) -> None:
        """Somebody deletes a Node whose machine lives on: its kubelet registers it again, its Pods still running."""
        if event.node in self.world.hosts:
            self.world.delete_node(event.node)
            self._after(event.amount, lambda: self._registered_again(event.node))

    def _registered_again(self, node: str) -> None:
        if node in self.world.hosts:
            self.world.register(node)

    async def _stale_lists(self, event: Event) -> None:
        behind = int(event.amount)
        self.world.store.lag = lambda: behind
        self._after(event.amount, self._fresh_lists)

    def _fresh_lists(self) -> None:
        self.world.store.lag = lambda: 0

    async def _leave(self, event: Event) -> None:
        self.world.remove_host(event.node)

    async def _replace(self, event: Event) -> None:
        """Another machine takes over a name: it inherits nothing."""
        if event.node in self.world.hosts:
            self.world.remove_host(event.node)
            self._after(event.amount, lambda: self._take_over(event.node))

    def _take_over(self, node: str) -> None:
        if node not in self.world.hosts:
            self.world.add_host(node)

    async def _back_up(self, _: Event) -> None:
        self._image, self._copy = self.world.books.image(), self.world.store.snapshot()

    async def _restore_ledger(self, _: Event) -> None:
        if self._image is not None:
            self.world.restore_ledger(self._image)

    async def _restore_both(self, event: Event) -> None:
        await self._restore_ledger(event)
        await self._restore_api(event)

    async def _restore_api(self, _: Event) -> None:
        if self._copy is not None:
            self.world.restore_api(self._copy)
