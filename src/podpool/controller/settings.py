"""Settings of one controller, from its command line."""

from typing import Literal

import msgspec

from podpool.core.errors import InvalidInput
from podpool.core.settings import Settings
from podpool.kube.leader_election import DEFAULT_TIMING, LeaseTiming
from podpool.ledger.messages import SubnetName

SUBNET_LABEL = "node-restriction.kubernetes.io/podpool-subnet"
"""Node label: the subnet that the node's addresses come from, as `NETWORK.SUBNET`. A kubelet cannot set it."""
FORMER_SUBNET_LABEL = "podpool.io/subnet"
"""Node label that is read no more, because a kubelet can set it on its own Node."""
NO_SUBNET = SubnetName(network="", name="")
"""The subnet of a cluster without a ledger."""

Scarcity = Literal["off", "exhaustion", "graded"]
"""How a scarce subnet is handled: not at all; single addresses while it is exhausted; or with the ledger's batch."""
SCARCITIES: tuple[Scarcity, ...] = ("off", "exhaustion", "graded")


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of one cluster's controller."""

    subnet: SubnetName = NO_SUBNET
    """Subnet of Nodes without the label `node-restriction.kubernetes.io/podpool-subnet`."""
    namespace: str = "kube-system"
    whereabouts_namespace: str = "kube-system"
    """Namespace of IPPools, their Leases, NodeSlicePools and reservations."""
    flat_file: bytes | None = None
    """Contents of whereabouts.conf: defaults for keys that a NAD does not set."""
    common: Settings = Settings()
    scarcity: Scarcity = "graded"
    pod_history: bool = False
    """Whether Pod addresses are reported to the ledger's history."""
    election: LeaseTiming = DEFAULT_TIMING


def parse_subnet(text: str, *, what: str) -> SubnetName:
    """Parse `NETWORK.SUBNET`. A label value cannot contain a slash, hence the dot."""
    network, dot, name = text.partition(".")
    if not (dot and network and name):
        raise InvalidInput(what, text, "not a subnet: write it as NETWORK.SUBNET")
    return SubnetName(network=network, name=name)


def parse_scarcity(text: str) -> Scarcity:
    """Parse the value of --scarcity."""
    for scarcity in SCARCITIES:
        if scarcity == text:
            return scarcity
    raise InvalidInput("--scarcity", text, f"must be one of {', '.join(SCARCITIES)}")
