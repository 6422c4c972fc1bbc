"""IP addresses: integers inside podpool, text only at its edges.

An IPv4-mapped IPv6 address (`::ffff:10.0.0.5`) is that IPv4 address. Leading zeros (`010.0.0.5`) are rejected because
many parsers read them as octal, unless the caller must accept existing configurations: then they are decimal.
"""

import enum
import ipaddress
import re

import msgspec

from podpool.core.errors import InvalidInput

_LEADING_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
_MAPPED = range(0xFFFF_0000_0000, 0x1_0000_0000_0000)
"""`::ffff:0:0/96`, the IPv4-mapped IPv6 addresses."""
_OCTETS = {str(octet): octet for octet in range(256)}


class Family(enum.IntEnum):
    """IPv4 or IPv6."""

    V4 = 4
    V6 = 6

    @property
    def bits(self) -> int:
        """The length of an address in bits."""
        return 32 if self is Family.V4 else 128

    @property
    def highest(self) -> int:
        """The last address of the family."""
        return (1 << self.bits) - 1

    def text(self, value: int) -> str:
        """Return an address as canonical text (RFC 5952 for IPv6)."""
        if self is Family.V4:
            return f"{value >> 24}.{value >> 16 & 255}.{value >> 8 & 255}.{value & 255}"
        return str(ipaddress.IPv6Address(value))


class Address(msgspec.Struct, frozen=True, order=True):
    """One IP address."""

    family: Family
    value: int

    def __str__(self) -> str:
        return self.family.text(self.value)


def parse_address(text: str, *, what: str = "address", leading_zeros: bool = False) -> Address:
    """Parse `10.0.0.5` or `fd00::5`."""
    plain = _LEADING_ZEROS.sub("", text) if leading_zeros and ":" not in text else text
    if "%" in plain:
        raise InvalidInput(what, text, "an address with a zone (%...) is not allowed: remove the zone")
    try:
        return _parse(plain)
    except (KeyError, ValueError):
        raise InvalidInput(what, text, "not an IPv4 or IPv6 address") from None


def _parse(text: str) -> Address:
    if ":" not in text:  # nearly all; ipaddress takes eight times as long
        a, b, c, d = (_OCTETS[each] for each in text.split("."))
        return Address(Family.V4, a << 24 | b << 16 | c << 8 | d)
    value = int(ipaddress.IPv6Address(text))
    return Address(Family.V4, value - _MAPPED.start) if value in _MAPPED else Address(Family.V6, value)
