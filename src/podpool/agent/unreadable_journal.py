"""Journal files that the disk cannot read: they are tried again for a while, then the agent exits with an error.

A device may return, so nothing is removed: what cannot be read cannot be copied either. The agent is not ready
meanwhile and answers with the reason. After the exit the kubelet starts it again, with increasing pauses; the error
names the file and what to do if it stays unreadable.
"""

from podpool.agent.secondary.shared_range_journal import SHARED_RANGE_JOURNAL
from podpool.agent.state import AGENT_JOURNAL, JournalReadError
from podpool.core.errors import PodpoolError
from podpool.runtime.clock import Clock
from podpool.runtime.disk import Disk

READ_TIMEOUT = 120.0
"""Seconds for which an agent tries: as long as it waits for the lock of its state directory."""


class JournalUnreadable(PodpoolError):
    """A journal file could not be read for too long."""

    def __init__(self, error: OSError) -> None:
        super().__init__(
            f"cannot read the agent's journal ({error}), tried for {READ_TIMEOUT:g} s: check the node's disk; if the "
            "file stays unreadable, move it out of the state directory: assignments are then rebuilt as after damage"
        )


class ReadCheck:
    """Reads every journal file before the journals are opened."""

    def __init__(self, disk: Disk, clock: Clock) -> None:
        self._disk = disk
        self._clock = clock
        self._failing_since: float | None = None

    def require_readable(self) -> None:
        """Raise `JournalReadError` for a file that cannot be read; `JournalUnreadable` if that has lasted too long."""
        error = self._read_error()
        if error is None:
            return
        now = self._clock.boot()
        if self._failing_since is None:
            self._failing_since = now
        if now - self._failing_since >= READ_TIMEOUT:
            raise JournalUnreadable(error) from error
        raise error

    def _read_error(self) -> JournalReadError | None:
        for journal in (AGENT_JOURNAL, SHARED_RANGE_JOURNAL):
            for file in journal.files(self._disk):
                try:
                    self._disk.read(file)
                except OSError as error:
                    return JournalReadError(error.errno, error.strerror, error.filename or file)
        return None
