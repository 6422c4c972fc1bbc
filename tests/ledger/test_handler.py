"""The ledger over its transport: routes, errors, streams."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from podpool.core.scaling import Scaler
from podpool.ledger.client import LedgerClient
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.errors import Invalid, LedgerError, NotFound, Unavailable
from podpool.ledger.http.handler import LedgerHandler, error_response
from podpool.ledger.http.routes import ROUTES
from podpool.ledger.messages import (
    DemandReport,
    ErrorResponse,
    OpenTermRequest,
    ReconcileRequest,
    SubnetChange,
    SubnetName,
    SubnetSpec,
)
from podpool.ledger.storage.rollback_detector import MemoryRollbackDetector
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.http_server import serving
from podpool.runtime.transport import Request, Response
from tests.ledger.harness import (
    SUBNET,
    InProcessTransport,
    Leader,
    LedgerHarness,
    ManualClock,
    ids,
    inventory_item,
    item,
    run,
)


def ask(harness: LedgerHarness, method: str, path: str, body: bytes = b"", **query: str) -> tuple[int, ErrorResponse]:
    request = Request(method=method, path=path, body=body, query=query)
    response = run(LedgerHandler(harness.ledger)(request))
    return response.status, msgspec.json.decode(run(response.read()), type=ErrorResponse)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code", "field"),
    [
        ("GET", "/nothing", b"", 404, "not-found", "path"),
        ("GET", "/v1/networks/vnet/subnets/none", b"", 404, "not-found", "subnet"),
        ("DELETE", "/v1/subnets", b"", 405, "method-not-allowed", "method"),
        ("POST", "/v1/reconcile", b"{", 400, "invalid", None),
        ("POST", "/v1/reconcile", b"\xff\xff", 400, "invalid", None),
        ("POST", "/v1/reconcile", b"[" * 100_000, 400, "invalid", None),
        ("POST", "/v1/reconcile", b'{"cluster":"c1","term":1}', 400, "invalid", None),
        ("POST", "/v1/reconcile", b'{"cluster":"c1","term":"x","number":1}', 400, "invalid", "term"),
        ("POST", "/v1/reconcile", b'{"cluster":"c1","term":0,"number":1}', 409, "stale-term", "cluster"),
        ("POST", "/v1/reconcile", b'{"cluster":"c1","network":"v","term":0,"number":1}', 404, "not-found", "network"),
        ("POST", "/v1/subnets", b'{"network":"v","name":"p","cidr":"10.0.0.0"}', 400, "invalid", "cidr"),
        ("GET", "/v1/network-containers", b"", 400, "invalid", "cluster"),
        ("GET", "/v1/changes", b"", 400, "invalid", "cluster"),
    ],
)
def test_error_has_status_code_message_and_field(
    method: str, path: str, body: bytes, status: int, code: str, field: str | None
) -> None:
    harness = LedgerHarness()
    harness.subnet()
    answered, problem = ask(harness, method, path, body)
    assert (status, code, field) == (answered, problem.error, problem.field)
    assert problem.message


def test_unexpected_exception_is_an_internal_error(caplog: pytest.LogCaptureFixture) -> None:
    harness = LedgerHarness()
    run(harness.store.close())
    status, problem = ask(harness, "GET", "/v1/subnets")
    assert (500, "internal") == (status, problem.error)
    assert "internal error, request answered with 500" in caplog.text


def test_every_route_has_request_and_response_types() -> None:
    assert all(route.response is not None for route in ROUTES)
    assert all(route.method == "POST" for route in ROUTES if route.request is not None)
    assert len(ROUTES) == len({(route.method, route.path) for route in ROUTES})


def test_utilization_has_the_format_of_dnc() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    Leader(harness).node(wanted=9)
    request = Request(method="GET", path="/networks/vnet/subnets/pods/utilization")
    (entry,) = msgspec.json.decode(run(run(LedgerHandler(harness.ledger)(request)).read()))
    assert {"timestamp": "1970-01-12T13:46:40.000+00:00", "capacity": 254, "reserved": 10} == entry


def test_response_of_a_proxy_is_a_ledger_error() -> None:
    async def proxy(_: Request) -> Response:
        return Response(502, b"<html>bad gateway</html>")

    with pytest.raises(LedgerError, match="502"):
        run(LedgerClient(InProcessTransport(proxy)).subnets())


def test_client_raises_the_service_error_type() -> None:
    harness = LedgerHarness()
    with pytest.raises(NotFound):
        run(harness.client.subnet(SUBNET))
    with pytest.raises(Invalid):
        harness.subnet("10.0.0.0/33")


class Stream:
    """The change stream of a cluster."""

    def __init__(self, harness: LedgerHarness, cluster: str = "c1") -> None:
        self._changes = harness.client.changes(cluster)

    async def next(self) -> SubnetChange:
        async with asyncio.timeout(5):
            return await anext(self._changes)

    async def close(self) -> None:
        await self._changes.aclose()


def test_stream_sends_the_state_then_changes() -> None:
    async def main() -> None:
        harness = LedgerHarness()
        harness.subnet("10.0.0.0/24")
        harness.subnet("10.0.1.0/24", name="other")
        leader = Leader(harness)
        stream = Stream(harness)
        assert ["other", "pods"] == sorted([(await stream.next()).state.subnet.name for _ in range(2)])
        leader.reconcile(*(item(f"n{number}", report=DemandReport(demand=1)) for number in range(20)))
        change = await stream.next()
        assert (SUBNET, Scaler(8, 50)) == (change.state.subnet, change.state.scaler)
        leader.node("n0", wanted=5)  # not relevant to others
        leader.reconcile(*(item(f"n{number}", report=DemandReport(demand=6)) for number in range(20)))
        assert Scaler(4, 50) == (await stream.next()).state.scaler
        await stream.close()

    asyncio.run(main())


def test_stream_sends_a_cluster_its_servable_ncs() -> None:
    async def main() -> None:
        harness = LedgerHarness()
        harness.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
        leader, other = Leader(harness, "c1"), Leader(harness, "c2")
        waiting = other.node("n1")
        holder = leader.node("hog", wanted=12)
        streams = [Stream(harness, "c1"), Stream(harness, "c2")]
        for stream in streams:
            await stream.next()
        other.reconcile_one(item("n1", waiting, wanted=2, report=DemandReport(waiting=1)))
        assert [1, 1] == [(await stream.next()).state.waiting for stream in streams]
        leader.reconcile_one(item("hog", holder, wanted=11, released=ids(holder)[:1]))
        assert (waiting.nc_id,) == (await streams[1].next()).servable
        for stream in streams:
            await stream.close()

    asyncio.run(main())


def test_stream_sends_freeze_and_its_end() -> None:
    async def main() -> None:
        harness = LedgerHarness()
        harness.subnet("10.0.0.0/24")
        leader = Leader(harness)
        state = leader.node()
        Leader(harness, "absent").node()
        harness = harness.restore(harness.store.image(), detector=MemoryRollbackDetector())
        harness.advance(31.0)
        leader.move_to(harness).lead()
        leader.send_inventory(inventory_item("n1", state))
        stream = Stream(harness)
        assert (await stream.next()).state.frozen
        await harness.client.excuse("absent")
        assert not (await stream.next()).state.frozen
        await stream.close()

    asyncio.run(main())


def test_stream_sends_the_removal_of_a_subnet() -> None:
    async def main() -> None:
        harness = LedgerHarness()
        harness.subnet("10.0.0.0/24")
        stream = Stream(harness)
        events = [await stream.next()]
        await harness.client.delete_subnet(SUBNET)
        events.append(await stream.next())
        harness.subnet("10.0.0.0/24", name="other")
        events.append(await stream.next())
        removals = [(change.state.subnet.name, change.removed) for change in events]
        assert [("pods", False), ("pods", True), ("other", False)] == removals
        await stream.close()

    asyncio.run(main())


def test_stop_ends_the_streams() -> None:
    async def main() -> None:
        harness = LedgerHarness()
        harness.subnet("10.0.0.0/24")
        stream = Stream(harness)
        await stream.next()
        harness.ledger.stop()
        with pytest.raises(StopAsyncIteration):
            await stream.next()

    asyncio.run(main())


def test_services_on_one_store_stream_each_others_changes() -> None:
    async def main() -> None:
        harness = LedgerHarness()
        harness.subnet("10.0.0.0/24")
        second = LedgerService(harness.store, clock=harness.clock, rng=harness.rng)
        changes = LedgerClient(InProcessTransport(LedgerHandler(second))).changes("c1")
        await anext(changes)
        Leader(harness).reconcile(*(item(f"n{number}", report=DemandReport(demand=1)) for number in range(20)))
        assert Scaler(8, 50) == (await anext(changes)).state.scaler
        await changes.aclose()

    asyncio.run(main())


def test_calls_over_http() -> None:
    async def main() -> None:
        ledger = LedgerService(InlineSqliteStore(), clock=ManualClock(), rng=random.Random(1))  # noqa: S311  reproducible
        async with serving(LedgerHandler(ledger), host="127.0.0.1", port=0) as port:
            transport = HttpTransport(f"http://127.0.0.1:{port}")
            client = LedgerClient(transport)
            await client.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/24"))
            changes = client.changes("c1")
            assert SUBNET == (await anext(changes)).state.subnet
            term = (await client.open_term(OpenTermRequest(cluster="c1"))).term
            items = tuple(item(f"n{number}", report=DemandReport(demand=1), wanted=3) for number in range(20))
            answer = await client.reconcile(ReconcileRequest(cluster="c1", term=term, number=1, items=items))
            assert 20 == sum(result.error is None for result in answer.results)
            assert Scaler(8, 50) == (await anext(changes)).state.scaler
            assert 80 == (await client.utilization(SUBNET))[0].reserved
            with pytest.raises(NotFound):
                await client.subnet(SubnetName(network="vnet", name="none"))
            await changes.aclose()
            await transport.close()

    asyncio.run(main())


def test_timers_settle_subnets() -> None:
    async def main() -> None:
        harness = LedgerHarness()
        harness.subnet("10.0.0.0/28", reserved_for_primaries=0)
        leader = Leader(harness)
        state = leader.node(wanted=13)
        leader.reconcile_one(item("n1", state, wanted=0, released=ids(state)))
        assert harness.state().exhausted
        running = asyncio.create_task(harness.ledger.run())
        harness.clock.now += 6.0
        for _ in range(2):  # the task and its subtask
            await asyncio.sleep(0)
        assert not harness.state().exhausted
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "/v1/networks/vnet/subnets/\0", b""),
        ("POST", "/v1/terms", rb'{"cluster":"c\u0000"}'),
        ("POST", "/v1/terms", b'{"cluster":"c1","known_revision":99999999999999999999999}'),
        ("POST", "/v1/terms", b'{"cluster":"c1","known_term":-1}'),
        ("POST", "/v1/reconcile", b'{"cluster":"c1","term":9007199254740993,"number":1}'),
        ("POST", "/v1/subnets", b'{"network":"v","name":"p","cidr":"10.0.0.0/24","cooldown_roomy":1e300}'),
        ("POST", "/v1/subnets", b'{"network":"v","name":"p","cidr":"10.0.0.0/24","batch":1e3}'),
        ("GET", "/v1/history/nodes/n1\0", b""),
    ],
)
def test_value_that_no_database_can_store_is_rejected(method: str, path: str, body: bytes) -> None:
    status, problem = ask(LedgerHarness(), method, path, body)
    assert (400, "invalid") == (status, problem.error)


@pytest.mark.usefixtures("backend")
@pytest.mark.parametrize("more", [{"cooled_seconds": 1e300}, {"node_uid": "x" * 300}])
def test_item_that_no_database_can_store_fails_alone(more: dict[str, Any]) -> None:
    harness = LedgerHarness()
    harness.subnet()
    leader = Leader(harness)
    state = leader.node("n1", wanted=3)
    bad, good = leader.reconcile(
        item("n1", state, wanted=1, released=ids(state)[:2], **more), item("n2", wanted=1)
    ).results
    assert bad.error is not None
    assert "invalid" == bad.error.error
    assert good.state is not None


@pytest.mark.parametrize(("seconds", "status"), [("9.5", 200), ("0", 400), ("-1", 400), ("soon", 400), ("nan", 400)])
def test_deadline_of_the_caller_is_a_number_of_seconds(seconds: str, status: int) -> None:
    headers = {"request-timeout": seconds}
    request = Request(method="GET", path="/v1/subnets", headers=headers)
    assert status == run(LedgerHandler(LedgerHarness().ledger)(request)).status


def test_caller_that_is_turned_away_gets_503_and_a_time_to_come_back() -> None:
    error = error_response(Unavailable("full", retry_after=0.3))
    assert (503, "1") == (error.status, error.headers["retry-after"])
