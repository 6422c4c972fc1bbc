"""The names that objects have in a cluster, exactly as Whereabouts makes them, and back.

Back is not always possible from the name alone: `abcd-1--2` is `abcd:1::2`, or `1::2` in a network `abcd`. So whoever
reads names also says which networks and nodes there are, and who looks for an object makes its name instead.
"""

import re
from collections.abc import Collection

import msgspec

from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix

SHARED_RANGE_LEASE = "whereabouts"
"""The one Lease of a namespace that plugins without slices take turns with."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_LONGEST = 253


class PoolIdentifier(msgspec.Struct, frozen=True, kw_only=True):
    """What an IPPool is the pool of."""

    range: Prefix
    """The whole range, or the slice."""
    network: str = ""
    node: str = ""
    """Empty without slices."""

    @property
    def name(self) -> str:
        """The IPPool's name; the Lease of a slice has the same."""
        return _checked("-".join(filter(None, (self.network, self.node, range_text(self.range)))), self.network)

    @property
    def lease(self) -> str:
        """The name of the Lease that goes with it."""
        return self.name if self.node else SHARED_RANGE_LEASE


def range_text(range_: Prefix) -> str:
    """Write a range as names contain it: `10.0.0.0-8`, `fd00-0-0-10---64`."""
    return re.sub("[:/]", "-", str(range_))


def reservation_name(address: Address, *, network: str = "") -> str:
    """Name the reservation of an address: `10.0.0.5`, `fd00--1`, `2001--0`, `net1-10.0.0.5`."""
    text = str(address)
    plain = (f"{text}0" if text.endswith(":") else text).replace(":", "-")
    return _checked(f"{network}-{plain}" if network else plain, network)


def slice_pool_name(*, network: str, name: str) -> str:
    """Name the NodeSlicePool of a network, after its network name or else its name in CNI."""
    if not (network or name):
        raise InvalidInput("name", name, "is missing, and so is network_name: set one of them")
    return _checked(network or name, network, key="network_name" if network else "name")


def parse_pool_name(
    name: str, *, range_: Prefix, nodes: Collection[str], networks: Collection[str] = ()
) -> PoolIdentifier | None:
    """Tell whose an IPPool is; its range is known from its spec. None when the name is not of this range."""
    text = range_text(range_)
    if name == text:
        return PoolIdentifier(range=range_)
    owner = name.removesuffix(f"-{text}")
    if owner == name:
        return None
    if owner in networks:
        return PoolIdentifier(range=range_, network=owner)
    words = owner.split("-")
    splits = [("-".join(words[:at]), "-".join(words[at:])) for at in range(len(words))]
    for network, node in splits:  # the longest name of a node first
        if node in nodes:
            return PoolIdentifier(range=range_, network=network, node=node)
    for network, node in reversed(splits):
        if network in networks:  # the slice of a node that is gone
            return PoolIdentifier(range=range_, network=network, node=node)
    return PoolIdentifier(range=range_, network=owner)


def _checked(name: str, network: str, *, key: str = "network_name") -> str:
    if _NAME.fullmatch(name) and len(name) <= _LONGEST:
        return name
    if network and not _NAME.fullmatch(network):
        reason = "cannot be part of an object's name: use lower-case letters, digits, '-' and '.'"
        raise InvalidInput(key, network, reason)
    reason = f"is no name that an object can have: set network_name, up to {_LONGEST} characters in all"
    raise InvalidInput("name", name, reason)
