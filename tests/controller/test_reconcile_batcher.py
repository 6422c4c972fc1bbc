"""Calls to the ledger within one term."""

import asyncio
import random
from collections.abc import Awaitable, Callable

import msgspec
import pytest

from podpool.controller.ledger_health import LedgerHealth
from podpool.controller.reconcile_batcher import RELOAD_BACKOFF_BASE, LeaderTerm, ReconcileBatcher
from podpool.core.scaling import Scaler
from podpool.lab.sim.event_loop import VirtualLoop
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import Invalid, StaleTerm, SubnetFull
from podpool.ledger.messages import (
    ErrorResponse,
    NetworkContainerList,
    NetworkContainerRecord,
    NetworkContainerResult,
    NetworkContainerState,
    ReconcileItem,
    ReconcileRequest,
    ReconcileResponse,
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
    state=NetworkContainerState(nc_id="opened-by-a-lost-call", subnet=SUBNET, version=1), node="n1", node_uid="n1"
)


class FakeLedger:
    """Responds as the test sets it, and records the calls."""

    def __init__(self) -> None:
        self.calls: list[ReconcileRequest] = []
        self.reloads: list[tuple[NetworkContainerRecord, ...]] = []
        self.respond: Callable[[ReconcileRequest], Response] = self.grant

    async def send(self, request: Request) -> Response:
        if request.method == "GET":
            return Response(200, msgspec.json.encode(NetworkContainerList(revision=1, network_containers=(RECORD,))))
        self.calls.append(msgspec.json.decode(request.body, type=ReconcileRequest))
        return self.respond(self.calls[-1])

    def grant(self, call: ReconcileRequest) -> Response:
        results = tuple(
            NetworkContainerResult(error=ErrorResponse(error="subnet-full", message="full"))
            if item.node == "rejected"
            else NetworkContainerResult(state=NetworkContainerState(nc_id=item.node, subnet=SUBNET, version=1))
            for item in call.items
        )
        response = ReconcileResponse(revision=len(self.calls) + 40, results=results, subnets=(STATE,))
        return Response(200, msgspec.json.encode(response))


def item(node: str) -> ReconcileItem:
    return ReconcileItem(subnet=SUBNET, node=node, node_uid=node)


def lose(_: ReconcileRequest) -> Response:
    raise Unreachable("the ledger", "lost")


def run(scenario: Callable[[ReconcileBatcher, FakeLedger], Awaitable[None]]) -> tuple[FakeLedger, ReconcileBatcher]:
    ledger = FakeLedger()
    session = ReconcileBatcher(
        LedgerClient(ledger),
        LeaderTerm("cluster", "vnet", 3, 5),
        on_response=lambda _: None,
        on_reload=lambda _, records: ledger.reloads.append(records),
        health=LedgerHealth(),
        rng=random.Random(1),  # noqa: S311  seeded
    )

    async def both() -> None:
        sending = asyncio.ensure_future(session.run())
        await scenario(session, ledger)
        sending.cancel()
        await asyncio.wait([sending])
        if not sending.cancelled() and sending.exception():
            raise sending.exception() or AssertionError

    VirtualLoop().run_until_complete(both())
    return ledger, session


def test_concurrent_requests_are_sent_in_one_call() -> None:
    async def scenario(session: ReconcileBatcher, _: FakeLedger) -> None:
        outcomes = await asyncio.gather(*(session.reconcile(item(f"n{number}")) for number in range(100)))
        assert [f"n{number}" for number in range(100)] == [each.nc_id for each in outcomes]

    ledger, session = run(scenario)
    assert [(3, 1, 5, 100)] == [(call.term, call.number, call.known_revision, len(call.items)) for call in ledger.calls]
    assert 41 == session.seen


def test_one_rejected_request_fails_alone() -> None:
    async def scenario(session: ReconcileBatcher, _: FakeLedger) -> None:
        accepted, rejected = await asyncio.gather(
            session.reconcile(item("accepted")), session.reconcile(item("rejected")), return_exceptions=True
        )
        assert isinstance(rejected, SubnetFull)
        assert not isinstance(accepted, BaseException)

    run(scenario)


def test_after_a_lost_response_an_empty_call_outdates_it_and_the_ncs_are_reloaded() -> None:
    async def scenario(session: ReconcileBatcher, ledger: FakeLedger) -> None:
        ledger.respond = lose
        with pytest.raises(Unreachable):
            await session.reconcile(item("n1"))
        ledger.respond = ledger.grant
        await session.reconcile(item("n1"))

    ledger, _ = run(scenario)
    assert [(1, 1), (2, 0), (3, 1)] == [(call.number, len(call.items)) for call in ledger.calls]
    assert [(RECORD,)] == ledger.reloads


def test_a_failed_reload_is_retried_without_requests() -> None:
    async def scenario(session: ReconcileBatcher, ledger: FakeLedger) -> None:
        ledger.respond = lose
        session.reload()
        await asyncio.sleep(2 * RELOAD_BACKOFF_BASE)
        assert not ledger.reloads
        ledger.respond = ledger.grant
        await asyncio.sleep(2 * RELOAD_BACKOFF_BASE)

    ledger, _ = run(scenario)
    assert [(RECORD,)] == ledger.reloads


def test_an_idle_session_learns_that_its_term_has_ended() -> None:
    """A restored ledger waits for the cluster's inventory."""

    async def scenario(session: ReconcileBatcher, ledger: FakeLedger) -> None:
        error = ErrorResponse(error=StaleTerm.code, message="the ledger was restored")
        ledger.respond = lambda _: Response(409, msgspec.json.encode(error))
        session.reload()
        await asyncio.sleep(1)
        assert [()] == [call.items for call in ledger.calls]

    with pytest.raises(StaleTerm, match="restored"):
        run(scenario)


def test_a_stale_term_ends_the_session() -> None:
    async def scenario(session: ReconcileBatcher, ledger: FakeLedger) -> None:
        error = ErrorResponse(error=StaleTerm.code, message="there is a newer leader")
        ledger.respond = lambda _: Response(409, msgspec.json.encode(error))
        with pytest.raises(StaleTerm):
            await session.reconcile(item("n1"))
        await asyncio.sleep(1)

    with pytest.raises(StaleTerm, match="newer leader"):
        run(scenario)


def test_a_call_that_cannot_be_read_fails_only_the_request_that_causes_it() -> None:
    """The ledger rejects a body with a NUL character as a whole; the other nodes' requests are sent without it."""

    async def scenario(session: ReconcileBatcher, ledger: FakeLedger) -> None:
        def reject(call: ReconcileRequest) -> Response:
            if any(each.boot_id == "evil" for each in call.items):
                return Response(400, msgspec.json.encode(ErrorResponse(error="invalid", message="NUL")))
            return ledger.grant(call)

        ledger.respond = reject
        evil = msgspec.structs.replace(item("n3"), boot_id="evil")
        requests = [*map(item, ("n0", "n1", "n2")), evil, *map(item, ("n4", "n5", "n6"))]
        results = await asyncio.gather(*map(session.reconcile, requests), return_exceptions=True)
        assert [3] == [index for index, each in enumerate(results) if isinstance(each, Invalid)]
        assert 6 == sum(isinstance(each, NetworkContainerState) for each in results)

    ledger, _ = run(scenario)
    assert [] == ledger.reloads
    assert sorted({each.number for each in ledger.calls}) == [each.number for each in ledger.calls]
