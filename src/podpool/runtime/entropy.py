"""Randomness is a `random.Random` that is handed in: the system's own on a node, a seeded one in the simulator."""

import random

_UUID = 16
_VERSION = bytes(each & 0x0F | 0x40 for each in range(256))
_VARIANT = bytes(each & 0x3F | 0x80 for each in range(256))
"""What the seventh and the ninth byte become, in which a UUID says that it was drawn (RFC 9562)."""


def system_random() -> random.Random:
    """Make the randomness of a real process."""
    return random.SystemRandom()


def new_uuid(rng: random.Random) -> str:
    """Draw a name that nobody has."""
    return uuid_text(*new_uuids(rng, 1))


def new_uuids(rng: random.Random, count: int) -> list[bytes]:
    """Draw several at once, as they are stored."""
    drawn = bytearray(rng.randbytes(_UUID * count))
    drawn[6::_UUID] = drawn[6::_UUID].translate(_VERSION)
    drawn[8::_UUID] = drawn[8::_UUID].translate(_VARIANT)
    packed = bytes(drawn)
    return [packed[start : start + _UUID] for start in range(0, len(packed), _UUID)]


def uuid_text(packed: bytes) -> str:
    """Write a UUID."""
    digits = packed.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
