"""Callers without a token: they cost connections for a limited time, and the database nothing."""

import asyncio
import itertools
import re

import pytest

from podpool.ledger.admin_messages import CreateTokenRequest
from podpool.ledger.domain.rows import TokenRow
from podpool.ledger.http.routes import ROUTES
from podpool.runtime.accepted_connections import ServerLimits
from podpool.runtime.transport import Request
from tests.ledger.hostile.hostile_ledger import HostileLedger, hostile_ledger

GUESSES = 500
TOKEN_READS = 10
"""For any number of guesses at one time: eight at once, the first, and the one that has expired."""


def guess(number: int, method: str = "GET", path: str = "/v1/subnets", body: bytes = b"") -> Request:
    """Return a request with a token that is well-formed and wrong."""
    headers = {"authorization": f"Bearer podpool_{number:012x}_{number:064x}"}
    return Request(method=method, path=path, headers=headers, body=body)


def test_requests_without_a_valid_token_queue_no_transactions() -> None:
    """Sixty-four of them for each grant: the writer runs the grants, and a few reads of the tokens."""

    async def main() -> None:
        harness = HostileLedger()
        await harness.prepare()
        await harness.grant()
        before = harness.store.jobs
        routes = [(route.method, re.sub(r"[{}]", "", route.path)) for route in ROUTES]
        calls = [harness.status(guess(number, *routes[number % len(routes)])) for number in range(640)]
        guesses = [asyncio.ensure_future(call) for call in calls]
        for number in range(10):
            for method, path in routes:
                assert 401 == await harness.status(Request(method=method, path=path))
            for path in ("/healthz", "/livez", "/readyz", "/metrics"):
                assert (await harness.app.health(Request(method="GET", path=path))).status in (200, 503)
            await harness.grant(f"n{number}")
        assert {401} == set(await asyncio.gather(*guesses))
        assert harness.store.jobs - before <= 10 + TOKEN_READS

    asyncio.run(main())


def test_wrong_tokens_keep_no_new_token_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They share a few reads of the tokens, and a token that was created meanwhile is in the next one."""

    async def main() -> None:
        harness = HostileLedger()
        await harness.prepare()
        admin, reads = harness.ledger.admin, itertools.count()
        read = admin.token_rows

        async def counted() -> list[TokenRow]:
            next(reads)
            rows = await read()
            await asyncio.sleep(0)  # the database takes a while
            return rows

        monkeypatch.setattr(admin, "token_rows", counted)
        guesses = [asyncio.ensure_future(harness.status(guess(number))) for number in range(GUESSES)]
        for _ in range(2):  # all have arrived, and the first read has begun
            await asyncio.sleep(0)
        new = await admin.create_token(CreateTokenRequest(name="new", admin=True))
        headers = {"authorization": f"Bearer {new.secret}"}
        assert 200 == await harness.status(Request(method="GET", path="/v1/subnets", headers=headers))
        assert {401} == set(await asyncio.gather(*guesses))
        assert next(reads) <= TOKEN_READS

    asyncio.run(main())


@pytest.mark.parametrize("authorization", ["", "Bearer podpool_000000000000_" + "0" * 64])
def test_token_is_checked_before_the_body(authorization: str) -> None:
    async def main() -> bytes:
        async with hostile_ledger() as harness:
            reader, writer = await asyncio.open_connection("127.0.0.1", harness.port)
            head = f"POST /v1/inventory HTTP/1.1\r\nhost: x\r\nauthorization: {authorization}\r\n"
            writer.write(f"{head}content-length: 67108864\r\n\r\n".encode())
            status = await reader.readline()
            writer.transport.abort()
            return status

    assert b"HTTP/1.1 401 Unauthorized\r\n" == asyncio.run(main())


def test_unfinished_requests_keep_no_caller_out() -> None:
    """Slow loris and half-open connections, more than the limit: the cluster's next call is answered."""

    async def main() -> None:
        limits = ServerLimits(connections=20, head_timeout=3600.0, body_timeout=3600.0)
        async with hostile_ledger(limits=limits) as harness:
            writers = []
            for number in range(60):
                _, writer = await asyncio.open_connection("127.0.0.1", harness.port)
                writer.write((b"", b"GET /v1/subnets HT", b"POST /v1/reconcile HTTP/1.1\r\nhost: x\r\n")[number % 3])
                writers.append(writer)
            await harness.grant(over_http=True)
            for writer in writers:
                writer.transport.abort()

    asyncio.run(main())


def test_readiness_is_as_old_as_the_last_transaction() -> None:
    async def main() -> None:
        harness = HostileLedger()
        await harness.prepare()

        async def ready() -> int:
            return (await harness.app.health(Request(method="GET", path="/readyz"))).status

        assert 503 == await ready()
        await harness.app.status.refresh()
        before = harness.store.jobs
        assert [200] * 50 == [await ready() for _ in range(50)]
        assert before == harness.store.jobs
        harness.clock.now += 16.0
        assert 503 == await ready()

    asyncio.run(main())
