"""Addresses: integers inside, text only at the edges.

An IPv4 address written as IPv6 (`::ffff:10.0.0.5`) is that IPv4 address. Leading zeros (`010.0.0.5`) are refused,
because half of the world reads them as octal, unless the caller must accept what existing configurations contain: then
they are decimal.
"""

import enum
import ipaddress
import re

import msgspec

from podpool.core.errors import InvalidInput

_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_MAPPED = range(0xFFFF_0000_0000, 0x1_0000_0000_0000)
"""`::ffff:0:0/96`: where IPv6 text spells an IPv4 address."""


class Family(enum.IntEnum):
    """IPv4 or IPv6."""

    V4 = 4
    V6 = 6

    @property
    def bits(self) -> int:
        """The length of an address, and of the longest prefix."""
        return 32 if self is Family.V4 else 128

    @property
    def highest(self) -> int:
        """The last address of all."""
        return (1 << self.bits) - 1

    def text(self, value: int) -> str:
        """Write an address the canonical way (RFC 5952 for IPv6)."""
        if self is Family.V4:
            return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"
        return str(ipaddress.IPv6Address(value))


class Address(msgspec.Struct, frozen=True, order=True):
    """One address."""

    family: Family
    value: int

    def plus(self, offset: int) -> "Address":
        """Count on from here, or back; there is no way around the end of the address space."""
        value = self.value + offset
        if not 0 <= value <= self.family.highest:
            raise InvalidInput("offset", offset, f"leads from {self} out of the IPv{self.family} address space")
        return Address(self.family, value)

    def distance(self, other: "Address") -> int:
        """Count the steps between two addresses of one family, in either direction."""
        if self.family is not other.family:
            reason = f"cannot measure from IPv{self.family} to IPv{other.family}: use two addresses of one family"
            raise InvalidInput("distance", f"{self} to {other}", reason)
        return abs(self.value - other.value)

    def __str__(self) -> str:
        return self.family.text(self.value)


def parse_address(text: str, *, what: str = "address", leading_zeros: bool = False) -> Address:
    """Read `10.0.0.5` or `fd00::5`."""
    plain = _LEADING_ZEROS.sub("", text) if leading_zeros and ":" not in text else text
    if "%" in plain:
        raise InvalidInput(what, text, "a zone (%...) has no meaning here: leave it out")
    try:
        parsed = ipaddress.ip_address(plain)
    except ValueError:
        raise InvalidInput(what, text, "not an IPv4 or IPv6 address") from None
    value = int(parsed)
    if parsed.version == 6 and value in _MAPPED:
        return Address(Family.V4, value - _MAPPED.start)
    return Address(Family(parsed.version), value)
