"""A witness outside the books: it notices that they were restored from an older copy.

Before a commit the witness is promised the revision that the books will have; before anybody is answered the promise is
synced, and the witness told that it was kept. Promise and commit are synced at the same time: nothing depends on which
is first, and a caller waits for one. Books below the last kept promise are older than an answer that somebody has.
Books below a promise that was never kept are not: the machine stopped in between, and nobody was answered. The note
that a promise was kept is synced with the next promise, so a power cut may lose the last one; the callers, who send the
highest revision that they saw, are the second witness.

It also remembers which cluster has something in which subnet: restored books may not know a cluster that came later.
"""

import fcntl
import os
import struct
import zlib
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Protocol

import msgspec

from podpool.ledger.errors import Conflict
from podpool.ledger.storage.store import Member, Restored


class Witness(Protocol):
    """Something that outlives the books."""

    def promise(self, *, revision: int, kept: int, members: Iterable[Member]) -> None:
        """Take note of what is about to be committed, of what was, and of new members."""

    def keep(self, revision: int) -> None:
        """Take note that it was committed, once the promise is durable; must survive the death of the process."""

    def kept(self) -> int | None:
        """Tell the revision that the books must have at least; None when there is no memory at all."""

    def members(self) -> tuple[Member, ...]:
        """Tell who has, or had, something where."""


def examine(witness: Witness, *, revision: int) -> Restored | None:
    """Compare the books with what the witness knows."""
    kept = witness.kept()
    if kept is None:  # books without their witness came from somewhere else; only new ones never had one
        return Restored(revision, None) if revision else None
    return Restored(kept, witness.members()) if revision < kept else None


class MemoryWitness:
    """A witness for books in memory; keep it and exchange the books to play a restore."""

    def __init__(self) -> None:
        self._kept: int | None = None
        self._members: dict[Member, None] = {}

    def promise(self, *, revision: int, kept: int, members: Iterable[Member]) -> None:  # noqa: ARG002  nothing to sync
        """Remember new members, and that the last promise was kept."""
        self._kept = max(kept, self._kept or 0)
        self._members.update(dict.fromkeys(members))

    def keep(self, revision: int) -> None:
        """Remember a revision."""
        self._kept = revision

    def kept(self) -> int | None:
        """Tell the last revision."""
        return self._kept

    def members(self) -> tuple[Member, ...]:
        """Tell who has, or had, something where."""
        return tuple(self._members)


_RECORD = struct.Struct("<QQ")
_CHECKED = struct.Struct("<16sI")
_SECTOR = 512
"""Records are this far apart, so that a torn write spoils one of them."""


class FileWitness:
    """Two small files beside the database: the promises, and the members."""

    def __init__(self, beside: Path) -> None:
        self._path = beside.with_name(f"{beside.name}.witness")
        self._members_path = beside.with_name(f"{beside.name}.members")
        self._members = self._read_members()
        self._turn = 0
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="ledger-witness")
        self._syncing: Future[None] | None = None
        self._fresh = not self._path.exists()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise Conflict(f"a ledger runs on {beside} already: stop it first", field="database") from None

    def promise(self, *, revision: int, kept: int, members: Iterable[Member]) -> None:
        """Write, and begin to sync; the two promise records take turns, so that one of them is always whole."""
        new = [each for each in members if each not in self._members]
        if new:
            self._members.update(dict.fromkeys(new))
            _replace(self._members_path, msgspec.json.encode(list(self._members)))
        self._turn ^= 1
        self._write(self._turn, revision, kept)
        self._syncing = self._syncer.submit(os.fdatasync, self._file)
        if self._fresh:
            _sync_directory(self._path)
            self._fresh = False

    def keep(self, revision: int) -> None:
        """Write without a sync: it survives the process, and the next promise syncs it."""
        if self._syncing is not None:
            self._syncing.result()
        self._write(2, revision, revision)

    def kept(self) -> int | None:
        """Tell the highest kept promise of the records that are whole."""
        records = [record for place in range(3) if (record := self._read(place))]
        return max(kept for _, kept in records) if records else None

    def members(self) -> tuple[Member, ...]:
        """Tell who has, or had, something where."""
        return tuple(self._members)

    def doubt(self, revision: int) -> None:
        """Say that books of this revision were put there from a copy: whatever it is, they may be older."""
        kept = max(revision, self.kept() or 0) + 1
        self.promise(revision=kept, kept=kept, members=())
        self.keep(kept)

    def close(self) -> None:
        """Close the file, and let others have it."""
        self._syncer.shutdown()
        os.close(self._file)

    def _write(self, place: int, revision: int, kept: int) -> None:
        record = _RECORD.pack(revision, kept)
        os.pwrite(self._file, _CHECKED.pack(record, zlib.crc32(record)), place * _SECTOR)

    def _read(self, place: int) -> tuple[int, int] | None:
        packed = os.pread(self._file, _CHECKED.size, place * _SECTOR)
        if len(packed) < _CHECKED.size:
            return None
        record, checksum = _CHECKED.unpack(packed)
        if checksum != zlib.crc32(record):
            return None
        revision, kept = _RECORD.unpack(record)
        return revision, kept

    def _read_members(self) -> dict[Member, None]:
        try:
            return dict.fromkeys(msgspec.json.decode(self._members_path.read_bytes(), type=list[Member]))
        except FileNotFoundError:
            return {}


def _replace(path: Path, content: bytes) -> None:
    beside = path.with_name(f"{path.name}.new")
    with beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)
    _sync_directory(path)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
