"""The networks of a world with slices: Multus' definitions of them, which people delete, write again and change.

Two are cut into slices, and one is shared by all nodes. No address is in two of them.
"""

import ipaddress
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from podpool.api.crds import multus_crd_manifest
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.lab.apiserver.registry import CRDS, PODS, ApiResource
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.sim.kubelet import PodNetworks
from podpool.lab.sim.scenario import Shape

NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
SIZES = ("/29", "/30")
"""The size of a slice in the beginning, and one that somebody may change it to."""


class Attached(msgspec.Struct, frozen=True):
    """A network that every Pod is attached to."""

    name: str
    range: str
    ifname: str
    shared: bool = False

    @property
    def key(self) -> str:
        """Of its definition."""
        return f"default/{self.name}"

    @property
    def pool(self) -> str:
        """The name of the IPPool that all nodes share."""
        return f"{self.name}-{self.range.replace('/', '-')}"

    @property
    def larger(self) -> "Attached":
        """It, with a range of twice the addresses."""
        return msgspec.structs.replace(self, range=str(ipaddress.ip_network(self.range).supernet()))

    @property
    def smaller(self) -> "Attached":
        """It, with half of its range."""
        return msgspec.structs.replace(self, range=str(next(ipaddress.ip_network(self.range).subnets())))

    def has(self, address: str) -> bool:
        """Tell whether an address is one of its own, also of what somebody may make of its range."""
        widest = self if self.shared else self.larger
        return ipaddress.ip_address(address) in ipaddress.ip_network(widest.range)


def networks(shape: Shape) -> tuple[Attached, ...]:
    """List the networks of a world."""
    every = (
        Attached("red", shape.cidr, "eth0"),
        Attached("green", "10.9.0.0/27", "net1", shared=True),
        Attached("blue", "10.8.0.0/27", "net2"),
    )
    return every[: shape.networks]


def sliced(shape: Shape) -> tuple[Attached, ...]:
    """List those that are cut."""
    return tuple(each for each in networks(shape) if not each.shared)


def define(store: ObjectStore, shape: Shape) -> None:
    """Let the cluster know of attachments, and have some."""
    store.create(CRDS, multus_crd_manifest())
    for network in networks(shape):
        write(store, network)


def write(store: ObjectStore, network: Attached, size: str = SIZES[0]) -> None:
    """Write a definition, or write it anew; without a size all nodes share its range."""
    cut = {} if network.shared or not size else {"node_slice_size": size}
    ipam = {"type": "whereabouts", "network_name": network.name, "range": network.range, **cut}
    config = {"cniVersion": "1.0.0", "name": network.name, "type": "macvlan", "ipam": ipam}
    spec = {"config": json.dumps(config)}
    if network.key in _stored(store):
        store.update(_served(store), network.key, lambda old: {**old, "spec": spec})
    else:
        head = {"apiVersion": NETWORK_ATTACHMENTS.api_version, "kind": NETWORK_ATTACHMENTS.kind}
        store.create(_served(store), {**head, "metadata": {"name": network.name}, "spec": spec}, namespace="default")


def delete(store: ObjectStore, network: Attached) -> None:
    """Delete a definition."""
    if network.key in _stored(store):
        store.delete(_served(store), network.key)


def cut(store: ObjectStore, network: Attached) -> tuple[str, int]:
    """Tell the range by its definition now, and the length of a slice."""
    ipam = json.loads(_stored(store)[network.key]["spec"]["config"])["ipam"]
    return ipam["range"], int(ipam["node_slice_size"].removeprefix("/"))


def size(store: ObjectStore, network: Attached) -> str:
    """Tell the size of a slice now; empty without a definition, or where all nodes share the range."""
    found = _stored(store).get(network.key)
    return json.loads(found["spec"]["config"])["ipam"].get("node_slice_size", "") if found else ""


def is_defined(store: ObjectStore, network: Attached) -> bool:
    """Tell whether there is a definition."""
    return network.key in _stored(store)


class Attachments(PodNetworks):
    """How Pods are connected to all of a world's networks, and what Multus tells of it."""

    def __init__(self, store: ObjectStore, shape: Shape) -> None:
        self._store = store
        self._networks = networks(shape)

    def configs(self) -> dict[str, bytes] | None:
        """Tell how a Pod that starts now is configured; None while a definition is missing."""
        found = {each.ifname: _stored(self._store).get(each.key) for each in self._networks}
        if None in found.values():
            return None
        return {ifname: each["spec"]["config"].encode() for ifname, each in found.items()}

    def connected(self, pod: str, addresses: Mapping[str, str]) -> None:
        """Have it told on the Pod."""
        told = json.dumps([{"interface": ifname, "ips": [each]} for ifname, each in addresses.items()])
        if pod in self._store.objects("", "pods"):
            self._store.update(
                PODS, pod, lambda old: {**old, "metadata": {**old["metadata"], "annotations": {NETWORK_STATUS: told}}}
            )


def _stored(store: ObjectStore) -> Any:  # noqa: ANN401  JSON by key
    return store.objects(NETWORK_ATTACHMENTS.group, NETWORK_ATTACHMENTS.plural)


def _served(store: ObjectStore) -> ApiResource:
    return store.registry.find(NETWORK_ATTACHMENTS.group, NETWORK_ATTACHMENTS.version, NETWORK_ATTACHMENTS.plural)
