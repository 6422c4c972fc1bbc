"""The page's server: a stream that can be taken up again, answers, and what it refuses."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import pytest

from podpool.dashboard.feed import MAX_CHANGES, Feed
from podpool.dashboard.handler import MAX_STREAMS
from podpool.runtime.transport import Request
from tests.dashboard.fake_cluster import FakeCluster

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine

LOCAL = {"host": "127.0.0.1:7781"}


def run_scenario(scenario: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scenario)


async def make_cluster() -> FakeCluster:
    cluster = FakeCluster()
    await cluster.open("10.0.0.0/26")
    await cluster.set_pods({"a": 3})
    cluster.feed.refresh()
    return cluster


async def get(cluster: FakeCluster, path: str, **headers: str) -> tuple[int, bytes, dict[str, str]]:
    path, _, query = path.partition("?")
    asked = dict(each.split("=") for each in query.split("&")) if query else {}
    request = Request(method="GET", path=path, query=asked, headers={**LOCAL, **headers})
    response = await cluster.page(request)
    return response.status, await response.read(), dict(response.headers)


async def message(events: AsyncIterator[bytes]) -> tuple[str, str, dict[str, Any]]:
    """Take the next event of a stream: its id, its name and what it says."""
    while True:
        piece = (await anext(events)).decode()
        fields = dict(line.split(": ", 1) for line in piece.strip().split("\n") if not line.startswith(":"))
        if "data" in fields:
            return fields["id"], fields["event"], json.loads(fields["data"])


def test_a_page_receives_a_snapshot_and_then_deltas() -> None:
    async def scenario() -> None:
        cluster = await make_cluster()
        async with aclosing(cluster.feed.follow()) as events:
            _, name, everything = await message(events)
            assert ("snapshot", ["a"]) == (name, [each["name"] for each in everything["nodes"]])
            cluster.bind("late", "a")
            cluster.clock.now += 0.1
            cluster.feed.refresh()
            _, name, change = await message(events)
            assert ("delta", 1) == (name, change["nodes"][0]["waiting"])
            assert "series" not in change

    run_scenario(scenario())


def test_a_page_that_reconnects_receives_the_deltas_it_missed() -> None:
    async def scenario() -> None:
        cluster = await make_cluster()
        async with aclosing(cluster.feed.follow()) as events:
            last, _, _ = await message(events)
        for number in range(3):
            cluster.bind(f"late-{number}", "a")
            cluster.clock.now += 0.1
            cluster.feed.refresh()
        async with aclosing(cluster.feed.follow(last)) as events:
            missed = [await message(events) for _ in range(3)]
        assert ["delta"] * 3 == [name for _, name, _ in missed]
        assert [1, 2, 3] == [change["nodes"][0]["waiting"] for _, _, change in missed]

    run_scenario(scenario())


@pytest.mark.parametrize("last", ["", "e2:1", "e1:99999", "e1:x", "e1:-1", "nonsense", "e1:²"])
def test_a_page_that_was_on_another_stream_begins_anew(last: str) -> None:
    async def scenario() -> None:
        cluster = await make_cluster()
        async with aclosing(cluster.feed.follow(last)) as events:
            assert "snapshot" == (await message(events))[1]

    run_scenario(scenario())


def test_a_page_that_is_slow_begins_anew_and_what_is_kept_is_bounded() -> None:
    async def scenario() -> None:
        cluster = await make_cluster()
        async with aclosing(cluster.feed.follow()) as events:
            await message(events)
            for number in range(MAX_CHANGES + 50):
                cluster.bind(f"late-{number}", "a")
                cluster.clock.now += 0.1
                cluster.feed.refresh()
            _, name, everything = await message(events)
            assert ("snapshot", MAX_CHANGES + 50) == (name, everything["nodes"][0]["waiting"])

    run_scenario(scenario())


def test_a_quiet_scene_sends_nothing() -> None:
    async def scenario() -> None:
        cluster = await make_cluster()
        feed = Feed(cluster.model, clock=cluster.clock, epoch="e")
        feed.refresh()
        async with aclosing(feed.follow()) as events:
            before, _, _ = await message(events)
            feed.refresh()
            cluster.model.problems["the ledger"] = "is away"
            feed.refresh()
            after, _, change = await message(events)
            assert int(before.split(":")[1]) + 1 == int(after.split(":")[1])
            assert {"the ledger": "is away"} == change["problems"]

    run_scenario(scenario())


def test_streams_are_counted_and_a_closed_one_does_not_count() -> None:
    async def scenario() -> None:
        cluster = await make_cluster()
        request = Request(method="GET", path="/api/stream", headers=LOCAL)
        open_ = [await cluster.page(request) for _ in range(MAX_STREAMS)]
        assert {200} == {each.status for each in open_}
        assert 503 == (await cluster.page(request)).status
        await open_[0].close()
        again = await cluster.page(request)
        assert 200 == again.status
        for each in (*open_, again):
            await each.close()

    run_scenario(scenario())


def test_every_answer_forbids_foreign_scripts_and_frames() -> None:
    async def scenario() -> None:
        cluster = await make_cluster()
        for path in ("/", "/main.js", "/api/search?q=a", "/nothing", "/healthz"):
            _, _, headers = await get(cluster, path)
            policy = headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "frame-ancestors 'none'" in policy
            assert "unsafe" not in policy
            assert "nosniff" == headers["x-content-type-options"]

    run_scenario(scenario())


@pytest.mark.parametrize("host", ["evil.example:7781", "", "127.0.0.1.evil.example:7781", "[::1", "localhost:x"])
def test_a_foreign_name_for_this_machine_is_refused(host: str) -> None:
    async def scenario() -> None:
        status, _, _ = await get(await make_cluster(), "/api/search?q=a", host=host)
        assert 421 == status

    run_scenario(scenario())


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]", "[::1]:7781", "localhost:7781"])
def test_loopback_is_called_with_or_without_a_port(host: str) -> None:
    async def scenario() -> None:
        assert 200 == (await get(await make_cluster(), "/api/search?q=a", host=host))[0]

    run_scenario(scenario())


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_it_only_reads(method: str) -> None:
    async def scenario() -> None:
        cluster = await make_cluster()
        response = await cluster.page(Request(method=method, path="/", headers=LOCAL))
        assert 405 == response.status

    run_scenario(scenario())


def test_a_file_that_the_browser_has_is_not_sent_again() -> None:
    async def scenario() -> None:
        cluster = await make_cluster()
        status, body, headers = await get(cluster, "/")
        assert (200, True) == (status, b"<title>podpool</title>" in body)
        status, body, _ = await get(cluster, "/", **{"if-none-match": headers["etag"]})
        assert (304, b"") == (status, body)

    run_scenario(scenario())


def test_questions_are_answered_and_nonsense_is_not() -> None:
    async def scenario() -> None:
        cluster = await make_cluster()
        for path in (
            "/api/nodes/a",
            "/api/pods/default/a-0",
            "/api/addresses/10.0.0.2",
            "/api/subnets/vnet/pods/addresses",
        ):
            status, body, headers = await get(cluster, path)
            assert (200, "application/json") == (status, headers["content-type"]), body
            json.loads(body)
        statuses = [
            (await get(cluster, path))[0] for path in ("/api/addresses/x", "/api/subnets/no/such/addresses", "/x")
        ]
        assert [400, 503, 404] == statuses
        assert 404 == (await get(cluster, f"/api/nodes/{'n' * 400}"))[0]

    run_scenario(scenario())


def test_what_other_clusters_have_is_drawn_as_others() -> None:
    """With an admin's token the ledger names their nodes too."""

    async def scenario() -> None:
        cluster = await make_cluster()
        path = "/api/subnets/vnet/pods/addresses"
        assert ["a"] == json.loads((await get(cluster, path))[1])["nodes"]
        cluster.cluster = "another"
        drawn = json.loads((await get(cluster, path))[1])
        assert "nodes" not in drawn
        assert 16 == drawn["patches"][0]["cells"].count("o")

    run_scenario(scenario())


def test_a_secret_never_reaches_the_page() -> None:
    """The handler has no token of its own to tell: what it asks the ledger with stays in the client's transport."""

    async def scenario() -> None:
        cluster = await make_cluster()
        cluster.ledger._token = "podpool_secret"  # noqa: S105, SLF001  as if it had one
        pages = [(await get(cluster, path))[1] for path in ("/", "/api/nodes/a", "/api/subnets/vnet/pods/addresses")]
        async with aclosing(cluster.feed.follow()) as events:
            pages += [await anext(events), await anext(events)]
        assert not any(b"podpool_secret" in each for each in pages)

    run_scenario(scenario())
