"""Strategic merge patches: the rules that kubectl relies on."""

from typing import Any

import pytest

from podpool.lab.apiserver.patches import PatchError
from podpool.lab.apiserver.strategic_merge import strategic_merge


def conditions(*types: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": each, "status": "True"} for each in types]}}


class TestLists:
    def test_a_list_with_a_key_is_merged_by_it(self) -> None:
        new = strategic_merge(
            conditions("Ready", "Other"), {"status": {"conditions": [{"type": "Ready", "status": "False"}]}}
        )
        assert [("Ready", "False"), ("Other", "True")] == [
            (each["type"], each["status"]) for each in new["status"]["conditions"]
        ]

    def test_new_elements_come_first_unless_an_order_is_given(self) -> None:
        patch = conditions("New")
        assert ["New", "Ready"] == _types(strategic_merge(conditions("Ready"), patch))
        patch["status"]["$setElementOrder/conditions"] = [{"type": "Ready"}, {"type": "New"}]
        assert ["Ready", "New"] == _types(strategic_merge(conditions("Ready"), patch))

    def test_an_order_alone_sorts(self) -> None:
        patch = {"status": {"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}]}}
        assert ["B", "A"] == _types(strategic_merge(conditions("A", "B"), patch))

    def test_an_element_is_deleted_by_its_key(self) -> None:
        patch = {"status": {"conditions": [{"type": "A", "$patch": "delete"}, {"type": "none", "$patch": "delete"}]}}
        assert ["B"] == _types(strategic_merge(conditions("A", "B"), patch))

    def test_a_list_is_replaced_by_a_directive(self) -> None:
        patch = {"status": {"conditions": [{"type": "C", "status": "True"}, {"$patch": "replace"}]}}
        assert ["C"] == _types(strategic_merge(conditions("A", "B"), patch))

    def test_lists_inside_lists_have_keys_of_their_own(self) -> None:
        pod = {
            "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]}
        }
        patch = {"spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "3"}]}]}}
        assert [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}] == strategic_merge(pod, patch)["spec"][
            "containers"
        ][0]["env"]

    def test_a_list_without_a_key_is_replaced(self) -> None:
        node = {"spec": {"taints": [{"key": "a"}, {"key": "b"}]}}
        assert {"spec": {"taints": [{"key": "c"}]}} == strategic_merge(node, {"spec": {"taints": [{"key": "c"}]}})

    def test_finalizers_are_merged_and_deleted_by_name(self) -> None:
        meta = {"metadata": {"finalizers": ["a", "b"]}}
        assert {"c", "a", "b"} == set(
            strategic_merge(meta, {"metadata": {"finalizers": ["c"]}})["metadata"]["finalizers"]
        )
        patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
        assert ["b"] == strategic_merge(meta, patch)["metadata"]["finalizers"]

    def test_an_element_without_its_key_is_rejected(self) -> None:
        with pytest.raises(PatchError, match="no type"):
            strategic_merge(conditions("A"), {"status": {"conditions": [{"status": "True"}]}})


class TestObjects:
    def test_null_removes_and_objects_merge(self) -> None:
        node = {"metadata": {"labels": {"a": "1", "b": "2"}}}
        assert {"metadata": {"labels": {"b": "3"}}} == strategic_merge(
            node, {"metadata": {"labels": {"a": None, "b": "3"}}}
        )

    def test_an_object_is_replaced_or_emptied_by_a_directive(self) -> None:
        pod = {"spec": {"securityContext": {"a": 1, "b": 2}}}
        assert {"b": 3} == strategic_merge(pod, {"spec": {"securityContext": {"$patch": "replace", "b": 3}}})["spec"][
            "securityContext"
        ]
        assert (
            {} == strategic_merge(pod, {"spec": {"securityContext": {"$patch": "delete"}}})["spec"]["securityContext"]
        )

    def test_only_the_keys_that_are_retained_stay(self) -> None:
        pod = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
        volume = {"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}
        assert [{"name": "v", "hostPath": {"path": "/x"}}] == strategic_merge(pod, {"spec": {"volumes": [volume]}})[
            "spec"
        ]["volumes"]

    def test_an_unknown_directive_is_rejected(self) -> None:
        with pytest.raises(PatchError, match="unknown directive"):
            strategic_merge({}, {"$patch": "improve"})


def _types(obj: dict[str, Any]) -> list[str]:
    return [each["type"] for each in obj["status"]["conditions"]]
