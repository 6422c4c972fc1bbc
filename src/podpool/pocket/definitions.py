"""What a CustomResourceDefinition must be for its kinds to be served: a schema for definitions, and of schemas."""

from collections.abc import Iterator, Mapping
from typing import Any

from podpool.pocket.schema import TYPES, Schema, faults

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer"}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties}


def _perhaps(schema: Schema) -> Schema:
    return {**schema, "nullable": True}


_SCHEMA: dict[str, Any] = {"type": "object"}
_SCHEMAS: Schema = {"type": "array", "items": _SCHEMA}
_SCHEMA["properties"] = {
    "type": {"type": "string", "enum": TYPES},
    "properties": {"type": "object", "additionalProperties": _SCHEMA},
    "additionalProperties": {"anyOf": [{"type": "boolean"}, _SCHEMA]},
    "items": _SCHEMA,
    "required": _TEXTS,
    "enum": {"type": "array"},
    "pattern": _TEXT,
    **dict.fromkeys(("allOf", "anyOf", "oneOf"), _SCHEMAS),
    "not": _SCHEMA,
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"), _COUNT),
}
_COLUMN = _object("name", "type", "jsonPath", name=_TEXT, type=_TEXT, jsonPath=_TEXT)
_VERSION = _object(
    "name",
    name={"type": "string", "pattern": "^[a-z]([-a-z0-9]*[a-z0-9])?$"},
    served={"type": "boolean"},
    schema=_perhaps(_object(openAPIV3Schema=_perhaps(_SCHEMA))),
    subresources=_perhaps({"type": "object"}),
    additionalPrinterColumns=_perhaps({"type": "array", "items": _COLUMN}),
)
_NAMES = _object(
    "plural",
    "kind",
    plural=_TEXT,
    kind={"type": "string", "minLength": 1},
    singular=_TEXT,
    shortNames=_perhaps(_TEXTS),
    categories=_perhaps(_TEXTS),
)
_DEFINITION = _object(
    "spec",
    spec=_object(
        "group",
        "names",
        "scope",
        "versions",
        group={"type": "string", "minLength": 1},
        names=_NAMES,
        scope={"type": "string", "enum": ["Cluster", "Namespaced"]},
        versions={"type": "array", "items": _VERSION, "minItems": 1},
    ),
)


def definition_faults(definition: Mapping[str, Any]) -> Iterator[str]:
    """Tell why the kinds of a definition cannot be served, each fault with its place."""
    found = list(faults(_DEFINITION, definition))
    yield from found
    if not found:
        spec, name = definition["spec"], definition["metadata"]["name"]
        if name != f"{spec['names']['plural']}.{spec['group']}":
            yield f'metadata.name: Invalid value: "{name}": must be spec.names.plural+"."+spec.group'
