"""Structural schemas, as far as the manifests that we carry use them: types, enums, limits, patterns, defaults.

Expressions (CEL) and formats are accepted and not looked at.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

Schema = Mapping[str, Any]

_IS: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: not isinstance(value, bool) and (isinstance(value, int) or _whole(value)),
    "number": lambda value: not isinstance(value, bool) and isinstance(value, int | float),
}


def shaped(schema: Schema, value: Any) -> Any:  # noqa: ANN401  JSON
    """Fill in defaults, and leave out fields that the schema does not know, unless it wants them kept."""
    if isinstance(value, list):
        return [shaped(schema.get("items", {}), each) for each in value]
    properties: Mapping[str, Schema] = schema.get("properties", {})
    if not isinstance(value, Mapping) or not (properties or schema.get("type") == "object"):
        return value
    defaults = {name: part["default"] for name, part in properties.items() if "default" in part and name not in value}
    return {
        name: shaped(properties.get(name, schema.get("additionalProperties") or {}), part)
        for name, part in {**value, **defaults}.items()
        if name in properties or _keeps_unknown(schema)
    }


def faults(schema: Schema, value: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401  JSON
    """Tell what breaks the schema, each with its place."""
    if value is None and schema.get("nullable"):
        return
    wanted = schema.get("type")
    if wanted and not _IS[wanted](value):
        yield f"{path or '<root>'}: Invalid value: {value!r}: must be of type {wanted}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: Unsupported value: {value!r}: supported values: {', '.join(map(repr, schema['enum']))}"
    for limit, (holds, rule) in _LIMITS.items():
        if limit in schema and not holds(value, schema[limit]):
            yield f"{path}: Invalid value: {value!r}: {path} in body should {rule} {schema[limit]}"
    if isinstance(value, dict | list):
        yield from _inner_faults(schema, value, path)


_LIMITS: Mapping[str, tuple[Callable[[Any, Any], bool], str]] = {
    "minimum": (lambda value, limit: value >= limit, "be greater than or equal to"),
    "maximum": (lambda value, limit: value <= limit, "be less than or equal to"),
    "pattern": (lambda value, limit: re.search(limit, value) is not None, "match"),
}


def _inner_faults(schema: Schema, value: Any, path: str) -> Iterator[str]:  # noqa: ANN401  JSON
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from faults(schema.get("items", {}), each, f"{path}[{index}]")
    if isinstance(value, Mapping):
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{path}.{name}".lstrip(".") + ": Required value"
        for name, part in schema.get("properties", {}).items():
            if name in value:
                yield from faults(part, value[name], f"{path}.{name}".lstrip("."))
        if others := schema.get("additionalProperties"):
            for name, part in value.items():
                yield from faults(others, part, f"{path}.{name}".lstrip("."))


def _keeps_unknown(schema: Schema) -> bool:
    return bool(schema.get("x-kubernetes-preserve-unknown-fields") or schema.get("additionalProperties"))


def _whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()
