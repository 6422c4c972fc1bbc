"""The network between processes: it delays, loses, repeats, reorders and cuts.

A request that is lost before it arrives has no effect; one whose answer is lost has had it, and its sender cannot tell
the two apart. A partition is silence: what is under way does not fail, it hangs, until somebody's patience ends.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

import msgspec

from podpool.lab.sim.event_loop import VirtualLoop
from podpool.lab.sim.machine import Process
from podpool.runtime.transport import Handler, Request, Response, Unreachable

T = TypeVar("T")


class Weather(msgspec.Struct, kw_only=True):
    """How bad the network is: shares of messages, and seconds. It may change at any time."""

    delay: float = 0.002
    slow: float = 0.0
    """Messages that take up to `slow_delay`,"""
    slow_delay: float = 5.0
    lost_before: float = 0.0
    lost_after: float = 0.0
    repeated: float = 0.0


class Service:
    """Something that answers: a handler, in the process that it runs in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: Process | None = None
        self.handler: Handler | None = None

    def serve(self, handler: Handler, process: Process) -> None:
        """Answer from now on, as this process."""
        self.handler, self.process = handler, process

    @property
    def up(self) -> bool:
        """Tell whether somebody answers."""
        return self.handler is not None and self.process is not None and self.process.alive


class Message(msgspec.Struct, frozen=True):
    """A request on its way, or the answer to it on its way back."""

    source: str
    """Who asks,"""
    target: str
    """and whom."""
    request: Request


Fits = Callable[[Message], bool]


class Hold:
    """Messages that are kept on their way until somebody lets them go."""

    def __init__(self, fits: Fits, *, most: int | None, answers: bool) -> None:
        self.caught: list[Message] = []
        self.answers = answers
        self._fits = fits
        self._most = most
        self._open = asyncio.Event()

    def let_go(self) -> None:
        """Let everything go that was kept, and keep nothing more."""
        self._open.set()

    async def meet(self, message: Message) -> None:
        """Pass by, or be kept."""
        full = self._most is not None and len(self.caught) >= self._most
        if self._open.is_set() or full or not self._fits(message):
            return
        self.caught.append(message)
        await self._open.wait()


class Network:
    """All roads of the world."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.weather = Weather()
        self.writes: Counter[tuple[str, str, str]] = Counter()
        """Requests that were to change something, whether they did or not: by source, target, and what was asked."""
        self._cuts: dict[tuple[str, str], asyncio.Event] = {}
        self._holds: list[Hold] = []

    def hold(self, fits: Fits, *, most: int | None = 1, answers: bool = False) -> Hold:
        """Keep the next message that fits, or so many, or all of them, on the way there or on the way back."""
        hold = Hold(fits, most=most, answers=answers)
        self._holds.append(hold)
        return hold

    async def held_back(self, message: Message, *, answer: bool) -> None:
        """Wait until nobody keeps a message."""
        for hold in self._holds:
            if hold.answers is answer:
                await hold.meet(message)

    def cut(self, one: str, other: str) -> None:
        """Let nothing pass between two places."""
        self._cuts.setdefault(_pair(one, other), asyncio.Event())

    def mend(self, one: str, other: str) -> None:
        """Let messages pass again, those that hung too."""
        cut = self._cuts.pop(_pair(one, other), None)
        if cut:
            cut.set()

    def mend_all(self) -> None:
        """Mend every cut."""
        for one, other in list(self._cuts):
            self.mend(one, other)

    def cuts(self) -> tuple[tuple[str, str], ...]:
        """List the places that are cut off from each other."""
        return tuple(self._cuts)

    async def passage(self, source: str, target: str) -> None:
        """Take the time that a message takes, and hang while the road is cut."""
        slow = self.rng.random() < self.weather.slow
        await asyncio.sleep(self.rng.uniform(0.0, self.weather.slow_delay if slow else self.weather.delay))
        while cut := self._cuts.get(_pair(source, target)):
            await cut.wait()

    def transport(self, source: str, target: Service) -> "Road":
        """Make the road from a place to a service."""
        return Road(self, source, target)


class Road:
    """A `Transport` through the network. What was sent is under way, whether its sender still lives or not."""

    def __init__(self, network: Network, source: str, target: Service) -> None:
        self._network = network
        self._source = source
        self._target = target

    async def send(self, request: Request) -> Response:
        """Carry a request there, and the head of the answer back."""
        network, weather = self._network, self._network.weather
        if request.method != "GET":
            network.writes[self._source, self._target.name, f"{request.method} {request.path}"] += 1
        copies = 2 if network.rng.random() < weather.repeated else 1
        answers = [network.loop.create_future() for _ in range(copies)]
        for answer in answers:
            network.loop.create_task(self._carry(request, answer), context=Context())
        answered: _Answered | Unreachable = await answers[0]
        if isinstance(answered, Unreachable):
            raise answered
        body = _Body(self, request, *answered)
        return Response(body.response.status, headers=body.response.headers, stream=body.pieces(), close=body.close)

    async def _carry(self, request: Request, answer: "asyncio.Future[_Answered | Unreachable]") -> None:
        """Be under way, whether somebody still waits at the end or not; as a part of no process."""
        outcome: _Answered | Unreachable
        try:
            outcome = await self._exchange(request)
        except Unreachable as error:
            outcome = error
        if not answer.done():
            answer.set_result(outcome)

    async def _exchange(self, request: Request) -> "_Answered":
        network, weather = self._network, self._network.weather
        await network.passage(self._source, self._target.name)
        await network.held_back(self._message(request), answer=False)
        if network.rng.random() < weather.lost_before:
            raise self.lost("the request was lost")
        server, response = self.process, await self._answered(request)
        if network.rng.random() < weather.lost_after:
            await response.close()
            raise self.lost("the answer was lost")
        await self.back(request)
        return response, server

    async def _answered(self, request: Request) -> Response:
        """Have the service's own process answer."""
        handler = self._target.handler
        if handler is None:
            raise self.lost("nobody listens")
        try:
            return await self._run(handler(request))
        except Unreachable:
            raise
        except Exception as error:  # noqa: BLE001  whatever it is: its caller sees a broken answer, and we remember it
            self._network.loop.call_exception_handler({"message": f"{self._target.name} failed", "exception": error})
            return Response(500)

    async def _run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run something in the service's process."""
        result: T = await Call(self, work).result()
        return result

    @property
    def process(self) -> Process | None:
        """Who answers at the other end now."""
        return self._target.process

    async def back(self, request: Request) -> None:
        """Take the way back, with the answer to a request or a piece of it."""
        await self._network.passage(self._target.name, self._source)
        await self._network.held_back(self._message(request), answer=True)

    def _message(self, request: Request) -> Message:
        return Message(self._source, self._target.name, request)

    def lost(self, reason: str) -> Unreachable:
        """Word what the sender sees."""
        return Unreachable(self._target.name, reason)


class Call:
    """Something that runs in a service's process for somebody outside; when the process dies, the connection breaks."""

    def __init__(self, road: Road, work: Coroutine[Any, Any, Any]) -> None:
        process = road.process
        if process is None or not process.alive:
            work.close()
            raise road.lost("nobody listens")
        self.process = process
        self._road = road
        self._done: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.task = process.spawn(self._into(work))
        self.task.add_done_callback(lambda _: work.close())  # who dies before its first step has not begun it
        process.on_death(self._died)

    async def result(self) -> Any:  # noqa: ANN401  whatever the work gives
        """Wait for it."""
        try:
            return await self._done
        finally:
            self.process.forget(self._died)

    async def _into(self, work: Coroutine[Any, Any, Any]) -> None:
        try:
            result = await work
        except Exception as error:  # noqa: BLE001  handed on to whoever waits
            if not self._done.done():
                self._done.set_exception(error)
        else:
            if not self._done.done():
                self._done.set_result(result)

    def _died(self) -> None:
        if not self._done.done():
            self._done.set_exception(self._road.lost("it died"))


_Answered = tuple[Response, Process | None]
"""An answer, and the process that gave it: another may be there by the time that it arrives."""


class _Body:
    """The body of an answer, carried piece by piece, in order, for as long as somebody takes it."""

    def __init__(self, road: Road, request: Request, response: Response, server: Process | None) -> None:
        self.response = response
        self._request = request
        self._road = road
        self._server = server
        self._call: Call | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Take one after the other."""
        stream = aiter(self.response.stream)
        while True:
            if self._road.process is not self._server:
                raise self._road.lost("it died")
            self._call = Call(self._road, _next(stream))
            piece = await self._call.result()
            if piece is None:
                return
            await self._road.back(self._request)
            yield piece

    async def close(self) -> None:
        """Hang up: the service's own work on it ends first, and is then put away."""
        call = self._call
        if call is None or call.task.done():
            await self.response.close()
        elif call.process.alive:
            call.task.cancel()
            asyncio.get_running_loop().create_task(self._put_away(call), context=Context())

    async def _put_away(self, call: Call) -> None:
        await asyncio.wait([call.task])
        if call.process.alive:
            await self.response.close()


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
