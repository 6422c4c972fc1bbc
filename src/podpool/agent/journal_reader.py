"""Reads write-ahead logs: their files, frames and format, and what counts as torn, damaged or not supported.

A log is a snapshot and the segments after it. Each file is a sequence of frames: length of the payload, checksum of
the length, checksum of the payload, payload. The length has its own checksum, because a corrupt length would look like
a torn tail. The first frame of a segment and the snapshot have the number of their format and the version of podpool
that wrote them. Frames and file names never change, so that every version finds the number.

| found | then |
|---|---|
| torn: a prefix of a frame at the end, on which no request was answered | it is truncated |
| damage: a wrong checksum, a missing predecessor, a record that cannot be applied | set aside; no later record counts |
| another version's: a newer format, an unknown record | refused before anything else, nothing is changed |
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from typing import Any, Generic, TypeVar

import msgspec

from podpool import __version__
from podpool.core.errors import PodpoolError
from podpool.runtime.disk import Disk

FORMAT = 1
"""The format that is written."""
NEWEST_FORMAT = 1
"""The newest format that is read: raised a release before `FORMAT`, so that a rollback by one release can read it."""

_LENGTH, _HEADER = struct.Struct("!I"), struct.Struct("!III")
_DEVELOPMENT_HEADER = struct.Struct("!II")
"""Of development versions: without a checksum of the length."""
_DEVELOPMENT = "a development version wrote it"
_COPY = ".damaged-"
"""Between the name and the number of a file that was set aside."""

R = TypeVar("R")


class UnsupportedJournal(PodpoolError):
    """A journal that another version of podpool can read."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(
            f"cannot read the journal file {file}: {reason}; this is podpool {__version__}, which reads journal "
            f"formats up to {NEWEST_FORMAT}. Nothing was changed: run the version that wrote it, or a later one. "
            "To start without it, remove the files of the state directory; the agent then rebuilds its state."
        )


class FileHeader(msgspec.Struct, frozen=True, kw_only=True):
    """The first frame of a segment, and a part of the snapshot. Files without one have format 0."""

    journal_format: int = 0
    podpool: str = ""
    """The version that wrote the file."""


class SnapshotFile(FileHeader, Generic[R], frozen=True, kw_only=True):
    """The snapshot: the state before a segment."""

    segment: int
    """The first segment that is not part of the snapshot."""
    state: R


_HEADERS = msgspec.json.Decoder(FileHeader)


class JournalFormat(Generic[R]):
    """The records of one journal: a union type of tagged structs, one of which is the snapshot.

    The prefix of its file names keeps two journals apart in one directory.
    """

    def __init__(self, record: Any, *, prefix: str = "") -> None:  # noqa: ANN401  a union is not a type
        self.records: msgspec.json.Decoder[R] = msgspec.json.Decoder(record)
        self.snapshots: msgspec.json.Decoder[SnapshotFile[R]] = msgspec.json.Decoder(SnapshotFile[record])
        self.snapshot_file = f"{prefix}snapshot"
        self.damage_marker = f"{prefix}damaged"
        self.sync_marker = f"{prefix}sync-failed"
        self._prefix, self._segment_prefix = prefix, f"{prefix}segment."

    def segment_file(self, number: int) -> str:
        """Return the file name of a segment."""
        return f"{self._segment_prefix}{number:08}"

    def segments(self, disk: Disk) -> list[int]:
        """Return the numbers of the segments on a disk, in order."""
        names = [name for name in disk.names() if name.startswith(self._segment_prefix)]
        suffixes = [name.removeprefix(self._segment_prefix) for name in names]
        return sorted(int(each) for each in suffixes if each.isdecimal())

    def files(self, disk: Disk) -> list[str]:
        """Return the files of the journal that exist."""
        segments = [self.segment_file(each) for each in self.segments(disk)]
        return [self.snapshot_file, *segments] if self.snapshot_file in disk.names() else segments

    def copies(self, disk: Disk) -> dict[int, list[str]]:
        """Return the files that were set aside, by the number of the copy, in order."""
        found: dict[int, list[str]] = {}
        for name in disk.names():
            file, _, number = name.rpartition(_COPY)
            if number.isdecimal() and (file == self.snapshot_file or file.startswith(self._segment_prefix)):
                found.setdefault(int(number), []).append(name)
        return dict(sorted(found.items()))

    def development_files(self, disk: Disk) -> list[str]:
        """Return the logs of JSON lines that development versions wrote: a prefix and a number."""
        names = [name for name in disk.names() if name.startswith(self._prefix)]
        return [name for name in names if name.removeprefix(self._prefix).isdecimal()]

    def copy_of(self, file: str, number: int) -> str:
        """Return the name under which a file is set aside."""
        return f"{file}{_COPY}{number}"


class JournalContents(msgspec.Struct, Generic[R], frozen=True, kw_only=True):
    """What a journal holds: the snapshot, if there is one, and all later records."""

    records: tuple[R, ...] = ()
    torn: int = 0
    """Bytes of a truncated tail, on which no request was answered."""
    damaged: bool = False
    """Records on which requests were answered are lost."""
    damage: str = ""
    """The file with the damage, and what is wrong; empty also if the damage was found earlier."""
    set_aside: str = ""
    """The ending of the names under which the damaged files were kept; empty if they could not be copied."""
    segment: int = 1
    size: int = 0
    """Appending continues in this segment after so many bytes."""
    format: int = FORMAT
    """The format of this segment."""
    discarded: tuple[int, ...] = ()
    """Segments after the damage, which do not count."""


def read_journal(
    disk: Disk, journal_format: JournalFormat[R], apply: Callable[[R], None] = lambda _: None
) -> JournalContents[R]:
    """Read like `replay_journal`, also while an agent writes."""
    snapshot = disk.read(journal_format.snapshot_file)
    contents = replay_journal(disk, journal_format, apply)
    if disk.read(journal_format.snapshot_file) != snapshot:  # compacted meanwhile: segments may be removed
        return read_journal(disk, journal_format, apply)  # the snapshot replaces what was applied
    return contents


def replay_journal(disk: Disk, journal_format: JournalFormat[R], apply: Callable[[R], None]) -> JournalContents[R]:
    """Read and apply every record up to damage, and change nothing on the disk. Raises `UnsupportedJournal`."""
    contents = _Replay(disk, journal_format, apply).run()
    damaged = bool(contents.damage) or disk.read(journal_format.damage_marker) is not None
    return msgspec.structs.replace(contents, damaged=damaged)


def encode_frame(payload: bytes) -> bytes:
    """Return a payload with its header."""
    return _HEADER.pack(len(payload), _length_checksum(len(payload)), zlib.crc32(payload)) + payload


class _Replay(Generic[R]):
    """Reads one journal once."""

    def __init__(self, disk: Disk, journal_format: JournalFormat[R], apply: Callable[[R], None]) -> None:
        self._disk = disk
        self._format = journal_format
        self._apply = apply
        self._records: list[R] = []

    def run(self) -> JournalContents[R]:
        development = self._format.development_files(self._disk)
        if development:
            raise UnsupportedJournal(development[0], _DEVELOPMENT)
        for name in self._format.files(self._disk):
            self._check_supported(name, self._disk.read(name) or b"")
        segments = self._format.segments(self._disk)
        first, damage = self._read_snapshot()
        present = [number for number in segments if number >= first]
        if damage:
            return self._contents(damage=damage, segment=first, discarded=tuple(present))
        return self._read_segments(present, first)

    def _check_supported(self, name: str, content: bytes) -> None:
        """Check that the format of a file and every valid frame in it are known."""
        payloads = [payload for payload, _ in _payloads(content)]
        if not payloads and _is_development_frame(content):
            raise UnsupportedJournal(name, _DEVELOPMENT)
        header = _header(payloads[0]) if payloads else FileHeader()
        if header.journal_format > NEWEST_FORMAT:
            raise UnsupportedJournal(name, f"podpool {header.podpool} wrote it in format {header.journal_format}")
        is_snapshot = name == self._format.snapshot_file
        for payload in payloads[1 if header.journal_format and not is_snapshot else 0 :]:
            try:
                self._format.snapshots.decode(payload) if is_snapshot else self._format.records.decode(payload)
            except msgspec.DecodeError as error:
                raise UnsupportedJournal(name, _unknown_record(payload, error)) from None

    def _contents(self, **fields: Any) -> JournalContents[R]:  # noqa: ANN401  of the struct
        return JournalContents(records=tuple(self._records), **fields)

    def _read_snapshot(self) -> tuple[int, str]:
        """Apply the snapshot; return the first segment after it, and what is wrong with it."""
        name = self._format.snapshot_file
        content = self._disk.read(name)
        if content is None:
            return 1, ""
        payload = next((payload for payload, _ in _payloads(content)), None)
        if payload is None:
            return 1, f"{name}: wrong checksum"
        found = self._format.snapshots.decode(payload)
        failure = self._try_apply(found.state)
        return (1, f"{name}: {failure}") if failure else (found.segment, "")

    def _read_segments(self, present: list[int], first: int) -> JournalContents[R]:
        segment, size, number = first, 0, FORMAT
        for expected, found in enumerate(present, first):
            name = self._format.segment_file(expected)
            if found != expected:
                later = tuple(each for each in present if each > expected)
                damage = f"{name} is missing"
                return self._contents(damage=damage, segment=segment, size=size, format=number, discarded=later)
            segment = found
            content = self._disk.read(name) or b""
            size, number, failure = self._read_segment(content)
            if size < len(content) and not failure and segment != present[-1]:
                failure = f"ends in a partial record at byte {size}, and is not the last"
            if size < len(content):
                return self._contents(
                    torn=len(content) - size,
                    damage=f"{name}: {failure}" if failure else "",
                    segment=segment,
                    size=size,
                    format=number,
                    discarded=tuple(each for each in present if each > segment),
                )
        return self._contents(segment=segment, size=size, format=number)

    def _read_segment(self, content: bytes) -> tuple[int, int, str]:
        """Apply the records; return where the first that does not count starts, the format, and what is wrong."""
        size = number = 0
        for payload, end in _payloads(content):
            if size == 0:
                number = _header(payload).journal_format
            if size or not number:
                failure = self._try_apply(self._format.records.decode(payload))
                if failure:
                    return size, number, f"{failure}, at byte {size}"
            size = end
        return size, number, f"wrong checksum at byte {size}" if _is_damage(content[size:]) else ""

    def _try_apply(self, record: R) -> str:
        """Apply a record; return why it cannot be applied."""
        try:
            self._apply(record)
        except Exception as error:  # noqa: BLE001  whatever is wrong with it, the agent must start
            return f"record {type(record).__name__} cannot be applied ({type(error).__name__}: {error})"
        self._records.append(record)
        return ""


def _header(payload: bytes) -> FileHeader:
    try:
        return _HEADERS.decode(payload)
    except msgspec.DecodeError:
        return FileHeader()


def _unknown_record(payload: bytes, error: msgspec.DecodeError) -> str:
    try:
        record = msgspec.json.decode(payload, type=dict[str, Any])
    except msgspec.DecodeError:
        record = {}
    return f"record {record.get('type') or record.get('is') or 'without a type'} is not known ({error})"


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


def _is_development_frame(content: bytes) -> bool:
    """Return whether a file starts with a frame of development versions."""
    if len(content) < _DEVELOPMENT_HEADER.size:
        return False
    length, checksum = _DEVELOPMENT_HEADER.unpack_from(content)
    payload = content[_DEVELOPMENT_HEADER.size : _DEVELOPMENT_HEADER.size + length]
    return bool(len(payload) == length > 0 and zlib.crc32(payload) == checksum)  # a file of zeros is damage
