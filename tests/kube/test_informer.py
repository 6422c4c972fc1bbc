"""The informer converges to a fresh list, whatever happens."""

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
from tests.kube.api_servers import ApiServerUnderTest, NamespaceClient
from tests.kube.disturbable_transport import no_delay
from tests.kube.event_loops import run_in_loop, run_in_virtual_time
from tests.kube.running_informer import NNC, create, delete, running_informer, set_request, wait_for_server_cache


class TestFollowing:
    @run_in_loop
    async def test_existing_objects_and_changes_are_both_reported_once(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, "a", "b")
            async with running_informer(api) as seen:
                await create(api, "c")
                await seen.shows("a", "b", "c")
                await delete(api, "a")
                await seen.shows("b", "c")
                await set_request(api, "b", 5)
                await seen.until(lambda: len(seen.notifications) == 5)
                assert [(None, "a"), (None, "b"), (None, "c"), ("a", None), ("b", "b")] == seen.names()
                old, new = seen.notifications[-1]
                assert old
                assert new
                assert (0, 5) == (old.spec.requested, new.spec.requested)

    @run_in_loop
    async def test_only_what_was_selected_is_there(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, "a", mine="yes")
            await create(api, "b", mine="no")
            async with running_informer(api, labels="mine=yes") as seen:
                for name, mine in (("b", "yes"), ("a", "no")):
                    patch = {"metadata": {"labels": {"mine": mine}}}
                    await api.client.merge_patch(NNC, name, patch, namespace=api.namespace)
                await seen.until(lambda: [f"{api.namespace}/b"] == list(seen.cache))
                assert [(None, "a"), (None, "b"), ("a", None)] == seen.names()

    @pytest.mark.integration
    @run_in_loop
    async def test_a_watch_that_ended_as_agreed_goes_on_without_a_list(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, "a")
            async with running_informer(api, watch_seconds=2) as seen:
                for name in ("b", "c"):
                    version = seen.informer.resource_version
                    await api.transport.reopened()
                    await create(api, name)
                    await seen.has(name)
                    assert int(api.transport.watched[-1]) >= int(version)
                assert ["0"] == api.transport.listed


class TestStream:
    @run_in_loop
    async def test_it_reports_all_objects_then_changes_and_deletions(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, "a", "b")
            await wait_for_server_cache(api, 2)
            async with aclosing(informer(api).stream()) as events, asyncio.timeout(300):
                first = await anext(events)
                assert isinstance(first, Replaced)
                assert ["a", "b"] == [each.metadata.name for each in first.objects]
                await create(api, "c")
                await set_request(api, "a", 5)
                await delete(api, "b")
                received = [await anext(events) for _ in range(3)]
                assert [Applied, Applied, Deleted] == [type(each) for each in received]
                assert ["c", "a", "b"] == [
                    each.object.metadata.name for each in received if not isinstance(each, Replaced)
                ]

    @run_in_loop
    async def test_a_new_subscriber_receives_all_objects(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            followed = informer(api)
            for names in (("a",), ("a", "b")):
                await create(api, names[-1])
                await wait_for_server_cache(api, len(names))
                async with aclosing(followed.stream()) as events:
                    first = await anext(events)
                    assert isinstance(first, Replaced)
                    assert names == tuple(each.metadata.name for each in first.objects)

    @run_in_loop
    async def test_fields_are_selected_by_the_server(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, "mine", "other")
            async with running_informer(api, fields="metadata.name=mine") as seen:
                await set_request(api, "other", 5)
                await set_request(api, "mine", 5)
                await seen.until(lambda: [5] == [each.spec.requested for each in seen.cache.values()])
                assert [(None, "mine"), ("mine", "mine")] == seen.names()


class TestQuorum:
    @run_in_loop
    async def test_it_shows_every_write_that_was_answered(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            followed = informer(api)
            for number in range(20):
                await create(api, f"n-{number}")
                assert number + 1 == len((await followed.quorum_list()).items)
            assert {""} == set(api.transport.listed), "no cache was asked"

    @run_in_virtual_time
    async def test_an_older_list_reports_a_restored_server(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api:
            copy = api.store.snapshot()
            async with running_informer(api) as seen:
                await create(api, "lost")
                await seen.has("lost")
                api.store.restore(copy)
                assert [] == list((await seen.informer.quorum_list()).items)
                assert [(copy.revision + 1, copy.revision)] == seen.restores

    @run_in_virtual_time
    async def test_watch_events_during_a_quorum_read_do_not_make_it_older(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api, running_informer(api) as seen:
            before = await snapshot_of(api)
            api.transport.answer = lambda request: before() if "limit" in request.query else None
            asking = asyncio.ensure_future(seen.informer.quorum_list())
            api.transport.before = lambda request: make_first(api, request)
            await asking
            await seen.has("first")
            assert [] == seen.restores


async def make_first(api: NamespaceClient, request: Request) -> None:
    """Let a write pass that the answer to this request does not show."""
    if "limit" in request.query:
        api.transport.before = no_delay
        await create(api, "first")
        await asyncio.sleep(1)


class TestTrouble:
    @run_in_loop
    async def test_what_happened_while_the_connection_was_cut_is_made_up_for(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, "stays", "changes", "goes", "returns")
            async with running_informer(api) as seen:
                await seen.shows("stays", "changes", "goes", "returns")
                seen.notifications.clear()
                await api.transport.cut()
                await create(api, "comes")
                await set_request(api, "changes", 5)
                await delete(api, "goes")
                await delete(api, "returns")
                await create(api, "returns")
                await seen.shows("stays", "changes", "comes", "returns")
                assert {("goes", None), (None, "comes"), ("changes", "changes")} < set(seen.names())
                assert ("returns", None) in seen.names(), "another object of the same name is another object"

    @run_in_loop
    async def test_after_a_forgotten_version_it_lists_again_and_deletes_what_is_gone(
        self, cluster: ApiServerUnderTest
    ) -> None:
        async with cluster.open_namespace() as api:
            await create(api, "a", "b")
            async with running_informer(api) as seen:
                forgotten = api.expired_version()
                api.transport.change = lambda request: from_version(request, forgotten)
                await api.transport.cut()
                await delete(api, "a")
                await seen.shows("b")
                api.transport.change = lambda request: request
                await create(api, "c")
                await seen.shows("b", "c")

    @run_in_loop
    async def test_a_cached_list_older_than_what_was_seen_is_not_believed(self, cluster: ApiServerUnderTest) -> None:
        async with cluster.open_namespace() as api:
            await create(api, "a")
            old = await snapshot_of(api)
            async with running_informer(api) as seen:
                await create(api, "b")
                await seen.shows("a", "b")
                api.transport.answer = lambda request: old() if request.query.get("resourceVersion") == "0" else None
                api.transport.sent.clear()
                await api.transport.cut()
                await create(api, "c")
                await seen.shows("a", "b", "c")
                assert ["0", ""] == api.transport.listed[:2]
                assert all(new is not None for _, new in seen.notifications), "nothing ever seemed to be gone"


def from_version(request: Request, version: str) -> Request:
    if not request.query.get("watch"):
        return request
    return Request(method=request.method, path=request.path, query={**request.query, "resourceVersion": version})


def informer(api: NamespaceClient) -> Informer[NodeNetworkConfig]:
    return Informer(api.client, NNC, rng=random.Random(1), namespace=api.namespace)  # noqa: S311  seeded


async def snapshot_of(api: NamespaceClient) -> Callable[[], Response]:
    """The list as it is now, to be answered again later."""
    path = NNC.path(namespace=api.namespace)
    body = await (await api.transport.send(Request(method="GET", path=path))).read()
    return lambda: Response(200, body)


class TestServerFailures:
    """What a real server cannot be made to do on time."""

    @run_in_virtual_time
    async def test_a_restored_server_is_detected_and_accepted(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api:
            await create(api, "kept")
            copy = api.store.snapshot()
            async with running_informer(api) as seen:
                await create(api, "lost")
                await seen.shows("kept", "lost")
                version = api.store.revision
                api.store.restore(copy)
                await seen.shows("kept")
                assert [(version, copy.revision)] == seen.restores
                await create(api, "new")
                await seen.shows("kept", "new")

    @run_in_virtual_time
    async def test_a_restored_server_that_has_caught_up_in_versions_is_followed(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api:
            await create(api, "kept")
            copy = api.store.snapshot()
            async with running_informer(api) as seen:
                await create(api, "lost")
                await seen.shows("kept", "lost")
                api.store.restore(copy)
                await create(api, "x", "y", "z")
                await seen.shows("kept", "x", "y", "z")

    @run_in_virtual_time
    async def test_an_idle_watch_fails(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api:
            api.transport.answer = lambda request: silent() if request.query.get("watch") else None
            async with running_informer(api) as seen:
                await asyncio.sleep(10)
                await create(api, "a")
                assert len(seen.cache) == 0
                await seen.shows("a")
                assert 90 <= asyncio.get_running_loop().time() <= 92

    @run_in_virtual_time
    async def test_bookmarks_keep_the_version_of_a_quiet_watch_current(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api, running_informer(api) as seen:
            first = seen.informer.resource_version
            for each in range(20):
                await api.client.create(NNC, {"metadata": {"name": f"n-{each}"}}, namespace="default")
            await asyncio.sleep(RELIST_INTERVAL - 1)
            api.store.compact()
            assert int(first) < int(seen.informer.resource_version)
            assert ["0"] == api.transport.listed

    @run_in_virtual_time
    async def test_everything_is_listed_again_after_the_relist_interval(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api, running_informer(api):
            await asyncio.sleep(2.5 * RELIST_INTERVAL)
            assert 3 == len(api.transport.listed)

    @run_in_virtual_time
    async def test_failures_are_retried_with_back_off_and_jitter(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api:
            api.transport.answer = lambda _: Response(503, b"no")
            times = await asked_at(api, seconds=300)
            waits = [later - earlier for earlier, later in itertools.pairwise(times)]
            assert 0.1 <= waits[0] <= 0.2
            assert all(15 <= wait <= 30 for wait in waits[8:])
            assert len(set(waits[8:])) == len(waits[8:])

    @run_in_virtual_time
    async def test_a_requested_delay_is_respected(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api:
            api.transport.answer = lambda _: Response(429, b"{}", headers={"retry-after": "40"})
            times = await asked_at(api, seconds=150)
            assert [0, 40, 80, 120] == pytest.approx([time - times[0] for time in times], abs=0.001)

    @run_in_virtual_time
    async def test_a_rejected_watch_does_not_spin(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api:
            api.transport.answer = lambda request: Response(403, b"{}") if request.query.get("watch") else None
            assert len(await asked_at(api, seconds=300)) < 50


async def asked_at(api: NamespaceClient, *, seconds: float) -> list[float]:
    """When requests are sent, in so many seconds."""
    loop, times = asyncio.get_running_loop(), list[float]()
    api.transport.change = lambda request: request
    answer = api.transport.answer

    def noted(request: Request) -> Response | None:
        times.append(loop.time())
        return answer(request)

    api.transport.answer = noted
    running = asyncio.ensure_future(informer(api).run())
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
    @run_in_virtual_time
    async def test_an_object_older_than_the_cache_is_accepted_and_logged(self) -> None:
        async with ApiServerUnderTest(None).open_namespace() as api:
            await create(api, "one")
            copy = api.store.snapshot()
            async with running_informer(api) as seen:
                cache = seen.informer.cache
                await seen.has("one")
                await set_request(api, "one", 7)
                await seen.until(lambda: any(each.spec.requested for each in cache.values()))
                with warnings() as messages:
                    now = await quorum_get(api.client, NNC, "one", cache=cache, namespace=api.namespace)
                    assert (7, []) == (now.spec.requested, messages)
                    api.store.restore(copy)
                    then = await quorum_get(api.client, NNC, "one", cache=cache, namespace=api.namespace)
                assert 0 == then.spec.requested
                assert "restored from an older backup" in messages[0]


@contextmanager
def warnings() -> Iterator[list[str]]:
    """Collect the warnings of the informer."""
    handler = logging.Handler(logging.WARNING)
    messages: list[str] = []
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]  # all that it does
    logger = logging.getLogger("podpool.kube.informer")
    logger.addHandler(handler)
    try:
        yield messages
    finally:
        logger.removeHandler(handler)
