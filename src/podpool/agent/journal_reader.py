"""Reads write-ahead logs: their files and format, and what counts as torn, damaged or not supported.

A log is a snapshot and the segments after it. Each file is a sequence of frames (`journal_frames`). The first frame of
a segment and the snapshot have the number of their format and the version of podpool that wrote them. Frames and file
names do not change any more, so that every version finds the number.

Files without a number are of development versions (`journal_upgrade`). They wrote the shared-range log in lines of
JSON: such a file precedes the first segment, until a snapshot replaces it.

| found | then |
|---|---|
| torn: a prefix of a frame at the end, on which no request was answered | it is truncated |
| damage: a wrong checksum, a missing predecessor, a record that cannot be applied | set aside; no later record counts |
| another version's: a newer format, an unknown record | refused before anything else, nothing is changed |
"""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import msgspec

from podpool import __version__
from podpool.agent.journal_frames import FRAMES, LINES, UNCHECKED_LENGTHS, Layout, frame_layout
from podpool.agent.journal_upgrade import FormerRecords
from podpool.core.errors import PodpoolError
from podpool.runtime.disk import Disk

FORMAT = 2
"""The format that is written."""
NEWEST_FORMAT = 2
"""The newest format that is read: raised a release before `FORMAT`, so that a rollback by one release can read it."""

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
        self._records: msgspec.json.Decoder[R] = msgspec.json.Decoder(record)
        self._snapshots: msgspec.json.Decoder[SnapshotFile[R]] = msgspec.json.Decoder(SnapshotFile[record])
        self._former = FormerRecords(record)
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
        snapshot = [self.snapshot_file] if self.snapshot_file in disk.names() else []
        return [*snapshot, *self.line_files(disk), *segments]

    def copies(self, disk: Disk) -> dict[int, list[str]]:
        """Return the files that were set aside, by the number of the copy, in order."""
        found: dict[int, list[str]] = {}
        for name in disk.names():
            file, _, number = name.rpartition(_COPY)
            if number.isdecimal() and (self._has_frames(file) or self._has_lines(file)):
                found.setdefault(int(number), []).append(name)
        return dict(sorted(found.items()))

    def line_files(self, disk: Disk) -> list[str]:
        """Return the logs of JSON lines that development versions wrote, oldest first: a prefix and a number."""
        return [name for name in disk.names() if self._has_lines(name)]

    def layout(self, name: str, content: bytes) -> Layout:
        """Return the layout of a file."""
        return frame_layout(content) if self._has_frames(name) else LINES

    def decode_record(self, payload: bytes, header: "FileHeader", layout: Layout) -> R:
        """Decode a record of a file with this header; raises `msgspec.DecodeError`."""
        if header.journal_format == FORMAT:
            return self._records.decode(payload)
        return self._upgraded(msgspec.json.decode(payload, type=dict[str, Any]), layout)

    def decode_snapshot(self, payload: bytes, layout: Layout) -> SnapshotFile[R]:
        """Decode a snapshot; raises `msgspec.DecodeError`."""
        if _header(payload).journal_format == FORMAT:
            return self._snapshots.decode(payload)
        file = msgspec.json.decode(payload, type=SnapshotFile[dict[str, Any]])
        return SnapshotFile(segment=file.segment, state=self._upgraded(file.state, layout))

    def _has_frames(self, name: str) -> bool:
        return name == self.snapshot_file or name.startswith(self._segment_prefix)

    def _has_lines(self, name: str) -> bool:
        return bool(self._prefix) and name.startswith(self._prefix) and name.removeprefix(self._prefix).isdecimal()

    def _upgraded(self, record: dict[str, Any], layout: Layout) -> R:
        return self._former.upgrade(record, unchecked=layout is UNCHECKED_LENGTHS)  # type: ignore[no-any-return]  # of the union

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
    return FRAMES.encode(payload)


class _Replay(Generic[R]):
    """Reads one journal once."""

    def __init__(self, disk: Disk, journal_format: JournalFormat[R], apply: Callable[[R], None]) -> None:
        self._disk = disk
        self._format = journal_format
        self._apply = apply
        self._records: list[R] = []

    def run(self) -> JournalContents[R]:
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
        layout = self._format.layout(name, content)
        payloads = [payload for payload, _ in layout.payloads(content)]
        header = _header(payloads[0]) if payloads else FileHeader()
        if header.journal_format > NEWEST_FORMAT:
            raise UnsupportedJournal(name, f"podpool {header.podpool} wrote it in format {header.journal_format}")
        is_snapshot = name == self._format.snapshot_file
        for payload in payloads[1 if header.journal_format and not is_snapshot else 0 :]:
            try:
                if is_snapshot:
                    self._format.decode_snapshot(payload, layout)
                else:
                    self._format.decode_record(payload, header, layout)
            except msgspec.DecodeError as error:
                raise UnsupportedJournal(name, _unknown_record(payload, error)) from None

    def _contents(self, **fields: Any) -> JournalContents[R]:  # noqa: ANN401  of the struct
        return JournalContents(records=tuple(self._records), **fields)

    def _read_snapshot(self) -> tuple[int, str]:
        """Apply the snapshot; return the first segment after it, and what is wrong with it."""
        name = self._format.snapshot_file
        content = self._disk.read(name)
        if content is None:
            return 1, self._read_lines()
        layout = self._format.layout(name, content)
        payload = next((payload for payload, _ in layout.payloads(content)), None)
        if payload is None:
            return 1, f"{name}: wrong checksum"
        found = self._format.decode_snapshot(payload, layout)
        failure = self._try_apply(found.state)
        return (1, f"{name}: {failure}") if failure else (found.segment, "")

    def _read_lines(self) -> str:
        """Apply the newest complete log of JSON lines; return what is wrong with it."""
        contents = {name: self._disk.read(name) or b"" for name in self._format.line_files(self._disk)}
        for name, content in reversed(contents.items()):
            first_line = next((line for line, _ in LINES.payloads(content)), b"")
            if first_line.startswith(b'{"all":') or name == next(iter(contents)):  # else the one before it counts
                _, _, failure = self._read_segment(name, content)
                return f"{name}: {failure}" if failure else ""
        return ""

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
            size, number, failure = self._read_segment(name, content)
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

    def _read_segment(self, name: str, content: bytes) -> tuple[int, int, str]:
        """Apply the records; return where the first that does not count starts, the format, and what is wrong."""
        layout, header, size = self._format.layout(name, content), FileHeader(), 0
        for payload, end in layout.payloads(content):
            if size == 0:
                header = _header(payload)
            if size or not header.journal_format:
                failure = self._try_apply(self._format.decode_record(payload, header, layout))
                if failure:
                    return size, header.journal_format, f"{failure}, at byte {size}"
            size = end
        failure = f"wrong checksum at byte {size}" if layout.is_damage(content[size:]) else ""
        return size, header.journal_format, failure

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
