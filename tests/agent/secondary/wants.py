"""What interfaces want, made short."""

from typing import Any

from podpool.agent.secondary.address_source import AddressRequest
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.cni_json import NetworkConfig
from podpool.whereabouts.config import parse_ipam_config


def want(container: str, *ranges: str, ifname: str = "net1", name: str = "net", **ipam: Any) -> AddressRequest:  # noqa: ANN401  JSON
    """An interface that wants an address of each range, cut into slices of 16 addresses unless told otherwise."""
    written = {"type": "podpool", "ipRanges": [{"range": each} for each in ranges], "node_slice_size": "28", **ipam}
    config = parse_ipam_config(NetworkConfig(name=name, ipam=written))
    owner = PodInterface(podref=f"default/pod-of-{container}", container=container, ifname=ifname)
    return AddressRequest(config=config, owner=owner, deadline=1e9)
