"""The allocations of an IPPool as addresses, and changes of them as JSON patches.

The key of an allocation is the decimal offset of its address from the address in `spec.range`, of any size. Whereabouts
itself reads no key of 2^63 or more, and in a range wider than a /64 it writes only the low 64 bits of the offset. Keys
that are invalid or outside the range are reported and left in place: objects are only patched, never replaced.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from podpool.api.whereabouts import Allocation, IPPoolSpec
from podpool.core.addresses import Address, parse_address
from podpool.core.ranges import Prefix, parse_prefix
from podpool.whereabouts.cni_args import PodInterface

_MAX_DIGITS = len(str(1 << 128))


class IPPoolEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One allocation."""

    key: str
    address: Address
    allocation: Allocation

    @property
    def owner(self) -> tuple[str, str]:
        """The Pod and the interface."""
        return self.allocation.podref, self.allocation.ifname


class ParsedIPPool(msgspec.Struct, frozen=True, kw_only=True):
    """The range and the allocations of an IPPool."""

    prefix: Prefix
    base: Address
    """What keys are offsets from: the address of the range as written."""
    entries: tuple[IPPoolEntry, ...] = ()
    """By address."""
    invalid_keys: tuple[str, ...] = ()
    """Keys that are not numbers, or outside the range."""

    def key(self, address: Address) -> str:
        """Return the key of an address."""
        return str(address.value - self.base.value)


class AllocationChange(msgspec.Struct, frozen=True, kw_only=True):
    """One entry before and after. Both are equal when there is nothing to write."""

    key: str
    address: Address
    before: Allocation | None
    after: Allocation | None

    def operations(self) -> list[dict[str, Any]]:
        """Return a JSON patch that applies only to the entry as it was before."""
        path = f"/spec/allocations/{self.key.replace('~', '~0').replace('/', '~1')}"
        if self.before == self.after:
            return []
        if self.before is None:
            entry = {"op": "add", "path": path, "value": msgspec.to_builtins(self.after)}
            return [{"op": "test", "path": path, "value": None}, entry]
        test = {"op": "test", "path": f"{path}/id", "value": self.before.id}
        if self.after is None:
            return [test, {"op": "remove", "path": path}]
        return [test, {"op": "replace", "path": f"{path}/id", "value": self.after.id}]


def parse_ippool(spec: IPPoolSpec) -> ParsedIPPool:
    """Parse an IPPool, or raise `InvalidInput` if its range is invalid."""
    prefix = parse_prefix(spec.range, what="spec.range")
    base = parse_address(spec.range.partition("/")[0], what="spec.range")
    inside, entries, invalid_keys = prefix.range, [], []
    for key, allocation in spec.allocations.items():
        value = base.value + int(key) if _is_number(key) else -1
        if value in inside:
            entries.append(IPPoolEntry(key=key, address=Address(prefix.family, value), allocation=allocation))
        else:
            invalid_keys.append(key)
    entries.sort(key=lambda entry: entry.address.value)
    return ParsedIPPool(prefix=prefix, base=base, entries=tuple(entries), invalid_keys=tuple(invalid_keys))


def allocation_for(owner: PodInterface) -> Allocation:
    """Return the allocation to write for an owner."""
    return Allocation(id=owner.container_id, podref=owner.podref, ifname=owner.ifname)


def allocation_patch(changes: Iterable[AllocationChange], *, version: str = "") -> list[dict[str, Any]]:
    """Return changes as one JSON patch. With a resourceVersion it applies only to that, as Whereabouts' patches."""
    by_key = {change.key: change for change in changes}
    operations = [operation for change in by_key.values() for operation in change.operations()]
    test = {"op": "test", "path": "/metadata/resourceVersion", "value": version}
    return [test, *operations] if version and operations else operations


def _is_number(key: str) -> bool:
    return key.isascii() and key.isdigit() and len(key) <= _MAX_DIGITS
