"""OpenAPI schema of a kind, generated from its struct.

Schemas keep unknown fields, so that objects of other versions and projects are stored whole. What a struct cannot
express (limits, server-side defaults, rules between fields) is in the tables below, by the struct's name.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import inspect

Schema = dict[str, Any]

_COUNT = {"minimum": 0}
_CIDR = {"pattern": r"^[0-9a-fA-F:.]+/[0-9]{1,3}$"}
_CIDR_OR_NOTHING = {"pattern": r"^([0-9a-fA-F:.]+/[0-9]{1,3})?$"}
_ADDRESS_OR_CIDR = {"pattern": r"^([0-9a-fA-F:.]+(/[0-9]{1,3})?)?$"}
_BATCH = {"minimum": 1, "maximum": 256}
_BUFFER = {
    "minimum": 0,
    "maximum": 4,
    # not multipleOf: in floating point 0.29 is no multiple of 0.01
    "x-kubernetes-validations": [
        {
            "rule": "self * 100.0 - double(int(self * 100.0 + 0.5)) < 0.000001"
            " && self * 100.0 - double(int(self * 100.0 + 0.5)) > -0.000001",
            "message": "must have at most two decimals",
        }
    ],
}
_MORE: Mapping[tuple[str, str], Mapping[str, Any]] = {
    ("NetworkConfigSpec", "requestedIPCount"): {"default": 0, **_COUNT},
    ("NetworkConfigStatus", "assignedIPCount"): {"default": 0, **_COUNT},
    ("NetworkConfigStatus", "status"): {"enum": ["Updating", "Updated", "Error"]},
    ("NetworkContainer", "assignmentMode"): {"default": "dynamic", "enum": ["dynamic", "static"]},
    ("NetworkContainer", "type"): {"default": "vnet"},
    ("NetworkContainer", "version"): {"default": 0, **_COUNT},
    # an agent that cannot parse one address rejects the whole object
    ("NetworkContainer", "primaryIP"): _ADDRESS_OR_CIDR,
    ("NetworkContainer", "primaryIPV6"): _ADDRESS_OR_CIDR,
    ("NetworkContainer", "subnetAddressSpace"): _CIDR_OR_NOTHING,
    ("NetworkContainer", "subnetAddressSpaceV6"): _CIDR_OR_NOTHING,
    ("NetworkContainer", "status"): {
        "enum": [
            "NCUpdateSubnetFullError",
            "NCUpdateInternalServerError",
            "NCUpdateUnauthorizedError",
            "NCUpdateSuccess",
            "NCUpdateFailed",
        ]
    },
    ("IPAssignment", "ip"): _ADDRESS_OR_CIDR,
    ("SubnetScaler", "batch"): _BATCH,
    ("SubnetScaler", "buffer"): _BUFFER,
    ("PublishedScaler", "batch"): _BATCH,
    ("PublishedScaler", "buffer"): _BUFFER,
    ("PublishedScaler", "cooldownSeconds"): {"minimum": 0},
    ("PublishedScaler", "shortestCooldownSeconds"): {"minimum": 0},
    ("ClusterSubnetStatus", "nodes"): _COUNT,
    ("IPPoolSpec", "range"): _CIDR,
    ("NodeSlicePoolSpec", "range"): _CIDR,
    ("NodeSlicePoolSpec", "sliceSize"): {"pattern": "^/?[0-9]{1,3}$"},
    ("SliceAllocation", "sliceRange"): _CIDR,
    ("Assignment", "range"): _CIDR,
    ("Assignment", "slice"): _CIDR,
    ("NodeSlicesStatus", "protocol"): _COUNT,
}
_REQUIRED: Mapping[str, list[str]] = {
    # both are always written, as readers of ClusterSubnetState expect
    "SubnetExhaustion": ["exhausted", "timestamp"],
    "IPPoolSpec": ["allocations", "range"],
    "Allocation": ["id", "podref"],
    "OverlappingRangeIPReservation": ["spec"],
    "ReservationSpec": ["podref"],
    "NodeSlicePoolSpec": ["range", "sliceSize"],
    "NodeSlicePoolStatus": ["allocations"],
    "SliceAllocation": ["nodeName", "sliceRange"],
    "Assignment": ["id", "range", "slice"],
    "SliceStatus": ["id"],
}
_RULES: Mapping[str, list[Mapping[str, str]]] = {
    "NodeScaler": [
        {
            # zero means unset
            "rule": "!has(self.requestThresholdPercent) || !has(self.releaseThresholdPercent)"
            " || self.requestThresholdPercent == 0 || self.releaseThresholdPercent == 0"
            " || self.releaseThresholdPercent > self.requestThresholdPercent",
            "message": "releaseThresholdPercent must be above requestThresholdPercent: else a node would release "
            "addresses and request them again",
        }
    ],
}


def schema(struct: type[msgspec.Struct]) -> Schema:
    """Return the schema of a struct, by wire names; unknown fields are kept."""
    name = struct.__name__
    made: Schema = {
        "type": "object",
        "description": (struct.__doc__ or "").strip(),
        "properties": {each.encode_name: _field(name, each) for each in msgspec.structs.fields(struct)},
        "x-kubernetes-preserve-unknown-fields": True,
    }
    if name in _REQUIRED:
        made["required"] = list(_REQUIRED[name])
    if name in _RULES:
        made["x-kubernetes-validations"] = [dict(each) for each in _RULES[name]]
    return made


def _field(struct: str, field: msgspec.structs.FieldInfo) -> Schema:
    if field.encode_name == "metadata":
        return {"type": "object"}  # validated by the server
    shape = _shape(inspect.type_info(field.type))
    return shape | dict(_MORE.get((struct, field.encode_name), {}))


def _shape(info: inspect.Type) -> Schema:
    match info:
        case inspect.UnionType(types=types):
            return _shape(next(each for each in types if not isinstance(each, inspect.NoneType)))
        case inspect.StructType(cls=cls):
            return schema(cls)
        case inspect.VarTupleType(item_type=item):
            return {"type": "array", "items": _shape(item)}
        case inspect.DictType(value_type=value):
            return {"type": "object", "additionalProperties": _shape(value)}
    return dict(_PLAIN[type(info)])


_PLAIN: Mapping[type[inspect.Type], Schema] = {
    inspect.BoolType: {"type": "boolean"},
    inspect.DecimalType: {"type": "number"},
    inspect.FloatType: {"type": "number"},
    inspect.IntType: {"type": "integer", "format": "int64"},
    inspect.StrType: {"type": "string"},
}
