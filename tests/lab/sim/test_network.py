"""A network that delays, loses, repeats and cuts."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from podpool.lab.sim.event_loop import VirtualLoop
from podpool.lab.sim.machine import Process
from podpool.lab.sim.network import Network, Road, Service, Weather
from podpool.runtime.transport import Request, Response, Unreachable

ASK = Request(method="GET", path="/")


class World:
    """A counting server, a client's road to it, and the network between."""

    def __init__(self, seed: int = 0) -> None:
        self.loop = VirtualLoop()
        self.network = Network(self.loop, random.Random(seed))  # noqa: S311  a simulation
        self.service = Service("server")
        self.process = Process("server", self.loop)
        self.service.serve(self.count, self.process)
        self.road: Road = self.network.transport("client", self.service)
        self.calls = 0

    async def count(self, _: Request) -> Response:
        self.calls += 1
        number = self.calls

        async def pieces() -> AsyncIterator[bytes]:
            for piece in range(3):
                yield f"{number}.{piece} ".encode()
                await asyncio.sleep(1)

        return Response(200, stream=pieces())

    def run(self, story: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401  whatever the story gives
        return self.loop.run_until_complete(story())


def test_an_answer_comes_in_order() -> None:
    world = World()

    async def story() -> bytes:
        return await (await world.road.send(ASK)).read()

    assert b"1.0 1.1 1.2 " == world.run(story)


@pytest.mark.parametrize(("weather", "calls"), [(Weather(lost_before=1.0), 0), (Weather(lost_after=1.0), 1)])
def test_a_sender_cannot_tell_a_lost_request_from_a_lost_answer(weather: Weather, calls: int) -> None:
    world = World()
    world.network.weather = weather
    with pytest.raises(Unreachable):
        world.run(lambda: world.road.send(ASK))
    assert calls == world.calls


def test_a_repeated_message_arrives_twice() -> None:
    world = World()
    world.network.weather = Weather(repeated=1.0)

    async def story() -> None:
        await (await world.road.send(ASK)).read()

    world.run(story)
    assert 2 == world.calls


def test_what_was_sent_arrives_though_its_sender_is_dead() -> None:
    """A patch that lands after the agent that sent it was killed and has come back."""
    world = World()
    world.network.weather = Weather(delay=10.0)
    client = Process("client", world.loop)

    async def story() -> None:
        client.spawn(world.road.send(ASK))
        await asyncio.sleep(0)
        client.kill()
        await asyncio.sleep(100)

    world.run(story)
    assert 1 == world.calls


def test_a_server_that_dies_breaks_its_connections() -> None:
    world = World()

    async def story() -> None:
        answer = await world.road.send(ASK)
        await anext(aiter(answer.stream))
        world.loop.call_later(0.5, world.process.kill)
        with pytest.raises(Unreachable, match="it died"):
            await answer.read()
        with pytest.raises(Unreachable, match="nobody listens"):
            await world.road.send(ASK)

    world.run(story)


def test_who_follows_a_server_that_died_does_not_go_on_with_its_answers() -> None:
    world = World()

    async def story() -> None:
        hold = world.network.hold(lambda message: message.target == "server", answers=True)
        sending = asyncio.ensure_future(world.road.send(ASK))
        await asyncio.sleep(1)
        world.process.kill()
        world.service.serve(world.count, Process("server", world.loop))
        hold.let_go()
        with pytest.raises(Unreachable, match="it died"):
            await (await sending).read()

    world.run(story)


def test_a_partition_is_silence_until_it_is_mended() -> None:
    world = World()

    async def story() -> tuple[bool, int]:
        world.network.cut("server", "client")
        sending = asyncio.ensure_future(world.road.send(ASK))
        await asyncio.sleep(1000)
        silent = not sending.done() and world.calls == 0
        world.network.mend("client", "server")
        return silent, (await sending).status

    assert (True, 200) == world.run(story)


def test_a_message_that_is_held_back_arrives_when_it_is_let_go() -> None:
    world = World()

    async def story() -> tuple[int, int, bytes]:
        hold = world.network.hold(lambda message: message.source == "client")
        first = asyncio.ensure_future(world.road.send(ASK))
        await asyncio.sleep(1)
        second = await world.road.send(ASK)
        before = world.calls
        hold.let_go()
        return before, len(hold.caught), await (await first).read() + await second.read()

    assert (1, 1, b"2.0 2.1 2.2 1.0 1.1 1.2 ") == world.run(story)


def test_an_answer_that_is_held_back_was_given() -> None:
    world = World()

    async def story() -> tuple[int, bool]:
        world.network.hold(lambda message: message.target == "server", most=None, answers=True)
        sending = asyncio.ensure_future(world.road.send(ASK))
        await asyncio.sleep(1000)
        return world.calls, sending.done()

    assert (1, False) == world.run(story)


def test_the_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> list[tuple[float, int, bool]]:
        world = World(seed)
        world.network.weather = Weather(delay=1.0, slow=0.2, lost_before=0.2, lost_after=0.2, repeated=0.2)
        told: list[tuple[float, int, bool]] = []

        async def caller() -> None:
            for _ in range(30):
                try:
                    await (await world.road.send(ASK)).read()
                    told.append((world.loop.time(), world.calls, True))
                except Unreachable:
                    told.append((world.loop.time(), world.calls, False))

        async def story() -> None:
            await asyncio.gather(caller(), caller(), caller())

        world.run(story)
        return told

    assert history(7) == history(7)
    assert history(7) != history(8)
