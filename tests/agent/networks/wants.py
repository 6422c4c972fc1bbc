"""What interfaces want, made short."""

from typing import Any

from podpool.agent.networks.source import Want
from podpool.slices.arguments import Owner
from podpool.slices.config import config_of
from podpool.slices.document import Network


def want(container: str, *ranges: str, ifname: str = "net1", name: str = "net", **ipam: Any) -> Want:  # noqa: ANN401  JSON
    """An interface that wants an address of each range, cut into slices of 16 addresses unless told otherwise."""
    written = {"type": "podpool", "ipRanges": [{"range": each} for each in ranges], "node_slice_size": "28", **ipam}
    config = config_of(Network(name=name, ipam=written))
    owner = Owner(podref=f"default/pod-of-{container}", container=container, ifname=ifname)
    return Want(config=config, owner=owner, deadline=1e9)
