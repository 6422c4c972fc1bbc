"""What interfaces want, made short."""

from typing import Any

from podpool.agent.secondary.address_source import Want
from podpool.whereabouts.cni_args import Owner
from podpool.whereabouts.cni_json import Network
from podpool.whereabouts.config import config_of


def want(container: str, *ranges: str, ifname: str = "net1", name: str = "net", **ipam: Any) -> Want:  # noqa: ANN401  JSON
    """An interface that wants an address of each range, cut into slices of 16 addresses unless told otherwise."""
    written = {"type": "podpool", "ipRanges": [{"range": each} for each in ranges], "node_slice_size": "28", **ipam}
    config = config_of(Network(name=name, ipam=written))
    owner = Owner(podref=f"default/pod-of-{container}", container=container, ifname=ifname)
    return Want(config=config, owner=owner, deadline=1e9)
