"""One agent per state directory: an agent locks it before it opens its journal, and a successor waits for the lock.

Two agents on one journal would assign addresses that the other has assigned, and release those in use. They overlap in
an upgrade that starts the new Pod first (`maxSurge`), after a Pod was deleted by force and its process runs on, and
where an agent is run by systemd beside the DaemonSet. The lock also precedes the CNI socket, so that plugins reach the
agent that can answer, and the port, which both may have in the node's network. The kernel releases it with the process.

A disk on which the lock file cannot be opened is retried alike: a process that exited at once would be started again.
"""

import asyncio

from podpool.core.errors import PodpoolError
from podpool.runtime.disk import Disk
from podpool.runtime.logging import Logger

PREDECESSOR_TIMEOUT = 120.0
"""Seconds for which an agent tries: a deleted Pod has 30 s to stop, and a rollout takes some to delete it."""
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


class LockFailed(PodpoolError):
    """The lock file cannot be opened or locked."""

    def __init__(self, directory: str, error: OSError, *, waited: float) -> None:
        super().__init__(
            f"cannot lock the state directory {directory} ({error}), tried for {waited:g} s: "
            "it must be writable, and the node's disk have free space and inodes"
        )


async def acquire_lock(disk: Disk, log: Logger, *, directory: str) -> None:
    """Lock the state directory; wait for a predecessor to stop, or for a disk that fails.

    Raises `StateInUse` or `LockFailed` when that takes too long.
    """
    obstacle = _try_lock(disk)
    if obstacle is None:
        return
    per_line = round(LOG_INTERVAL / POLL_INTERVAL)
    for attempt in range(round(PREDECESSOR_TIMEOUT / POLL_INTERVAL)):
        if attempt % per_line == 0:
            _log_obstacle(obstacle, log, directory=directory, waited=round(attempt * POLL_INTERVAL, 1))
        await asyncio.sleep(POLL_INTERVAL)
        obstacle = _try_lock(disk)
        if obstacle is None:
            log.info("lock of the state directory acquired", directory=directory)
            return
    if isinstance(obstacle, OSError):
        raise LockFailed(directory, obstacle, waited=PREDECESSOR_TIMEOUT) from obstacle
    raise StateInUse(directory, obstacle, waited=PREDECESSOR_TIMEOUT)


def _try_lock(disk: Disk) -> str | OSError | None:
    """Return the holder of the lock, or why it cannot be locked; None when it is locked."""
    try:
        return disk.try_lock()
    except OSError as error:
        return error


def _log_obstacle(obstacle: str | OSError, log: Logger, *, directory: str, waited: float) -> None:
    times = {"waited": waited, "timeout": PREDECESSOR_TIMEOUT}
    if isinstance(obstacle, OSError):
        event = "cannot lock the state directory, retrying; check the node's disk"
        log.warning(event, directory=directory, error=obstacle, **times)
    else:
        event = "state directory is in use by another agent, waiting for it to stop"
        log.warning(event, directory=directory, holder=obstacle, **times)


def require_lock(disk: Disk) -> None:
    """Lock the directory of a journal without waiting. Raises `StateInUse`."""
    holder = disk.try_lock()
    if holder is not None:
        raise StateInUse("of the journal", holder)
