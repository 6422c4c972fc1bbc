"""A sample CRD."""

from typing import Any


def sample_crd(plural: str, kind: str, place: str) -> dict[str, Any]:
    group = f"{place}.podpool.dev"
    properties = {
        "colour": {"type": "string", "enum": ["red", "green"]},
        "power": {"type": "integer", "default": 40},
    }
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "scope": "Cluster",
            "names": {"plural": plural, "singular": kind.lower(), "kind": kind},
            "versions": [version],
        },
    }
