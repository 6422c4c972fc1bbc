"""What a controller is told when it starts."""

import msgspec

from podpool.core.errors import InvalidInput
from podpool.core.numbers import Numbers
from podpool.ledger.messages import SubnetName

SUBNET_LABEL = "podpool.io/subnet"


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """One cluster's."""

    subnet: SubnetName
    """Of nodes that carry no label."""
    namespace: str = "kube-system"
    numbers: Numbers = Numbers()


def parse_subnet(text: str, *, what: str) -> SubnetName:
    """Read `network.subnet`: the form of a label's value, which may hold no slash."""
    network, dot, name = text.partition(".")
    if not (dot and network and name):
        raise InvalidInput(what, text, "not a subnet: write it as NETWORK.SUBNET")
    return SubnetName(network=network, name=name)
