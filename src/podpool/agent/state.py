"""The agent's state and its journal: every change is journalled before it is applied."""

import msgspec

from podpool.agent.fence import Fence
from podpool.agent.journal import SEGMENT_BYTES, Journal, JournalContents, JournalFormat, read_journal
from podpool.agent.pool import Pool
from podpool.agent.pool_snapshot import take_snapshot
from podpool.agent.records import AnyRecord, Snapshot, Started, Stopped
from podpool.agent.secondary.slices import Slices
from podpool.agent.underlay import ProgrammedVersions
from podpool.runtime.clock import Clock
from podpool.runtime.disk import Disk

AGENT_JOURNAL: JournalFormat[AnyRecord] = JournalFormat(AnyRecord)


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
        self.journal = Journal(disk, AGENT_JOURNAL, segment_bytes=segment_bytes)
        self._clock = clock

    def open(self, *, boot_id: str) -> JournalContents[AnyRecord]:
        """Replay the journal and record the start. Raises `OSError` with the state unchanged."""
        contents, clock = self.journal.open(), self._clock
        started = Started(boot_id=boot_id, boot=clock.boot(), wall=clock.wall(), damaged=contents.damaged)
        self.journal.append(started)
        for record in (*contents.records, started):
            self._apply(record)
        self.opened = True
        return contents

    def write(self, record: AnyRecord) -> None:
        """Journal a record, then apply it. Raises `OSError` with the state unchanged."""
        self.journal.append(record)
        self._apply(record)

    async def sync(self) -> None:
        """Sync everything that was written."""
        await self.journal.sync()

    async def run(self) -> None:
        """Sync in the background and compact the journal, until cancelled."""
        while True:
            await self.journal.group_commit()
            if self.journal.needs_compaction:
                await self.journal.compact(self.snapshot())

    async def stop(self) -> None:
        """Write the clean-shutdown marker: nothing may be written after it."""
        self.write(Stopped())
        await self.sync()

    def _apply(self, record: AnyRecord) -> None:
        for part in (self.pool, self.slices, self.fence, self.node_fence, self.programming):
            part.apply(record)

    def snapshot(self) -> Snapshot:
        """Return the whole state as one record."""
        return msgspec.structs.replace(
            take_snapshot(self.pool),
            confirmed=self.fence.confirmed,
            node_confirmed=self.node_fence.confirmed,
            slices=self.slices.snapshot(),
            programmed=dict(self.programming.versions),
        )


def read_agent_journal(disk: Disk) -> JournalContents[AnyRecord]:
    """Read the journal of an agent and change nothing, also while the agent runs."""
    return read_journal(disk, AGENT_JOURNAL)
