"""The values of the chart: their schema and their table follow from values.yaml and its comments.

A comment above a key is its description; a line `@schema {...}` in it is JSON schema in addition to the type of the
default. A mapping without such a line is a section, whose keys are values of their own.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import msgspec

MARK = "@schema "
TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object"}
KEY = re.compile(r"^( *)([A-Za-z][A-Za-z0-9]*):")
QUANTITIES = {"type": "object", "additionalProperties": {"type": ["string", "number"]}}
RESOURCES = {
    "type": "object",
    "additionalProperties": False,
    "properties": {"requests": QUANTITIES, "limits": QUANTITIES},
}


class UndocumentedValue(Exception):
    """A value has no comment, or a comment has an invalid schema."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """One value: its path, default, description and schema."""

    path: tuple[str, ...]
    default: object
    description: str
    schema: dict[str, Any]

    @property
    def name(self) -> str:
        """The path as Helm's --set takes it."""
        return ".".join(self.path)


def read_values(text: str) -> list[Value]:
    """Return the values in the order of the file."""
    defaults: dict[str, Any] = msgspec.yaml.decode(text)
    return [
        Value(path=path, default=_at(defaults, path), description=description, schema=_schema(path, extra, defaults))
        for path, description, extra in _commented(text, defaults)
    ]


def _commented(text: str, defaults: dict[str, Any]) -> list[tuple[tuple[str, ...], str, dict[str, Any]]]:
    """Return path, description and schema line of each value."""
    found: list[tuple[tuple[str, ...], str, dict[str, Any]]] = []
    path: list[str] = []
    comment: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("#"):
            comment.append(stripped.removeprefix("#").strip())
            continue
        if match := KEY.match(line):
            path[len(match[1]) // 2 :] = [match[2]]
            extra = [json.loads(each.removeprefix(MARK)) for each in comment if each.startswith(MARK)]
            inside = any(tuple(path[: len(above)]) == above and len(path) > len(above) for above, _, _ in found)
            if not inside and (extra or not isinstance(_at(defaults, tuple(path)), dict)):
                description = " ".join(each for each in comment if not each.startswith(MARK))
                found.append((tuple(path), description, extra[0] if extra else {}))
        comment = []
    return found


def _schema(path: tuple[str, ...], extra: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    if "$ref" in extra:
        return extra
    return {"type": TYPES[type(_at(defaults, path))]} | extra


def _at(defaults: dict[str, Any], path: tuple[str, ...]) -> Any:  # noqa: ANN401  any YAML value
    found: Any = defaults
    for each in path:
        found = found[each]
    return found


def values_schema(values: list[Value]) -> str:
    """Return values.schema.json: an unknown value is an error."""
    root: dict[str, Any] = _section()
    for value in values:
        section = root
        for each in value.path[:-1]:
            section = section["properties"].setdefault(each, _section())
        if not value.description:
            raise UndocumentedValue(f"{value.name} has no comment in values.yaml")
        section["properties"][value.path[-1]] = {"description": value.description} | value.schema
    root["properties"]["global"] = {"description": "Values of parent charts; none is used.", "type": "object"}
    head = {"$schema": "http://json-schema.org/draft-07/schema#", "title": "podpool", "$defs": {"resources": RESOURCES}}
    return json.dumps(head | root, indent=2) + "\n"


def _section() -> dict[str, Any]:
    return {"type": "object", "additionalProperties": False, "properties": {}}


def values_table(values: list[Value]) -> list[tuple[str, str, str]]:
    """Return name, default and description of each value, for a page."""
    return [(f"`{each.name}`", f"`{json.dumps(each.default)}`", _described(each)) for each in values]


def _described(value: Value) -> str:
    choices = [repr(each).replace("'", "`") for each in value.schema.get("enum", ()) if each]
    return f"{value.description} One of {', '.join(choices)}." if choices else value.description
