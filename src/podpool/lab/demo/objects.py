"""Kubernetes objects of the demo: Nodes and Leases as a kubelet reports them, Pods, and a NetworkAttachmentDefinition.

Node status has every field that `kubectl describe node` reads, with values of this machine.
"""

import json
import os
import platform
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec

from podpool.api.builtin import Node, Pod, PodAnnotations, PodMeta, PodSpec
from podpool.api.meta import ApiStruct, Kind, rfc3339

LEASE_NAMESPACE = "kube-node-lease"
RENEW_INTERVAL = 10.0
"""Seconds between renewals of a node's Lease, as in the kubelet."""
LEASE_SECONDS = 40
MAX_PODS = 250
NETWORKS, NETWORK_STATUS = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
FIRST_INTERFACE = "eth0"
NAD_NAME = "wide"
RANGE, SLICE_SIZE = "10.88.0.0/16", "/26"


class DemoNodeSpec(ApiStruct, frozen=True, kw_only=True):
    """Whether a Node is cordoned."""

    unschedulable: bool = False


class DemoNode(Node, frozen=True, kw_only=True):
    """A Node, as far as a scheduler reads it."""

    spec: DemoNodeSpec = DemoNodeSpec()


class DemoContainer(ApiStruct, frozen=True, kw_only=True):
    """A container, as far as its status names it."""

    name: str = ""
    image: str = ""


class DemoPodSpec(PodSpec, frozen=True, kw_only=True):
    """A Pod's spec with its containers."""

    containers: tuple[DemoContainer, ...] = ()


class DemoPodAnnotations(PodAnnotations, frozen=True, kw_only=True):
    """The annotations of Multus."""

    networks: str = msgspec.field(name=NETWORKS, default="")
    status: str = msgspec.field(name=NETWORK_STATUS, default="")


class DemoPodMeta(PodMeta, frozen=True, kw_only=True):
    """A Pod's metadata."""

    annotations: DemoPodAnnotations = DemoPodAnnotations()


class _NetworkStatus(msgspec.Struct, frozen=True):
    ips: tuple[str, ...] = ()


class DemoPod(Pod, frozen=True, kw_only=True):
    """A Pod, as far as a kubelet and Multus read it."""

    metadata: DemoPodMeta = DemoPodMeta()
    spec: DemoPodSpec = DemoPodSpec()

    @property
    def secondary_networks(self) -> dict[str, str]:
        """The names of secondary networks by interface."""
        named = [each.strip() for each in self.metadata.annotations.networks.split(",") if each.strip()]
        parts = ((place, *each.partition("@")[::2]) for place, each in enumerate(named, 1))
        return {interface or f"net{place}": name for place, name, interface in parts}

    @property
    def secondary_addresses(self) -> list[str]:
        """The addresses in secondary networks; none if the annotation cannot be parsed."""
        with suppress(msgspec.DecodeError):
            found = msgspec.json.decode(self.metadata.annotations.status or "[]", type=list[_NetworkStatus])
            return [address for each in found for address in each.ips]
        return []


DEMO_NODES = Kind(group="", version="v1", plural="nodes", kind="Node", type=DemoNode)
DEMO_PODS = Kind(group="", version="v1", plural="pods", kind="Pod", type=DemoPod)


def node_status(name: str, boot_id: str, *, now: float) -> dict[str, Any]:
    """Return the status that a kubelet reports when it starts."""
    resources = {"cpu": str(os.cpu_count() or 1), "memory": f"{_memory_kib()}Ki", "pods": str(MAX_PODS)}
    times = {"lastHeartbeatTime": rfc3339(now), "lastTransitionTime": rfc3339(now)}
    ready = {"type": "Ready", "status": "True", "reason": "Demo", "message": "node of podpool up"}
    return {
        "capacity": resources,
        "allocatable": resources,
        "nodeInfo": _node_info(name, boot_id),
        "conditions": [{**ready, **times}],
        "addresses": [{"type": "Hostname", "address": name}],
    }


def node_lease(name: str, *, now: float) -> dict[str, Any]:
    """Return the Lease that a kubelet renews."""
    renewed = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    spec = {"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": renewed}
    return {"metadata": {"name": name}, "spec": spec}


def _node_info(name: str, boot_id: str) -> dict[str, str]:
    return {
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine()),
        "bootID": boot_id,
        "containerRuntimeVersion": "none://",
        "kernelVersion": platform.release(),
        "kubeProxyVersion": "",
        "kubeletVersion": "v1.36.0",
        "machineID": name,
        "operatingSystem": "linux",
        "osImage": "podpool up",
        "systemUUID": name,
    }


def _memory_kib() -> int:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 1024


def running_status(pod: DemoPod, address: str, *, now: str) -> dict[str, Any]:
    """Return the status that a kubelet reports for a Pod whose containers run."""
    conditions = [{"type": each, "status": "True"} for each in ("Initialized", "ContainersReady", "Ready")]
    containers = [
        {
            "name": each.name,
            "image": each.image,
            "imageID": "",
            "ready": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
        }
        for each in pod.spec.containers
    ]
    addresses = {"podIP": address, "podIPs": [{"ip": address}]}
    status = {"phase": "Running", "startTime": now, **addresses}
    return {**status, "conditions": conditions, "containerStatuses": containers}


def network_status(namespace: str, networks: dict[str, str], addresses: dict[str, str]) -> dict[str, str]:
    """Return the annotation in which Multus reports the addresses of a Pod's secondary networks."""
    entries = [
        {"name": f"{namespace}/{networks[interface]}", "interface": interface, "ips": [address]}
        for interface, address in addresses.items()
    ]
    return {NETWORK_STATUS: msgspec.json.encode(entries).decode()}


def nad() -> dict[str, Any]:
    """Return the NetworkAttachmentDefinition of a secondary network with node slices."""
    ipam = {"type": "podpool", "range": RANGE, "node_slice_size": SLICE_SIZE, "network_name": NAD_NAME}
    config = {"cniVersion": "1.0.0", "name": NAD_NAME, "type": "macvlan", "ipam": ipam}
    return {"metadata": {"name": NAD_NAME}, "spec": {"config": json.dumps(config)}}
