"""Randomness is a `random.Random` that is handed in: the system's own on a node, a seeded one in the simulator."""

import random
import uuid


def system() -> random.Random:
    """Make the randomness of a real process."""
    return random.SystemRandom()


def new_uuid(rng: random.Random) -> str:
    """Draw a name that nobody has."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))
