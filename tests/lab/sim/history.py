"""A history as one number: `python -m tests.lab.sim.history CLIMATE SEED` prints it.

In it is everything that was written to the API servers, with its moment, the ledger's books, and every file of every
machine.
"""

import hashlib
import json
import logging
import sys

from podpool.lab.apiserver.watch_cache import Event
from podpool.lab.sim.runner import Stage
from podpool.lab.sim.scenario import CLIMATES, draw


def fingerprint(climate: str, seed: int) -> str:
    """Play a seed, and tell what it came to."""
    stage, told = Stage(seed, CLIMATES[climate]), hashlib.sha256()

    def note(event: Event) -> None:
        words = [stage.world.loop.time(), event.id, event.key, event.gone, event.new]
        told.update(json.dumps(words).encode())

    for world in stage.worlds:
        world.store.written.append(note)
    stage.play(draw(seed, CLIMATES[climate]))
    told.update(stage.world.office.image())
    for host in (each for world in stage.worlds for each in world.hosts.values()):
        for name in host.machine.disk.names():
            told.update(name.encode() + (host.machine.disk.read(name) or b""))
    return f"{told.hexdigest()} {stage.steps}"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(fingerprint(sys.argv[1], int(sys.argv[2])))
