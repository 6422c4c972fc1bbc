"""What a store tells its subscribers, how its objects are found, and what they cost."""

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


def told(store: ObjectCache[Node]) -> list[tuple[Node | None, Node | None]]:
    changes: list[tuple[Node | None, Node | None]] = []
    store.subscribe(lambda old, new: changes.append((old, new)))
    return changes


def test_a_list_is_told_as_its_differences() -> None:
    store: ObjectCache[Node] = ObjectCache()
    store.replace([node("same"), node("changed"), node("gone")])
    changes = told(store)
    store.replace([node("same"), node("changed", version="2"), node("new")])
    assert [
        (node("gone"), None),
        (node("changed"), node("changed", version="2")),
        (None, node("new")),
    ] == changes
    assert ["same", "changed", "new"] == list(store)


def test_another_object_of_the_same_name_is_told_as_gone_and_come() -> None:
    store: ObjectCache[Node] = ObjectCache()
    store.apply(node("n", uid="first"))
    changes = told(store)
    store.apply(node("n", uid="second"))
    assert [(node("n", uid="first"), None), (None, node("n", uid="second"))] == changes
    assert node("n", uid="second") == store.get("n")


def test_forgetting_what_is_not_there_tells_nothing() -> None:
    store: ObjectCache[Node] = ObjectCache()
    changes = told(store)
    store.discard("n")
    assert [] == changes


def test_who_has_ended_its_subscription_is_told_nothing_more() -> None:
    store: ObjectCache[Node] = ObjectCache()
    changes: list[Node | None] = []
    end = store.subscribe(lambda _, new: changes.append(new))
    store.apply(node("a"))
    end()
    store.apply(node("b"))
    assert [node("a")] == changes


def test_a_subscriber_finds_the_store_as_it_was_told() -> None:
    store: ObjectCache[Node] = ObjectCache()
    found: list[bool] = []
    store.subscribe(lambda _, new: found.append(("n" in store) == (new is not None)))
    store.apply(node("n"))
    store.discard("n")
    assert [True, True] == found
    assert (None, 0, ()) == (store.get("n"), len(store), store.values())


def test_a_list_of_a_restored_server_can_show_another_state_at_the_same_version() -> None:
    store: ObjectCache[Node] = ObjectCache()
    store.replace([node("n")])
    changes = told(store)
    other = Node(metadata=ObjectMeta(name="n", resource_version="1", uid="u", labels={"a": "b"}))
    store.replace([other])
    assert [(node("n"), other)] == changes


class TestIndexes:
    def test_an_object_is_found_by_each_of_its_values_at_once_also_one_that_was_there(self) -> None:
        store: ObjectCache[Node] = ObjectCache()
        store.apply(labelled("a", "red", "big"))
        by_label = store.index(labels)
        store.apply(labelled("b", "red"))
        assert ["a", "b"] == [each.key for each in by_label.get("red")]
        assert ["a"] == [each.key for each in by_label.get("big")]
        assert () == by_label.get("blue")

    def test_it_is_in_step_before_anybody_is_told(self) -> None:
        store: ObjectCache[Node] = ObjectCache()
        by_label = store.index(labels)
        found: list[tuple[Node, ...]] = []
        store.subscribe(lambda _old, _new: found.append(by_label.get("red")))
        store.apply(labelled("a", "red"))
        store.apply(labelled("a", "blue"))
        assert [(labelled("a", "red"),), ()] == found

    @given(st.lists(st.tuples(st.sampled_from("abc"), st.sets(st.sampled_from("xyz")), st.booleans()), max_size=40))
    def test_it_finds_what_a_search_would_find(self, steps: list[tuple[str, set[str], bool]]) -> None:
        store: ObjectCache[Node] = ObjectCache()
        by_label = store.index(labels)
        for name, values, gone in steps:
            if gone:
                store.discard(name)
            else:
                store.apply(labelled(name, *sorted(values)))
        for value in "xyz":
            searched = {each.key for each in store.values() if value in each.metadata.labels}
            assert searched == {each.key for each in by_label.get(value)}
        assert {value for each in store.values() for value in each.metadata.labels} == set(by_label)


def labelled(name: str, *values: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, labels=dict.fromkeys(values, "")))


def labels(node: Node) -> list[str]:
    return list(node.metadata.labels)


def test_a_cached_pod_takes_less_than_a_kilobyte() -> None:
    bodies = [msgspec.json.encode(pod(number, version=number)) for number in range(2000)]
    decode = decoders_of(PODS).one.decode
    decode(bodies[0])
    store: ObjectCache[Pod] = ObjectCache()
    tracemalloc.start()
    try:
        for body in bodies:
            store.apply(decode(body))
        each = tracemalloc.get_traced_memory()[0] / len(bodies)
    finally:
        tracemalloc.stop()
    assert each < 1024
