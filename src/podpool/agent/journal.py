"""The agent's memory: records in checksummed frames, appended to a file, written before anything is answered.

What must hold: a record is on its way to the platter once `append` has returned (it survives the process), and there
once `sync` has (it survives the machine). Whatever byte the process died at, `open` finds every record that was
appended, in order; a torn tail is cut off, and said. A torn write is the beginning of a right frame; whatever else
cannot be read is damage: what follows it does not count, nor does any segment whose beginning is lost. Damage is told,
and the agent starts; a file `damaged` stands beside the journal from before the damage is cut off until the next record
tells of it. A frame's length has a checksum of its own, or a wrong one would look like a tail that is torn.

The file grows by segments. To make it short again, the agent goes on in a new segment, writes down what all earlier
records came to, as the `snapshot`, and then removes the earlier segments; each step leaves everything in place until
the next has happened. Segments are synced in order, so that none is ever newer than a hole in the one before.
"""

import asyncio
import struct
import zlib
from collections.abc import Iterator

import msgspec

from podpool.agent.records import AnyRecord, Snapshot
from podpool.runtime.disk import Disk

GROUP = 0.02
"""Seconds between two syncs in the background: what a crash of the machine can cost."""
SEGMENT = 1 << 20
"""Bytes after which a new segment is begun: some 5,000 ADDs and DELs, read again within 0.1 s."""

_LENGTH, _FRAME = struct.Struct("!I"), struct.Struct("!III")
"""The length of the payload; and a frame's head: that, its checksum, and the payload's."""
_SNAPSHOT, _SEGMENT, _DAMAGED = "snapshot", "segment.", "damaged"


class _Beginning(msgspec.Struct, frozen=True):
    """The snapshot with the number of the first segment that is not in it."""

    segment: int
    state: Snapshot


_RECORD: msgspec.json.Decoder[AnyRecord] = msgspec.json.Decoder(AnyRecord)
_BEGINNING = msgspec.json.Decoder(_Beginning)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a journal held."""

    records: tuple[AnyRecord, ...] = ()
    torn: int = 0
    """Bytes of a tail that was cut off; nobody had been answered on them."""
    damaged: bool = False
    """Records that had been answered on are lost."""
    segment: int = 1
    """The segment to go on in,"""
    size: int = 0
    """behind so many of its bytes,"""
    later: tuple[int, ...] = ()
    """and segments behind the damage, which do not count."""


class Journal:
    """The journal of one agent; after `segment` bytes it is time for a snapshot."""

    def __init__(self, disk: Disk, *, segment: int = SEGMENT) -> None:
        self._disk = disk
        self._long = segment
        self.appended = 0
        """Records since the start."""
        self._segment = 1
        self._size = 0
        self._unsynced: list[int] = []
        self._damaged = False
        self._dirty = asyncio.Event()
        self._syncing = asyncio.Lock()

    def open(self) -> Found:
        """Read everything, and cut off what is torn; appending goes on behind it."""
        found = read_journal(self._disk)
        self._segment, self._size, self._damaged = found.segment, found.size, found.damaged
        if found.damaged:
            self._disk.append(_DAMAGED, b"!")
        if found.torn:
            self._disk.truncate(_name(found.segment), found.size)
        if found.damaged and not found.records:
            self._disk.remove(_SNAPSHOT)  # one that cannot be read would hide what is written from now on
        for each in found.later:
            self._disk.remove(_name(each))
        return found

    def append(self, record: AnyRecord) -> None:
        """Write a record down; it survives the process from here on."""
        frame = _frame(msgspec.json.encode(record))
        try:
            self._disk.append(_name(self._segment), frame)
        except OSError:
            self._disk.truncate(_name(self._segment), self._size)  # half a frame would hide every later one
            raise
        self._size += len(frame)
        self.appended += 1
        if self._segment not in self._unsynced:
            self._unsynced.append(self._segment)
        self._dirty.set()
        if self._damaged:
            self._disk.remove(_DAMAGED)
            self._damaged = False

    async def sync(self) -> None:
        """Bring everything that was appended so far to the platter."""
        async with self._syncing:
            self._dirty.clear()
            segments, self._unsynced = self._unsynced, []
            try:
                while segments:
                    await self._disk.sync(_name(segments[0]))
                    segments.pop(0)
            finally:
                self._left_unsynced(segments)

    def _left_unsynced(self, segments: list[int]) -> None:
        if segments:
            self._unsynced = [*segments, *(each for each in self._unsynced if each not in segments)]
            self._dirty.set()

    @property
    def size(self) -> int:
        """The bytes of the segment that is being written."""
        return self._size

    @property
    def long(self) -> bool:
        """Tell whether it is time for a snapshot."""
        return self._size >= self._long

    async def compact(self, state: Snapshot) -> None:
        """Begin a new segment; `state` is what everything before it came to. Without room for that, all of it stays."""
        self._segment += 1
        self._size = 0
        beginning = self._segment
        await self.sync()
        try:
            await self._disk.replace(_SNAPSHOT, _frame(msgspec.json.encode(_Beginning(beginning, state))))
        except OSError:
            return
        for number in _segments(self._disk):
            if number < beginning:
                self._disk.remove(_name(number))

    async def group(self) -> None:
        """Wait for something to sync, a moment for more of it, and sync it all."""
        await self._dirty.wait()
        await asyncio.sleep(GROUP)
        await self.sync()


def read_journal(disk: Disk) -> Found:
    """Read everything, and change nothing, also while its agent writes: up to the first byte that cannot be read."""
    snapshot = disk.read(_SNAPSHOT)
    found = _found(disk, snapshot)
    if disk.read(_SNAPSHOT) != snapshot:
        return read_journal(disk)  # segments that the earlier one needs may have gone
    return msgspec.structs.replace(found, damaged=found.damaged or disk.read(_DAMAGED) is not None)


def _found(disk: Disk, snapshot: bytes | None) -> Found:
    beginning, damaged = _beginning(snapshot)
    segment, size = beginning.segment if beginning else 1, 0
    records: list[AnyRecord] = [beginning.state] if beginning else []
    present = [number for number in _segments(disk) if number >= segment]
    if damaged or (present and present[0] != segment):  # what they go on from is gone: none of them counts
        return Found(records=tuple(records), damaged=True, segment=segment, later=tuple(present))
    for segment in present:
        content = disk.read(_name(segment)) or b""
        read, size = _read(content)
        records += read
        if size < len(content):
            damaged = _is_damage(content[size:]) or segment != present[-1]
            return Found(
                records=tuple(records),
                torn=len(content) - size,
                damaged=damaged,
                segment=segment,
                size=size,
                later=tuple(each for each in present if each > segment),
            )
    return Found(records=tuple(records), segment=segment, size=size)


def _beginning(snapshot: bytes | None) -> tuple[_Beginning | None, bool]:
    if snapshot is None:
        return None, False
    payloads = list(_payloads(snapshot))
    try:
        return _BEGINNING.decode(payloads[0][0]), False
    except (IndexError, msgspec.DecodeError):
        return None, True


def _segments(disk: Disk) -> list[int]:
    endings = [name.removeprefix(_SEGMENT) for name in disk.names() if name.startswith(_SEGMENT)]
    return sorted(int(each) for each in endings if each.isdecimal())


def _name(segment: int) -> str:
    return f"{_SEGMENT}{segment:08}"


def _frame(payload: bytes) -> bytes:
    return _FRAME.pack(len(payload), _check(len(payload)), zlib.crc32(payload)) + payload


def _check(length: int) -> int:
    return zlib.crc32(_LENGTH.pack(length))


def _payloads(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Go through the frames that are whole and right: each payload, and where it ends."""
    at = 0
    while at + _FRAME.size <= len(content):
        length, check, checksum = _FRAME.unpack_from(content, at)
        end = at + _FRAME.size + length
        if check != _check(length) or end > len(content):
            return
        payload = content[at + _FRAME.size : end]
        if zlib.crc32(payload) != checksum:
            return
        yield payload, end
        at = end


def _read(content: bytes) -> tuple[list[AnyRecord], int]:
    """Read records up to the first that cannot be read; tells where that begins."""
    records: list[AnyRecord] = []
    size = 0
    for payload, end in _payloads(content):
        try:
            records.append(_RECORD.decode(payload))
        except msgspec.DecodeError:
            break
        size = end
    return records, size


def _is_damage(tail: bytes) -> bool:
    """Tell whether this is not the beginning of a right frame."""
    if len(tail) < _FRAME.size:
        return False
    length, check, _ = _FRAME.unpack_from(tail)
    return bool(check != _check(length) or _FRAME.size + length <= len(tail))
