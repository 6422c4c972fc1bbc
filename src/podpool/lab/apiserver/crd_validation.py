"""What a CustomResourceDefinition must be for its kinds to be served: a schema for definitions, and of schemas."""

from collections.abc import Iterator, Mapping
from typing import Any

from podpool.lab.apiserver.schema_validation import TYPES, Schema, faults

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


_APPROVED = "api-approved.kubernetes.io"
_PROTECTED = ("k8s.io", "kubernetes.io")
_FIXED = ("group", "scope", "names.kind", "names.plural")


def definition_faults(definition: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Tell why the kinds of a definition cannot be served, or no longer, each fault with its place."""
    found = list(faults(_DEFINITION, definition))
    yield from found
    if not found:
        yield from _changed_identity(old, definition) if old else _misnamed(definition)
        spec = definition["spec"]
        yield from _unapproved(spec["group"], definition["metadata"].get("annotations") or {})
        for index, version in enumerate(spec["versions"]):
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            yield from _contradictions(schema, f"spec.versions[{index}].schema.openAPIV3Schema", root=True)


def _misnamed(definition: Mapping[str, Any]) -> Iterator[str]:
    spec, name = definition["spec"], definition["metadata"]["name"]
    if name != f"{spec['names']['plural']}.{spec['group']}":
        yield f'metadata.name: Invalid value: "{name}": must be spec.names.plural+"."+spec.group'


def _changed_identity(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Tell what a definition changed that its objects are kept by."""
    for place in _FIXED:
        before, after = (_at(each["spec"], place) for each in (old, new))
        if before != after:
            yield f'spec.{place}: Invalid value: "{after}": field is immutable'


def _contradictions(schema: Schema, path: str, *, root: bool = False) -> Iterator[str]:
    """Tell where a schema says of other fields what it may not."""
    others, properties = schema.get("additionalProperties"), schema.get("properties") or {}
    if others is not None and root:
        yield f"{path}.additionalProperties: Forbidden: must not be used at the root"
    if properties and others not in (None, True):
        yield f"{path}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
    inner = {f"properties[{name}]": part for name, part in properties.items()}
    inner |= {name: schema[name] for name in ("items", "additionalProperties") if isinstance(schema.get(name), Mapping)}
    for name, part in inner.items():
        yield from _contradictions(part, f"{path}.{name}")


def _at(spec: Any, place: str) -> Any:  # noqa: ANN401  JSON
    for each in place.split("."):
        spec = spec[each]
    return spec


def _unapproved(group: str, annotations: Mapping[str, str]) -> Iterator[str]:
    """Keep Kubernetes' own groups for those who say that they may, or that they know that they may not."""
    if not any(group == each or group.endswith(f".{each}") for each in _PROTECTED):
        return
    approval = annotations.get(_APPROVED, "")
    if not approval:
        yield f"metadata.annotations[{_APPROVED}]: Required value: protected groups must have approval annotation"
    elif not approval.startswith(("https://", "http://", "unapproved")):
        why = 'must be a URL or a reason that begins with "unapproved"'
        yield f'metadata.annotations[{_APPROVED}]: Invalid value: "{approval}": {why}'
