"""Schema validation of custom resources: the same as in kube-apiserver."""

from typing import Any

from podpool.api.crds import CRDS
from tests.kube.api_servers import ApiServerUnderTest
from tests.kube.event_loops import run_in_loop
from tests.lab.apiserver.test_parity import call, wait_until_served

SPEC: dict[str, Any] = {
    "word": {"type": "string", "minLength": 2, "maxLength": 4},
    "list": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"type": "integer"}},
    "map": {"type": "object", "maxProperties": 1, "additionalProperties": {"type": "string"}},
    "even": {"type": "integer", "multipleOf": 2},
    "any": {"type": "integer", "anyOf": [{"maximum": 3}, {"minimum": 10}]},
    "one": {"type": "integer", "oneOf": [{"maximum": 10}, {"minimum": 5}]},
    "all": {"type": "integer", "allOf": [{"maximum": 10}, {"minimum": 5}]},
    "not": {"type": "string", "not": {"enum": ["x"]}},
    "either": {"x-kubernetes-int-or-string": True},
    "null": {"type": "string", "nullable": True},
    "deep": {
        "type": "object",
        "default": {},
        "properties": {"given": {"type": "string", "default": "so"}, "kept": {"type": "string"}},
    },
}
CASES: list[tuple[str, object, bool]] = [
    ("word", "ab", True),
    ("word", "a", False),
    ("word", "abcde", False),
    ("list", [1, 2], True),
    ("list", [], False),
    ("list", [1, 2, 3], False),
    ("list", ["a"], False),
    ("map", {"a": "b"}, True),
    ("map", {"a": "b", "c": "d"}, False),
    ("even", 4, True),
    ("even", 5, False),
    ("any", 2, True),
    ("any", 5, False),
    ("one", 11, True),
    ("one", 7, False),
    ("all", 7, True),
    ("all", 4, False),
    ("not", "y", True),
    ("not", "x", False),
    ("either", 5, True),
    ("either", "5%", True),
    ("null", None, True),
]


def definition(group: str) -> dict[str, Any]:
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": SPEC}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    names = {"plural": "shapes", "kind": "Shape"}
    spec = {"group": group, "scope": "Cluster", "names": names, "versions": [version]}
    return {"metadata": {"name": f"shapes.{group}"}, "spec": spec}


@run_in_loop
async def test_schema_cases(cluster: ApiServerUnderTest) -> None:
    async with cluster.open_namespace() as api:
        group = f"{api.namespace}.dev"
        await api.client.create(CRDS, definition(group))
        path = f"/apis/{group}/v1/shapes"
        await wait_until_served(api, path, yes=True)
        for number, (field, value, good) in enumerate(CASES):
            shape = {"apiVersion": f"{group}/v1", "kind": "Shape", "metadata": {"name": f"s-{number}"}}
            code, body = await call(api, "POST", path, {**shape, "spec": {field: value, "odd": 1}})
            assert (201 if good else 422) == code, (field, value, body)
            if good:
                assert {"given": "so"} == body["spec"]["deep"], "defaults apply inside defaults too"
                assert "odd" not in body["spec"]
        await api.client.delete(CRDS, f"shapes.{group}")
