"""The page of Kubernetes objects: every field of every kind, from the structs and the schemas made from them."""

import ast
import inspect
import json
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

import msgspec
from msgspec import inspect as types

from podpool.api import azure, builtin, whereabouts
from podpool.api.crd_schema import Schema
from podpool.api.crds import crd_manifests
from podpool.api.meta import Kind
from podpool.controller import settings
from podpool.whereabouts import ippool_owner
from tools.reference.markdown import assignment_docs, code, field_docs, table

KINDS: tuple[Kind[Any], ...] = (
    azure.NODE_NETWORK_CONFIGS,
    azure.CLUSTER_SUBNETS,
    azure.CLUSTER_SUBNET_STATES,
    whereabouts.NODE_SLICE_POOLS,
    whereabouts.IP_POOLS,
    whereabouts.IP_RESERVATIONS,
)
WRITERS: Mapping[tuple[str, str], str] = {
    ("NodeNetworkConfig", "spec"): "the node's agent",
    ("NodeNetworkConfig", "status"): "the controller",
    ("ClusterSubnet", "spec"): "a person",
    ("ClusterSubnet", "status"): "the controller",
    ("ClusterSubnetState", "status"): "the controller",
    ("NodeSlicePool", "spec"): "the controller",
    ("NodeSlicePool", "status"): "the controller",
    ("IPPool", "spec"): "the controller makes it; of a slice the node's agent, of a shared range every agent writes it",
    ("OverlappingRangeIPReservation", "spec"): "the agent that assigns the address",
}
MARKS: tuple[ModuleType, ...] = (azure, whereabouts, ippool_owner, settings, builtin)
"""Where the names of annotations, labels, finalizers and taints are declared."""


class Unexplained(Exception):
    """A field without a word below it in the source."""


def objects_page() -> str:
    """Write every kind, then what is written on objects of others."""
    schemas = {made["spec"]["names"]["kind"]: made for made in crd_manifests()}
    kinds = "\n\n".join(_section(kind, schemas[kind.kind]) for kind in KINDS)
    return f"""# Objects

Made by `make docs` from `podpool.api`. `podpool crds` prints the definitions, `kubectl explain` shows them in a
cluster. Fields that are not listed are kept as they are. What the objects are for, and who may do what with them, is in
[Kubernetes](../kubernetes.md).

{kinds}

## The agent's report

The annotation `{azure.AGENT_ANNOTATION}` of a NodeNetworkConfig, as JSON. The agent writes it in one patch with spec.

{table(("field", "type", "default", "what it is"), _report())}

## Marks

{table(("name", "what it is"), _marks())}
"""


def _section(kind: Kind[Any], definition: Mapping[str, Any]) -> str:
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    short = "".join(f", `{each}` for short" for each in definition["spec"]["names"].get("shortNames", ()))
    parts = [f"## {kind.kind}", f"`{kind.api_version}`, `{kind.plural}`{short}. {schema['description']}"]
    for field in msgspec.structs.fields(kind.type):
        struct = _struct(field.type)
        if struct is None or field.encode_name == "metadata":
            continue
        name = field.encode_name
        writer = WRITERS[kind.kind, name]
        rows = _fields(struct, schema["properties"][name], "")
        parts += [
            f"**{name}**, written by {writer}. {struct.__doc__}",
            table(("field", "type", "default", "what it is"), rows),
        ]
    return "\n\n".join(parts)


def _fields(struct: type[msgspec.Struct], schema: Schema, above: str) -> Iterator[tuple[str, str, str, str]]:
    """Tell every field of a struct, and of the structs in it, by its path."""
    told = field_docs(struct)
    for field in msgspec.structs.fields(struct):
        name, within = field.encode_name, _struct(field.type)
        inner = schema["properties"][name]
        words = _explained(
            told.get(field.name) or (within.__doc__ if within else ""), f"{struct.__name__}.{field.name}"
        )
        default = "must be there" if name in schema.get("required", ()) else code(inner.get("default", ""))
        yield code(above + name), _type(inner), default, " ".join([words, *_rules(inner)])
        if within:
            yield from _fields(within, _inside(inner), f"{above}{name}{_step(inner)}.")


def _struct(hint: Any) -> type[msgspec.Struct] | None:  # noqa: ANN401  whatever a field may be
    """Find the struct that a field is, or is a list or a map of."""
    found: list[types.Type] = [types.type_info(hint)]
    while found:
        match found.pop():
            case types.StructType(cls=cls):
                return cls
            case types.UnionType(types=each):
                found += each
            case types.VarTupleType(item_type=item) | types.DictType(value_type=item):
                found.append(item)
    return None


def _inside(schema: Schema) -> Schema:
    return schema.get("items") or schema.get("additionalProperties") or schema


def _step(schema: Schema) -> str:
    return "[]" if "items" in schema else ".KEY" if "additionalProperties" in schema else ""


def _type(schema: Schema) -> str:
    if "items" in schema:
        return f"list of {_type(schema['items'])}"
    if "additionalProperties" in schema:
        return f"map of {_type(schema['additionalProperties'])}"
    return str(schema["type"])


def _rules(schema: Schema) -> Iterator[str]:
    if "enum" in schema:
        yield f"One of {', '.join(map(code, schema['enum']))}."
    if "maximum" in schema:
        yield f"From {schema['minimum']} to {schema['maximum']}."
    elif "minimum" in schema:
        yield f"At least {schema['minimum']}."
    if "pattern" in schema:
        yield f"Must match {code(schema['pattern'])}."
    yield from (f"Refused: {rule['message']}." for rule in schema.get("x-kubernetes-validations", ()))


def _report() -> Iterator[tuple[str, str, str, str]]:
    told, schema = field_docs(azure.AgentReport), msgspec.json.schema_components([azure.AgentReport])[1]["AgentReport"]
    for field in msgspec.structs.fields(azure.AgentReport):
        shape = schema["properties"][field.encode_name]
        words = _explained(told[field.name], f"AgentReport.{field.name}")
        kind = shape.get("type", "a network container")
        yield code(field.encode_name), kind, code(json.dumps(shape["default"])), words


def _marks() -> Iterator[tuple[str, str]]:
    for module in MARKS:
        for name, words in assignment_docs(ast.parse(inspect.getsource(module))).items():
            value = getattr(module, name)
            if isinstance(value, str) and value.startswith("podpool.io/"):
                yield code(value), _explained(words, f"{module.__name__}.{name}")


def _explained(words: str | None, what: str) -> str:
    if not words:
        raise Unexplained(f"{what} has no words below it")
    return words
