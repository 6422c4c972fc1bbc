"""The networks of a simulation with slices: NetworkAttachmentDefinitions, which people delete, recreate and change.

Two networks have slices, one has a shared range. No address is in two of them.
"""

import ipaddress
import json
from collections.abc import Mapping
from typing import Any

import msgspec

from podpool.api.crds import multus_crd_manifest
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.lab.apiserver.registry import CRDS, PODS
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.sim.kubelet import PodNetworks
from podpool.lab.sim.profiles import SimConfig

NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"
SLICE_SIZES = ("/29", "/30")
"""The initial size of slices, and another that people change it to."""


class AttachedNetwork(msgspec.Struct, frozen=True):
    """A network that every Pod is attached to."""

    name: str
    range: str
    ifname: str
    shared: bool = False

    @property
    def key(self) -> str:
        """The key of its NAD."""
        return f"default/{self.name}"

    @property
    def shared_pool(self) -> str:
        """The name of the IPPool of the shared range."""
        return f"{self.name}-{self.range.replace('/', '-')}"

    @property
    def larger(self) -> "AttachedNetwork":
        """The network with a range of twice the size."""
        return msgspec.structs.replace(self, range=str(ipaddress.ip_network(self.range).supernet()))

    @property
    def smaller(self) -> "AttachedNetwork":
        """The network with half of its range."""
        return msgspec.structs.replace(self, range=str(next(ipaddress.ip_network(self.range).subnets())))

    def has(self, address: str) -> bool:
        """Return whether an address is in the largest range that the network may get."""
        largest = self if self.shared else self.larger
        return ipaddress.ip_address(address) in ipaddress.ip_network(largest.range)


def networks(config: SimConfig) -> tuple[AttachedNetwork, ...]:
    """Return the networks of a cluster."""
    every = (
        AttachedNetwork("red", config.cidr, "eth0"),
        AttachedNetwork("green", "10.9.0.0/27", "net1", shared=True),
        AttachedNetwork("blue", "10.8.0.0/27", "net2"),
    )
    return every[: config.networks]


def sliced_networks(config: SimConfig) -> tuple[AttachedNetwork, ...]:
    """Return the networks with slices."""
    return tuple(each for each in networks(config) if not each.shared)


def create_all(store: ObjectStore, config: SimConfig) -> None:
    """Create the CRD, and the NADs of a cluster."""
    store.create(CRDS, multus_crd_manifest())
    for network in networks(config):
        write(store, network)


def write(store: ObjectStore, network: AttachedNetwork, size: str = SLICE_SIZES[0]) -> None:
    """Create or replace a NAD; without a slice size all nodes share its range."""
    write_as(store, network, network.name, network=network.name, size=size)


def write_as(
    store: ObjectStore, attached: AttachedNetwork, name: str, *, network: str, size: str = SLICE_SIZES[0]
) -> None:
    """Create or replace a NAD of a name, with the range of a network, perhaps for another one."""
    named = {"network_name": network} if network else {}
    slice_size = {} if attached.shared or not size else {"node_slice_size": size}
    ipam = {"type": "whereabouts", **named, "range": attached.range, **slice_size}
    spec = {"config": json.dumps({"cniVersion": "1.0.0", "name": name, "type": "macvlan", "ipam": ipam})}
    if f"default/{name}" in _nads(store):
        store.update(store.registry.of(NETWORK_ATTACHMENTS), f"default/{name}", lambda old: {**old, "spec": spec})
    else:
        head = {"apiVersion": NETWORK_ATTACHMENTS.api_version, "kind": NETWORK_ATTACHMENTS.kind}
        nad = {**head, "metadata": {"name": name}, "spec": spec}
        store.create(store.registry.of(NETWORK_ATTACHMENTS), nad, namespace="default")


def delete(store: ObjectStore, network: AttachedNetwork) -> None:
    """Delete a NAD."""
    if network.key in _nads(store):
        store.delete(store.registry.of(NETWORK_ATTACHMENTS), network.key)


def slice_layout(store: ObjectStore, network: AttachedNetwork) -> tuple[str, int]:
    """Return the range and the prefix length of slices of a NAD."""
    ipam = json.loads(_nads(store)[network.key]["spec"]["config"])["ipam"]
    return ipam["range"], int(ipam["node_slice_size"].removeprefix("/"))


def slice_size(store: ObjectStore, network: AttachedNetwork) -> str:
    """Return the slice size of a NAD; empty if there is no NAD, or its range is shared."""
    found = _nads(store).get(network.key)
    return json.loads(found["spec"]["config"])["ipam"].get("node_slice_size", "") if found else ""


def exists(store: ObjectStore, network: AttachedNetwork) -> bool:
    """Return whether a network has a NAD."""
    return network.key in _nads(store)


class MultusNetworks(PodNetworks):
    """Attaches Pods to all networks, and reports their addresses as Multus does."""

    def __init__(self, store: ObjectStore, config: SimConfig) -> None:
        self._store = store
        self._networks = networks(config)

    def configs(self) -> dict[str, bytes] | None:
        """Return the configurations of a Pod that starts now; None while a NAD is missing."""
        found = {each.ifname: _nads(self._store).get(each.key) for each in self._networks}
        if None in found.values():
            return None
        return {ifname: each["spec"]["config"].encode() for ifname, each in found.items()}

    def report(self, pod: str, addresses: Mapping[str, str]) -> None:
        """Write the network-status annotation of a Pod."""
        status = json.dumps([{"interface": ifname, "ips": [each]} for ifname, each in addresses.items()])
        if pod in self._store.objects("", "pods"):
            new = {"annotations": {NETWORK_STATUS: status}}
            self._store.update(PODS, pod, lambda old: {**old, "metadata": {**old["metadata"], **new}})


def _nads(store: ObjectStore) -> Any:  # noqa: ANN401  JSON by key
    return store.objects(NETWORK_ATTACHMENTS.group, NETWORK_ATTACHMENTS.plural)
