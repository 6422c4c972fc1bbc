"""Deadlines and retries of the client."""

import asyncio
from collections.abc import Callable, Coroutine
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


def failing(error: LedgerError) -> Reply:
    return replying(error.status, msgspec.json.encode(error.response))


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


def client_with_timeouts(road: ScriptedTransport) -> LedgerClient:
    return LedgerClient(road, token="secret", timeouts=SHORT)  # noqa: S106  not a real one


@pytest.mark.parametrize("failure", [lost, hanging, failing(TooManyRequests("later")), failing(Unavailable("away"))])
def test_idempotent_call_is_retried_until_it_succeeds(failure: Reply) -> None:
    road = ScriptedTransport(failure, failure, replying())
    assert 7 == asyncio.run(client_with_timeouts(road).subnets()).revision
    assert 3 == len(road.known_revision)


@pytest.mark.parametrize(
    ("failure", "error"),
    [(lost, Unreachable), (hanging, Unreachable), (failing(TooManyRequests("x")), TooManyRequests)],
)
def test_call_fails_after_the_last_attempt(failure: Reply, error: type[Exception]) -> None:
    road = ScriptedTransport(*[failure] * 5)
    with pytest.raises(error):
        asyncio.run(client_with_timeouts(road).subnets())
    assert 3 == len(road.known_revision)


def test_retry_sends_the_same_request() -> None:
    road = ScriptedTransport(lost, replying(body=b'{"revision":1}'))
    asyncio.run(client_with_timeouts(road).reconcile(ReconcileRequest(cluster="c1", term=1, number=5)))
    first, second = road.known_revision
    assert first == second


def test_error_response_is_not_retried() -> None:
    road = ScriptedTransport(failing(Conflict("no")), replying())
    with pytest.raises(Conflict):
        asyncio.run(client_with_timeouts(road).subnets())
    assert 1 == len(road.known_revision)


def test_call_that_is_not_idempotent_is_retried_only_if_it_was_not_processed() -> None:
    road = ScriptedTransport(lost, replying())
    with pytest.raises(Unreachable):
        asyncio.run(client_with_timeouts(road).create_token(CreateTokenRequest(name="x")))
    road = ScriptedTransport(
        failing(TooManyRequests("later")), replying(body=b'{"id":"1","name":"x","created_at":"now"}')
    )
    assert "x" == asyncio.run(client_with_timeouts(road).create_token(CreateTokenRequest(name="x"))).name


def test_no_retry_without_timeouts() -> None:
    road = ScriptedTransport(lost, replying())
    with pytest.raises(Unreachable):
        asyncio.run(LedgerClient(road).subnets())


def test_every_request_carries_the_current_token() -> None:
    tokens = iter(["first", "second"])
    road = ScriptedTransport(replying(), replying(body=b'{"term":1,"revision":1}'))
    client = LedgerClient(road, token=lambda: next(tokens))
    asyncio.run(client.subnets())
    asyncio.run(client.open_term(OpenTermRequest(cluster="c1")))
    assert ["Bearer first", "Bearer second"] == [request.headers["authorization"] for request in road.known_revision]


def test_invalid_token_raises_unauthorized() -> None:
    with pytest.raises(Unauthorized):
        asyncio.run(client_with_timeouts(ScriptedTransport(failing(Unauthorized("who?")))).subnets())
