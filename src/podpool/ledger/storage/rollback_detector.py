"""Detects that a database was restored from an older copy, by a record of its revision outside of it.

Before a commit the detector records the revision that the database is about to have (the intent). Before any caller is
answered the intent is synced, and the commit is recorded. Intent and commit are synced at the same time: their order
does not matter, and a caller waits for one. A database below the last recorded commit is older than an answer that a
caller has. A database below an intent without a recorded commit is not: the machine stopped in between, and no caller
was answered. The record of a commit is synced with the next intent, so a power failure may lose the last one; callers,
which send the highest revision that they have seen, are the second detector.

It also stores the memberships, that is which cluster uses which subnet: a restored database may lack newer clusters.
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

from podpool.ledger.domain.repository import Membership, Rollback
from podpool.ledger.errors import Conflict


class RollbackDetector(Protocol):
    """A record of revisions that is not restored together with the database."""

    def record_intent(self, *, revision: int, committed: int, members: Iterable[Membership]) -> None:
        """Record the revision about to be committed, the last committed one, and new memberships."""

    def record_commit(self, revision: int) -> None:
        """Record a commit, once its intent is durable; must survive a crash of the process."""

    def last_committed(self) -> int | None:
        """Return the least revision that the database must have; None if nothing was ever recorded."""

    def members(self) -> tuple[Membership, ...]:
        """Return all memberships ever recorded."""


def detect_rollback(detector: RollbackDetector, *, revision: int) -> Rollback | None:
    """Return the rollback, if the database is older than the last recorded commit."""
    committed = detector.last_committed()
    if committed is None:  # a database without records was copied from elsewhere, unless it is new
        return Rollback(revision, None) if revision else None
    return Rollback(committed, detector.members()) if revision < committed else None


class MemoryRollbackDetector:
    """For databases in memory: keep it and replace the database to simulate a restore."""

    def __init__(self) -> None:
        self._committed: int | None = None
        self._members: dict[Membership, None] = {}

    def record_intent(self, *, revision: int, committed: int, members: Iterable[Membership]) -> None:  # noqa: ARG002  nothing to sync
        """Record new memberships and the last commit."""
        self._committed = max(committed, self._committed or 0)
        self._members.update(dict.fromkeys(members))

    def record_commit(self, revision: int) -> None:
        """Record a commit."""
        self._committed = revision

    def last_committed(self) -> int | None:
        """Return the last recorded commit."""
        return self._committed

    def members(self) -> tuple[Membership, ...]:
        """Return all memberships ever recorded."""
        return tuple(self._members)


_RECORD = struct.Struct("<QQ")
_CHECKED = struct.Struct("<16sI")
_SECTOR = 512
"""Distance of the records, so that a torn write damages only one of them."""


class FileRollbackDetector:
    """Two small files beside the database: the revisions, and the memberships."""

    def __init__(self, database: Path) -> None:
        self._path = database.with_name(f"{database.name}.revision")
        self._members_path = database.with_name(f"{database.name}.members")
        self._members = self._read_members()
        self._slot = 0
        self._syncer = ThreadPoolExecutor(1, thread_name_prefix="ledger-rollback-detector")
        self._syncing: Future[None] | None = None
        self._new = not self._path.exists()
        self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._file)
            raise Conflict(f"another ledger uses {database}: stop it first", field="database") from None

    def record_intent(self, *, revision: int, committed: int, members: Iterable[Membership]) -> None:
        """Write the intent and start its sync; two records alternate, so that one of them is always intact."""
        new = [each for each in members if each not in self._members]
        if new:
            self._members.update(dict.fromkeys(new))
            _write_atomically(self._members_path, msgspec.json.encode(list(self._members)))
        self._slot ^= 1
        self._write(self._slot, revision, committed)
        self._syncing = self._syncer.submit(os.fdatasync, self._file)
        if self._new:
            _sync_directory(self._path)
            self._new = False

    def record_commit(self, revision: int) -> None:
        """Write without sync: it survives a crash of the process, and the next intent syncs it."""
        if self._syncing is not None:
            self._syncing.result()
        self._write(2, revision, revision)

    def last_committed(self) -> int | None:
        """Return the highest commit of the intact records."""
        records = [record for slot in range(3) if (record := self._read(slot))]
        return max(committed for _, committed in records) if records else None

    def members(self) -> tuple[Membership, ...]:
        """Return all memberships ever recorded."""
        return tuple(self._members)

    def mark_restored(self, revision: int) -> None:
        """Record that a backup of this revision was restored: the database counts as rolled back."""
        committed = max(revision, self.last_committed() or 0) + 1
        self.record_intent(revision=committed, committed=committed, members=())
        self.record_commit(committed)

    def close(self) -> None:
        """Close the file and release its lock."""
        self._syncer.shutdown()
        os.close(self._file)

    def _write(self, slot: int, revision: int, committed: int) -> None:
        record = _RECORD.pack(revision, committed)
        os.pwrite(self._file, _CHECKED.pack(record, zlib.crc32(record)), slot * _SECTOR)

    def _read(self, slot: int) -> tuple[int, int] | None:
        packed = os.pread(self._file, _CHECKED.size, slot * _SECTOR)
        if len(packed) < _CHECKED.size:
            return None
        record, checksum = _CHECKED.unpack(packed)
        if checksum != zlib.crc32(record):
            return None
        revision, committed = _RECORD.unpack(record)
        return revision, committed

    def _read_members(self) -> dict[Membership, None]:
        try:
            return dict.fromkeys(msgspec.json.decode(self._members_path.read_bytes(), type=list[Membership]))
        except FileNotFoundError:
            return {}


def _write_atomically(path: Path, content: bytes) -> None:
    temporary = path.with_name(f"{path.name}.new")
    with temporary.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    _sync_directory(path)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
