"""The reflector's one promise: whatever happens on the way, the store comes to equal a fresh list."""

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from podpool.kube.reflector import Reflector
from podpool.resources.acn import NETWORK_CONFIGS, NodeNetworkConfig
from podpool.runtime.transport import Request, Response
from tests.kube.clusters import Cluster, Guest
from tests.kube.loops import in_loop, in_virtual_time

NNC = NETWORK_CONFIGS
Told = tuple[str | None, str | None]


class Mirror:
    """A reflector at work, and what its subscriber was told."""

    def __init__(self, guest: Guest, *, lasting: int | None = None, **selectors: Any) -> None:  # noqa: ANN401  whatever
        self.guest = guest
        self.told: list[tuple[NodeNetworkConfig | None, NodeNetworkConfig | None]] = []
        rng = random.Random(1)  # noqa: S311  seeded
        self.reflector = Reflector(guest.client, NNC, rng=rng, namespace=guest.namespace, **selectors)
        self.reflector.lasting = (lasting, lasting) if lasting else self.reflector.lasting
        self.store = self.reflector.store
        self.store.subscribe(self._tell)
        self._changed = asyncio.Event()

    def _tell(self, old: NodeNetworkConfig | None, new: NodeNetworkConfig | None) -> None:
        self.told.append((old, new))
        self._changed.set()

    async def until(self, what: Callable[[], bool]) -> None:
        """Wait until something holds, looked at after each change."""
        async with asyncio.timeout(300):
            while not what():
                self._changed.clear()
                await self._changed.wait()

    async def has(self, name: str) -> None:
        await self.until(lambda: f"{self.guest.namespace}/{name}" in self.store)

    async def shows(self, *names: str) -> None:
        """Wait until these are the objects in the store, and see that a fresh list says the same."""
        await self.until(lambda: sorted(names) == sorted(each.metadata.name for each in self.store.values()))
        listed = await self.guest.client.list(NNC, namespace=self.guest.namespace)
        assert {each.key: each for each in listed.items} == {each.key: each for each in self.store.values()}

    def names(self) -> list[Told]:
        return [(old.metadata.name if old else None, new.metadata.name if new else None) for old, new in self.told]


@asynccontextmanager
async def mirror(guest: Guest, **selectors: Any) -> AsyncIterator[Mirror]:  # noqa: ANN401  same
    watching = Mirror(guest, **selectors)
    running = asyncio.ensure_future(watching.reflector.run())
    try:
        async with asyncio.timeout(300):
            await watching.store.synced.wait()
        yield watching
    finally:
        running.cancel()
        await asyncio.wait([running])
        assert running.cancelled(), "a reflector ends only when it is told to"


async def make(guest: Guest, *names: str, **labels: str) -> None:
    for name in names:
        await guest.client.create(NNC, {"metadata": {"name": name, "labels": labels}}, namespace=guest.namespace)


async def ask(guest: Guest, name: str, requested: int) -> None:
    await guest.client.merge(NNC, name, {"spec": {"requestedIPCount": requested}}, namespace=guest.namespace)


async def drop(guest: Guest, name: str) -> None:
    await guest.client.delete(NNC, name, namespace=guest.namespace)


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
                    await guest.client.merge(NNC, name, patch, namespace=guest.namespace)
                await seen.until(lambda: [f"{guest.namespace}/b"] == list(seen.store))
                assert [(None, "a"), (None, "b"), ("a", None)] == seen.names()

    @in_loop
    async def test_a_watch_that_ended_as_agreed_goes_on_without_a_list(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "a")
            async with mirror(guest, lasting=2) as seen:
                for name in ("b", "c"):
                    version = seen.reflector.seen
                    await guest.road.reopened()
                    await make(guest, name)
                    await seen.has(name)
                    assert int(guest.road.watched[-1]) >= int(version)
                assert ["0"] == guest.road.listed


class TestTrouble:
    @in_loop
    async def test_what_happened_while_the_connection_was_cut_is_made_up_for(self, cluster: Cluster) -> None:
        async with cluster.guest() as guest:
            await make(guest, "stays", "changes", "goes", "returns")
            async with mirror(guest) as seen:
                seen.told.clear()
                await guest.road.cut()
                await make(guest, "comes")
                await ask(guest, "changes", 5)
                await drop(guest, "goes")
                await drop(guest, "returns")
                await make(guest, "returns")
                await seen.until(lambda: f"{guest.namespace}/comes" in seen.store and len(seen.told) == 5)
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
                assert len(seen.store) == 0
                await seen.shows("a")
                assert 90 <= asyncio.get_running_loop().time() <= 92

    @in_virtual_time
    async def test_bookmarks_keep_a_quiet_watch_from_being_forgotten(self) -> None:
        async with Cluster(None).guest() as guest, mirror(guest) as seen:
            first = seen.reflector.seen
            for each in range(20):
                await guest.client.create(NNC, {"metadata": {"name": f"n-{each}"}}, namespace="default")
            await asyncio.sleep(3600)
            guest.store.compact()
            assert int(first) < int(seen.reflector.seen)
            assert ["0"] == guest.road.listed

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
            assert [0, 40, 80, 120] == [time - times[0] for time in times]

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
    rng = random.Random(1)  # noqa: S311  seeded
    running = asyncio.ensure_future(Reflector(guest.client, NNC, rng=rng, namespace=guest.namespace).run())
    await asyncio.sleep(seconds)
    running.cancel()
    await asyncio.wait([running])
    return times


def silent() -> Response:
    async def nothing() -> AsyncIterator[bytes]:
        await asyncio.Event().wait()
        yield b""

    return Response(200, stream=nothing())
