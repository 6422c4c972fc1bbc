"""The manifests of our kinds, made from the structs that read them.

A schema refuses what is wrong and keeps what it does not know, so that an object of another version, or of Azure's own
components, comes through whole. What a struct cannot say (a limit, a default that the server fills in) stands in
`_MORE`.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import inspect

from podpool.resources.acn import NETWORK_CONFIGS, SUBNET_STATES, SUBNETS
from podpool.resources.meta import Kind, Object, Slim

Manifest = dict[str, Any]


class Condition(Slim, frozen=True, kw_only=True):
    """One thing that is so, or is not."""

    type: str = ""
    status: str = ""


class DefinitionStatus(Slim, frozen=True, kw_only=True):
    """Whether a definition is in force."""

    conditions: tuple[Condition, ...] | None = None


class CustomResourceDefinition(Object, frozen=True, kw_only=True):
    """A definition of a kind, as far as we look at it after it was written."""

    status: DefinitionStatus = DefinitionStatus()

    @property
    def established(self) -> bool:
        """Whether objects of the kind can be written."""
        return any(each.type == "Established" and each.status == "True" for each in self.status.conditions or ())


DEFINITIONS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    type=CustomResourceDefinition,
    namespaced=False,
)

_COUNT = {"minimum": 0}
_MORE: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("NetworkConfigSpec", "requestedIPCount"): {"default": 0, **_COUNT},
    ("NetworkConfigStatus", "assignedIPCount"): {"default": 0, **_COUNT},
    ("NetworkContainer", "assignmentMode"): {"default": "dynamic", "enum": ["dynamic", "static"]},
    ("NetworkContainer", "type"): {"default": "vnet"},
    ("NetworkContainer", "version"): {"default": 0, **_COUNT},
    ("SubnetScaler", "batch"): {"minimum": 1, "maximum": 256},
    ("SubnetScaler", "buffer"): {"minimum": 0, "maximum": 4},
    # both are always written, as those who read the first phase's object expect
    ("ClusterSubnetState", "status"): {"required": ["exhausted", "timestamp"]},
}


def schema(struct: type[msgspec.Struct]) -> Manifest:
    """Describe a struct: its fields by their names on the wire; other fields are kept."""
    properties = {each.encode_name: _field(struct, each) for each in msgspec.structs.fields(struct)}
    return {"type": "object", "properties": properties, "x-kubernetes-preserve-unknown-fields": True}


def _field(struct: type[msgspec.Struct], field: msgspec.structs.FieldInfo) -> Manifest:
    if field.encode_name == "metadata":
        return {"type": "object"}  # the server's own business
    shape = _shape(inspect.type_info(field.type))
    return shape | dict(_MORE.get((struct.__name__, field.encode_name), {}))


def _shape(info: inspect.Type) -> Manifest:
    match info:
        case inspect.UnionType(types=types):
            return _shape(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.StructType(cls=cls):
            return schema(cls)
        case inspect.VarTupleType(item_type=item):
            return {"type": "array", "items": _shape(item)}
        case inspect.LiteralType(values=values):
            return {"type": "string", "enum": [each for each in values if each]}
    return dict(_PLAIN[type(info)])


_PLAIN: Mapping[type[inspect.Type], Manifest] = {
    inspect.BoolType: {"type": "boolean"},
    inspect.DecimalType: {"type": "number"},
    inspect.IntType: {"type": "integer", "format": "int64"},
    inspect.StrType: {"type": "string"},
}


def _column(name: str, path: str, *, kind: str = "string", wide: bool = False) -> Manifest:
    return {"name": name, "type": kind, "jsonPath": path, "priority": int(wide)}


def _container_column(name: str, field: str, *, kind: str = "string", wide: bool = True) -> Manifest:
    return _column(name, f".status.networkContainers[*].{field}", kind=kind, wide=wide)


def _manifest(kind: Kind[Any], *, singular: str, short: list[str], columns: list[Manifest]) -> Manifest:
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(kind.type)},
        "subresources": {"status": {}},
        "additionalPrinterColumns": columns,
    }
    names = {"kind": kind.kind, "listKind": f"{kind.kind}List", "plural": kind.plural, "singular": singular}
    return {
        "apiVersion": DEFINITIONS.api_version,
        "kind": DEFINITIONS.kind,
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": names | ({"shortNames": short} if short else {}),
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def manifests() -> list[Manifest]:
    """Make the definitions of all our kinds."""
    return [
        _manifest(
            NETWORK_CONFIGS,
            singular="nodenetworkconfig",
            short=["nnc"],
            columns=[
                _column("Requested IPs", ".spec.requestedIPCount", kind="integer", wide=True),
                _column("Availability Zone", ".spec.availabilityZone", wide=True),
                _column("Allocated IPs", ".status.assignedIPCount", kind="integer"),
                _container_column("Subnet", "subnetName"),
                _container_column("Subnet CIDR", "subnetAddressSpace"),
                _container_column("Subnet CIDR v6", "subnetAddressSpaceV6"),
                _container_column("NC ID", "id"),
                _container_column("NC Mode", "assignmentMode", wide=False),
                _container_column("NC Type", "type"),
                _container_column("NC Version", "version", kind="integer", wide=False),
            ],
        ),
        _manifest(
            SUBNET_STATES,
            singular="clustersubnetstate",
            short=[],
            columns=[
                _column("Exhausted", ".status.exhausted"),
                _column("Updated", ".status.timestamp"),
            ],
        ),
        _manifest(
            SUBNETS,
            singular="clustersubnet",
            short=[],
            columns=[
                _column("Exhausted", ".status.exhausted"),
                _column("Batch", ".status.scaler.batch", kind="integer"),
                _column("Buffer", ".status.scaler.buffer", kind="number"),
                _column("Updated", ".status.timestamp"),
            ],
        ),
    ]
