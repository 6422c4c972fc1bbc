"""Deadlines and retries of the client."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import msgspec
import pytest

from podpool.ledger.admin_messages import CreateTokenRequest
from podpool.ledger.client import LedgerClient, Timeouts
from podpool.ledger.errors import Conflict, LedgerError, TooManyRequests, Unauthorized, Unavailable
from podpool.ledger.messages import OpenTermRequest, ReconcileRequest, SubnetList
from podpool.runtime.transport import Request, Response, Unreachable

FINE = msgspec.json.encode(SubnetList(revision=7))
Reply = Callable[[], Coroutine[Any, Any, Response]]


def replying(status: int = 200, body: bytes = FINE) -> Reply:
    async def reply() -> Response:
        return Response(status, body)

    return reply


def failing(error: LedgerError, **headers: str) -> Reply:
    async def reply() -> Response:
        return Response(error.status, msgspec.json.encode(error.response), headers=headers)

    return reply


async def lost() -> Response:
    raise Unreachable("the ledger", "cut")


async def hanging() -> Response:
    await asyncio.sleep(3600)
    raise AssertionError("the deadline has passed")


class ScriptedTransport:
    """A transport with a scripted reply for each request."""

    def __init__(self, *replies: Reply) -> None:
        self.replies = list(replies)
        self.known_revision: list[Request] = []

    async def send(self, request: Request) -> Response:
        self.known_revision.append(request)
        return await self.replies.pop(0)()


SHORT = Timeouts(deadline=0.01, attempts=3, min_delay=0.001, max_delay=0.002)


def client_with_timeouts(transport: ScriptedTransport) -> LedgerClient:
    return LedgerClient(transport, token="secret", timeouts=SHORT)  # noqa: S106  not a real one


@pytest.mark.parametrize("failure", [lost, hanging, failing(TooManyRequests("later")), failing(Unavailable("away"))])
def test_idempotent_call_is_retried_until_it_succeeds(failure: Reply) -> None:
    transport = ScriptedTransport(failure, failure, replying())
    assert 7 == asyncio.run(client_with_timeouts(transport).subnets()).revision
    assert 3 == len(transport.known_revision)


@pytest.mark.parametrize(
    ("failure", "error"),
    [(lost, Unreachable), (hanging, Unreachable), (failing(TooManyRequests("x")), TooManyRequests)],
)
def test_call_fails_after_the_last_attempt(failure: Reply, error: type[Exception]) -> None:
    transport = ScriptedTransport(*[failure] * 5)
    with pytest.raises(error):
        asyncio.run(client_with_timeouts(transport).subnets())
    assert 3 == len(transport.known_revision)


def test_retry_sends_the_same_request() -> None:
    transport = ScriptedTransport(lost, replying(body=b'{"revision":1}'))
    asyncio.run(client_with_timeouts(transport).reconcile(ReconcileRequest(cluster="c1", term=1, number=5)))
    first, second = transport.known_revision
    assert first == second


def test_error_response_is_not_retried() -> None:
    transport = ScriptedTransport(failing(Conflict("no")), replying())
    with pytest.raises(Conflict):
        asyncio.run(client_with_timeouts(transport).subnets())
    assert 1 == len(transport.known_revision)


def test_call_that_is_not_idempotent_is_retried_only_if_it_was_not_processed() -> None:
    transport = ScriptedTransport(lost, replying())
    with pytest.raises(Unreachable):
        asyncio.run(client_with_timeouts(transport).create_token(CreateTokenRequest(name="x")))
    transport = ScriptedTransport(
        failing(TooManyRequests("later")), replying(body=b'{"id":"1","name":"x","created_at":"now"}')
    )
    assert "x" == asyncio.run(client_with_timeouts(transport).create_token(CreateTokenRequest(name="x"))).name


TURNED_AWAY = failing(Unavailable("full"), **{"retry-after": "7"})


@pytest.mark.parametrize("repeat_unanswered", [True, False])
def test_rejected_call_is_repeated_after_retry_after_with_jitter(
    monkeypatch: pytest.MonkeyPatch, *, repeat_unanswered: bool
) -> None:
    """It was not processed, so that also a call that is not idempotent is repeated."""
    delays: list[float] = []

    async def slept(seconds: float) -> None:
        delays.append(seconds)

    monkeypatch.setattr("podpool.ledger.client.asyncio.sleep", slept)
    for seed in range(20):
        made = replying(body=b'{"id":"1","name":"x","created_at":"now"}')
        timeouts = Timeouts(repeat_unanswered=repeat_unanswered)
        client = LedgerClient(ScriptedTransport(TURNED_AWAY, made), timeouts=timeouts, rng=random.Random(seed))  # noqa: S311  reproducible
        asyncio.run(client.create_token(CreateTokenRequest(name="x")))
    assert all(7 <= each <= 10.5 for each in delays)
    assert 20 == len(set(delays))


def test_unanswered_call_is_not_repeated_if_the_caller_decides_that() -> None:
    transport = ScriptedTransport(lost, replying())
    client = LedgerClient(transport, timeouts=Timeouts(repeat_unanswered=False))
    with pytest.raises(Unreachable):
        asyncio.run(client.subnets())
    assert 1 == len(transport.known_revision)


def test_ledger_receives_the_deadline_of_the_caller() -> None:
    transport = ScriptedTransport(replying())
    asyncio.run(client_with_timeouts(transport).subnets())
    assert "0.01" == transport.known_revision[0].headers["request-timeout"]


def test_stream_that_falls_silent_has_ended() -> None:
    async def stream() -> AsyncIterator[bytes]:
        yield b": heartbeat\n\n"
        await asyncio.sleep(3600)

    async def opened() -> Response:
        return Response(200, stream=stream())

    async def follow(reply: Reply) -> None:
        client = LedgerClient(ScriptedTransport(reply), timeouts=Timeouts(deadline=0.01, silence=0.01))
        async for _ in client.changes("c1"):
            raise AssertionError("no event was sent")

    for reply in (opened, hanging):
        with pytest.raises(Unreachable):
            asyncio.run(follow(reply))


def test_no_retry_without_timeouts() -> None:
    transport = ScriptedTransport(lost, replying())
    with pytest.raises(Unreachable):
        asyncio.run(LedgerClient(transport).subnets())


def test_every_request_carries_the_current_token() -> None:
    tokens = iter(["first", "second"])
    transport = ScriptedTransport(replying(), replying(body=b'{"term":1,"revision":1}'))
    client = LedgerClient(transport, token=lambda: next(tokens))
    asyncio.run(client.subnets())
    asyncio.run(client.open_term(OpenTermRequest(cluster="c1")))
    assert ["Bearer first", "Bearer second"] == [
        request.headers["authorization"] for request in transport.known_revision
    ]


def test_invalid_token_raises_unauthorized() -> None:
    with pytest.raises(Unauthorized):
        asyncio.run(client_with_timeouts(ScriptedTransport(failing(Unauthorized("who?")))).subnets())
