"""The object store: snapshots, earlier revisions, watches, garbage collection, determinism."""

import asyncio
import random
from typing import Any

import msgspec
import pytest

from podpool.api.crds import CRDS, crd_manifests
from podpool.lab.apiserver import garbage_collector
from podpool.lab.apiserver.garbage_collector import collect, run_garbage_collector
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.registry import NAMESPACES, ApiResource
from podpool.lab.apiserver.status_errors import StatusError
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.strategy import with_meta
from podpool.lab.apiserver.watch import MAX_UNREAD, WatchOptions
from podpool.lab.apiserver.watch_cache import CAPACITY
from podpool.runtime.transport import Request
from tests.kube.api_servers import FixedClock
from tests.kube.event_loops import run_in_virtual_time


def fresh(seed: int = 1) -> ObjectStore:
    return ObjectStore(clock=FixedClock(), rng=random.Random(seed))  # noqa: S311  seeded


MAPS = fresh().registry.find("", "v1", "configmaps")
NODES = fresh().registry.find("", "v1", "nodes")


def make(store: ObjectStore, name: str, *, owners: tuple[str, ...] = (), **meta: Any) -> str:  # noqa: ANN401  JSON
    """Create an object, and return its UID."""
    references = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": uid} for uid in owners]
    wanted = {"metadata": {"name": name, "ownerReferences": references, **meta}}
    return str(store.create(MAPS, wanted, namespace="default")["metadata"]["uid"])


def write(store: ObjectStore, name: str, turn: int) -> None:
    store.update(MAPS, f"default/{name}", lambda old: {**old, "data": {"turn": str(turn)}})


def names(store: ObjectStore, wait_until_served: ApiResource = MAPS) -> list[str]:
    return [obj["metadata"]["name"] for _, obj in store.list(wait_until_served)]


class TestSnapshots:
    def test_a_restored_store_continues_from_the_snapshots_revision(self) -> None:
        store = fresh()
        make(store, "kept")
        copy = store.snapshot()
        make(store, "lost")
        store.update(MAPS, "default/kept", lambda old: {**old, "data": {"a": "b"}})
        store.restore(copy)
        assert (["kept"], copy.revision) == (names(store), store.revision)
        assert "data" not in store.get(MAPS, "default/kept")
        make(store, "new")
        assert str(copy.revision + 1) == store.get(MAPS, "default/new")["metadata"]["resourceVersion"]

    def test_a_snapshot_is_immutable_and_reusable(self) -> None:
        store = fresh()
        make(store, "kept")
        copy = store.snapshot()
        for _ in range(2):
            store.delete(MAPS, "default/kept")
            make(store, "other")
            store.restore(copy)
            assert ["kept"] == names(store)

    @run_in_virtual_time
    async def test_a_restore_ends_watches_and_drops_earlier_writes(self) -> None:
        store = fresh()
        make(store, "a")
        copy = store.snapshot()
        watch = store.watch(MAPS, since=store.revision)
        store.restore(copy)
        assert [] == [piece async for piece in watch]
        assert b'"code":410' in await anext(store.watch(MAPS, since=copy.revision - 1))

    def test_a_restore_updates_the_registry(self) -> None:
        store = fresh()
        before = store.snapshot()
        definitions = store.registry.find("apiextensions.k8s.io", "v1", "customresourcedefinitions")
        store.create(definitions, LAMPS)
        lamps = store.registry.find("x.dev", "v1", "lamps")
        lamp = {"apiVersion": "x.dev/v1", "kind": "Lamp", "metadata": {"name": "a"}}
        store.create(lamps, lamp)
        after = store.snapshot()
        store.restore(before)
        with pytest.raises(StatusError, match="could not find"):
            store.registry.find("x.dev", "v1", "lamps")
        store.restore(after)
        assert ["a"] == names(store, store.registry.find("x.dev", "v1", "lamps"))


LAMPS = {
    "metadata": {"name": "lamps.x.dev"},
    "spec": {
        "group": "x.dev",
        "scope": "Cluster",
        "names": {"plural": "lamps", "kind": "Lamp"},
        "versions": [{"name": "v1", "served": True, "storage": True}],
    },
}


class TestEarlierRevisions:
    def test_a_cached_list_lags_at_most_to_the_compacted_revision(self) -> None:
        store = fresh()
        make(store, "a")
        make(store, "b")
        store.delete(MAPS, "default/a")
        assert store.revision == store.cached_revision()
        store.lag = lambda: 1
        shown = store.list(MAPS, revision=store.cached_revision())
        assert ["default/a", "default/b"] == [key for key, _ in shown]
        store.compact()
        assert store.revision == store.cached_revision()

    def test_every_kept_revision_can_be_listed(self) -> None:
        store, rng = fresh(), random.Random(4)  # noqa: S311  seeded
        shown: dict[int, list[Any]] = {}
        for turn in range(100):
            name = rng.choice("abcd")
            if name not in names(store):
                make(store, name)
            elif rng.random() < 0.5:
                store.delete(MAPS, f"default/{name}")
            else:
                write(store, name, turn)
            shown[store.revision] = store.list(MAPS)
        for revision, objects in shown.items():
            assert objects == store.list(MAPS, revision=revision)

    @run_in_virtual_time
    async def test_the_watch_cache_has_a_limit(self) -> None:
        store = fresh()
        make(store, "a")
        first = store.revision
        for turn in range(CAPACITY + 1):
            write(store, "a", turn)
        assert b'"code":410' in await anext(store.watch(MAPS, since=first))
        assert b"MODIFIED" in await anext(store.watch(MAPS, since=store.revision - 1))


class TestWatches:
    @run_in_virtual_time
    async def test_a_quiet_watch_gets_a_bookmark_every_minute(self) -> None:
        store, loop = fresh(), asyncio.get_running_loop()
        watch = store.watch(MAPS, since=store.revision, options=WatchOptions(timeout=150, bookmarks=True))
        times = [(round(loop.time()), piece.count(b"BOOKMARK")) async for piece in watch]
        assert [(60, 1), (120, 1), (150, 1)] == times

    @run_in_virtual_time
    async def test_an_unread_watch_ends_and_can_be_continued(self) -> None:
        store = fresh()
        make(store, "a")
        watch = store.watch(MAPS, since=None)
        for turn in range(MAX_UNREAD + 5):
            write(store, "a", turn)
        lines = b"".join([piece async for piece in watch]).splitlines()
        assert 1 + MAX_UNREAD == len(lines), "the existing object, and the writes up to the limit"
        last = int(msgspec.json.decode(lines[-1])["object"]["metadata"]["resourceVersion"])
        remaining = await anext(store.watch(MAPS, since=last))
        assert 5 == remaining.count(b"MODIFIED")

    @run_in_virtual_time
    async def test_a_closed_watch_gets_no_more_events(self) -> None:
        store = fresh()
        watch = store.watch(MAPS, since=store.revision)
        await watch.close()
        make(store, "a")
        assert [] == [piece async for piece in watch]


class TestGarbageCollection:
    def test_objects_without_owners_are_collected_with_their_dependants(self) -> None:
        store = fresh()
        first, second = make(store, "first"), make(store, "second")
        child = make(store, "child", owners=(first,))
        make(store, "grandchild", owners=(child,))
        make(store, "shared", owners=(first, second))
        make(store, "free")
        assert 0 == collect(store)
        store.delete(MAPS, "default/first")
        assert 2 == collect(store)
        assert ["free", "second", "shared"] == names(store)
        store.delete(MAPS, "default/second")
        assert 1 == collect(store)

    def test_a_new_object_of_the_owners_name_is_not_the_owner(self) -> None:
        store = fresh()
        make(store, "child", owners=(make(store, "owner"),))
        store.delete(MAPS, "default/owner")
        make(store, "owner")
        collect(store)
        assert ["owner"] == names(store)

    def test_objects_of_a_deleted_namespace_are_collected(self) -> None:
        store = fresh()
        store.create(NAMESPACES, {"metadata": {"name": "x"}})
        store.create(MAPS, {"metadata": {"name": "inside"}}, namespace="x")
        make(store, "elsewhere")
        store.delete(NAMESPACES, "x")
        assert 1 == collect(store)
        assert ["elsewhere"] == names(store)

    def test_objects_with_finalizers_are_marked(self) -> None:
        store = fresh()
        owner = make(store, "owner")
        make(store, "child", owners=(owner,), finalizers=["x.dev/hold"])
        store.delete(MAPS, "default/owner")
        assert 1 == collect(store)
        assert "deletionTimestamp" in store.get(MAPS, "default/child")["metadata"]
        assert 0 == collect(store)

    @run_in_virtual_time
    async def test_it_collects_continuously(self) -> None:
        store = fresh()
        make(store, "child", owners=(make(store, "owner"),))
        task = asyncio.ensure_future(run_garbage_collector(store))
        await asyncio.sleep(5)
        store.delete(MAPS, "default/owner")
        await asyncio.sleep(1.5)
        assert [] == names(store)
        task.cancel()
        await asyncio.wait([task])

    @run_in_virtual_time
    async def test_an_object_whose_new_owner_is_gone_is_collected(self) -> None:
        store = fresh()
        gone = make(store, "gone")
        store.delete(MAPS, "default/gone")
        make(store, "child")
        task = asyncio.ensure_future(run_garbage_collector(store))
        await asyncio.sleep(5)
        assert ["child"] == names(store)
        owners = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": gone}]
        store.update(MAPS, "default/child", lambda old: with_meta(old, ownerReferences=owners))
        await asyncio.sleep(1.5)
        assert [] == names(store)
        task.cancel()
        await asyncio.wait([task])

    @run_in_virtual_time
    async def test_other_writes_cause_no_scan(self, monkeypatch: pytest.MonkeyPatch) -> None:
        store, scans = fresh(), list[int]()
        make(store, "renewed")
        monkeypatch.setattr(garbage_collector, "collect", lambda each: scans.append(each.revision))
        task = asyncio.ensure_future(run_garbage_collector(store))
        for number in range(3):
            await asyncio.sleep(1.5)
            write(store, "renewed", number)
        await asyncio.sleep(1.5)
        task.cancel()
        await asyncio.wait([task])
        assert 1 == len(scans)


def test_the_same_calls_make_the_same_history() -> None:
    def history(seed: int) -> list[Any]:
        store = fresh(seed)
        owner = make(store, "owner")
        make(store, "child", owners=(owner,))
        store.delete(MAPS, "default/owner")
        collect(store)
        make(store, "last")
        return [*store.everything()]

    assert history(1) == history(1)
    assert history(1) != history(2)


@run_in_virtual_time
async def test_a_crd_with_cel_rules_gets_a_warning() -> None:
    api = ResourceHandler(fresh())
    ruled = next(each for each in crd_manifests() if "x-kubernetes-validations" in str(each))
    for manifest, warned in ((ruled, True), (LAMPS, False)):
        body = msgspec.json.encode(manifest)
        response = await api.send(Request(method="POST", path=CRDS.path(), body=body))
        assert 201 == response.status
        assert ("not evaluated" in response.headers.get("warning", "")) is warned


class TestPages:
    def test_pages_together_are_the_list_despite_writes_between_them(self) -> None:
        store, rng = fresh(), random.Random(9)  # noqa: S311  seeded
        for number in range(60):
            make(store, f"m-{number:03}")
        revision, then = store.revision, names(store)
        listed: list[str] = []
        after = ""
        while True:
            page = store.page(MAPS, namespace="default", revision=revision, after=after, limit=7)
            listed += [obj["metadata"]["name"] for _, obj in page.items]
            assert len(then) - len(listed) == page.remaining
            if not page.remaining:
                break
            after = page.items[-1][0]
            store.delete(MAPS, f"default/{rng.choice(names(store))}")
            make(store, f"n-{rng.randrange(10**9)}")
            write(store, names(store)[0], rng.randrange(10**9))
        assert then == listed

    def test_a_page_scans_only_its_namespace_after_its_key(self) -> None:
        store = fresh()
        for name in ("a", "b", "c"):
            make(store, name)
            store.create(MAPS, {"metadata": {"name": name}}, namespace="kube-system")
        looked: list[str] = []

        def selector(obj: Any) -> bool:  # noqa: ANN401  JSON
            looked.append(f"{obj['metadata']['namespace']}/{obj['metadata']['name']}")
            return True

        page = store.page(MAPS, namespace="default", after="default/a", selector=selector, limit=5)
        assert ["default/b", "default/c"] == looked == [key for key, _ in page.items]
