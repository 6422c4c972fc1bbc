"""The definitions that the other projects bring, written from what is known of them: their components live by these.

Theirs leave out fields that they do not know, demand others, and have no limits beyond a few words.
"""

from collections.abc import Mapping
from typing import Any

Manifest = dict[str, Any]

STRING = {"type": "string"}
INTEGER = {"type": "integer"}
COUNT = {"type": "integer", "format": "int64"}


def fields(properties: Mapping[str, Any], *required: str) -> Manifest:
    return {"type": "object", "properties": dict(properties)} | ({"required": list(required)} if required else {})


def listed(items: Mapping[str, Any]) -> Manifest:
    return {"type": "array", "items": dict(items)}


def definition(
    group: str,
    version: str,
    kind: str,
    plural: str,
    content: Mapping[str, Any],
    *,
    short: list[str] | None = None,
    status: bool = False,
    columns: Mapping[str, str] | None = None,
) -> Manifest:
    names = {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()}
    whole = fields({"apiVersion": STRING, "kind": STRING, "metadata": {"type": "object"}, **content})
    served = {"name": version, "served": True, "storage": True, "schema": {"openAPIV3Schema": whole}}
    if columns:
        shown = [{"name": name, "type": "string", "jsonPath": path} for name, path in columns.items()]
        served["additionalPrinterColumns"] = shown
    if status:
        served["subresources"] = {"status": {}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{group}", "annotations": {"made-by": "another"}},
        "spec": {
            "group": group,
            "names": names | ({"shortNames": short} if short else {}),
            "scope": "Namespaced",
            "versions": [served],
        },
    }


def azure() -> list[Manifest]:
    """What comes with Azure's CNS."""
    words = ["id", "subnetName", "subnetID", "vnetID", "resourceGroupID", "subcriptionID", "primaryIP", "primaryIPV6"]
    words += [
        "defaultGateway",
        "defaultGatewayV6",
        "macAddress",
        "subnetAddressSpace",
        "subnetAddressSpaceV6",
        "nodeIP",
    ]
    results = ["SubnetFullError", "InternalServerError", "UnauthorizedError", "Success", "Failed"]
    container = {
        **dict.fromkeys(words, STRING),
        "assignmentMode": STRING | {"enum": ["dynamic", "static"], "default": "dynamic"},
        "type": STRING | {"default": "vnet"},
        "version": COUNT | {"default": 0},
        "ipAssignments": listed(fields({"name": STRING, "ip": STRING})),
        "status": STRING | {"enum": [f"NCUpdate{each}" for each in results]},
    }
    numbers = ["batchSize", "releaseThresholdPercent", "requestThresholdPercent", "maxIPCount"]
    status = {
        "assignedIPCount": INTEGER | {"default": 0},
        "scaler": fields(dict.fromkeys(numbers, COUNT)),
        "status": STRING | {"enum": ["Updating", "Updated", "Error"]},
        "networkContainers": listed(fields(container)),
    }
    spec = {"requestedIPCount": COUNT | {"default": 0}, "ipsNotInUse": listed(STRING), "availabilityZone": INTEGER}
    return [
        definition(
            "acn.azure.com",
            "v1alpha",
            "NodeNetworkConfig",
            "nodenetworkconfigs",
            {"spec": fields(spec), "status": fields(status)},
            short=["nnc"],
            status=True,
            columns={"Allocated IPs": ".status.assignedIPCount"},
        ),
        definition(
            "acn.azure.com",
            "v1alpha1",
            "ClusterSubnetState",
            "clustersubnetstates",
            {"status": fields({"exhausted": {"type": "boolean"}, "timestamp": STRING}, "exhausted", "timestamp")},
            status=True,
        ),
    ]


def whereabouts() -> list[Manifest]:
    """What comes with Whereabouts."""
    entry = fields({"id": STRING, "podref": STRING, "ifname": STRING}, "id", "podref")
    pool = fields(
        {"range": STRING, "allocations": {"type": "object", "additionalProperties": entry}}, "allocations", "range"
    )
    reserved = fields({"podref": STRING, "ifname": STRING, "containerid": STRING}, "podref")
    slices = fields({"range": STRING, "sliceSize": STRING}, "range", "sliceSize")
    given = listed(fields({"nodeName": STRING, "sliceRange": STRING}, "nodeName", "sliceRange"))
    contents = {
        ("IPPool", "ippools"): {"spec": pool},
        ("OverlappingRangeIPReservation", "overlappingrangeipreservations"): {"spec": reserved},
        ("NodeSlicePool", "nodeslicepools"): {"spec": slices, "status": fields({"allocations": given}, "allocations")},
    }
    return [
        definition("whereabouts.cni.cncf.io", "v1alpha1", kind, plural, content)
        for (kind, plural), content in contents.items()
    ]
