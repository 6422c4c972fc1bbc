"""Structural schemas: types, enums, limits, patterns, combinators, defaults and pruning.

CEL expressions and formats are accepted and ignored.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

Schema = Mapping[str, Any]

HEAD = ("apiVersion", "kind", "metadata")
"""Fields of every object, whatever its schema."""

_TYPE_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, Mapping),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: not isinstance(value, bool) and (isinstance(value, int) or _is_whole(value)),
    "number": lambda value: not isinstance(value, bool) and isinstance(value, int | float),
}

TYPES = tuple(_TYPE_CHECKS)

_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_BARE: dict[str, Any] = {"type": "object"}
_BARE["items"] = _BARE
"""The schema of allowed but undescribed fields: their objects are stored empty, as in kube-apiserver."""


def prune_and_default(schema: Schema, value: Any) -> Any:  # noqa: ANN401  JSON
    """Return a value with defaults, without the fields that the schema does not have or preserve."""
    if isinstance(value, list):
        return [prune_and_default(schema.get("items", {}), each) for each in value]
    properties: Mapping[str, Schema] = schema.get("properties", {})
    if not isinstance(value, Mapping) or not (properties or schema.get("type") == "object"):
        return value
    defaults = {name: part["default"] for name, part in properties.items() if "default" in part and name not in value}
    others = _additional_schema(schema, {} if schema.get(_PRESERVE) else _BARE)
    return {
        name: prune_and_default(properties.get(name, others), part)
        for name, part in {**value, **defaults}.items()
        if name in properties or _keeps_unknown(schema)
    }


def unknown(schema: Schema, value: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401  JSON
    """Yield the paths of fields that are pruned."""
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from unknown(schema.get("items", {}), each, f"{path}[{index}]")
    properties: Mapping[str, Schema] = schema.get("properties", {})
    if not isinstance(value, Mapping) or not (properties or schema.get("type") == "object"):
        return
    others = _additional_schema(schema, {} if schema.get(_PRESERVE) else _BARE)
    for name, part in value.items():
        field_path = f"{path}.{name}".lstrip(".")
        if not path and name in HEAD:
            continue
        if name in properties or _keeps_unknown(schema):
            yield from unknown(properties.get(name, others), part, field_path)
        else:
            yield field_path


def schema_errors(schema: Schema, value: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401  JSON
    """Yield violations of the schema, each with the path of its field."""
    if value is None and schema.get("nullable"):
        return
    wanted = schema.get("type")
    if wanted and not _TYPE_CHECKS[wanted](value):
        yield f"{path or '<root>'}: Invalid value: {_json(value)}: must be of type {wanted}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{path}: Unsupported value: {_json(value)}: supported values: {', '.join(map(_json, schema['enum']))}"
    if not _RARE_KEYWORDS.isdisjoint(schema):
        yield from _limit_errors(schema, value, path)
        yield from _combinator_errors(schema, value, path)
    if isinstance(value, dict | list):
        yield from _nested_errors(schema, value, path)


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


def _limit_errors(schema: Schema, value: Any, path: str) -> Iterator[str]:  # noqa: ANN401  JSON
    for keyword, (type_, holds, rule) in _LIMITS.items():
        if keyword in schema and isinstance(value, type_) and not holds(value, schema[keyword]):
            yield f"{path}: Invalid value: {_json(value)}: {path} in body should {rule.format(schema[keyword])}"


def _combinator_errors(schema: Schema, value: Any, path: str) -> Iterator[str]:  # noqa: ANN401  JSON
    """Yield violations of allOf, anyOf, oneOf and not."""
    for each in schema.get("allOf", ()):
        yield from schema_errors(each, value, path)
    for keyword, allowed in _COMBINATORS.items():
        if keyword in schema:
            valid = sum(not any(schema_errors(each, value, path)) for each in _as_list(schema[keyword]))
            if not allowed(valid):
                yield f"{path or '<root>'}: Invalid value: {_json(value)}: {path} must fit the schema's {keyword}"


_COMBINATORS: Mapping[str, Callable[[int], bool]] = {
    "anyOf": lambda valid: valid >= 1,
    "oneOf": lambda valid: valid == 1,
    "not": lambda valid: valid == 0,
}
_RARE_KEYWORDS = frozenset((*_LIMITS, *_COMBINATORS, "allOf"))
"""What few schemas have: most fields need no check against these."""


def _as_list(schemas: Any) -> list[Schema]:  # noqa: ANN401  JSON
    return schemas if isinstance(schemas, list) else [schemas]


def _nested_errors(schema: Schema, value: Any, path: str) -> Iterator[str]:  # noqa: ANN401  JSON
    if isinstance(value, list):
        for index, each in enumerate(value):
            yield from schema_errors(schema.get("items", {}), each, f"{path}[{index}]")
    if isinstance(value, Mapping):
        for name in schema.get("required", ()):
            if name not in value:
                yield f"{path}.{name}".lstrip(".") + ": Required value"
        properties: Mapping[str, Schema] = schema.get("properties", {})
        for name, part in value.items():
            field_path = f"{path}.{name}".lstrip(".")
            if wanted := properties.get(name, _additional_schema(schema, {})):
                yield from schema_errors(wanted, part, field_path)
            elif schema.get("additionalProperties") is False and name not in properties:
                yield f"{path}: Invalid value: {_json(value)}: {field_path} in body is a forbidden property"


def _additional_schema(schema: Schema, anything: Schema) -> Schema:
    """Return the schema of additional properties, or `anything` where they are allowed without a schema."""
    others = schema.get("additionalProperties")
    return others if isinstance(others, Mapping) else anything


def _json(value: object) -> str:
    return msgspec.json.encode(value).decode()


def _keeps_unknown(schema: Schema) -> bool:
    return bool(schema.get(_PRESERVE)) or "additionalProperties" in schema


def _is_whole(value: object) -> bool:
    return isinstance(value, float) and value.is_integer()
