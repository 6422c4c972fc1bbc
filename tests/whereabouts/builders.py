"""Builders of configurations, pools, Pods and plans."""

import json
from typing import Any

from podpool.api.builtin import AddressedMeta, AddressedPod, AddressedStatus, NetworkAnnotations, PodSpec
from podpool.api.meta import ObjectMeta
from podpool.api.multus import NetworkAttachmentDefinition, NetworkAttachmentSpec
from podpool.api.whereabouts import (
    NETWORK_ANNOTATION,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    Allocation,
    IPPool,
    IPPoolSpec,
    OverlappingRangeIPReservation,
    ReservationSpec,
)
from podpool.core.range_spec import RangeSpec, parse_range_spec
from podpool.core.ranges import parse_prefix
from podpool.core.slice_table import SliceLayout
from podpool.whereabouts.cni_args import PodInterface, parse_cni_args
from podpool.whereabouts.cni_json import read_network_config
from podpool.whereabouts.config import IpamConfig, parse_ipam_config
from podpool.whereabouts.ippool import allocation_for
from podpool.whereabouts.nad import ParsedNad, parse_nad
from podpool.whereabouts.network_plan import SliceTableKey, SliceTablePlan

KUBECONFIG = {"kubeconfig": "/etc/cni/net.d/whereabouts.d/whereabouts.kubeconfig"}


def network(version: str = "0.3.1", /, **ipam: object) -> str:
    """Return the configuration of a network that uses podpool."""
    return json.dumps(
        {
            "name": "mynet",
            "cniVersion": version,
            "type": "macvlan",
            "ipam": {"type": "whereabouts", "kubernetes": KUBECONFIG, **ipam},
        }
    )


def read_config(text: str | bytes, *, flat: str | bytes | None = None, args: str = "") -> IpamConfig:
    """Parse the configuration that a plugin receives, with the content of the flat file and CNI_ARGS."""
    return parse_ipam_config(read_network_config(text), flat=flat, args=parse_cni_args(args))


def config(flat: dict[str, Any] | None = None, /, *, args: str = "", **ipam: object) -> IpamConfig:
    return read_config(network(**ipam), flat=None if flat is None else json.dumps(flat), args=args)


def owner(name: str, *, container_id: str | None = None, ifname: str = "net1") -> PodInterface:
    return PodInterface(podref=f"default/{name}", container_id=container_id or f"cid-{name}", ifname=ifname)


def entry(name: str, *, container_id: str | None = None, ifname: str = "net1") -> Allocation:
    return allocation_for(owner(name, container_id=container_id, ifname=ifname))


def spec(range_: str, **entries: Allocation) -> IPPoolSpec:
    """Return the spec of a pool. Keys are written as `at1`, because keywords begin with a letter."""
    return IPPoolSpec(range=range_, allocations={key.removeprefix("at"): each for key, each in entries.items()})


def range_spec(range_: str, *, start: str = "", end: str = "", exclude: tuple[str, ...] = ()) -> RangeSpec:
    return parse_range_spec(range_, start=start or None, end=end or None, exclude=exclude)


def pool(name: str, content: IPPoolSpec, *, node: str = "", network_name: str = "", uid: str = "uid") -> IPPool:
    annotations = {NODE_ANNOTATION: node, NETWORK_ANNOTATION: network_name} if node else {}
    labels = {NODE_UID_LABEL: f"uid-{node}"} if node else {}
    return IPPool(metadata=ObjectMeta(name=name, uid=uid, annotations=annotations, labels=labels), spec=content)


def reservation(name: str, podref: str, *, ifname: str = "net1", uid: str = "uid") -> OverlappingRangeIPReservation:
    return OverlappingRangeIPReservation(
        metadata=ObjectMeta(name=name, uid=uid), spec=ReservationSpec(podref=podref, ifname=ifname)
    )


def pod(name: str, *, node: str = "node1", phase: str = "Running", **networks: str) -> AddressedPod:
    """Return a Pod in `default`. A keyword is a NAD there and the address of the Pod on it."""
    statuses = [{"name": f"default/{each}", "interface": "net1", "ips": [ip]} for each, ip in networks.items()]
    return AddressedPod(
        metadata=AddressedMeta(
            name=name,
            namespace="default",
            annotations=NetworkAnnotations(status=json.dumps(statuses) if statuses else None),
        ),
        spec=PodSpec(node_name=node),
        status=AddressedStatus(phase=phase),
    )


def nad_object(name: str, text: str, *, namespace: str = "default", created: str = "") -> NetworkAttachmentDefinition:
    return NetworkAttachmentDefinition(
        metadata=ObjectMeta(name=name, namespace=namespace, creation_timestamp=created),
        spec=NetworkAttachmentSpec(config=text),
    )


def nad(key: str, /, *, created: str = "", cni: str | None = None, **ipam: object) -> ParsedNad:
    """Return a parsed NAD whose network has the name of the NAD, or `cni`."""
    namespace, _, name = key.rpartition("/")
    text = json.dumps({"name": name if cni is None else cni, "type": "macvlan", "ipam": {"type": "podpool", **ipam}})
    parsed = parse_nad(nad_object(name, text, namespace=namespace or "default", created=created))
    assert parsed is not None
    return parsed


def plan(range_: str, length: int, *, network_name: str = "", allow: tuple[RangeSpec, ...] = ()) -> SliceTablePlan:
    prefix = parse_prefix(range_)
    return SliceTablePlan(
        key=SliceTableKey(network_name, prefix), layout=SliceLayout(prefix, length), range_specs=allow
    )
