"""Write-ahead log: records in checksummed frames, appended to segment files before anything is answered.

What must hold: a record survives the process once `append` has returned, and the machine once `sync` has. Whatever byte
the process died at, `open` applies every appended record, in order, and truncates a torn tail (`journal_reader`).

A damaged journal is copied, if there is space, before anything is removed from it, and the records before the damage
are kept. From before the removal until the next append a marker file records the damage.

Compaction starts a new segment, writes the state before it as the snapshot, then removes the earlier segments; each
step leaves everything readable until the next is done. The numbers of segments have no gaps, so that a missing one is
found. Segments are synced in order, so that none is newer than a hole in the one before it.

After a failed sync the kernel may have dropped what it could not write, and the next sync would succeed without it. So
from then on only a snapshot, written to a new file, makes the records durable, and `sync` fails until one is written.
A marker file hands this on to the next process of this boot, which would read the same page cache.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

import msgspec

from podpool import __version__
from podpool.agent.journal_reader import (
    FORMAT,
    FileHeader,
    JournalContents,
    JournalFormat,
    SnapshotFile,
    encode_frame,
    replay_journal,
)
from podpool.runtime.disk import Disk

GROUP_COMMIT_INTERVAL = 0.02
"""Seconds between two background syncs: what a crash of the machine can lose."""
SEGMENT_BYTES = 1 << 20
"""Bytes after which the journal is compacted: some 5,000 ADDs and DELs, replayed within 0.1 s."""
KEPT_COPIES = 3
"""Damaged journals that are kept; the oldest is removed first."""

R = TypeVar("R")


class Journal(Generic[R]):
    """A write-ahead log of records of one format; `snapshot` returns the result of all records so far as one record."""

    def __init__(
        self,
        disk: Disk,
        journal_format: JournalFormat[R],
        snapshot: Callable[[], R],
        *,
        segment_bytes: int = SEGMENT_BYTES,
    ) -> None:
        self._disk = disk
        self._format = journal_format
        self._snapshot = snapshot
        self._segment_bytes = segment_bytes
        self.appended = 0
        """Records since the start."""
        self.sync_failed = False
        """A sync failed, and no snapshot has been written since."""
        self._segment = 1
        self._size = 0
        self._unsynced: list[int] = []
        self._damaged = False
        self._has_lines = False
        """A log of JSON lines of a development version counts until a snapshot is written."""
        self._dirty = asyncio.Event()
        self._syncing = asyncio.Lock()

    @property
    def size(self) -> int:
        """The bytes of the current segment."""
        return self._size

    def open(self, apply: Callable[[R], None]) -> JournalContents[R]:
        """Apply every record, and remove what does not count; appending continues after it.

        Raises `UnsupportedJournal`, or `OSError`; then it can be called again.
        """
        contents = replay_journal(self._disk, self._format, apply)
        if contents.damaged:
            self._disk.append(self._format.damage_marker, b"!")
        if contents.damage:
            contents = self._set_aside(contents)
        self._remove_uncounted(contents)
        self._segment, self._size, self._damaged = contents.segment, contents.size, contents.damaged
        if contents.size and contents.format != FORMAT:  # a segment has one format
            self._segment, self._size = contents.segment + 1, 0
        self._unsynced = self._format.segments(self._disk)  # the last process may have died before it synced them
        self.sync_failed = self._disk.read(self._format.sync_marker) is not None
        self._has_lines = bool(self._format.line_files(self._disk))
        if self._has_lines:
            self._dirty.set()
        return contents

    def _remove_uncounted(self, contents: JournalContents[R]) -> None:
        for each in contents.discarded:  # first: behind a truncated segment they would count
            self._disk.remove(self._format.segment_file(each))
        if contents.damaged and not contents.records:
            self._disk.remove(self._format.snapshot_file)  # an unreadable snapshot would hide later records
        if contents.torn:
            self._disk.truncate(self._format.segment_file(contents.segment), contents.size)

    def _set_aside(self, contents: JournalContents[R]) -> JournalContents[R]:
        """Copy all files; without space for all there is no copy, since an agent that waited would serve no Pod."""
        number = max(self._format.copies(self._disk), default=0) + 1
        try:
            for file in self._format.files(self._disk):
                self._disk.append(self._format.copy_of(file, number), self._disk.read(file) or b"")
        except OSError as error:
            self._remove_copies(number, number)
            damage = f"{contents.damage}; its files could not be copied ({error})"
            return msgspec.structs.replace(contents, damage=damage)
        self._remove_copies(0, number - KEPT_COPIES)
        return msgspec.structs.replace(contents, set_aside=self._format.copy_of("", number))

    def _remove_copies(self, first: int, last: int) -> None:
        for number, names in self._format.copies(self._disk).items():
            if first <= number <= last:
                for name in names:
                    self._disk.remove(name)

    def append(self, record: R) -> None:
        """Write a record; it survives the process from here on. Raises `OSError` with nothing written."""
        frame = encode_frame(msgspec.json.encode(record))
        if not self._size:
            header = FileHeader(journal_format=FORMAT, podpool=__version__)
            frame = encode_frame(msgspec.json.encode(header)) + frame
        name = self._format.segment_file(self._segment)
        try:
            self._disk.append(name, frame)
        except OSError:
            self._disk.truncate(name, self._size)  # a partial frame would hide every later one
            raise
        self._size += len(frame)
        self.appended += 1
        if self._segment not in self._unsynced:
            self._unsynced.append(self._segment)
        self._dirty.set()
        if self._damaged:
            self._disk.remove(self._format.damage_marker)
            self._damaged = False

    async def run(self) -> None:
        """Sync in the background and compact when a segment is full, until cancelled."""
        while True:
            await self.group_commit()
            if self._size >= self._segment_bytes or self._has_lines:
                await self.compact()

    async def group_commit(self) -> None:
        """Wait for a record, collect more for a moment, and sync them all."""
        await self._dirty.wait()
        await asyncio.sleep(GROUP_COMMIT_INTERVAL)
        await self.sync()

    async def sync(self) -> None:
        """Make everything appended so far survive the machine; raises `OSError` while that is not certain."""
        async with self._syncing:
            if self.sync_failed:
                await self._write_snapshot()
            else:
                await self._sync_segments()

    async def compact(self) -> None:
        """Start a new segment; a snapshot replaces everything before it. On a full disk everything is kept."""
        async with self._syncing:
            with suppress(OSError):
                await self._write_snapshot()

    async def _sync_segments(self) -> None:
        self._dirty.clear()
        segments, self._unsynced = self._unsynced, []
        try:
            while segments:
                await self._disk.sync(self._format.segment_file(segments[0]))
                segments.pop(0)
        finally:
            if segments:  # failed, or cancelled with an unknown result
                self._unsynced = [*segments, *(each for each in self._unsynced if each not in segments)]
                self._dirty.set()
                self.sync_failed = True
                with suppress(OSError):
                    self._disk.append(self._format.sync_marker, b"!")

    async def _write_snapshot(self) -> None:
        if self._size:  # else an earlier snapshot may start at this segment, and a later number would leave a hole
            self._segment, self._size = self._segment + 1, 0
        first, state = self._segment, self._snapshot()
        file = SnapshotFile(journal_format=FORMAT, podpool=__version__, segment=first, state=state)
        await self._disk.replace(self._format.snapshot_file, encode_frame(msgspec.json.encode(file)))
        self._unsynced = [each for each in self._unsynced if each >= first]
        if not self._unsynced:
            self._dirty.clear()
        if self.sync_failed:
            self._disk.remove(self._format.sync_marker)
            self.sync_failed = False
        for number in self._format.segments(self._disk):
            if number < first:
                self._disk.remove(self._format.segment_file(number))
        for name in self._format.line_files(self._disk) if self._has_lines else ():
            self._disk.remove(name)
        self._has_lines = False
