"""The agent's state and its journal as one: nothing changes in the one that is not in the other first."""

import msgspec

from podpool.agent.fence import Fence
from podpool.agent.journal import SEGMENT, Found, Journal
from podpool.agent.pool import Pool
from podpool.agent.records import AnyRecord, Snapshot, Started, Stopped
from podpool.agent.secondary.slices import Slices
from podpool.agent.underlay import Programming
from podpool.runtime.clock import Clock
from podpool.runtime.disk import Disk


class Book:
    """Pool, slices and fences, as the records have made them; with an `underlay`, what it has programmed, too."""

    def __init__(
        self, disk: Disk, clock: Clock, *, fence_limit: float, underlay: bool = False, segment: int = SEGMENT
    ) -> None:
        self.programming = Programming(asked=underlay)
        self.pool = Pool(programmed=self.programming.covers)
        self.slices = Slices()
        self.fence = Fence(clock, limit=fence_limit)
        self.node_fence = Fence(clock, limit=fence_limit, node_only=True)
        self._clock = clock
        self._journal = Journal(disk, segment=segment)

    @property
    def journal(self) -> Journal:
        """What it is written down in, to look at."""
        return self._journal

    def open(self, *, boot_id: str) -> Found:
        """Read what earlier agents wrote, and go on from there: where the disk refuses, nothing has happened."""
        found, clock = self._journal.open(), self._clock
        started = Started(boot_id=boot_id, boot=clock.boot(), wall=clock.wall(), damaged=found.damaged)
        self._journal.append(started)
        for record in (*found.records, started):
            self._apply(record)
        return found

    def write(self, record: AnyRecord) -> None:
        """Write a record, then change as it says: where the disk refuses, nothing has happened."""
        self._journal.append(record)
        self._apply(record)

    async def sync(self) -> None:
        """Bring everything that was written to the platter."""
        await self._journal.sync()

    async def run(self) -> None:
        """Sync in the background and keep the journal short, for ever."""
        while True:
            await self._journal.group()
            if self._journal.long:
                await self._journal.compact(self.snapshot())

    async def stop(self) -> None:
        """End in good order: nothing may be written after this."""
        self.write(Stopped())
        await self.sync()

    def _apply(self, record: AnyRecord) -> None:
        for part in (self.pool, self.slices, self.fence, self.node_fence, self.programming):
            part.apply(record)

    def snapshot(self) -> Snapshot:
        """Write down everything as it is."""
        return msgspec.structs.replace(
            self.pool.snapshot(),
            confirmed=self.fence.confirmed,
            node_confirmed=self.node_fence.confirmed,
            slices=self.slices.snapshot(),
            programmed=dict(self.programming.versions),
        )
