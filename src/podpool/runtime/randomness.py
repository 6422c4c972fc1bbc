"""Randomness is a `random.Random` that is handed in: the system's own on a node, a seeded one in the simulator."""

import random

_MARKED = ~(0xF << 76 | 0x3 << 62)
_VERSION = 0x4 << 76 | 0x2 << 62
"""Where a UUID says that it was drawn (RFC 9562)."""


def system() -> random.Random:
    """Make the randomness of a real process."""
    return random.SystemRandom()


def new_uuid(rng: random.Random) -> str:
    """Draw a name that nobody has."""
    return uuid_text(new_uuid_bytes(rng))


def new_uuid_bytes(rng: random.Random) -> bytes:
    """Draw one as it is stored."""
    return (rng.getrandbits(128) & _MARKED | _VERSION).to_bytes(16)


def uuid_text(packed: bytes) -> str:
    """Write a UUID."""
    digits = packed.hex()
    return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"
