"""The network between processes: it delays, loses, duplicates, reorders and partitions.

A request that is lost before it arrives has no effect; one whose response is lost has had its effect, and the sender
cannot distinguish the two. In a partition messages do not fail: they hang until it heals or a timeout ends the wait.
"""

import asyncio
import random
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine
from contextvars import Context
from typing import Any, TypeVar

import msgspec

from podpool.lab.sim.event_loop import VirtualLoop
from podpool.lab.sim.machine import SimProcess
from podpool.runtime.transport import Handler, Request, Response, Unreachable

T = TypeVar("T")


class NetworkConditions(msgspec.Struct, kw_only=True):
    """Shares of messages with each fault, and delays in seconds. They may change at any time."""

    delay: float = 0.002
    slow: float = 0.0
    """Share of messages that take up to `slow_delay`."""
    slow_delay: float = 5.0
    request_loss: float = 0.0
    response_loss: float = 0.0
    duplication: float = 0.0

    @property
    def reliable(self) -> bool:
        """Whether every message arrives at once."""
        return not (self.slow or self.request_loss or self.response_loss)


class SimService:
    """A named endpoint: a handler, and the process that it runs in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.process: SimProcess | None = None
        self.handler: Handler | None = None

    def serve(self, handler: Handler, process: SimProcess) -> None:
        """Answer requests from now on, in this process."""
        self.handler, self.process = handler, process

    @property
    def up(self) -> bool:
        """Whether requests are answered."""
        return self.handler is not None and self.process is not None and self.process.alive


class NetworkMessage(msgspec.Struct, frozen=True):
    """A request in flight, or its response."""

    source: str
    """The sender of the request."""
    target: str
    """The service that is called."""
    request: Request


MessageFilter = Callable[[NetworkMessage], bool]


class MessageHold:
    """Holds matching messages in flight until it is released."""

    def __init__(self, matches: MessageFilter, *, limit: int | None, responses: bool) -> None:
        self.messages: list[NetworkMessage] = []
        self.responses = responses
        self._matches = matches
        self._limit = limit
        self._released = asyncio.Event()

    def release(self) -> None:
        """Deliver all held messages, and hold no more."""
        self._released.set()

    @property
    def released(self) -> bool:
        """Whether it holds no more messages."""
        return self._released.is_set()

    async def pass_through(self, message: NetworkMessage) -> None:
        """Hold a message if it matches."""
        full = self._limit is not None and len(self.messages) >= self._limit
        if self._released.is_set() or full or not self._matches(message):
            return
        self.messages.append(message)
        await self._released.wait()


class SimNetwork:
    """Connects all processes."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self.loop = loop
        self.rng = rng
        self.conditions = NetworkConditions()
        self.writes: Counter[tuple[str, str, str]] = Counter()
        """Write requests, successful or not, by source, target, and method with path."""
        self._partitions: dict[tuple[str, str], asyncio.Event] = {}
        self._holds: list[MessageHold] = []

    def hold(self, matches: MessageFilter, *, limit: int | None = 1, responses: bool = False) -> MessageHold:
        """Hold the next matching requests or responses: one, up to a limit, or all."""
        hold = MessageHold(matches, limit=limit, responses=responses)
        self._holds.append(hold)
        return hold

    @property
    def reliable(self) -> bool:
        """Whether every message arrives at once, except in a partition."""
        return self.conditions.reliable and all(each.released for each in self._holds)

    @property
    def has_holds(self) -> bool:
        """Whether a message may be held."""
        return bool(self._holds)

    async def wait_for_holds(self, message: NetworkMessage, *, response: bool) -> None:
        """Wait until no hold keeps a message."""
        for hold in self._holds:
            if hold.responses is response:
                await hold.pass_through(message)

    def partition(self, one: str, other: str) -> None:
        """Let no message pass between two names."""
        self._partitions.setdefault(_pair(one, other), asyncio.Event())

    def heal(self, one: str, other: str) -> None:
        """Let messages pass again, including those that hang."""
        healed = self._partitions.pop(_pair(one, other), None)
        if healed:
            healed.set()

    def heal_all(self) -> None:
        """Heal every partition."""
        for one, other in list(self._partitions):
            self.heal(one, other)

    def is_partitioned(self, one: str, other: str) -> bool:
        """Return whether no message passes between two names."""
        return _pair(one, other) in self._partitions

    def partitions(self) -> tuple[tuple[str, str], ...]:
        """Return the pairs of names that are partitioned."""
        return tuple(self._partitions)

    async def transit(self, source: str, target: str) -> None:
        """Take the time that a message takes, and hang during a partition."""
        random, conditions = self.rng.random, self.conditions
        longest = conditions.slow_delay if random() < conditions.slow else conditions.delay
        await self.loop.sleep(longest * random())
        while self._partitions and (healed := self._partitions.get(_pair(source, target))):
            await healed.wait()

    def transport(self, source: str, target: SimService) -> "SimTransport":
        """Return the transport from a name to a service."""
        return SimTransport(self, source, target)


class SimTransport:
    """A `Transport` over the network. A sent request stays in flight when its sender is killed."""

    def __init__(self, network: SimNetwork, source: str, target: SimService) -> None:
        self._network = network
        self.source = source
        """The name of the sender, on which partitions depend."""
        self._target = target

    async def send(self, request: Request) -> Response:
        """Deliver a request, and return the head of its response."""
        network, conditions = self._network, self._network.conditions
        if request.method != "GET":
            network.writes[self.source, self._target.name, f"{request.method} {request.path}"] += 1
        copies = 2 if network.rng.random() < conditions.duplication else 1
        outcomes = [network.loop.create_future() for _ in range(copies)]
        for outcome in outcomes:
            network.loop.create_task(self._deliver(request, outcome), context=Context())
        first: _Answered | Unreachable = await outcomes[0]
        if isinstance(first, Unreachable):
            raise first
        body = _Body(self, request, *first)
        return Response(body.response.status, headers=body.response.headers, stream=body.pieces(), close=body.close)

    async def _deliver(self, request: Request, outcome: "asyncio.Future[_Answered | Unreachable]") -> None:
        """Deliver a request outside of any process, whether the sender still waits or not."""
        result: _Answered | Unreachable
        try:
            result = await self._exchange(request)
        except Unreachable as error:
            result = error
        if not outcome.done():
            outcome.set_result(result)

    async def _exchange(self, request: Request) -> "_Answered":
        network, conditions = self._network, self._network.conditions
        await network.transit(self.source, self._target.name)
        if network.has_holds:
            await network.wait_for_holds(self._message(request), response=False)
        if network.rng.random() < conditions.request_loss:
            raise self.unreachable("the request was lost")
        server, response = self.process, await self._handle(request)
        if network.rng.random() < conditions.response_loss:
            await response.close()
            raise self.unreachable("the response was lost")
        await self.transit_back(request)
        return response, server

    async def _handle(self, request: Request) -> Response:
        """Handle a request in the service's process."""
        handler = self._target.handler
        if handler is None:
            raise self.unreachable("connection refused")
        try:
            return await self._run(handler(request))
        except Unreachable:
            raise
        except Exception as error:  # noqa: BLE001  the caller gets a 500, and the runner reports the exception
            self._network.loop.call_exception_handler({"message": f"{self._target.name} failed", "exception": error})
            return Response(500)

    async def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        result: T = await RemoteCall(self, coroutine).result()
        return result

    @property
    def process(self) -> SimProcess | None:
        """The process that serves the target now."""
        return self._target.process

    async def transit_back(self, request: Request) -> None:
        """Take the time of a response, or of a piece of one."""
        await self._network.transit(self._target.name, self.source)
        if self._network.has_holds:
            await self._network.wait_for_holds(self._message(request), response=True)

    def _message(self, request: Request) -> NetworkMessage:
        return NetworkMessage(self.source, self._target.name, request)

    def unreachable(self, reason: str) -> Unreachable:
        """Return the error that the sender gets."""
        return Unreachable(self._target.name, reason)


class RemoteCall:
    """A coroutine that runs in a service's process for a caller outside; a kill breaks the connection."""

    def __init__(self, transport: SimTransport, coroutine: Coroutine[Any, Any, Any]) -> None:
        process = transport.process
        if process is None or not process.alive:
            coroutine.close()
            raise transport.unreachable("connection refused")
        self.process = process
        self._transport = transport
        self._done: asyncio.Future[Any] = process.loop.create_future()
        self.task = process.spawn(self._run(coroutine))
        self.task.add_done_callback(lambda _: coroutine.close())  # a process killed before its first step never starts
        process.on_exit(self._on_exit)

    async def result(self) -> Any:  # noqa: ANN401  the coroutine's result
        """Wait for the result."""
        try:
            return await self._done
        finally:
            self.process.remove_exit_callback(self._on_exit)

    async def _run(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        try:
            result = await coroutine
        except Exception as error:  # noqa: BLE001  passed on to the caller
            if not self._done.done():
                self._done.set_exception(error)
        else:
            if not self._done.done():
                self._done.set_result(result)

    def _on_exit(self) -> None:
        if not self._done.done():
            self._done.set_exception(self._transport.unreachable("connection reset"))


_Answered = tuple[Response, SimProcess | None]
"""A response, and the process that gave it: another may serve when the response arrives."""


class _Body:
    """The body of a response, delivered piece by piece, in order, as long as the caller reads it."""

    def __init__(
        self, transport: SimTransport, request: Request, response: Response, server: SimProcess | None
    ) -> None:
        self.response = response
        self._request = request
        self._transport = transport
        self._server = server
        self._call: RemoteCall | None = None

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces."""
        stream = aiter(self.response.stream)
        while True:
            if self._transport.process is not self._server:
                raise self._transport.unreachable("connection reset")
            self._call = RemoteCall(self._transport, _next(stream))
            piece = await self._call.result()
            if piece is None:
                return
            await self._transport.transit_back(self._request)
            yield piece

    async def close(self) -> None:
        """Disconnect: the service's own work on the body is cancelled before the body is closed."""
        call = self._call
        if call is None or call.task.done():
            await self.response.close()
        elif call.process.alive:
            call.task.cancel()
            asyncio.get_running_loop().create_task(self._close_after(call), context=Context())

    async def _close_after(self, call: RemoteCall) -> None:
        await asyncio.wait([call.task])
        if call.process.alive:
            await self.response.close()


async def _next(pieces: AsyncIterator[bytes]) -> bytes | None:
    return await anext(pieces, None)


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)
