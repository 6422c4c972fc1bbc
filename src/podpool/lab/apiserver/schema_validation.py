"""Structural schemas: types, enums, limits, patterns, schemas that are joined, defaults, and what is pruned.

Expressions (CEL) and formats are accepted and not looked at.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

Schema = Mapping[str, Any]

HEAD = ("apiVersion", "kind", "metadata")
"""What every object has, whatever its schema says."""

_IS: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: not isinstance(value, bool) and (isinstance(value, int) or _whole(value)),
    "number": lambda value: not isinstance(value, bool) and isinstance(value, int | float),
}

TYPES = tuple(_IS)

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_BARE: dict[str, Any] = {"type": "object"}
_BARE["items"] = _BARE
"""Of what a schema lets in without describing it, objects are kept empty, as a real server keeps them."""


def shaped(schema: Schema, value: Any) -> Any:  # noqa: ANN401  JSON
    """Fill in defaults, and leave out fields that the schema does not know, unless it wants them kept."""
    if isinstance(value, list):
        return [shaped(schema.get("items", {}), each) for each in value]
    properties: Mapping[str, Schema] = schema.get("properties", {})
    if not isinstance(value, Mapping) or not (properties or schema.get("type") == "object"):
        return value
    defaults = {name: part["default"] for name, part in properties.items() if "default" in part and name not in value}
    others = _of_others(schema, {} if schema.get(_PRESERVE) else _BARE)
    return {
        name: shaped(properties.get(name, others), part)
        for name, part in {**value, **defaults}.items()
        if name in properties or _keeps_unknown(schema)
    }


def unknown(schema: Schema, value: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401  JSON
    """Tell which fields are left out because the schema does not know them."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from unknown(schema.get("items", {}), each, f"{path}[{index}]")
    properties: Mapping[str, Schema] = schema.get("properties", {})
    if not isinstance(value, Mapping) or not (properties or schema.get("type") == "object"):
        return
    others = _of_others(schema, {} if schema.get(_PRESERVE) else _BARE)
    for name, part in value.items():
        place = f"{path}.{name}".lstrip(".")
        if not path and name in HEAD:
            continue
        if name in properties or _keeps_unknown(schema):
            yield from unknown(properties.get(name, others), part, place)
        else:
            yield place


def faults(schema: Schema, value: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401  JSON
    """Tell what breaks the schema, each with its place."""
    if value is None and schema.get("nullable"):
        return
    wanted = schema.get("type")
    if wanted and not _IS[wanted](value):
        yield f"{path or '<root>'}: Invalid value: {_told(value)}: must be of type {wanted}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: Unsupported value: {_told(value)}: supported values: {', '.join(map(_told, schema['enum']))}"
    for limit, (of, holds, rule) in _LIMITS.items():
        if limit in schema and isinstance(value, of) and not holds(value, schema[limit]):
            yield f"{path}: Invalid value: {_told(value)}: {path} in body should {rule.format(schema[limit])}"
    yield from _joined_faults(schema, value, path)
    if isinstance(value, dict | list):
        yield from _inner_faults(schema, value, path)


_LIMITS: Mapping[str, tuple[Any, Callable[[Any, Any], bool], str]] = {
    "minimum": (int | float, lambda value, limit: value >= limit, "be greater than or equal to {}"),
    "maximum": (int | float, lambda value, limit: value <= limit, "be less than or equal to {}"),
    "multipleOf": (int | float, lambda value, limit: value % limit == 0, "be a multiple of {}"),
    "pattern": (str, lambda value, limit: re.search(limit, value) is not None, "match '{}'"),
    "minLength": (str, lambda value, limit: len(value) >= limit, "be at least {} chars long"),
    "maxLength": (str, lambda value, limit: len(value) <= limit, "be at most {} chars long"),
    "minItems": (list, lambda value, limit: len(value) >= limit, "have at least {} items"),
    "maxItems": (list, lambda value, limit: len(value) <= limit, "have at most {} items"),
    "minProperties": (dict, lambda value, limit: len(value) >= limit, "have at least {} properties"),
    "maxProperties": (dict, lambda value, limit: len(value) <= limit, "have at most {} properties"),
}


def _joined_faults(schema: Schema, value: Any, path: str) -> Iterator[str]:  # noqa: ANN401  JSON
    """Look at schemas that are joined: all, any, exactly one, or none of them must fit."""
    for each in schema.get("allOf", ()):
        yield from faults(each, value, path)
    for word, right in _JOINED.items():
        if word in schema:
            fitting = sum(not any(faults(each, value, path)) for each in _listed(schema[word]))
            if not right(fitting):
                yield f"{path or '<root>'}: Invalid value: {_told(value)}: {path} must fit the schema's {word}"


_JOINED: Mapping[str, Callable[[int], bool]] = {
    "anyOf": lambda fitting: fitting >= 1,
    "oneOf": lambda fitting: fitting == 1,
    "not": lambda fitting: fitting == 0,
}


def _listed(schemas: Any) -> list[Schema]:  # noqa: ANN401  JSON
    return schemas if isinstance(schemas, list) else [schemas]


def _inner_faults(schema: Schema, value: Any, path: str) -> Iterator[str]:  # noqa: ANN401  JSON
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from faults(schema.get("items", {}), each, f"{path}[{index}]")
    if isinstance(value, Mapping):
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{path}.{name}".lstrip(".") + ": Required value"
        properties: Mapping[str, Schema] = schema.get("properties", {})
        for name, part in value.items():
            place = f"{path}.{name}".lstrip(".")
            if wanted := properties.get(name, _of_others(schema, {})):
                yield from faults(wanted, part, place)
            elif schema.get("additionalProperties") is False and name not in properties:
                yield f"{path}: Invalid value: {_told(value)}: {place} in body is a forbidden property"


def _of_others(schema: Schema, anything: Schema) -> Schema:
    """Find the schema of fields that have none of their own: `anything` where no more is said than that they may be."""
    others = schema.get("additionalProperties")
    return others if isinstance(others, Mapping) else anything


def _told(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _keeps_unknown(schema: Schema) -> bool:
    return bool(schema.get(_PRESERVE)) or "additionalProperties" in schema


def _whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()
