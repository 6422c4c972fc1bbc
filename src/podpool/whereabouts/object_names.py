"""Names of Kubernetes objects, exactly as Whereabouts builds them, and parsing of them.

A name alone may be ambiguous: `abcd-1--2` is `abcd:1::2`, or `1::2` in network `abcd`. So parsing needs the names of
networks and nodes, and a lookup builds the name instead of parsing names.
"""

import re
from collections.abc import Collection

import msgspec

from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix

SHARED_RANGE_LEASE = "whereabouts"
"""The Lease with which plugins serialize their writes to shared ranges, one per namespace."""

_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_MAX_LENGTH = 253


class PoolIdentifier(msgspec.Struct, frozen=True, kw_only=True):
    """What an IPPool is for. Whereabouts has the same type."""

    range: Prefix
    """The whole range, or the slice."""
    network: str = ""
    node: str = ""
    """Empty for a shared range."""

    @property
    def name(self) -> str:
        """The name of the IPPool, and of the Lease of a slice."""
        return _checked("-".join(filter(None, (self.network, self.node, range_text(self.range)))), self.network)

    @property
    def lease(self) -> str:
        """The name of the Lease that protects it."""
        return self.name if self.node else SHARED_RANGE_LEASE


def range_text(range_: Prefix) -> str:
    """Return a range as it occurs in names: `10.0.0.0-8`, `fd00-0-0-10---64`."""
    return re.sub("[:/]", "-", str(range_))


def reservation_name(address: Address, *, network: str = "") -> str:
    """Return the name of the reservation of an address: `10.0.0.5`, `fd00--1`, `2001--0`, `net1-10.0.0.5`."""
    text = str(address)
    plain = (f"{text}0" if text.endswith(":") else text).replace(":", "-")
    return _checked(f"{network}-{plain}" if network else plain, network)


def slice_pool_name(*, network: str, name: str) -> str:
    """Return the name of a network's NodeSlicePool: its network name, else its name in CNI."""
    if not (network or name):
        raise InvalidInput("name", name, "is missing, and so is network_name: set one of them")
    return _checked(network or name, network, key="network_name" if network else "name")


def parse_pool_name(
    name: str, *, range_: Prefix, nodes: Collection[str], networks: Collection[str] = ()
) -> PoolIdentifier | None:
    """Return what an IPPool with this range is for, by its name; None if the name is not of this range."""
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
    for network, node in splits:  # the longest node name first
        if node in nodes:
            return PoolIdentifier(range=range_, network=network, node=node)
    for network, node in reversed(splits):
        if network in networks:  # the slice of a deleted node
            return PoolIdentifier(range=range_, network=network, node=node)
    return PoolIdentifier(range=range_, network=owner)


def _checked(name: str, network: str, *, key: str = "network_name") -> str:
    if _NAME.fullmatch(name) and len(name) <= _MAX_LENGTH:
        return name
    if network and not _NAME.fullmatch(network):
        reason = "cannot be part of an object's name: use lower-case letters, digits, '-' and '.'"
        raise InvalidInput(key, network, reason)
    reason = f"is not a valid object name: set network_name, at most {_MAX_LENGTH} characters in all"
    raise InvalidInput("name", name, reason)
