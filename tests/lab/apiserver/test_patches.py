"""Merge patches and JSON patches, with the examples of their RFCs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.lab.apiserver.patches import PatchError, json_patch, merge_patch

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from("abc"), JSON, max_size=3)


class TestMerge:
    @pytest.mark.parametrize(
        ("value", "patch", "expected"),
        [  # RFC 7396, appendix A
            ({"a": "b"}, {"a": "c"}, {"a": "c"}),
            ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
            ({"a": "b"}, {"a": None}, {}),
            ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
            ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
            ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
            ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
            ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
            (["a", "b"], ["c", "d"], ["c", "d"]),
            ({"a": "b"}, ["c"], ["c"]),
            ({"a": "foo"}, None, None),
            ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
            ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
            ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ],
    )
    def test_examples(self, value: Any, patch: Any, expected: Any) -> None:  # noqa: ANN401  JSON
        assert expected == merge_patch(value, patch)

    @given(OBJECTS, OBJECTS)
    def test_it_is_idempotent_and_changes_nothing_in_place(self, value: Any, patch: Any) -> None:  # noqa: ANN401  JSON
        before = repr(value)
        once = merge_patch(value, patch)
        assert once == merge_patch(once, patch)
        assert before == repr(value)


class TestOperations:
    @pytest.mark.parametrize(
        ("value", "operations", "expected"),
        [  # RFC 6902, appendix A
            ({"foo": "bar"}, [{"op": "add", "path": "/baz", "value": "qux"}], {"foo": "bar", "baz": "qux"}),
            ({"foo": [1, 2]}, [{"op": "add", "path": "/foo/1", "value": 9}], {"foo": [1, 9, 2]}),
            ({"foo": [1, 2]}, [{"op": "add", "path": "/foo/-", "value": 9}], {"foo": [1, 2, 9]}),
            ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
            ({"foo": [1, 2, 3]}, [{"op": "remove", "path": "/foo/1"}], {"foo": [1, 3]}),
            ({"a": {"x": [1]}}, [{"op": "replace", "path": "/a/x/0", "value": 2}], {"a": {"x": [2]}}),
            ({"a": {"x": 1}, "b": {}}, [{"op": "move", "from": "/a/x", "path": "/b/y"}], {"a": {}, "b": {"y": 1}}),
            ({"foo": [1, 2, 3]}, [{"op": "move", "from": "/foo/0", "path": "/foo/2"}], {"foo": [2, 3, 1]}),
            ({"a": {"x": 1}}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": {"x": 1}, "b": {"x": 1}}),
            ({"a/b": {"m~n": 1}}, [{"op": "replace", "path": "/a~1b/m~0n", "value": 2}], {"a/b": {"m~n": 2}}),
            ({"a": 1}, [{"op": "replace", "path": "", "value": {"b": 2}}], {"b": 2}),
        ],
    )
    def test_examples(self, value: Any, operations: list[dict[str, Any]], expected: Any) -> None:  # noqa: ANN401  JSON
        before = repr(value)
        assert expected == json_patch(value, operations)
        assert before == repr(value)

    @pytest.mark.parametrize(
        "operation",
        [
            {"op": "test", "path": "/a", "value": 2},
            {"op": "remove", "path": "/none"},
            {"op": "add", "path": "/list/9", "value": 1},
            {"op": "add", "path": "/list/-1", "value": 1},
            {"op": "add", "path": "/a/b", "value": 1},
            {"op": "add", "path": "a", "value": 1},
            {"op": "add", "path": "/b"},
            {"op": "copy", "from": "/none", "path": "/b"},
            {"op": "turn", "path": "/a"},
            {"op": "remove", "path": ""},
            {},
        ],
    )
    def test_operations_that_do_not_fit_fail(self, operation: dict[str, Any]) -> None:
        with pytest.raises(PatchError):
            json_patch({"a": 1, "list": [1]}, [operation])

    def test_the_number_of_operations_is_limited(self) -> None:
        with pytest.raises(PatchError, match="10001 operations"):
            json_patch({}, [{"op": "add", "path": "/a", "value": 1}] * 10_001)
