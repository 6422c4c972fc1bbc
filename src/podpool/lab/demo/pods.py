"""A Pod of the stage, as far as a kubelet and Multus look at it, and what they write into it."""

from contextlib import suppress
from typing import Any

import msgspec

from podpool.api.builtin import Pod, PodAnnotations, PodMeta, PodSpec
from podpool.api.meta import ApiStruct, Kind

NETWORKS, STATUS = "k8s.v1.cni.cncf.io/networks", "k8s.v1.cni.cncf.io/network-status"
FIRST = "eth0"


class Container(ApiStruct, frozen=True, kw_only=True):
    """A container, as far as its status must name it."""

    name: str = ""
    image: str = ""


class StagedSpec(PodSpec, frozen=True, kw_only=True):
    """What it should be."""

    containers: tuple[Container, ...] = ()


class StagedAnnotations(PodAnnotations, frozen=True, kw_only=True):
    """Which further networks it wants, and what it has of them."""

    networks: str = msgspec.field(name=NETWORKS, default="")
    status: str = msgspec.field(name=STATUS, default="")


class StagedMeta(PodMeta, frozen=True, kw_only=True):
    """Which Pod it is."""

    annotations: StagedAnnotations = StagedAnnotations()


class _Network(msgspec.Struct, frozen=True):
    ips: tuple[str, ...] = ()


class StagedPod(Pod, frozen=True, kw_only=True):
    """A Pod of the stage."""

    metadata: StagedMeta = StagedMeta()
    spec: StagedSpec = StagedSpec()

    @property
    def further(self) -> dict[str, str]:
        """The networks that it wants beside the first, by the interface that each gets."""
        named = [each.strip() for each in self.metadata.annotations.networks.split(",") if each.strip()]
        chosen = ((place, *each.partition("@")[::2]) for place, each in enumerate(named, 1))
        return {interface or f"net{place}": name for place, name, interface in chosen}

    @property
    def further_addresses(self) -> list[str]:
        """The addresses that it has in them; what anybody else wrote there and cannot be read is none."""
        with suppress(msgspec.DecodeError):
            told = msgspec.json.decode(self.metadata.annotations.status or "[]", type=list[_Network])
            return [address for each in told for address in each.ips]
        return []


STAGED_PODS = Kind(group="", version="v1", plural="pods", kind="Pod", type=StagedPod)


def running(pod: StagedPod, address: str, *, now: str) -> dict[str, Any]:
    """Write the status that a kubelet reports for a Pod whose containers all run."""
    conditions = [{"type": each, "status": "True"} for each in ("Initialized", "ContainersReady", "Ready")]
    states = [
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
    return {"phase": "Running", "startTime": now, **addresses, "conditions": conditions, "containerStatuses": states}


def network_status(namespace: str, networks: dict[str, str], addresses: dict[str, str]) -> dict[str, str]:
    """Write the annotation in which Multus tells what a Pod has in which network."""
    told = [
        {"name": f"{namespace}/{networks[interface]}", "interface": interface, "ips": [address]}
        for interface, address in addresses.items()
    ]
    return {STATUS: msgspec.json.encode(told).decode()}
