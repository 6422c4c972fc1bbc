"""Write-ahead log: records in checksummed frames, appended to segment files before anything is answered.

What must hold: a record survives the process once `append` has returned, and the machine once `sync` has. Whatever byte
the process died at, `open` returns every appended record, in order. A torn write is a prefix of a valid frame: it is
truncated and reported, because no request was answered on it. Anything else that cannot be read is damage: records
after it do not count, nor does a segment whose predecessor is missing. The agent starts nevertheless. From before the
truncation until the next append a marker file records the damage. A frame's length has its own checksum, because a
corrupt length would look like a torn tail.

Compaction starts a new segment, writes the state before it as the snapshot, then removes the earlier segments; each
step leaves everything readable until the next is done. Segments are synced in order, so that none is newer than a hole
in the one before it.
"""

import asyncio
import struct
import zlib
from collections.abc import Iterator
from typing import Any, Generic, TypeVar

import msgspec

from podpool.runtime.disk import Disk

GROUP_COMMIT_INTERVAL = 0.02
"""Seconds between two background syncs: what a crash of the machine can lose."""
SEGMENT_BYTES = 1 << 20
"""Bytes after which the journal is compacted: some 5,000 ADDs and DELs, replayed within 0.1 s."""

_LENGTH, _HEADER = struct.Struct("!I"), struct.Struct("!III")
"""The header of a frame: payload length, checksum of the length, checksum of the payload."""

R = TypeVar("R")


class _SnapshotFile(msgspec.Struct, Generic[R], frozen=True):
    segment: int
    """The first segment that is not part of the snapshot."""
    state: R


class JournalFormat(Generic[R]):
    """The records of one journal: a union type of tagged structs, one of which is the snapshot.

    The prefix of its file names keeps two journals apart in one directory.
    """

    def __init__(self, record: Any, *, prefix: str = "") -> None:  # noqa: ANN401  a union is not a type
        self.records: msgspec.json.Decoder[R] = msgspec.json.Decoder(record)
        self.snapshots: msgspec.json.Decoder[_SnapshotFile[R]] = msgspec.json.Decoder(_SnapshotFile[record])
        self.snapshot_file = f"{prefix}snapshot"
        self.damage_marker = f"{prefix}damaged"
        self._segment_prefix = f"{prefix}segment."

    def segment_file(self, number: int) -> str:
        """Return the file name of a segment."""
        return f"{self._segment_prefix}{number:08}"

    def segments(self, disk: Disk) -> list[int]:
        """Return the numbers of the segments on a disk, in order."""
        names = [name for name in disk.names() if name.startswith(self._segment_prefix)]
        suffixes = [name.removeprefix(self._segment_prefix) for name in names]
        return sorted(int(each) for each in suffixes if each.isdecimal())


class JournalContents(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """What a journal holds: the snapshot, if there is one, and all later records."""

    records: tuple[R, ...] = ()
    torn: int = 0
    """Bytes of a truncated tail, on which no request was answered."""
    damaged: bool = False
    """Records on which requests were answered are lost."""
    segment: int = 1
    size: int = 0
    """Appending continues in this segment after so many bytes."""
    discarded: tuple[int, ...] = ()
    """Segments after the damage, which do not count."""


class Journal(Generic[R]):
    """A write-ahead log of records of one format; `compact` it when `needs_compaction`."""

    def __init__(self, disk: Disk, journal_format: JournalFormat[R], *, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._disk = disk
        self._format = journal_format
        self._segment_bytes = segment_bytes
        self.appended = 0
        """Records since the start."""
        self._segment = 1
        self._size = 0
        self._unsynced: list[int] = []
        self._damaged = False
        self._dirty = asyncio.Event()
        self._syncing = asyncio.Lock()

    @property
    def size(self) -> int:
        """The bytes of the current segment."""
        return self._size

    @property
    def needs_compaction(self) -> bool:
        """Whether the current segment has reached its maximum size."""
        return self._size >= self._segment_bytes

    def open(self) -> JournalContents[R]:
        """Read everything and truncate a torn tail; appending continues after it."""
        contents = read_journal(self._disk, self._format)
        self._segment, self._size, self._damaged = contents.segment, contents.size, contents.damaged
        if contents.damaged:
            self._disk.append(self._format.damage_marker, b"!")
        if contents.torn:
            self._disk.truncate(self._format.segment_file(contents.segment), contents.size)
        if contents.damaged and not contents.records:
            self._disk.remove(self._format.snapshot_file)  # an unreadable snapshot would hide later records
        for each in contents.discarded:
            self._disk.remove(self._format.segment_file(each))
        return contents

    def append(self, record: R) -> None:
        """Write a record; it survives the process from here on. Raises `OSError` with nothing written."""
        frame = _frame(msgspec.json.encode(record))
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

    async def sync(self) -> None:
        """Sync everything appended so far."""
        async with self._syncing:
            self._dirty.clear()
            segments, self._unsynced = self._unsynced, []
            try:
                while segments:
                    await self._disk.sync(self._format.segment_file(segments[0]))
                    segments.pop(0)
            finally:
                self._keep_unsynced(segments)

    def _keep_unsynced(self, segments: list[int]) -> None:
        if segments:
            self._unsynced = [*segments, *(each for each in self._unsynced if each not in segments)]
            self._dirty.set()

    async def group_commit(self) -> None:
        """Wait for a record, collect more for a moment, and sync them all."""
        await self._dirty.wait()
        await asyncio.sleep(GROUP_COMMIT_INTERVAL)
        await self.sync()

    async def compact(self, snapshot: R) -> None:
        """Start a new segment; `snapshot` replaces everything before it. On a full disk everything is kept."""
        self._segment += 1
        self._size = 0
        first = self._segment
        await self.sync()
        try:
            content = _frame(msgspec.json.encode(_SnapshotFile(first, snapshot)))
            await self._disk.replace(self._format.snapshot_file, content)
        except OSError:
            return
        for number in self._format.segments(self._disk):
            if number < first:
                self._disk.remove(self._format.segment_file(number))


def read_journal(disk: Disk, journal_format: JournalFormat[R]) -> JournalContents[R]:
    """Read up to the first unreadable byte and change nothing, also while an agent writes."""
    snapshot = disk.read(journal_format.snapshot_file)
    contents = _read_segments(disk, journal_format, snapshot)
    if disk.read(journal_format.snapshot_file) != snapshot:
        return read_journal(disk, journal_format)  # compacted meanwhile: segments may be removed
    damaged = contents.damaged or disk.read(journal_format.damage_marker) is not None
    return msgspec.structs.replace(contents, damaged=damaged)


def _read_segments(disk: Disk, journal_format: JournalFormat[R], snapshot: bytes | None) -> JournalContents[R]:
    first, damaged = _read_snapshot(journal_format, snapshot)
    segment, size = first.segment if first else 1, 0
    records: list[R] = [first.state] if first else []
    present = [number for number in journal_format.segments(disk) if number >= segment]
    if damaged or (present and present[0] != segment):  # their predecessor is missing: none of them counts
        return JournalContents(records=tuple(records), damaged=True, segment=segment, discarded=tuple(present))
    for segment in present:
        content = disk.read(journal_format.segment_file(segment)) or b""
        read, size = _read_records(journal_format, content)
        records += read
        if size < len(content):
            torn, damaged = len(content) - size, _is_damage(content[size:]) or segment != present[-1]
            later = tuple(each for each in present if each > segment)
            return JournalContents(
                records=tuple(records), torn=torn, damaged=damaged, segment=segment, size=size, discarded=later
            )
    return JournalContents(records=tuple(records), segment=segment, size=size)


def _read_snapshot(journal_format: JournalFormat[R], content: bytes | None) -> tuple[_SnapshotFile[R] | None, bool]:
    """Return the snapshot, and whether it is damaged."""
    if content is None:
        return None, False
    payloads = list(_payloads(content))
    try:
        return journal_format.snapshots.decode(payloads[0][0]), False
    except (IndexError, msgspec.DecodeError):
        return None, True


def _read_records(journal_format: JournalFormat[R], content: bytes) -> tuple[list[R], int]:
    """Return the records up to the first unreadable one, and where that starts."""
    records: list[R] = []
    size = 0
    for payload, end in _payloads(content):
        try:
            records.append(journal_format.records.decode(payload))
        except msgspec.DecodeError:
            break
        size = end
    return records, size


def _frame(payload: bytes) -> bytes:
    return _HEADER.pack(len(payload), _length_checksum(len(payload)), zlib.crc32(payload)) + payload


def _length_checksum(length: int) -> int:
    return zlib.crc32(_LENGTH.pack(length))


def _payloads(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Yield the payload of each valid frame, and where the frame ends."""
    at = 0
    while at + _HEADER.size <= len(content):
        length, length_checksum, checksum = _HEADER.unpack_from(content, at)
        end = at + _HEADER.size + length
        if length_checksum != _length_checksum(length) or end > len(content):
            return
        payload = content[at + _HEADER.size : end]
        if zlib.crc32(payload) != checksum:
            return
        yield payload, end
        at = end


def _is_damage(tail: bytes) -> bool:
    """Return whether this is not a prefix of a valid frame."""
    if len(tail) < _HEADER.size:
        return False
    length, length_checksum, _ = _HEADER.unpack_from(tail)
    return bool(length_checksum != _length_checksum(length) or _HEADER.size + length <= len(tail))
