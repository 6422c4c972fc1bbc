"""Validation of CustomResourceDefinitions: a schema of CRDs and of schemas, and the rules between fields."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from podpool.lab.apiserver.schema_validation import TYPES, Schema, schema_errors

_TEXT: Schema = {"type": "string"}
_TEXTS: Schema = {"type": "array", "items": _TEXT}
_NUMBER: Schema = {"type": "number"}
_COUNT: Schema = {"type": "integer"}


def _object(*required: str, **properties: Schema) -> Schema:
    return {"type": "object", "required": required, "properties": properties}


def _nullable(schema: Schema) -> Schema:
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
    schema=_nullable(_object(openAPIV3Schema=_nullable(_SCHEMA))),
    subresources=_nullable({"type": "object"}),
    additionalPrinterColumns=_nullable({"type": "array", "items": _COLUMN}),
)
_NAMES = _object(
    "plural",
    "kind",
    plural=_TEXT,
    kind={"type": "string", "minLength": 1},
    singular=_TEXT,
    shortNames=_nullable(_TEXTS),
    categories=_nullable(_TEXTS),
)
_CRD = _object(
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


_APPROVAL = "api-approved.kubernetes.io"
_PROTECTED = ("k8s.io", "kubernetes.io")
_IMMUTABLE = ("group", "scope", "names.kind", "names.plural")


def crd_errors(crd: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> Iterator[str]:
    """Yield why a CRD, or a change of one, is invalid; each error begins with the path of its field."""
    found = _form_errors(msgspec.json.encode(crd))
    yield from found
    if not found:
        yield from _identity_errors(old, crd) if old else _name_errors(crd)
        spec = crd["spec"]
        yield from _approval_errors(spec["group"], crd["metadata"].get("annotations") or {})
        for index, version in enumerate(spec["versions"]):
            schema = (version.get("schema") or {}).get("openAPIV3Schema") or {}
            yield from _structural_errors(schema, f"spec.versions[{index}].schema.openAPIV3Schema", root=True)


@lru_cache(maxsize=64)
def _form_errors(crd: bytes) -> tuple[str, ...]:
    """Return the violations of the schema; every simulated cluster installs the same CRDs."""
    return tuple(schema_errors(_CRD, msgspec.json.decode(crd)))


def _name_errors(crd: Mapping[str, Any]) -> Iterator[str]:
    spec, name = crd["spec"], crd["metadata"]["name"]
    if name != f"{spec['names']['plural']}.{spec['group']}":
        yield f'metadata.name: Invalid value: "{name}": must be spec.names.plural+"."+spec.group'


def _identity_errors(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[str]:
    """Yield changes of fields under which objects are stored."""
    for path in _IMMUTABLE:
        before, after = (_at(each["spec"], path) for each in (old, new))
        if before != after:
            yield f'spec.{path}: Invalid value: "{after}": field is immutable'


def _structural_errors(schema: Schema, path: str, *, root: bool = False) -> Iterator[str]:
    """Yield uses of additionalProperties that a structural schema does not allow."""
    others, properties = schema.get("additionalProperties"), schema.get("properties") or {}
    if others is not None and root:
        yield f"{path}.additionalProperties: Forbidden: must not be used at the root"
    if properties and others not in (None, True):
        yield f"{path}.additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive"
    inner = {f"properties[{name}]": part for name, part in properties.items()}
    inner |= {name: schema[name] for name in ("items", "additionalProperties") if isinstance(schema.get(name), Mapping)}
    for name, part in inner.items():
        yield from _structural_errors(part, f"{path}.{name}")


def _at(spec: Any, path: str) -> Any:  # noqa: ANN401  JSON
    for each in path.split("."):
        spec = spec[each]
    return spec


def _approval_errors(group: str, annotations: Mapping[str, str]) -> Iterator[str]:
    """Yield an error for a group of Kubernetes itself without an approval annotation."""
    if not any(group == each or group.endswith(f".{each}") for each in _PROTECTED):
        return
    approval = annotations.get(_APPROVAL, "")
    if not approval:
        yield f"metadata.annotations[{_APPROVAL}]: Required value: protected groups must have approval annotation"
    elif not approval.startswith(("https://", "http://", "unapproved")):
        reason = 'must be a URL or a reason that begins with "unapproved"'
        yield f'metadata.annotations[{_APPROVAL}]: Invalid value: "{approval}": {reason}'
