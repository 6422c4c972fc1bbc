"""One whole object of each kind, as both worlds write them, and where it goes."""

from typing import Any

ACN = "acn.azure.com"
WHEREABOUTS = "whereabouts.cni.cncf.io"
PODPOOL = "podpool.io"

CONTAINER = {
    "id": "3b0f6f0c-0000-4000-8000-000000000001",
    "assignmentMode": "dynamic",
    "type": "vnet",
    "primaryIP": "10.0.0.4",
    "primaryIPV6": "fd00::4",
    "subnetName": "pods",
    "subcriptionID": "s",
    "ipAssignments": [{"name": "3b0f6f0c-0000-4000-8000-000000000002", "ip": "10.0.0.5"}],
    "defaultGateway": "10.0.0.1",
    "subnetAddressSpace": "10.0.0.0/16",
    "version": 3,
    "nodeIP": "192.0.2.1",
    "status": "NCUpdateSuccess",
}
SCALER = {"batchSize": 16, "releaseThresholdPercent": 150, "requestThresholdPercent": 50, "maxIPCount": 250}
EXHAUSTION = {"exhausted": True, "timestamp": "2026-01-01T00:00:00Z"}

WHOLE: dict[str, dict[str, Any]] = {
    "NodeNetworkConfig": {
        "spec": {"requestedIPCount": 16, "ipsNotInUse": ["x"], "availabilityZone": 2},
        "status": {"assignedIPCount": 1, "scaler": SCALER, "status": "Updated", "networkContainers": [CONTAINER]},
    },
    "ClusterSubnetState": {"status": EXHAUSTION},
    "ClusterSubnet": {
        "spec": {"scaler": {"batch": 8, "buffer": 0.25}},
        "status": {**EXHAUSTION, "scaler": {"batch": 8, "buffer": 0.25}},
    },
    "IPPool": {
        "spec": {"range": "10.1.0.0/24", "allocations": {"1": {"id": "c", "podref": "default/p", "ifname": "net1"}}}
    },
    "OverlappingRangeIPReservation": {"spec": {"podref": "default/p", "ifname": "net1"}},
    "NodeSlicePool": {
        "spec": {"range": "fd00::/64", "sliceSize": "/80"},
        "status": {
            "allocations": [
                {"nodeName": "n", "sliceRange": "fd00::/80"},
                {"nodeName": "", "sliceRange": "fd00:0:0:0:1::/80"},
            ]
        },
    },
    "NodeSlices": {
        "spec": {
            "nodeUID": "u2",
            "assignments": [
                {
                    "id": "a",
                    "network": "red",
                    "range": "10.0.0.0/8",
                    "slice": "10.0.1.0/24",
                    "confirmed": "k",
                    "returnReason": "it is not used",
                }
            ],
            "former": [
                {
                    "nodeUID": "u1",
                    "bootID": "b1",
                    "assignments": [{"id": "f", "range": "10.0.0.0/8", "slice": "10.0.0.0/24"}],
                }
            ],
        },
        "status": {
            "protocol": 1,
            "nodeUID": "u2",
            "bootID": "b2",
            "inventory": "i",
            "rolledBack": "17",
            "slices": [
                {
                    "id": "a",
                    "network": "red",
                    "range": "10.0.0.0/8",
                    "slice": "10.0.1.0/24",
                    "acknowledgement": "k",
                    "held": True,
                    "inUse": True,
                    "returned": True,
                }
            ],
        },
    },
}
PLACES = {
    "NodeNetworkConfig": (ACN, "v1alpha", "nodenetworkconfigs"),
    "ClusterSubnetState": (ACN, "v1alpha1", "clustersubnetstates"),
    "ClusterSubnet": (ACN, "v1alpha1", "clustersubnets"),
    "IPPool": (WHEREABOUTS, "v1alpha1", "ippools"),
    "OverlappingRangeIPReservation": (WHEREABOUTS, "v1alpha1", "overlappingrangeipreservations"),
    "NodeSlicePool": (WHEREABOUTS, "v1alpha1", "nodeslicepools"),
    "NodeSlices": (PODPOOL, "v1alpha1", "nodeslices"),
}


def path(kind: str, namespace: str = "default") -> str:
    group, version, plural = PLACES[kind]
    return f"/apis/{group}/{version}/{'' if group == PODPOOL else f'namespaces/{namespace}/'}{plural}"


def head(kind: str, name: str, namespace: str = "default") -> dict[str, Any]:
    group, version, _ = PLACES[kind]
    meta = {"name": name} if group == PODPOOL else {"name": name, "namespace": namespace}
    return {"apiVersion": f"{group}/{version}", "kind": kind, "metadata": meta}


def apart(kind: str) -> bool:
    """Whether a kind's status is written apart."""
    return PLACES[kind][0] in {ACN, PODPOOL}
