"""Ledger time: what cooldowns, the circuit breaker, timers and history are measured by.

It advances with a boot clock and is stored in the database, so that a clock that is set, by a minute or a month, in
either direction, neither shortens nor prolongs anything. A process that starts continues from the stored time: if both
of its clocks have advanced equally since, by what they show; if not (a reboot, another machine, a clock that was set)
its length is unknown, and no time has passed. Every time in the database is ledger time. The database also has
its difference from the wall clock, from which the times in responses are computed.
"""

import datetime as dt

from msgspec.structs import replace

from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import LedgerTimeRow
from podpool.runtime.clock import Clock

_TOLERANCE = 1.0
"""Seconds. Both clocks of a machine agree within it while neither is set, and displayed times are as exact."""
_SAVE_INTERVAL = 60.0
"""Seconds that a ledger loses at most if its machine reboots."""
_MAX_OFFSETS = 256
"""Differences from the wall clock that are kept: one for each time that a clock was set."""


class LedgerClock:
    """Ledger time in one process; the clock that it is given may be set."""

    def __init__(self, source: Clock) -> None:
        self._source = source
        self._anchor: tuple[float, float] | None = None
        """A ledger time, and the boot clock at that time."""
        self._saved: tuple[float, float] | None = None
        """The wall clock and the boot clock when the ledger time was last stored."""

    def boot(self) -> float:
        """Return the boot clock, for what does not outlive the process."""
        return self._source.boot()

    def now(self, repo: Repository) -> float:
        """Return the ledger time."""
        boot = self._source.boot()
        if self._anchor is None:
            self._anchor = (_resumed(repo.time_row(), wall=self._source.wall(), boot=boot), boot)
        time, since = self._anchor
        return time + (boot - since)

    @property
    def save_due(self) -> bool:
        """Whether the ledger time should be stored: a clock was set, or too much would be lost."""
        if self._saved is None:
            return True
        wall, boot = self._saved
        elapsed = self._source.boot() - boot
        return elapsed >= _SAVE_INTERVAL or abs(self._source.wall() - wall - elapsed) > _TOLERANCE

    def save(self, repo: Repository) -> None:
        """Store the ledger time; a replica whose time is behind that of another continues from the other's."""
        row, now = repo.time_row(), self.now(repo)
        wall, boot = self._source.wall(), self._source.boot()
        now = max(now, row.time or now)
        offset = wall - now
        offsets = row.offsets
        if abs(offset - row.offset_at(now)) > _TOLERANCE:
            offsets = _bounded((*offsets, (now, offset)))
        repo.put_time_row(replace(row, offsets=offsets, time=now, wall=wall, boot=boot))
        self._anchor, self._saved = (now, boot), (wall, boot)


def timestamp(repo: Repository, time: float) -> str:
    """Format a ledger time as RFC 3339, as the wall clock showed it."""
    return dt.datetime.fromtimestamp(repo.time_row().wall_at(time), dt.UTC).isoformat(timespec="milliseconds")


def _bounded(offsets: tuple[tuple[float, float], ...]) -> tuple[tuple[float, float], ...]:
    """Return the latest offsets, of which the first counts for everything before."""
    if len(offsets) <= _MAX_OFFSETS:
        return offsets
    (_, first), *later = offsets[-_MAX_OFFSETS:]
    return (0.0, first), *later


def _resumed(row: LedgerTimeRow, *, wall: float, boot: float) -> float:
    """Return the ledger time at the start of a process."""
    if row.time is None or row.wall is None or row.boot is None:  # a new database, or one of an earlier version
        return wall
    elapsed = boot - row.boot
    consistent = elapsed >= 0 and abs(wall - row.wall - elapsed) <= _TOLERANCE
    return row.time + elapsed if consistent else row.time
