"""The entries of an IPPool as addresses.

An entry's key is the address' distance from the address in `spec.range`, in decimal, however far: Whereabouts reads no
key of 2^63 or more, and in a range wider than a /64 it writes only the low 64 bits of one. What cannot be read, or
leads out of the range, is told and left alone: nothing here writes an object whole, so nothing is erased either.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from podpool.api.whereabouts import Allocation, IPPoolSpec
from podpool.core.addresses import Address, parse_address
from podpool.core.ranges import Prefix, parse_prefix
from podpool.whereabouts.cni_args import PodInterface

_MOST_DIGITS = 39
"""2^128 has as many."""


class IPPoolEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Who has one address."""

    key: str
    address: Address
    allocation: Allocation

    @property
    def owned_by(self) -> tuple[str, str]:
        """The Pod's interface."""
        return self.allocation.podref, self.allocation.ifname


class ParsedIPPool(msgspec.Struct, frozen=True, kw_only=True):
    """What an IPPool says, read."""

    prefix: Prefix
    base: Address
    """What keys count from: the range's address as written."""
    listed: tuple[IPPoolEntry, ...] = ()
    """By address."""
    outside: tuple[str, ...] = ()
    """Keys that are no number, or lead out of the range."""

    def key(self, address: Address) -> str:
        """Write an address as a key."""
        return str(address.value - self.base.value)


class AllocationChange(msgspec.Struct, frozen=True, kw_only=True):
    """One entry before and after; the same on both sides when nothing is to be written."""

    key: str
    address: Address
    before: Allocation | None
    after: Allocation | None

    def operations(self) -> list[dict[str, Any]]:
        """Write it as a JSON patch that fits only the entry that was seen."""
        path = f"/spec/allocations/{self.key.replace('~', '~0').replace('/', '~1')}"
        if self.before == self.after:
            return []
        if self.before is None:
            entry = {"op": "add", "path": path, "value": msgspec.to_builtins(self.after)}
            return [{"op": "test", "path": path, "value": None}, entry]
        seen = {"op": "test", "path": f"{path}/id", "value": self.before.id}
        if self.after is None:
            return [seen, {"op": "remove", "path": path}]
        return [seen, {"op": "replace", "path": f"{path}/id", "value": self.after.id}]


def parse_ippool(spec: IPPoolSpec) -> ParsedIPPool:
    """Read an IPPool; refused when its range is none."""
    prefix = parse_prefix(spec.range, what="spec.range")
    base = parse_address(spec.range.partition("/")[0], what="spec.range")
    inside, listed, outside = prefix.range, [], []
    for key, allocation in spec.allocations.items():
        value = base.value + int(key) if _is_number(key) else -1
        if value in inside:
            listed.append(IPPoolEntry(key=key, address=Address(prefix.family, value), allocation=allocation))
        else:
            outside.append(key)
    listed.sort(key=lambda entry: entry.address.value)
    return ParsedIPPool(prefix=prefix, base=base, listed=tuple(listed), outside=tuple(outside))


def allocation_for(owner: PodInterface) -> Allocation:
    """Write down who has an address."""
    return Allocation(id=owner.container, podref=owner.podref, ifname=owner.ifname)


def allocation_patch(changes: Iterable[AllocationChange], *, version: str = "") -> list[dict[str, Any]]:
    """Write changes as one JSON patch; with a version it fits no other, as Whereabouts does it."""
    once = {change.key: change for change in changes}
    operations = [operation for change in once.values() for operation in change.operations()]
    guard = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    return [guard, *operations] if version and operations else operations


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS
