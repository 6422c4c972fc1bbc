"""Strategic merge patches: the rules that kubectl relies on."""

from typing import Any

import pytest

from podpool.lab.apiserver.patches import PatchFailed
from podpool.lab.apiserver.strategic_merge import strategically_merged as merged


def conditions(*types: str) -> dict[str, Any]:
    return {"status": {"conditions": [{"type": each, "status": "True"} for each in types]}}


class TestLists:
    def test_a_list_with_a_key_is_merged_by_it(self) -> None:
        new = merged(conditions("Ready", "Other"), {"status": {"conditions": [{"type": "Ready", "status": "False"}]}})
        assert [("Ready", "False"), ("Other", "True")] == [
            (each["type"], each["status"]) for each in new["status"]["conditions"]
        ]

    def test_what_is_new_stands_in_front_unless_an_order_is_told(self) -> None:
        patch = conditions("New")
        assert ["New", "Ready"] == _types(merged(conditions("Ready"), patch))
        patch["status"]["$setElementOrder/conditions"] = [{"type": "Ready"}, {"type": "New"}]
        assert ["Ready", "New"] == _types(merged(conditions("Ready"), patch))

    def test_an_order_alone_sorts(self) -> None:
        patch = {"status": {"$setElementOrder/conditions": [{"type": "B"}, {"type": "A"}]}}
        assert ["B", "A"] == _types(merged(conditions("A", "B"), patch))

    def test_an_element_is_deleted_by_its_key(self) -> None:
        patch = {"status": {"conditions": [{"type": "A", "$patch": "delete"}, {"type": "none", "$patch": "delete"}]}}
        assert ["B"] == _types(merged(conditions("A", "B"), patch))

    def test_a_list_is_replaced_when_told(self) -> None:
        patch = {"status": {"conditions": [{"type": "C", "status": "True"}, {"$patch": "replace"}]}}
        assert ["C"] == _types(merged(conditions("A", "B"), patch))

    def test_lists_inside_lists_have_keys_of_their_own(self) -> None:
        pod = {
            "spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": "1"}, {"name": "B", "value": "2"}]}]}
        }
        patch = {"spec": {"containers": [{"name": "c", "env": [{"name": "B", "value": "3"}]}]}}
        assert [{"name": "A", "value": "1"}, {"name": "B", "value": "3"}] == merged(pod, patch)["spec"]["containers"][
            0
        ]["env"]

    def test_a_list_without_a_key_is_replaced(self) -> None:
        node = {"spec": {"taints": [{"key": "a"}, {"key": "b"}]}}
        assert {"spec": {"taints": [{"key": "c"}]}} == merged(node, {"spec": {"taints": [{"key": "c"}]}})

    def test_finalizers_are_joined_and_taken_off_by_name(self) -> None:
        meta = {"metadata": {"finalizers": ["a", "b"]}}
        assert {"c", "a", "b"} == set(merged(meta, {"metadata": {"finalizers": ["c"]}})["metadata"]["finalizers"])
        patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
        assert ["b"] == merged(meta, patch)["metadata"]["finalizers"]

    def test_an_element_without_its_key_is_refused(self) -> None:
        with pytest.raises(PatchFailed, match="no type"):
            merged(conditions("A"), {"status": {"conditions": [{"status": "True"}]}})


class TestObjects:
    def test_null_removes_and_objects_merge(self) -> None:
        node = {"metadata": {"labels": {"a": "1", "b": "2"}}}
        assert {"metadata": {"labels": {"b": "3"}}} == merged(node, {"metadata": {"labels": {"a": None, "b": "3"}}})

    def test_an_object_is_replaced_or_emptied_when_told(self) -> None:
        pod = {"spec": {"securityContext": {"a": 1, "b": 2}}}
        assert {"b": 3} == merged(pod, {"spec": {"securityContext": {"$patch": "replace", "b": 3}}})["spec"][
            "securityContext"
        ]
        assert {} == merged(pod, {"spec": {"securityContext": {"$patch": "delete"}}})["spec"]["securityContext"]

    def test_only_the_keys_that_are_retained_stay(self) -> None:
        pod = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
        volume = {"name": "v", "hostPath": {"path": "/x"}, "$retainKeys": ["name", "hostPath"]}
        assert [{"name": "v", "hostPath": {"path": "/x"}}] == merged(pod, {"spec": {"volumes": [volume]}})["spec"][
            "volumes"
        ]

    def test_a_directive_that_is_none_is_refused(self) -> None:
        with pytest.raises(PatchFailed, match="no such directive"):
            merged({}, {"$patch": "improve"})


def _types(obj: dict[str, Any]) -> list[str]:
    return [each["type"] for each in obj["status"]["conditions"]]
