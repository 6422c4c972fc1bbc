"""A network that delays, loses, duplicates and partitions."""

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from podpool.lab.sim.event_loop import VirtualLoop
from podpool.lab.sim.machine import SimProcess
from podpool.lab.sim.network import NetworkConditions, SimNetwork, SimService, SimTransport
from podpool.runtime.transport import Request, Response, Unreachable

REQUEST = Request(method="GET", path="/")


class Fixture:
    """A counting server, and a client with a transport to it."""

    def __init__(self, seed: int = 0) -> None:
        self.loop = VirtualLoop()
        self.network = SimNetwork(self.loop, random.Random(seed))  # noqa: S311  a simulation
        self.service = SimService("server")
        self.process = SimProcess("server", self.loop)
        self.service.serve(self.count, self.process)
        self.transport: SimTransport = self.network.transport("client", self.service)
        self.calls = 0

    async def count(self, _: Request) -> Response:
        self.calls += 1
        number = self.calls

        async def pieces() -> AsyncIterator[bytes]:
            for piece in range(3):
                yield f"{number}.{piece} ".encode()
                await asyncio.sleep(1)

        return Response(200, stream=pieces())

    def run(self, scenario: Callable[[], Awaitable[Any]]) -> Any:  # noqa: ANN401  the result of the scenario
        return self.loop.run_until_complete(scenario())


def test_a_response_arrives_in_order() -> None:
    fixture = Fixture()

    async def scenario() -> bytes:
        return await (await fixture.transport.send(REQUEST)).read()

    assert b"1.0 1.1 1.2 " == fixture.run(scenario)


@pytest.mark.parametrize(
    ("conditions", "calls"), [(NetworkConditions(request_loss=1.0), 0), (NetworkConditions(response_loss=1.0), 1)]
)
def test_lost_requests_and_responses_raise_the_same_error(conditions: NetworkConditions, calls: int) -> None:
    fixture = Fixture()
    fixture.network.conditions = conditions
    with pytest.raises(Unreachable):
        fixture.run(lambda: fixture.transport.send(REQUEST))
    assert calls == fixture.calls


def test_a_duplicated_request_arrives_twice() -> None:
    fixture = Fixture()
    fixture.network.conditions = NetworkConditions(duplication=1.0)

    async def scenario() -> None:
        await (await fixture.transport.send(REQUEST)).read()

    fixture.run(scenario)
    assert 2 == fixture.calls


def test_a_request_arrives_after_its_sender_was_killed() -> None:
    """As a patch that lands after its agent was killed and restarted."""
    fixture = Fixture()
    fixture.network.conditions = NetworkConditions(delay=10.0)
    client = SimProcess("client", fixture.loop)

    async def scenario() -> None:
        client.spawn(fixture.transport.send(REQUEST))
        await asyncio.sleep(0)
        client.kill()
        await asyncio.sleep(100)

    fixture.run(scenario)
    assert 1 == fixture.calls


def test_a_killed_server_breaks_its_connections() -> None:
    fixture = Fixture()

    async def scenario() -> None:
        answer = await fixture.transport.send(REQUEST)
        await anext(aiter(answer.stream))
        fixture.loop.call_later(0.5, fixture.process.kill)
        with pytest.raises(Unreachable, match="connection reset"):
            await answer.read()
        with pytest.raises(Unreachable, match="connection refused"):
            await fixture.transport.send(REQUEST)

    fixture.run(scenario)


def test_a_restarted_server_does_not_continue_former_responses() -> None:
    fixture = Fixture()

    async def scenario() -> None:
        hold = fixture.network.hold(lambda message: message.target == "server", responses=True)
        sending = asyncio.ensure_future(fixture.transport.send(REQUEST))
        await asyncio.sleep(1)
        fixture.process.kill()
        fixture.service.serve(fixture.count, SimProcess("server", fixture.loop))
        hold.release()
        with pytest.raises(Unreachable, match="connection reset"):
            await (await sending).read()

    fixture.run(scenario)


def test_requests_hang_during_a_partition() -> None:
    fixture = Fixture()

    async def scenario() -> tuple[bool, int]:
        fixture.network.partition("server", "client")
        sending = asyncio.ensure_future(fixture.transport.send(REQUEST))
        await asyncio.sleep(1000)
        silent = not sending.done() and fixture.calls == 0
        fixture.network.heal("client", "server")
        return silent, (await sending).status

    assert (True, 200) == fixture.run(scenario)


def test_a_held_request_arrives_after_its_release() -> None:
    fixture = Fixture()

    async def scenario() -> tuple[int, int, bytes]:
        hold = fixture.network.hold(lambda message: message.source == "client")
        first = asyncio.ensure_future(fixture.transport.send(REQUEST))
        await asyncio.sleep(1)
        second = await fixture.transport.send(REQUEST)
        before = fixture.calls
        hold.release()
        return before, len(hold.messages), await (await first).read() + await second.read()

    assert (1, 1, b"2.0 2.1 2.2 1.0 1.1 1.2 ") == fixture.run(scenario)


def test_a_held_response_has_been_sent() -> None:
    fixture = Fixture()

    async def scenario() -> tuple[int, bool]:
        fixture.network.hold(lambda message: message.target == "server", limit=None, responses=True)
        sending = asyncio.ensure_future(fixture.transport.send(REQUEST))
        await asyncio.sleep(1000)
        return fixture.calls, sending.done()

    assert (1, False) == fixture.run(scenario)


def test_the_same_seed_gives_the_same_history() -> None:
    def history(seed: int) -> list[tuple[float, int, bool]]:
        fixture = Fixture(seed)
        fixture.network.conditions = NetworkConditions(
            delay=1.0, slow=0.2, request_loss=0.2, response_loss=0.2, duplication=0.2
        )
        results: list[tuple[float, int, bool]] = []

        async def caller() -> None:
            for _ in range(30):
                try:
                    await (await fixture.transport.send(REQUEST)).read()
                    results.append((fixture.loop.time(), fixture.calls, True))
                except Unreachable:
                    results.append((fixture.loop.time(), fixture.calls, False))

        async def scenario() -> None:
            await asyncio.gather(caller(), caller(), caller())

        fixture.run(scenario)
        return results

    assert history(7) == history(7)
    assert history(7) != history(8)
