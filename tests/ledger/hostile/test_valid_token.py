"""A hostile cluster with a valid token: it gets errors, and the calls of other clusters succeed as before."""

import asyncio
import random
import sqlite3
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from podpool.ledger.messages import NetworkContainerState
from podpool.ledger.storage.backup import TABLES, select_all
from podpool.ledger.storage.fsck import check
from podpool.runtime.accepted_connections import ServerLimits
from podpool.runtime.transport import Request
from tests.ledger.hostile.hostile_ledger import CLUSTER, SUBNET, HostileLedger, hostile_ledger

HOSTILE = "c2"
FUZZED = 400
EXPECTED = {200, 400, 401, 403, 404, 405, 408, 409, 413, 429}
"""No 5xx: nothing is unavailable here."""
NUMBERS = (0, -1, 1, 2**31, 2**53, 2**53 + 1, -(2**63), 2**64, 10**400, 1e308, 0.5)
WORDS = ("", "x" * 300, "\0", "\ud800".encode("utf-16", "surrogatepass").decode("utf-16", "replace"), "../../x", "vnet")


class HostileCluster:
    """A cluster that may call, and knows the UUIDs of another one."""

    def __init__(self, harness: HostileLedger, token: str, victim: NetworkContainerState) -> None:
        self.harness = harness
        self.victim = victim
        self.headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        self.term = 1

    async def post(self, path: str, body: object) -> tuple[int, bytes]:
        content = body if isinstance(body, bytes) else msgspec.json.encode(body)
        request = Request(method="POST", path=path, headers=self.headers, body=content)
        response = await self.harness.app.api(request)
        return response.status, await response.read()

    async def begin(self) -> None:
        _, body = await self.post("/v1/terms", {"cluster": HOSTILE})
        self.term = msgspec.json.decode(body)["term"]

    def reconcile(self, number: int, *items: dict[str, Any]) -> dict[str, Any]:
        return {"cluster": HOSTILE, "term": self.term, "number": number, "items": items}

    def item(self, **fields: Any) -> dict[str, Any]:  # noqa: ANN401  JSON
        return {"subnet": {"network": "vnet", "name": "pods"}, "node": "h", "node_uid": "h", "wanted": 1} | fields

    def valid_bodies(self, number: int) -> dict[str, dict[str, Any]]:
        """Return a request for each route; all name what the victim has."""
        grants = [{"id": each.id, "address": each.address} for each in self.victim.grants]
        listed = {"subnet": {"network": "vnet", "name": "pods"}, "node": "n1", "node_uid": "n1", "version": 9}
        listed |= {"nc_id": self.victim.nc_id, "primary": self.victim.primary, "grants": grants}
        pod = {"network": "vnet", "address": grants[0]["address"], "namespace": "d", "name": "p", "uid": "u"}
        stolen = self.item(nc_id=self.victim.nc_id, node="n1", node_uid="n1", released=[each["id"] for each in grants])
        return {
            "/v1/reconcile": self.reconcile(number, self.item(report={"demand": 3, "waiting": 1}), stolen),
            "/v1/inventory": {"cluster": HOSTILE, "term": self.term, "network_containers": [listed]},
            "/v1/pods": {"cluster": HOSTILE, "pods": [pod | {"since": "2026-11-16T02:30:00Z"}]},
        }


def mutated(rng: random.Random, value: Any) -> Any:  # noqa: ANN401  JSON
    """Return a message with one value that its reader may not expect."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(sorted(value))
        return value | {key: mutated(rng, value[key])}
    if isinstance(value, list | tuple) and value and rng.random() < 0.9:
        index = rng.randrange(len(value))
        return [*value[:index], mutated(rng, value[index]), *value[index + 1 :]]
    return rng.choice([*NUMBERS, *WORDS, None, True, [], {}, [[]] * 3, {"a": {"b": []}}])


def as_json(value: object) -> bytes:
    """Encode a message; a number that JSON libraries refuse is written as text is."""
    try:
        return msgspec.json.encode(value)
    except (OverflowError, msgspec.MsgspecError):
        return repr(value).replace("'", '"').replace("None", "null").replace("True", "true").encode()


def faults_of(harness: HostileLedger) -> list[str]:
    """Return what fsck finds in the database."""
    copy = sqlite3.connect(":memory:")
    copy.deserialize(harness.store.image())
    rows = [(table, columns, row) for table, columns in TABLES.items() for row in copy.execute(select_all(table))]
    copy.close()
    return check(rows).faults


def against(test: Callable[[HostileLedger, HostileCluster], Awaitable[None]]) -> None:
    """Run a test with a victim that holds addresses, then check that it still has them, and gets another."""

    async def main() -> None:
        harness = HostileLedger()
        await harness.prepare()
        victim = await harness.grant()
        hostile = HostileCluster(harness, await harness.new_token(HOSTILE), victim)
        await hostile.begin()
        await test(harness, hostile)
        assert victim == await harness.grant()
        assert 1 == len((await harness.grant("n2")).grants)
        assert [] == faults_of(harness)

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(4))
def test_fuzzed_messages_get_errors_and_change_nothing_of_others(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311  reproducible

    async def fuzz(harness: HostileLedger, hostile: HostileCluster) -> None:
        seen = set()
        for number in range(1, FUZZED):
            harness.clock.now += 0.1  # within its rate
            path, valid = rng.choice(sorted(hostile.valid_bodies(number).items()))
            body: Any = valid
            for _ in range(rng.randint(1, 3)):
                body = mutated(rng, body)
            if isinstance(body, dict) and isinstance(body.get("term"), int | float) and body["term"] > hostile.term:
                body["term"] = hostile.term  # a newer term shows that the ledger was restored
            status, answer = await hostile.post(path, as_json(body))
            assert status in EXPECTED, (path, body, answer)
            seen.add(status)
        assert {200, 400} <= seen

    against(fuzz)


def test_uuids_of_another_cluster_are_unknown() -> None:
    async def steal(harness: HostileLedger, hostile: HostileCluster) -> None:
        victim = hostile.victim
        stolen = hostile.item(nc_id=victim.nc_id, node="n1", node_uid="n1")
        ids = [each.id for each in victim.grants]
        gone, released = stolen | {"node_gone": True}, stolen | {"released": ids}
        own = hostile.item(released=ids)
        for number, each in enumerate((stolen, gone, released, own), start=1):
            status, body = await hostile.post("/v1/reconcile", hostile.reconcile(number, each))
            (result,) = msgspec.json.decode(body)["results"]
            assert 200 == status
            assert (each is own) == ("state" in result), "its own NC is opened, and nothing of another released"
        bodies = hostile.valid_bodies(9)
        status, body = await hostile.post("/v1/inventory", bodies["/v1/inventory"])
        assert b"not-found" in body
        for cluster in (CLUSTER, "c3", ""):
            for path, message in bodies.items():
                status, body = await hostile.post(path, message | {"cluster": cluster})
                assert status in (400, 403), body
        assert 1 == len((await harness.ledger.network_containers(HOSTILE)).network_containers)

    against(steal)


def test_pods_reported_by_one_cluster_hide_none_of_another() -> None:
    async def report(harness: HostileLedger, hostile: HostileCluster) -> None:
        token, address = hostile.headers, hostile.victim.grants[0].address
        pod = {"network": "vnet", "address": address, "namespace": "d", "uid": "u", "since": "1970-01-12T13:46:40Z"}
        own = {"authorization": f"Bearer {harness.token}", "content-type": "application/json"}
        for headers, cluster, name in ((own, CLUSTER, "real"), (token, HOSTILE, "forged")):
            hostile.headers = headers
            status, _ = await hostile.post("/v1/pods", {"cluster": cluster, "pods": [pod | {"name": name}]})
            assert 200 == status
        request = Request(method="GET", path=f"/v1/history/addresses/{address}", headers=own)
        response = await harness.app.api(request)
        periods = msgspec.json.decode(await response.read())["periods"]
        assert ["real"] == [each["name"] for period in periods for each in period.get("pods", ())]
        hostile.headers = token

    against(report)


@pytest.mark.parametrize("opened", ["[", '{"a":', '{"cluster":"c2","items":[', '[{"a":'])
def test_deep_json_is_refused(opened: str) -> None:
    async def nest(_: HostileLedger, hostile: HostileCluster) -> None:
        for path in ("/v1/reconcile", "/v1/pods", "/v1/inventory", "/v1/terms"):
            status, _body = await hostile.post(path, opened.encode() * (30_000 // len(opened)))
            assert 400 == status

    against(nest)


def test_claimed_demand_is_bounded() -> None:
    """A node that claims any demand and any maximum counts for no more than it may request."""

    async def claim(harness: HostileLedger, hostile: HostileCluster) -> None:
        report = {"demand": 2**53, "waiting": 2**53, "batch": 2**53}
        huge = hostile.item(wanted=0, maximum=2**62, report=report)
        status, body = await hostile.post("/v1/reconcile", hostile.reconcile(1, huge))
        assert (200, True) == (status, b'"invalid"' in body)
        most = hostile.item(wanted=0, maximum=1 << 16, report=report)
        status, body = await hostile.post("/v1/reconcile", hostile.reconcile(2, most))
        assert (200, False) == (status, b"error" in body)
        assert (await harness.ledger.subnet(SUBNET)).projected <= 2 * (1 << 16)

    against(claim)


def requests_over_http(token: str) -> Iterator[bytes]:
    """Yield the beginnings of requests that never end, or are too large."""
    head = f"host: x\r\nauthorization: Bearer {token}\r\n"
    yield f"POST /v1/reconcile HTTP/1.1\r\n{head}content-length: 1000\r\n\r\n{{".encode()
    yield f"POST /v1/reconcile HTTP/1.1\r\n{head}transfer-encoding: chunked\r\n\r\n5\r\n{{".encode()
    yield f"POST /v1/inventory HTTP/1.1\r\n{head}content-length: 67108864\r\n\r\n".encode() + b"[" * 65_536
    yield f"GET /v1/changes?cluster={HOSTILE} HTTP/1.1\r\n{head}\r\n".encode()


def test_unfinished_requests_of_one_cluster_keep_no_other_out() -> None:
    """More than its limit, with bodies that never come and streams that nobody reads."""

    async def main() -> None:
        limits = ServerLimits(head_timeout=3600.0, body_timeout=3600.0, idle_timeout=3600.0)
        async with hostile_ledger(limits=limits) as harness:
            token = await harness.new_token(HOSTILE)
            writers = []
            for _ in range(100):
                for request in requests_over_http(token):
                    _, writer = await asyncio.open_connection("127.0.0.1", harness.port)
                    writer.write(request)
                    writers.append(writer)
            for number in range(10):
                await harness.grant(f"n{number}", over_http=True)
            for writer in writers:
                writer.transport.abort()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("request_head", "statuses"),
    [
        ("content-length: 99999999999\r\n\r\n", (413,)),
        ("content-length: 70000\r\n\r\n" + "x" * 70_000, (413,)),
        ("transfer-encoding: chunked\r\n\r\n" + "10000\r\n" + "x" * 65_536 + "\r\n10000\r\n" + "x" * 65_536, (413,)),
        ("content-length: 5\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n", (400,)),
        ("content-length: -1\r\n\r\n", (400,)),
        ("transfer-encoding: chunked\r\n\r\nnonsense\r\n", (400, 408)),
        ("".join(f"x-{number}: {'y' * 100}\r\n" for number in range(5_000)) + "\r\n", (400, 413, 431)),
        (f"x: {'y' * 100_000}\r\n\r\n", (400, 413, 431)),
        ("x" * 100_000, (400, 413, 431)),
    ],
    ids=["announced", "oversized", "chunks", "smuggled", "negative", "no-chunk", "many-headers", "long", "endless"],
)
def test_malformed_requests_get_an_error_and_others_are_served(request_head: str, statuses: tuple[int, ...]) -> None:
    async def main() -> int:
        limits = ServerLimits(body_timeout=0.5, head_timeout=0.5)
        async with hostile_ledger(limits=limits) as harness:
            token = await harness.new_token(HOSTILE)
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            head = f"POST /v1/terms HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {token}\r\n"
            writer.write(f"{head}{request_head}".encode())
            await harness.grant(over_http=True)
            try:
                line = await reader.readline()
            except ConnectionError:  # closed before all was read
                line = b""
            writer.transport.abort()
            return int(line.split()[1]) if line else statuses[0]

    assert asyncio.run(main()) in statuses


def test_rate_of_one_cluster_is_not_that_of_another() -> None:
    async def flood(harness: HostileLedger, hostile: HostileCluster) -> None:
        statuses = [(await hostile.post("/v1/reconcile", hostile.reconcile(0)))[0] for _ in range(600)]
        assert 429 == statuses[-1]
        headers = {"authorization": f"Bearer {harness.token}"}
        request = Request(method="GET", path="/v1/network-containers", query={"cluster": CLUSTER}, headers=headers)
        assert [200] * 50 == [await harness.status(request) for _ in range(50)]

    against(flood)
