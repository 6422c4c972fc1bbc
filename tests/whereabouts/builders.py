"""Configurations, pools and Pods in a line each."""

import json
from typing import Any

from podpool.api.builtin import AddressedMeta, AddressedPod, AddressedStatus, NetworkAnnotations, PodSpec
from podpool.api.meta import ObjectMeta
from podpool.api.multus import NetworkAttachmentDefinition, NetworkAttachmentSpec
from podpool.api.whereabouts import (
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    Allocation,
    IPPool,
    IPPoolSpec,
    OverlappingRangeIPReservation,
    ReservationSpec,
)
from podpool.core.range_spec import RangeSpec as Allowed
from podpool.core.range_spec import parse_range_spec
from podpool.core.ranges import parse_prefix
from podpool.core.slice_table import SliceLayout
from podpool.whereabouts.cni_args import PodInterface, parse_cni_args
from podpool.whereabouts.cni_json import read_network_config
from podpool.whereabouts.config import IpamConfig, parse_ipam_config
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION
from podpool.whereabouts.nads import ParsedNad, parse_nad
from podpool.whereabouts.network_plan import SliceTableKey, SliceTablePlan

KUBECONFIG = {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"}


def network(version: str = "0.3.1", /, **ipam: object) -> str:
    """Write the configuration of a network that asks us."""
    return json.dumps(
        {
            "name": "mynet",
            "cniVersion": version,
            "type": "macvlan",
            "ipam": {"type": "whereabouts", "kubernetes": KUBECONFIG, **ipam},
        }
    )


def read_config(text: str | bytes, *, flat: str | bytes | None = None, arguments: str = "") -> IpamConfig:
    """Read what a runtime hands to the plugin, with the flat file of the machine, if it has one, and CNI_ARGS."""
    return parse_ipam_config(read_network_config(text), flat=flat, arguments=parse_cni_args(arguments))


def config(flat: dict[str, Any] | None = None, /, *, arguments: str = "", **ipam: object) -> IpamConfig:
    return read_config(network(**ipam), flat=None if flat is None else json.dumps(flat), arguments=arguments)


def owner(name: str, *, container: str | None = None, ifname: str = "net1") -> PodInterface:
    return PodInterface(podref=f"default/{name}", container=container or f"cid-{name}", ifname=ifname)


def entry(name: str, *, container: str | None = None, ifname: str = "net1") -> Allocation:
    asked = owner(name, container=container, ifname=ifname)
    return Allocation(id=asked.container, podref=asked.podref, ifname=asked.ifname)


def spec(range_: str, **entries: Allocation) -> IPPoolSpec:
    """Fill a pool; the keys are written as `at1`, because keywords begin with a letter."""
    return IPPoolSpec(range=range_, allocations={key.removeprefix("at"): each for key, each in entries.items()})


def allowed(range_: str, *, start: str = "", end: str = "", exclude: tuple[str, ...] = ()) -> Allowed:
    return parse_range_spec(range_, start=start or None, end=end or None, exclude=exclude)


def pool(name: str, content: IPPoolSpec, *, node: str = "", network_name: str = "", uid: str = "uid") -> IPPool:
    notes = {NODE_ANNOTATION: node, NETWORK_ANNOTATION: network_name} if node else {}
    labels = {NODE_UID_LABEL: f"uid-{node}"} if node else {}
    return IPPool(metadata=ObjectMeta(name=name, uid=uid, annotations=notes, labels=labels), spec=content)


def reservation(name: str, podref: str, *, ifname: str = "net1", uid: str = "uid") -> OverlappingRangeIPReservation:
    return OverlappingRangeIPReservation(
        metadata=ObjectMeta(name=name, uid=uid), spec=ReservationSpec(podref=podref, ifname=ifname)
    )


def pod(name: str, *, node: str = "node1", phase: str = "Running", **networks: str) -> AddressedPod:
    """A Pod in `default`; a keyword names an attachment there and the Pod's address on it."""
    shown = [{"name": f"default/{each}", "interface": "net1", "ips": [ip]} for each, ip in networks.items()]
    return AddressedPod(
        metadata=AddressedMeta(
            name=name, namespace="default", annotations=NetworkAnnotations(status=json.dumps(shown) if shown else None)
        ),
        spec=PodSpec(node_name=node),
        status=AddressedStatus(phase=phase),
    )


def definition(name: str, text: str, *, namespace: str = "default", created: str = "") -> NetworkAttachmentDefinition:
    return NetworkAttachmentDefinition(
        metadata=ObjectMeta(name=name, namespace=namespace, creation_timestamp=created), spec=NetworkAttachmentSpec(config=text)
    )


def attachment(key: str, /, *, created: str = "", cni: str | None = None, **ipam: object) -> ParsedNad:
    """Make an attachment whose network has its own name, or another."""
    namespace, _, name = key.rpartition("/")
    text = json.dumps({"name": name if cni is None else cni, "type": "macvlan", "ipam": {"type": "podpool", **ipam}})
    read = parse_nad(definition(name, text, namespace=namespace or "default", created=created))
    assert read is not None
    return read


def plan(range_: str, length: int, *, network_name: str = "", allow: tuple[Allowed, ...] = ()) -> SliceTablePlan:
    prefix = parse_prefix(range_)
    return SliceTablePlan(key=SliceTableKey(network_name, prefix), cut=SliceLayout(prefix, length), allowed=allow)
