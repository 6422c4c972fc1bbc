"""What the kubelet of a machine of the stage reports: a Node, and a Lease which says that it lives.

Everything that `kubectl describe node` reads is there, as this machine has it.
"""

import os
import platform
from datetime import UTC, datetime
from typing import Any

from podpool.api.builtin import Node
from podpool.api.meta import ApiStruct, Kind, rfc3339

LEASES_IN = "kube-node-lease"
RENEWED = 10.0
"""Seconds between two renewals of a Lease, as kubelets have it,"""
LASTS = 40
"""and for which it is good without."""
MOST_PODS = 250


class MachineSpec(ApiStruct, frozen=True, kw_only=True):
    """What a person wants of it."""

    unschedulable: bool = False


class Machine(Node, frozen=True, kw_only=True):
    """A Node, as a scheduler looks at it."""

    spec: MachineSpec = MachineSpec()


MACHINES = Kind(group="", version="v1", plural="nodes", kind="Node", type=Machine)


def node_status(name: str, boot: str, *, now: float) -> dict[str, Any]:
    """Write what a kubelet reports when it starts."""
    room = {"cpu": str(os.cpu_count() or 1), "memory": f"{_memory()}Ki", "pods": str(MOST_PODS)}
    beat = {"lastHeartbeatTime": rfc3339(now), "lastTransitionTime": rfc3339(now)}
    ready = {"type": "Ready", "status": "True", "reason": "Playing", "message": "a machine of podpool up"}
    return {
        "capacity": room,
        "allocatable": room,
        "nodeInfo": _info(name, boot),
        "conditions": [{**ready, **beat}],
        "addresses": [{"type": "Hostname", "address": name}],
    }


def node_lease(name: str, *, now: float) -> dict[str, Any]:
    """Write the Lease that a kubelet renews."""
    renewed = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": name, "leaseDurationSeconds": LASTS, "renewTime": renewed}
    return {"metadata": {"name": name}, "spec": spec}


def _info(name: str, boot: str) -> dict[str, str]:
    return {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "bootID": boot,
        "containerRuntimeVersion": "none://",
        "kernelVersion": platform.release(),
        "kubeProxyVersion": "",
        "kubeletVersion": "v1.36.0",
        "machineID": name,
        "operatingSystem": "linux",
        "osImage": "podpool up",
        "systemUUID": name,
    }


def _memory() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024
