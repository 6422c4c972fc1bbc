"""CustomResourceDefinitions: names, columns and subresources as upstream, schemas from structs.

Azure's kinds have a status subresource, those of Whereabouts have none. Upstream, Whereabouts' kinds have no columns.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any

from podpool.api.azure import CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.crd_schema import schema
from podpool.api.meta import ApiStruct, Condition, Kind, KubeObject
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import NODE_SLICES
from podpool.api.whereabouts import IP_POOLS, IP_RESERVATIONS, NODE_SLICE_POOLS

Manifest = dict[str, Any]


class CrdStatus(ApiStruct, frozen=True, kw_only=True):
    """Status of a CRD."""

    conditions: tuple[Condition, ...] | None = None


class CustomResourceDefinition(KubeObject, frozen=True, kw_only=True):
    """A CRD, with the fields that are read."""

    status: CrdStatus = CrdStatus()

    @property
    def established(self) -> bool:
        """Whether objects of the kind can be written."""
        return any(each.type == "Established" and each.status == "True" for each in self.status.conditions or ())


CRDS = Kind(
    group="apiextensions.k8s.io",
    version="v1",
    plural="customresourcedefinitions",
    kind="CustomResourceDefinition",
    type=CustomResourceDefinition,
    namespaced=False,
)


@cache
def crd_manifests() -> tuple[Manifest, ...]:
    """Return the CRDs of all kinds that podpool writes."""
    return (
        _manifest(
            NODE_NETWORK_CONFIGS,
            short=["nnc"],
            status=True,
            columns=[
                _column("Requested IPs", ".spec.requestedIPCount", kind="integer", wide=True),
                _column("Availability Zone", ".spec.availabilityZone", wide=True),
                _column("Allocated IPs", ".status.assignedIPCount", kind="integer"),
                _nc_column("Subnet", "subnetName"),
                _nc_column("Subnet CIDR", "subnetAddressSpace"),
                _nc_column("Subnet CIDR v6", "subnetAddressSpaceV6"),
                _nc_column("NC ID", "id"),
                _nc_column("NC Mode", "assignmentMode", wide=False),
                _nc_column("NC Type", "type"),
                _nc_column("NC Version", "version", kind="integer", wide=False),
            ],
        ),
        _manifest(
            CLUSTER_SUBNET_STATES,
            status=True,
            columns=[
                _column("Exhausted", ".status.exhausted"),
                _column("Updated", ".status.timestamp"),
            ],
        ),
        _manifest(
            CLUSTER_SUBNETS,
            status=True,
            columns=[
                _column("Exhausted", ".status.exhausted"),
                _column("Batch", ".status.scaler.batch", kind="integer"),
                _column("Buffer", ".status.scaler.buffer", kind="number"),
                _column("Updated", ".status.timestamp"),
                _column("Message", ".status.message", wide=True),
            ],
        ),
        _manifest(IP_POOLS, columns=[_column("Range", ".spec.range"), _AGE]),
        _manifest(
            IP_RESERVATIONS, columns=[_column("Pod", ".spec.podref"), _column("Interface", ".spec.ifname"), _AGE]
        ),
        _manifest(
            NODE_SLICE_POOLS,
            columns=[_column("Range", ".spec.range"), _column("Slice Size", ".spec.sliceSize"), _AGE],
        ),
        _manifest(
            NODE_SLICES,
            status=True,
            columns=[
                _column("Protocol", ".status.protocol", kind="integer"),
                _column("Inventory", ".status.inventory", wide=True),
                _column("Node UID", ".spec.nodeUID", wide=True),
                _column("Boot ID", ".status.bootID", wide=True),
                _AGE,
            ],
        ),
    )


def multus_crd_manifest() -> Manifest:
    """Return the CRD of Multus, for clusters without it."""
    return _manifest(NETWORK_ATTACHMENTS, columns=[], short=["net-attach-def"])


def _manifest(kind: Kind[Any], *, columns: list[Manifest], short: Sequence[str] = (), status: bool = False) -> Manifest:
    version = {
        "name": kind.version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema(kind.type)},
        "subresources": {"status": {}} if status else {},
        "additionalPrinterColumns": columns,
    }
    names = {
        "kind": kind.kind,
        "listKind": f"{kind.kind}List",
        "plural": kind.plural,
        "singular": kind.kind.lower(),
        "shortNames": list(short),
    }
    return {
        "apiVersion": CRDS.api_version,
        "kind": CRDS.kind,
        "metadata": {"name": f"{kind.plural}.{kind.group}"},
        "spec": {
            "group": kind.group,
            "names": {each: value for each, value in names.items() if value},
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "versions": [version],
        },
    }


def _column(name: str, path: str, *, kind: str = "string", wide: bool = False) -> Manifest:
    return {"name": name, "type": kind, "jsonPath": path, "priority": int(wide)}


def _nc_column(name: str, field: str, *, kind: str = "string", wide: bool = True) -> Manifest:
    return _column(name, f".status.networkContainers[*].{field}", kind=kind, wide=wide)


_AGE = _column("Age", ".metadata.creationTimestamp", kind="date")
