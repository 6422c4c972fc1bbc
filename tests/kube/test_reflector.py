"""The reflector's one promise: whatever happens on the way, the store comes to equal a fresh list."""

import asyncio
import itertools
import logging
import random
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager

import pytest

from podpool.api.azure import NodeNetworkConfig
from podpool.kube.informer import RELIST_INTERVAL, Applied, Deleted, Informer, Replaced, quorum_get
from podpool.runtime.transport import Request, Response
from tests.kube.clusters import Cluster, Guest
from tests.kube.loops import in_loop, in_virtual_time
from tests.kube.mirrors import NNC, ask, cached, drop, make, mirror
from tests.kube.roads import at_once


class TestFollowing:
    @in_loop
    async def test_what_was_there_and_what_happens_are_both_told_once(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a", "b")
            async with mirror(guest) as seen:
                await make(guest, "c")
                await seen.shows("a", "b", "c")
                await drop(guest, "a")
                await seen.shows("b", "c")
                await ask(guest, "b", 5)
                await seen.until(lambda: len(seen.told) == 5)
                assert [(None, "a"), (None, "b"), (None, "c"), ("a", None), ("b", "b")] == seen.names()
                old, new = seen.told[-1]
                assert old
                assert new
                assert (0, 5) == (old.spec.requested, new.spec.requested)

    @in_loop
    async def test_only_what_was_selected_is_there(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a", mine="yes")
            await make(guest, "b", mine="no")
            async with mirror(guest, labels="mine=yes") as seen:
                for name, mine in (("b", "yes"), ("a", "no")):
                    patch = {"metadata": {"labels": {"mine": mine}}}
                    await guest.client.merge_patch(NNC, name, patch, namespace=guest.namespace)
                await seen.until(lambda: [f"{guest.namespace}/b"] == list(seen.cache))
                assert [(None, "a"), (None, "b"), ("a", None)] == seen.names()

    @in_loop
    async def test_a_watch_that_ended_as_agreed_goes_on_without_a_list(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a")
            async with mirror(guest, lasting=2) as seen:
                for name in ("b", "c"):
                    version = seen.reflector.resource_version
                    await guest.road.reopened()
                    await make(guest, name)
                    await seen.has(name)
                    assert int(guest.road.watched[-1]) >= int(version)
                assert ["0"] == guest.road.listed


class TestStream:
    @in_loop
    async def test_it_tells_all_that_is_there_then_what_is_applied_and_deleted(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a", "b")
            await cached(guest, 2)
            async with aclosing(reflector(guest).stream()) as events, asyncio.timeout(300):
                first = await anext(events)
                assert isinstance(first, Replaced)
                assert ["a", "b"] == [each.metadata.name for each in first.objects]
                await make(guest, "c")
                await ask(guest, "a", 5)
                await drop(guest, "b")
                told = [await anext(events) for _ in range(3)]
                assert [Applied, Applied, Deleted] == [type(each) for each in told]
                assert ["c", "a", "b"] == [each.object.metadata.name for each in told if not isinstance(each, Replaced)]

    @in_loop
    async def test_who_takes_it_anew_is_told_all_again(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            followed = reflector(guest)
            for names in (("a",), ("a", "b")):
                await make(guest, names[-1])
                await cached(guest, len(names))
                async with aclosing(followed.stream()) as events:
                    first = await anext(events)
                    assert isinstance(first, Replaced)
                    assert names == tuple(each.metadata.name for each in first.objects)

    @in_loop
    async def test_fields_are_selected_by_the_server(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "mine", "other")
            async with mirror(guest, fields="metadata.name=mine") as seen:
                await ask(guest, "other", 5)
                await ask(guest, "mine", 5)
                await seen.until(lambda: [5] == [each.spec.requested for each in seen.cache.values()])
                assert [(None, "mine"), ("mine", "mine")] == seen.names()


class TestQuorum:
    @in_loop
    async def test_it_shows_every_write_that_was_answered(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            followed = reflector(guest)
            for number in range(20):
                await make(guest, f"n-{number}")
                assert number + 1 == len((await followed.quorum_list()).items)
            assert {""} == set(guest.road.listed), "no cache was asked"

    @in_virtual_time
    async def test_an_older_one_is_said_to_be_of_a_restored_server(self) -> None:
        async with Cluster(None).guest() as guest:
            restores: list[tuple[int, int]] = []
            copy = guest.store.snapshot()
            async with mirror(guest, restored=lambda *versions: restores.append(versions)) as seen:
                await make(guest, "lost")
                await seen.has("lost")
                guest.store.restore(copy)
                assert [] == list((await seen.reflector.quorum_list()).items)
                assert [(copy.revision + 1, copy.revision)] == restores

    @in_virtual_time
    async def test_what_the_watch_tells_while_it_is_under_way_makes_it_no_older(self) -> None:
        async with Cluster(None).guest() as guest:
            restores: list[tuple[int, int]] = []
            async with mirror(guest, restored=lambda *versions: restores.append(versions)) as seen:
                before = await snapshot_of(guest)
                guest.road.answer = lambda request: before() if "limit" in request.query else None
                asking = asyncio.ensure_future(seen.reflector.quorum_list())
                guest.road.before = lambda request: make_first(guest, request)
                await asking
                await seen.has("first")
                assert [] == restores


async def make_first(guest: Guest, request: Request) -> None:
    """Let a write pass that the answer to this request does not show."""
    if "limit" in request.query:
        guest.road.before = at_once
        await make(guest, "first")
        await asyncio.sleep(1)


class TestTrouble:
    @in_loop
    async def test_what_happened_while_the_connection_was_cut_is_made_up_for(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "stays", "changes", "goes", "returns")
            async with mirror(guest) as seen:
                await seen.shows("stays", "changes", "goes", "returns")
                seen.told.clear()
                await guest.road.cut()
                await make(guest, "comes")
                await ask(guest, "changes", 5)
                await drop(guest, "goes")
                await drop(guest, "returns")
                await make(guest, "returns")
                await seen.shows("stays", "changes", "comes", "returns")
                assert {("goes", None), (None, "comes"), ("changes", "changes")} < set(seen.names())
                assert ("returns", None) in seen.names(), "another object of the same name is another object"

    @in_loop
    async def test_after_a_forgotten_version_it_lists_again_and_deletes_what_is_gone(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a", "b")
            async with mirror(guest) as seen:
                forgotten = guest.forgotten()
                guest.road.change = lambda request: from_version(request, forgotten)
                await guest.road.cut()
                await drop(guest, "a")
                await seen.shows("b")
                guest.road.change = lambda request: request
                await make(guest, "c")
                await seen.shows("b", "c")

    @in_loop
    async def test_a_cached_list_older_than_what_was_seen_is_not_believed(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a")
            old = await snapshot_of(guest)
            async with mirror(guest) as seen:
                await make(guest, "b")
                await seen.shows("a", "b")
                guest.road.answer = lambda request: old() if request.query.get("resourceVersion") == "0" else None
                guest.road.sent.clear()
                await guest.road.cut()
                await make(guest, "c")
                await seen.shows("a", "b", "c")
                assert ["0", ""] == guest.road.listed[:2]
                assert all(new is not None for _, new in seen.told), "nothing ever seemed to be gone"


def from_version(request: Request, version: str) -> Request:
    if not request.query.get("watch"):
        return request
    return Request(method=request.method, path=request.path, query={**request.query, "resourceVersion": version})


def reflector(guest: Guest) -> Informer[NodeNetworkConfig]:
    return Informer(guest.client, NNC, rng=random.Random(1), namespace=guest.namespace)  # noqa: S311  seeded


async def snapshot_of(guest: Guest) -> Callable[[], Response]:
    """The list as it is now, to be answered again later."""
    path = NNC.path(namespace=guest.namespace)
    body = await (await guest.road.send(Request(method="GET", path=path))).read()
    return lambda: Response(200, body)


class TestPocketTrouble:
    """What a real server cannot be made to do on time."""

    @in_virtual_time
    async def test_a_restored_server_is_noticed_and_believed(self) -> None:
        async with Cluster(None).guest() as guest:
            restores: list[tuple[int, int]] = []
            await make(guest, "kept")
            copy = guest.store.snapshot()
            async with mirror(guest, restored=lambda seen, found: restores.append((seen, found))) as seen:
                await make(guest, "lost")
                await seen.shows("kept", "lost")
                version = guest.store.revision
                guest.store.restore(copy)
                await seen.shows("kept")
                assert [(version, copy.revision)] == restores
                await make(guest, "new")
                await seen.shows("kept", "new")

    @in_virtual_time
    async def test_a_restored_server_that_has_caught_up_in_versions_is_mirrored_too(self) -> None:
        async with Cluster(None).guest() as guest:
            await make(guest, "kept")
            copy = guest.store.snapshot()
            async with mirror(guest) as seen:
                await make(guest, "lost")
                await seen.shows("kept", "lost")
                guest.store.restore(copy)
                await make(guest, "x", "y", "z")
                await seen.shows("kept", "x", "y", "z")

    @in_virtual_time
    async def test_a_silent_watch_is_given_up(self) -> None:
        async with Cluster(None).guest() as guest:
            guest.road.answer = lambda request: silent() if request.query.get("watch") else None
            async with mirror(guest) as seen:
                await asyncio.sleep(10)
                await make(guest, "a")
                assert len(seen.cache) == 0
                await seen.shows("a")
                assert 90 <= asyncio.get_running_loop().time() <= 92

    @in_virtual_time
    async def test_bookmarks_keep_a_quiet_watch_from_being_forgotten(self) -> None:
        async with Cluster(None).guest() as guest, mirror(guest) as seen:
            first = seen.reflector.resource_version
            for each in range(20):
                await guest.client.create(NNC, {"metadata": {"name": f"n-{each}"}}, namespace="default")
            await asyncio.sleep(RELIST_INTERVAL - 1)
            guest.store.compact()
            assert int(first) < int(seen.reflector.resource_version)
            assert ["0"] == guest.road.listed

    @in_virtual_time
    async def test_a_list_is_not_trusted_for_ever_however_well_its_watches_go(self) -> None:
        async with Cluster(None).guest() as guest, mirror(guest):
            await asyncio.sleep(2.5 * RELIST_INTERVAL)
            assert 3 == len(guest.road.listed)

    @in_virtual_time
    async def test_a_server_in_trouble_is_asked_less_and_less_and_never_in_step(self) -> None:
        async with Cluster(None).guest() as guest:
            guest.road.answer = lambda _: Response(503, b"no")
            times = await asked_at(guest, seconds=300)
            waits = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert 0.1 <= waits[0] <= 0.2
            assert all(15 <= wait <= 30 for wait in waits[8:])
            assert len(set(waits[8:])) == len(waits[8:])

    @in_virtual_time
    async def test_a_server_that_asks_for_patience_gets_it(self) -> None:
        async with Cluster(None).guest() as guest:
            guest.road.answer = lambda _: Response(429, b"{}", headers={"retry-after": "40"})
            times = await asked_at(guest, seconds=150)
            assert [0, 40, 80, 120] == pytest.approx([time - times[0] for time in times], abs=0.001)

    @in_virtual_time
    async def test_a_watch_that_is_refused_while_lists_are_served_does_not_spin(self) -> None:
        async with Cluster(None).guest() as guest:
            guest.road.answer = lambda request: Response(403, b"{}") if request.query.get("watch") else None
            assert len(await asked_at(guest, seconds=300)) < 50


async def asked_at(guest: Guest, *, seconds: float) -> list[float]:
    """When requests are sent, in so many seconds."""
    loop, times = asyncio.get_running_loop(), list[float]()
    guest.road.change = lambda request: request
    answer = guest.road.answer

    def noted(request: Request) -> Response | None:
        times.append(loop.time())
        return answer(request)

    guest.road.answer = noted
    running = asyncio.ensure_future(reflector(guest).run())
    await asyncio.sleep(seconds)
    running.cancel()
    await asyncio.wait([running])
    return times


def silent() -> Response:
    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    return Response(200, stream=nothing())


class TestOneObject:
    @in_virtual_time
    async def test_one_that_is_older_than_the_cache_is_believed_and_said(self) -> None:
        async with Cluster(None).guest() as guest:
            await make(guest, "one")
            copy = guest.store.snapshot()
            async with mirror(guest) as seen:
                cache = seen.reflector.cache
                await seen.has("one")
                await ask(guest, "one", 7)
                await seen.until(lambda: any(each.spec.requested for each in cache.values()))
                with said() as sentences:
                    now = await quorum_get(guest.client, NNC, "one", cache=cache, namespace=guest.namespace)
                    assert (7, []) == (now.spec.requested, sentences)
                    guest.store.restore(copy)
                    then = await quorum_get(guest.client, NNC, "one", cache=cache, namespace=guest.namespace)
                assert 0 == then.spec.requested
                assert "restored from an older copy" in sentences[0]


@contextmanager
def said() -> Iterator[list[str]]:
    """Listen to what the reflector warns of."""
    heard = logging.Handler(logging.WARNING)
    sentences: list[str] = []
    heard.emit = lambda record: sentences.append(record.getMessage())  # type: ignore[method-assign]  # all that it does
    logger = logging.getLogger("podpool.kube.informer")
    logger.addHandler(heard)
    try:
        yield sentences
    finally:
        logger.removeHandler(heard)
