"""How a scenario is told: what happens, in order, to a small world, with somebody looking on."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from podpool.core.settings import Settings
from podpool.lab.sim.convergence import check_settled
from podpool.lab.sim.invariants import Auditor
from podpool.lab.sim.network import Fits, Hold
from podpool.lab.sim.scenario import Shape
from podpool.lab.sim.world import World

LOOK = 0.5
SETTINGS = Settings(
    batch=4,
    shrink_hold=5.0,
    step_up_hold=10.0,
    cooldown=8.0,
    cooldown_exhausted=2.0,
    fence=30.0,
    confirmation_interval=10.0,
    node_gc_delay=45.0,
    clock_error=5.0,
    reserved_for_primaries=2,
)
"""Stories count on them: a node with up to 2 Pods has 3 addresses, with 6 it has 7, and it is gone within a minute."""
WIDE = Shape(settings=SETTINGS)
NARROW = Shape(cidr="10.0.0.0/28", settings=SETTINGS)
"""Ten addresses for Pods on one node, nine on two: what one gives back, the other gets."""


class Story:
    """A world, and the words to tell what happens in it."""

    def __init__(self, world: World) -> None:
        self.world = world

    async def watch(self, seconds: float) -> None:
        """Let time pass, looking all the while."""
        for _ in range(round(seconds / LOOK)):
            await asyncio.sleep(LOOK)
            self.look()

    async def until(self, comes: Callable[[], object], *, within: float = 30.0) -> None:
        """Let time pass until something has come about, without which there is no story."""
        end = self.world.loop.time() + within
        while not comes():
            if self.world.loop.time() > end:
                raise AssertionError(f"it did not come about within {within:g} s")
            await asyncio.sleep(0.02)
            self.look()

    def look(self) -> None:
        """Raise what is wrong by now."""
        self.world.raise_failures()
        self.world.look()

    async def settled(self, seconds: float) -> None:
        """Let time pass, and see that all is well then."""
        await self.watch(seconds)
        check_settled(self.world)

    async def joined(self, *names: str) -> None:
        """Let machines join, get their first batch, and be quiet."""
        for name in names:
            self.world.add_host(name)
        await self.watch(2)
        assert all(self.listed(name) for name in names)

    async def grown(self, name: str, pods: int = 6) -> list[str]:
        """Let Pods be bound and served."""
        bound = self.bind(name, pods)
        await self.until(lambda: self.served(name) == len(self.world.pods_on(name)))
        return bound

    async def shrunk(self, name: str, message: Fits) -> Hold:
        """Let a node have 6 Pods, and then one, so that it names 4 of 7 addresses; a message about that is kept."""
        pods = await self.grown(name)
        hold = self.hold(message)
        self.delete(pods[1:])
        await self.until(lambda: hold.caught)
        return hold

    async def given_up(self, name: str) -> Hold:
        """Delete a Node, and keep the word by which the leader gives it up."""
        word = self.hold(calls(lambda item: item.get("gone")))
        self.world.delete_node(name)
        await self.until(lambda: word.caught, within=60)
        return word

    def bind(self, name: str, pods: int) -> list[str]:
        """Bind Pods to a node."""
        return [self.world.bind(name) for _ in range(pods)]

    def delete(self, pods: list[str]) -> None:
        """Delete Pods."""
        for pod in pods:
            self.world.delete_pod(pod)

    def served(self, name: str) -> int:
        """Count the Pods of a machine that have an address."""
        return len(self.world.truth.of_machine(name))

    def spec(self, name: str) -> dict[str, Any]:
        """Show what a node asks for."""
        found: dict[str, Any] = self.world.configs()[name]["spec"]
        return found

    def named(self, name: str) -> list[str]:
        """List what a node has named for release."""
        return list(self.spec(name).get("ipsNotInUse", ()))

    def listed(self, name: str) -> list[str]:
        """List the addresses that a node's NNC shows."""
        status = self.world.configs().get(name, {}).get("status", {})
        containers = status.get("networkContainers", ())
        return [each["ip"] for container in containers for each in container.get("ipAssignments", ())]

    def agent_again(self, name: str) -> None:
        """Kill an agent, and start it on what it had written."""
        self.world.kill_agent(name)
        self.world.start_agent(name)

    def pause_controllers(self) -> None:
        """Let no controller do anything."""
        for process in self.world.controllers.values():
            process.pause()

    def resume_controllers(self) -> None:
        """Let them go on."""
        for process in self.world.controllers.values():
            process.resume()

    def hold(self, fits: Fits, *, most: int | None = 1, answers: bool = False) -> Hold:
        """Keep messages on their way."""
        return self.world.network.hold(fits, most=most, answers=answers)


Scenario = Callable[[Story], Awaitable[None]]


def tell(scenario: Scenario, *, seed: int, shape: Shape, audited: bool) -> None:
    """Tell a story in a world of its own; raises what it shows to be wrong."""
    world = World(seed, shape)
    if audited:
        Auditor(world)

    async def story() -> None:
        await world.begin()
        await scenario(Story(world))

    try:
        world.loop.run_until_complete(story())
    finally:
        world.loop.end()


# Messages that a story keeps on their way


def requests_of(name: str) -> Fits:
    """What a node's agent writes into its NNC."""
    return lambda each: (
        each.source == name
        and each.request.method == "PATCH"
        and each.request.path.endswith(f"/nodenetworkconfigs/{name}")
    )


def statuses_of(name: str) -> Fits:
    """What a controller writes into a node's NNC."""
    return lambda each: each.request.path.endswith(f"/nodenetworkconfigs/{name}/status")


def calls(about: Callable[[dict[str, Any]], object]) -> Fits:
    """What a controller asks of the ledger, when it is about such a container."""
    return lambda each: (
        each.request.path == "/v1/reconcile"
        and any(about(item) for item in msgspec.json.decode(each.request.body)["items"])
    )


def lists(plural: str, source: str) -> Fits:
    """What somebody is told of a whole kind, by lists and watches."""
    return lambda each: (
        each.source.startswith(source) and each.request.method == "GET" and each.request.path.endswith(f"/{plural}")
    )
