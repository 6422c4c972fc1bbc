"""Calls of one term."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from podpool.controller.ledger_health import LedgerHealth
from podpool.controller.ledger_session import AGAIN, LeaderTerm, LedgerSession
from podpool.core.scaling import Scaler
from podpool.lab.sim.event_loop import VirtualLoop
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import SubnetFull, StaleTerm
from podpool.ledger.messages import (
    NetworkContainerRecord,
    NetworkContainerList,
    NetworkContainerState,
    ReconcileItem,
    ErrorResponse,
    ReconcileRequest,
    ReconcileResponse,
    NetworkContainerResult,
    SubnetName,
    SubnetState,
)
from podpool.runtime.transport import Request, Response, Unreachable

SUBNET = SubnetName(network="vnet", name="pods")
STATE = SubnetState(
    subnet=SUBNET,
    revision=1,
    timestamp="",
    cidr="10.0.0.0/24",
    capacity=250,
    reserved=0,
    cooldown=30.0,
    scaler=Scaler(16, 50),
)
RECORD = NetworkContainerRecord(
    state=NetworkContainerState(container="opened-unheard", subnet=SUBNET, version=1), node="n1", node_uid="n1"
)


class Ledger:
    """Answers reconcile calls as a test tells it to, and remembers them."""

    def __init__(self) -> None:
        self.calls: list[ReconcileRequest] = []
        self.told: list[tuple[NetworkContainerRecord, ...]] = []
        self.answer: Callable[[ReconcileRequest], Response] = self.granted

    async def send(self, request: Request) -> Response:
        if request.method == "GET":
            return Response(200, msgspec.json.encode(NetworkContainerList(revision=1, containers=(RECORD,))))
        self.calls.append(msgspec.json.decode(request.body, type=ReconcileRequest))
        return self.answer(self.calls[-1])

    def granted(self, call: ReconcileRequest) -> Response:
        results = tuple(
            NetworkContainerResult(error=ErrorResponse(error="subnet-full", message="full"))
            if item.node == "unlucky"
            else NetworkContainerResult(state=NetworkContainerState(container=item.node, subnet=SUBNET, version=1))
            for item in call.items
        )
        answer = ReconcileResponse(revision=len(self.calls) + 40, results=results, subnets=(STATE,))
        return Response(200, msgspec.json.encode(answer))


def item(node: str) -> ReconcileItem:
    return ReconcileItem(subnet=SUBNET, node=node, node_uid=node)


def run(story: Callable[[LedgerSession, Ledger], Awaitable[None]]) -> tuple[Ledger, LedgerSession]:
    ledger = Ledger()
    session = LedgerSession(
        LedgerClient(ledger),
        LeaderTerm("cluster", 3, 5),
        hear=lambda _: None,
        load=ledger.told.append,
        presence=LedgerHealth(),
        rng=random.Random(1),  # noqa: S311  the same each time
    )

    async def both() -> None:
        sending = asyncio.ensure_future(session.run())
        await story(session, ledger)
        sending.cancel()
        await asyncio.wait([sending])
        if not sending.cancelled() and sending.exception():
            raise sending.exception() or AssertionError

    VirtualLoop().run_until_complete(both())
    return ledger, session


def test_all_containers_of_a_moment_are_one_call() -> None:
    async def story(session: LedgerSession, _: Ledger) -> None:
        outcomes = await asyncio.gather(*(session.reconcile(item(f"n{number}")) for number in range(100)))
        assert [f"n{number}" for number in range(100)] == [each.container for each in outcomes]

    ledger, session = run(story)
    assert [(3, 1, 5, 100)] == [(call.term, call.number, call.seen, len(call.items)) for call in ledger.calls]
    assert 41 == session.seen


def test_one_bad_item_fails_alone() -> None:
    async def story(session: LedgerSession, _: Ledger) -> None:
        good, bad = await asyncio.gather(
            session.reconcile(item("lucky")), session.reconcile(item("unlucky")), return_exceptions=True
        )
        assert isinstance(bad, SubnetFull)
        assert not isinstance(good, BaseException)

    run(story)


def test_a_lost_answer_fails_and_the_books_are_read_anew_once_it_is_outdated() -> None:
    async def story(session: LedgerSession, ledger: Ledger) -> None:
        def lost(_: ReconcileRequest) -> Response:
            raise Unreachable("the ledger", "lost")

        ledger.answer = lost
        with pytest.raises(Unreachable):
            await session.reconcile(item("n1"))
        ledger.answer = ledger.granted
        await session.reconcile(item("n1"))

    ledger, _ = run(story)
    assert [(1, 1), (2, 0), (3, 1)] == [(call.number, len(call.items)) for call in ledger.calls]
    assert [(RECORD,)] == ledger.told


def test_books_that_cannot_be_read_are_asked_for_again_although_nobody_calls() -> None:
    async def story(session: LedgerSession, ledger: Ledger) -> None:
        def lost(_: ReconcileRequest) -> Response:
            raise Unreachable("the ledger", "lost")

        ledger.answer = lost
        session.doubt()
        await asyncio.sleep(2 * AGAIN)
        assert not ledger.told
        ledger.answer = ledger.granted
        await asyncio.sleep(2 * AGAIN)

    ledger, _ = run(story)
    assert [(RECORD,)] == ledger.told


def test_a_cluster_in_which_nothing_happens_hears_that_its_term_has_ended() -> None:
    """A restored ledger waits for its list."""

    async def story(session: LedgerSession, ledger: Ledger) -> None:
        problem = ErrorResponse(error="term-ended", message="the ledger was restored")
        ledger.answer = lambda _: Response(409, msgspec.json.encode(problem))
        session.doubt()
        await asyncio.sleep(1)
        assert [()] == [call.items for call in ledger.calls]

    with pytest.raises(StaleTerm, match="restored"):
        run(story)


def test_a_term_that_ended_ends_the_session() -> None:
    async def story(session: LedgerSession, ledger: Ledger) -> None:
        problem = ErrorResponse(error="term-ended", message="there is a newer leader")
        ledger.answer = lambda _: Response(409, msgspec.json.encode(problem))
        with pytest.raises(StaleTerm):
            await session.reconcile(item("n1"))
        await asyncio.sleep(1)

    with pytest.raises(StaleTerm, match="newer leader"):
        run(story)
