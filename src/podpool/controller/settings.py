"""What a controller is told when it starts."""

from typing import Literal

import msgspec

from podpool.core.errors import InvalidInput
from podpool.core.settings import Settings
from podpool.kube.leader_election import DEFAULT_TIMING, LeaseTiming
from podpool.ledger.messages import SubnetName

SUBNET_LABEL = "podpool.io/subnet"
"""On a Node: the subnet that its addresses come from, as `NETWORK.SUBNET`."""
NO_SUBNET = SubnetName(network="", name="")
"""Of a cluster without a ledger."""

Scarcity = Literal["off", "exhaustion", "graded"]
"""What is done when a subnet runs short: nothing; single addresses while it is exhausted; or the ledger's own batch."""
SCARCITIES: tuple[Scarcity, ...] = ("off", "exhaustion", "graded")


class ControllerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster's."""

    subnet: SubnetName = NO_SUBNET
    """Of nodes that carry no label."""
    namespace: str = "kube-system"
    whereabouts_namespace: str = "kube-system"
    """Where IPPools, their Leases, NodeSlicePools and reservations are."""
    flat_file: bytes | None = None
    """What fills, on every node, the keys that a definition leaves empty."""
    common: Settings = Settings()
    scarcity: Scarcity = "graded"
    pod_history: bool = False
    """Whether the ledger is told which Pods have which addresses."""
    election: LeaseTiming = DEFAULT_TIMING


def parse_subnet(text: str, *, what: str) -> SubnetName:
    """Read `network.subnet`: the form of a label's value, which may hold no slash."""
    network, dot, name = text.partition(".")
    if not (dot and network and name):
        raise InvalidInput(what, text, "not a subnet: write it as NETWORK.SUBNET")
    return SubnetName(network=network, name=name)


def parse_scarcity(text: str) -> Scarcity:
    """Read one of the three words."""
    for word in SCARCITIES:
        if word == text:
            return word
    raise InvalidInput("--scarcity", text, f"must be one of {', '.join(SCARCITIES)}")
