"""What a store tells its subscribers."""

from podpool.kube.store import Store
from podpool.resources.builtin import Node
from podpool.resources.meta import Meta


def node(name: str, *, version: str = "1", uid: str = "u") -> Node:
    return Node(metadata=Meta(name=name, resource_version=version, uid=uid))


def told(store: Store[Node]) -> list[tuple[Node | None, Node | None]]:
    changes: list[tuple[Node | None, Node | None]] = []
    store.subscribe(lambda old, new: changes.append((old, new)))
    return changes


def test_a_list_is_told_as_its_differences() -> None:
    store: Store[Node] = Store()
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
    store: Store[Node] = Store()
    store.apply(node("n", uid="first"))
    changes = told(store)
    store.apply(node("n", uid="second"))
    assert [(node("n", uid="first"), None), (None, node("n", uid="second"))] == changes
    assert node("n", uid="second") == store.get("n")


def test_forgetting_what_is_not_there_tells_nothing() -> None:
    store: Store[Node] = Store()
    changes = told(store)
    store.discard("n")
    assert [] == changes


def test_who_has_ended_its_subscription_is_told_nothing_more() -> None:
    store: Store[Node] = Store()
    changes: list[Node | None] = []
    end = store.subscribe(lambda _, new: changes.append(new))
    store.apply(node("a"))
    end()
    store.apply(node("b"))
    assert [node("a")] == changes


def test_a_subscriber_finds_the_store_as_it_was_told() -> None:
    store: Store[Node] = Store()
    found: list[bool] = []
    store.subscribe(lambda _, new: found.append(("n" in store) == (new is not None)))
    store.apply(node("n"))
    store.discard("n")
    assert [True, True] == found
    assert (None, 0, ()) == (store.get("n"), len(store), store.values())
