"""The client's patience: a deadline for each attempt, and repetition of what may be repeated."""

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
Turn = Callable[[], Coroutine[Any, Any, Response]]


def answering(status: int = 200, body: bytes = FINE) -> Turn:
    async def turn() -> Response:
        return Response(status, body)

    return turn


def refusing(error: LedgerError) -> Turn:
    return answering(error.status, msgspec.json.encode(error.response))


async def lost() -> Response:
    raise Unreachable("the ledger", "cut")


async def silent() -> Response:
    await asyncio.sleep(3600)
    raise AssertionError("nobody waits so long")


class Road:
    """A road on which each request meets what is next."""

    def __init__(self, *turns: Turn) -> None:
        self.turns = list(turns)
        self.known_revision: list[Request] = []

    async def send(self, request: Request) -> Response:
        self.known_revision.append(request)
        return await self.turns.pop(0)()


SHORT = Timeouts(deadline=0.01, attempts=3, min_delay=0.001, max_delay=0.002)


def patient(road: Road) -> LedgerClient:
    return LedgerClient(road, token="secret", timeouts=SHORT)  # noqa: S106  a test's


@pytest.mark.parametrize("trouble", [lost, silent, refusing(TooManyRequests("later")), refusing(Unavailable("away"))])
def test_what_may_be_repeated_is_repeated_until_it_is_answered(trouble: Turn) -> None:
    road = Road(trouble, trouble, answering())
    assert 7 == asyncio.run(patient(road).subnets()).revision
    assert 3 == len(road.known_revision)


@pytest.mark.parametrize(
    ("trouble", "error"),
    [(lost, Unreachable), (silent, Unreachable), (refusing(TooManyRequests("x")), TooManyRequests)],
)
def test_it_gives_up_in_the_end(trouble: Turn, error: type[Exception]) -> None:
    road = Road(*[trouble] * 5)
    with pytest.raises(error):
        asyncio.run(patient(road).subnets())
    assert 3 == len(road.known_revision)


def test_a_numbered_call_is_sent_again_as_it_was() -> None:
    road = Road(lost, answering(body=b'{"revision":1}'))
    asyncio.run(patient(road).reconcile(ReconcileRequest(cluster="c1", term=1, number=5)))
    first, second = road.known_revision
    assert first == second


def test_a_refusal_is_not_repeated() -> None:
    road = Road(refusing(Conflict("no")), answering())
    with pytest.raises(Conflict):
        asyncio.run(patient(road).subnets())
    assert 1 == len(road.known_revision)


def test_what_would_be_done_twice_is_not_repeated_but_for_one_that_was_not_done() -> None:
    road = Road(lost, answering())
    with pytest.raises(Unreachable):
        asyncio.run(patient(road).create_token(CreateTokenRequest(name="x")))
    road = Road(refusing(TooManyRequests("later")), answering(body=b'{"id":"1","name":"x","created_at":"now"}'))
    assert "x" == asyncio.run(patient(road).create_token(CreateTokenRequest(name="x"))).name


def test_without_patience_nothing_is_repeated() -> None:
    road = Road(lost, answering())
    with pytest.raises(Unreachable):
        asyncio.run(LedgerClient(road).subnets())


def test_the_token_goes_with_every_call_and_may_be_exchanged_meanwhile() -> None:
    tokens = iter(["first", "second"])
    road = Road(answering(), answering(body=b'{"term":1,"revision":1}'))
    client = LedgerClient(road, token=lambda: next(tokens))
    asyncio.run(client.subnets())
    asyncio.run(client.open_term(OpenTermRequest(cluster="c1")))
    assert ["Bearer first", "Bearer second"] == [request.headers["authorization"] for request in road.known_revision]


def test_a_wrong_token_is_an_error_of_its_own() -> None:
    with pytest.raises(Unauthorized):
        asyncio.run(patient(Road(refusing(Unauthorized("who?")))).subnets())
