"""Object cache: notifications, indexes, memory per object."""

import tracemalloc

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from bench.kube_pods import pod
from podpool.api.builtin import PODS, Node, Pod
from podpool.api.meta import ObjectMeta
from podpool.kube.cache import ObjectCache
from podpool.kube.codec import decoders_of


def node(name: str, *, version: str = "1", uid: str = "u") -> Node:
    return Node(metadata=ObjectMeta(name=name, resource_version=version, uid=uid))


def notifications(cache: ObjectCache[Node]) -> list[tuple[Node | None, Node | None]]:
    changes: list[tuple[Node | None, Node | None]] = []
    cache.subscribe(lambda old, new: changes.append((old, new)))
    return changes


def test_a_list_is_reported_as_its_differences() -> None:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([node("same"), node("changed"), node("gone")])
    changes = notifications(cache)
    cache.replace([node("same"), node("changed", version="2"), node("new")])
    assert [
        (node("gone"), None),
        (node("changed"), node("changed", version="2")),
        (None, node("new")),
    ] == changes
    assert ["same", "changed", "new"] == list(cache)


def test_another_object_of_the_same_name_is_reported_as_deleted_and_added() -> None:
    cache: ObjectCache[Node] = ObjectCache()
    cache.apply(node("n", uid="first"))
    changes = notifications(cache)
    cache.apply(node("n", uid="second"))
    assert [(node("n", uid="first"), None), (None, node("n", uid="second"))] == changes
    assert node("n", uid="second") == cache.get("n")


def test_removing_an_absent_object_reports_nothing() -> None:
    cache: ObjectCache[Node] = ObjectCache()
    changes = notifications(cache)
    cache.discard("n")
    assert [] == changes


def test_an_ended_subscription_receives_nothing_more() -> None:
    cache: ObjectCache[Node] = ObjectCache()
    changes: list[Node | None] = []
    end = cache.subscribe(lambda _, new: changes.append(new))
    cache.apply(node("a"))
    end()
    cache.apply(node("b"))
    assert [node("a")] == changes


def test_a_subscriber_finds_the_store_as_reported() -> None:
    cache: ObjectCache[Node] = ObjectCache()
    found: list[bool] = []
    cache.subscribe(lambda _, new: found.append(("n" in cache) == (new is not None)))
    cache.apply(node("n"))
    cache.discard("n")
    assert [True, True] == found
    assert (None, 0, ()) == (cache.get("n"), len(cache), cache.values())


def test_a_list_of_a_restored_server_can_show_another_state_at_the_same_version() -> None:
    cache: ObjectCache[Node] = ObjectCache()
    cache.replace([node("n")])
    changes = notifications(cache)
    other = Node(metadata=ObjectMeta(name="n", resource_version="1", uid="u", labels={"a": "b"}))
    cache.replace([other])
    assert [(node("n"), other)] == changes


class TestIndexes:
    def test_an_object_is_found_by_each_of_its_values_at_once_also_one_that_was_there(self) -> None:
        cache: ObjectCache[Node] = ObjectCache()
        cache.apply(labelled("a", "red", "big"))
        by_label = cache.index(labels)
        cache.apply(labelled("b", "red"))
        assert ["a", "b"] == [each.key for each in by_label.get("red")]
        assert ["a"] == [each.key for each in by_label.get("big")]
        assert () == by_label.get("blue")

    def test_it_is_updated_before_subscribers_are_called(self) -> None:
        cache: ObjectCache[Node] = ObjectCache()
        by_label = cache.index(labels)
        found: list[tuple[Node, ...]] = []
        cache.subscribe(lambda _old, _new: found.append(by_label.get("red")))
        cache.apply(labelled("a", "red"))
        cache.apply(labelled("a", "blue"))
        assert [(labelled("a", "red"),), ()] == found

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from("xyz")), st.booleans()), max_size=40))
    def test_it_finds_what_a_search_would_find(self, steps: list[tuple[str, set[str], bool]]) -> None:
        cache: ObjectCache[Node] = ObjectCache()
        by_label = cache.index(labels)
        for name, values, gone in steps:
            if gone:
                cache.discard(name)
            else:
                cache.apply(labelled(name, *sorted(values)))
        for value in "xyz":
            searched = {each.key for each in cache.values() if value in each.metadata.labels}
            assert searched == {each.key for each in by_label.get(value)}
        assert {value for each in cache.values() for value in each.metadata.labels} == set(by_label)


def labelled(name: str, *values: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=dict.fromkeys(values, "")))


def labels(node: Node) -> list[str]:
    return list(node.metadata.labels)


def test_a_cached_pod_takes_less_than_a_kilobyte() -> None:
    bodies = [msgspec.json.encode(pod(number, version=number)) for number in range(2000)]
    decode = decoders_of(PODS).one.decode
    decode(bodies[0])
    cache: ObjectCache[Pod] = ObjectCache()
    tracemalloc.start()
    try:
        for body in bodies:
            cache.apply(decode(body))
        each = tracemalloc.get_traced_memory()[0] / len(bodies)
    finally:
        tracemalloc.stop()
    assert each < 1024
