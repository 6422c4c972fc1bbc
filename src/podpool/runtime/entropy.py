"""Randomness and UUIDs. Randomness is a `random.Random` that is passed in; the simulator passes a seeded one."""

import random

_UUID = 16
_VERSION = bytes(each & 0x0F | 0x40 for each in range(256))
_VARIANT = bytes(each & 0x3F | 0x80 for each in range(256))
"""Translations of the seventh and ninth byte, which mark a random UUID (RFC 9562)."""


def system_random() -> random.Random:
    """Return the randomness of a real process."""
    return random.SystemRandom()


def new_uuid(rng: random.Random) -> str:
    """Return a new random UUID as text."""
    return uuid_text(*new_uuids(rng, 1))


def new_uuids(rng: random.Random, count: int) -> list[bytes]:
    """Return new random UUIDs as bytes, as they are stored."""
    drawn = bytearray(rng.randbytes(_UUID * count))
    drawn[6::_UUID] = drawn[6::_UUID].translate(_VERSION)
    drawn[8::_UUID] = drawn[8::_UUID].translate(_VARIANT)
    packed = bytes(drawn)
    return [packed[start : start + _UUID] for start in range(0, len(packed), _UUID)]


def uuid_text(packed: bytes) -> str:
    """Return a UUID as text."""
    digits = packed.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
