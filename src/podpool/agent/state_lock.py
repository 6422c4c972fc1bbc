"""One agent per state directory: an agent locks it before it opens its journal, and a successor waits for the lock.

Two agents on one journal would assign addresses that the other has assigned, and release those in use. They overlap in
an upgrade that starts the new Pod first (`maxSurge`), after a Pod was deleted by force and its process runs on, and
where an agent is run by systemd beside the DaemonSet. The lock also precedes the CNI socket, so that plugins reach the
agent that can answer. The kernel releases it with the process.
"""

import asyncio

from podpool.core.errors import PodpoolError
from podpool.runtime.disk import Disk
from podpool.runtime.logging import Logger

PREDECESSOR_TIMEOUT = 120.0
"""Seconds for which a successor waits: a deleted Pod has 30 s to stop, and a rollout takes some to delete it."""
POLL_INTERVAL = 0.1
"""Seconds between two attempts: a plugin waits 5 s for its agent."""
LOG_INTERVAL = 15.0
"""Seconds between two log lines of a waiting agent."""


class StateInUse(PodpoolError):
    """Another agent holds the lock."""

    def __init__(self, directory: str, holder: str, *, waited: float = 0.0) -> None:
        super().__init__(
            f"the state directory {directory} is in use by another agent ({holder}), "
            f"which did not stop within {waited:g} s: stop it; a node runs one agent, in a Pod or on the host"
        )


async def acquire_lock(disk: Disk, log: Logger, *, directory: str) -> None:
    """Lock the state directory; wait for a predecessor to stop. Raises `StateInUse` when it does not."""
    holder = disk.try_lock()
    if holder is None:
        return
    event = "state directory is in use by another agent, waiting for it to stop"
    log.warning(event, directory=directory, holder=holder, waited=0.0, timeout=PREDECESSOR_TIMEOUT)
    per_line = round(LOG_INTERVAL / POLL_INTERVAL)
    for attempt in range(1, round(PREDECESSOR_TIMEOUT / POLL_INTERVAL) + 1):
        await asyncio.sleep(POLL_INTERVAL)
        holder = disk.try_lock()
        if holder is None:
            log.info("predecessor stopped, state directory locked", directory=directory)
            return
        if attempt % per_line == 0:
            waited = round(attempt * POLL_INTERVAL, 1)
            log.warning(event, directory=directory, holder=holder, waited=waited, timeout=PREDECESSOR_TIMEOUT)
    raise StateInUse(directory, holder, waited=PREDECESSOR_TIMEOUT)


def require_lock(disk: Disk) -> None:
    """Lock the directory of a journal without waiting. Raises `StateInUse`."""
    holder = disk.try_lock()
    if holder is not None:
        raise StateInUse("of the journal", holder)
