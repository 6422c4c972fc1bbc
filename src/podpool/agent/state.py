"""The agent's state and its journal: every change is journalled before it is applied.

A record that cannot be applied when the journal is replayed is damage, like one that cannot be read: it was written by
two agents at once, or by a defect. An agent that could not start would serve no Pod.

What a failed write, for example on a full disk, did not write did not happen: nothing is lost, Pods keep their
addresses, and new requests are refused. Background work starts again after a pause, from the state that the journal
has, so it recovers without a restart.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from podpool.agent.fence import Fence
from podpool.agent.journal import SEGMENT_BYTES, Journal
from podpool.agent.journal_reader import JournalContents, JournalFormat, read_journal
from podpool.agent.pool import Pool
from podpool.agent.records import AnyRecord, Assigned, NCProgrammed, Snapshot, Started, Stopped, Unassigned
from podpool.agent.secondary.slices import Slices
from podpool.agent.state_lock import require_lock
from podpool.api.meta import rfc3339_micro
from podpool.core.errors import PodpoolError
from podpool.runtime.clock import Clock
from podpool.runtime.disk import Disk
from podpool.runtime.logging import Logger
from podpool.runtime.supervision import raise_if_cancelled

AGENT_JOURNAL: JournalFormat[AnyRecord] = JournalFormat(AnyRecord)
RETRY_INTERVAL = 5.0
"""Seconds between two attempts: soon after space was freed, and with little load on the API server."""


class StateClosed(PodpoolError):
    """The agent has stopped, and nothing may be written any more: its successor has the state."""


class JournalReadError(OSError):
    """A file of the journal cannot be read; the text has its name and the error number."""


class ProgrammedVersions:
    """The versions that the underlay has programmed; without an underlay every version counts as programmed."""

    def __init__(self, *, required: bool) -> None:
        self._required = required
        self._boot_id = ""
        self._versions: dict[str, int] = {}

    @property
    def versions(self) -> Mapping[str, int]:
        """The programmed version of each NC."""
        return self._versions

    def covers(self, nc: str, version: int) -> bool:
        """Return whether an NC is programmed up to a version."""
        return not self._required or version <= self._versions.get(_normalized(nc), -1)

    def new_versions(self, programmed: Mapping[str, int], of: set[str]) -> dict[str, int]:
        """Return the versions of these NCs that were not known; a host may write NC IDs in other letter case."""
        ours = {_normalized(each) for each in of}
        versions = {_normalized(nc): version for nc, version in programmed.items()}
        return {nc: version for nc, version in versions.items() if nc in ours and not self.covers(nc, version)}

    def apply(self, record: AnyRecord) -> None:
        """Apply a record; a machine that rebooted may be on another host."""
        match record:
            case NCProgrammed():
                self._versions |= record.versions
            case Started():
                if record.boot_id != self._boot_id:
                    self._boot_id, self._versions = record.boot_id, {}
            case Snapshot():
                self._boot_id, self._versions = record.boot_id, dict(record.programmed)


class AgentState:
    """Pool, slices and fences as the records define them; with an `underlay` also what it has programmed."""

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        *,
        fence_limit: float,
        underlay: bool = False,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self.programming = ProgrammedVersions(required=underlay)
        self.pool = Pool(is_programmed=self.programming.covers)
        self.slices = Slices()
        self.fence = Fence(clock, limit=fence_limit)
        self.node_fence = Fence(clock, limit=fence_limit, node_only=True)
        self.opened = False
        """Whether the journal was replayed."""
        self.closed = False
        """Whether the agent has stopped."""
        self.journal_id = ""
        """When the journal was created, which identifies it; empty until `open`."""
        self.contested_until = 0.0
        """Until when another agent of this node may assign addresses, on the boot clock (`duplicate_agent`)."""
        self.lost_withheld = False
        """Whether lost grants stay lost for longer: a sandbox without a Pod may use them (`lost_grants`)."""
        self.journal = Journal(disk, AGENT_JOURNAL, self.snapshot, segment_bytes=segment_bytes)
        self._disk = disk
        self._clock = clock
        self._error, self._failed_at = "", -1

    def open(self, *, boot_id: str) -> JournalContents[AnyRecord]:
        """Replay the journal and record the start. Raises `OSError`, and can then be called again."""
        require_lock(self._disk)
        clock = self._clock
        self._apply(Snapshot())  # an earlier call may have failed halfway
        contents = self.journal.open(self._apply)
        if contents.damage:  # of the record that could not be applied, some parts may have applied it
            for record in (Snapshot(), *contents.records):
                self._apply(record)
        boot, wall = clock.boot(), clock.wall()
        journal = self.journal_id or rfc3339_micro(wall)
        self.write(Started(boot_id=boot_id, boot=boot, wall=wall, damaged=contents.damaged, journal=journal))
        self.opened = True
        return contents

    def write(self, record: AnyRecord) -> None:
        """Journal a record, then apply it. Raises `OSError` or `StateClosed` with the state unchanged."""
        if self.closed:
            raise StateClosed(f"the agent has stopped, {type(record).__name__} is not written")
        self.journal.append(record)
        self._apply(record)

    async def sync(self) -> None:
        """Sync everything that was written."""
        await self.journal.sync()

    async def run(self) -> None:
        """Sync in the background and compact the journal, until cancelled."""
        await self.journal.run()

    @property
    def write_error(self) -> str | None:
        """The error of the last failed read, write or sync; None when a later one succeeded."""
        failed = self.journal.sync_failed or self.journal.appended == self._failed_at
        return self._error or None if failed else None

    async def retry(self, work: Callable[[], Awaitable[None]], log: Logger) -> None:
        """Run some work until it is done, and start it again when the disk fails."""
        while True:
            try:
                await asyncio.ensure_future(work())  # a failing task group leaves its own task half cancelled
            except* OSError as group:
                self.report_failure(_first_error(group), log)
            else:
                return
            raise_if_cancelled()
            await asyncio.sleep(RETRY_INTERVAL)

    def report_failure(self, error: BaseException, log: Logger) -> None:
        """Log a failed read or write, once until a write succeeds; `write_error` has it from here on."""
        what = "read" if isinstance(error, JournalReadError) else "write"
        event = f"cannot {what} the journal, no new address is assigned; check the node's disk"
        if self.write_error is None:
            log.error(event, error=error)
        self._failed_at, self._error = self.journal.appended, f"{event}: {error}"

    async def stop(self) -> None:
        """Write the clean-shutdown marker; nothing is written after it, or the journal would not be clean."""
        try:
            self.write(Stopped())
        finally:
            self.closed = True
        await self.sync()

    def _apply(self, record: AnyRecord) -> None:
        if isinstance(record, Assigned | Unassigned):  # those of every ADD and DEL concern nothing else
            self.pool.apply(record)
            return
        if isinstance(record, Started | Snapshot):
            self.journal_id = record.journal
        for part in (self.pool, self.slices, self.fence, self.node_fence, self.programming):
            part.apply(record)

    def snapshot(self) -> Snapshot:
        """Return the whole state as one record."""
        return msgspec.structs.replace(
            self.pool.snapshot(),
            confirmed=self.fence.confirmed,
            node_confirmed=self.node_fence.confirmed,
            slices=self.slices.snapshot(),
            returned_slices=self.slices.returned,
            node_slices=self.slices.observed if self.slices.observed.version else None,
            programmed=dict(self.programming.versions),
            journal=self.journal_id,
        )


def read_agent_journal(disk: Disk) -> JournalContents[AnyRecord]:
    """Read the records that can be applied and change nothing, also while the agent runs."""
    pool, slices = Pool(), Slices()

    def apply(record: AnyRecord) -> None:
        pool.apply(record)
        slices.apply(record)

    return read_journal(disk, AGENT_JOURNAL, apply)


def _first_error(error: BaseException) -> BaseException:
    return _first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _normalized(nc: str) -> str:
    return nc.lower()
