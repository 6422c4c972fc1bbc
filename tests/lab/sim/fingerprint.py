"""The fingerprint of a run: `python -m tests.lab.sim.fingerprint PROFILE SEED` prints it.

It covers every write to the API servers with its time, the ledger's database, and every file of every machine.
"""

import hashlib
import json
import logging
import sys

from podpool.lab.apiserver.watch_cache import StoreEvent
from podpool.lab.sim.profiles import PROFILES
from podpool.lab.sim.scenario import draw
from podpool.lab.sim.scenario_runner import ScenarioRunner


def fingerprint(profile: str, seed: int) -> str:
    """Run a seed, and return its hash and its number of steps."""
    runner, digest = ScenarioRunner(seed, PROFILES[profile]), hashlib.sha256()

    def on_write(event: StoreEvent) -> None:
        fields = [runner.first.loop.time(), event.id, event.key, event.deleted, event.new]
        digest.update(json.dumps(fields).encode())

    for cluster in runner.clusters:
        cluster.store.on_write.append(on_write)
    runner.run(draw(seed, PROFILES[profile]))
    digest.update(runner.first.ledger_host.image())
    for host in (each for cluster in runner.clusters for each in cluster.hosts.values()):
        for name in host.machine.disk.names():
            digest.update(name.encode() + (host.machine.disk.read(name) or b""))
    return f"{digest.hexdigest()} {runner.steps}"


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    print(fingerprint(sys.argv[1], int(sys.argv[2])))
