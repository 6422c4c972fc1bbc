"""A store in a SQLite file: what was answered survives the process, and its versions count on.

What must hold: a write is in the file before anybody is answered. The file is written in the same turn of the loop as
the store; when that fails, the store is ahead of its file, and the process must end instead of answering.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from podpool.core.errors import PodpoolError
from podpool.lab.apiserver.registry import DEFINITIONS, Id, defined
from podpool.lab.apiserver.store import PocketStore, Snapshot
from podpool.lab.apiserver.watch_cache import Event

_TABLES = """
CREATE TABLE IF NOT EXISTS object (
  room TEXT NOT NULL, plural TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (room, plural, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL);
"""


class FileFailed(PodpoolError):
    """The file cannot be read or written."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"{path} cannot be used to keep the cluster's objects: {reason}")


class PocketFile:
    """The file beside a store."""

    def __init__(self, path: Path, *, failed: Callable[[FileFailed], None]) -> None:
        self._path = path
        self._failed = failed
        try:
            self._base = sqlite3.connect(path, isolation_level=None, timeout=1)
            # a second server on the same file would write over the first
            self._base.execute("PRAGMA locking_mode=EXCLUSIVE")
            # a killed process loses nothing that it has written; only a power cut may take the last moments
            self._base.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {_TABLES}")
        except sqlite3.Error as error:
            raise FileFailed(path, error) from None

    def attach(self, store: PocketStore) -> None:
        """Bring a new store to where the file is, or the file to where the store is, and follow it from then on."""
        last = self._base.execute("SELECT last FROM revision").fetchone()
        if last:
            store.restore(Snapshot(revision=last[0], objects=self._objects()))
        else:
            self._put_all(store.snapshot())
        store.written.append(self._written)

    def close(self) -> None:
        """Let go of the file."""
        self._base.close()

    def _objects(self) -> dict[Id, dict[str, Any]]:
        objects: dict[Id, dict[str, Any]] = {}
        for room, plural, key, body in self._base.execute("SELECT room, plural, key, body FROM object ORDER BY key"):
            objects.setdefault((room, plural), {})[key] = msgspec.json.decode(body)
        return objects

    def _put_all(self, snapshot: Snapshot) -> None:
        rows = [
            (*id_, key, msgspec.json.encode(obj))
            for id_, objects in snapshot.objects.items()
            for key, obj in objects.items()
        ]
        self._base.execute("BEGIN")
        self._base.executemany("INSERT INTO object VALUES (?, ?, ?, ?)", rows)
        self._base.execute("INSERT INTO revision VALUES (1, ?)", (snapshot.revision,))
        self._base.execute("COMMIT")

    def _written(self, event: Event) -> None:
        try:
            with self._base:  # commits, or rolls back
                self._base.execute("BEGIN")
                self._follow(event)
                self._base.execute("UPDATE revision SET last = ?", (event.revision,))
        except Exception as error:
            failure = FileFailed(self._path, error)
            self._failed(failure)
            raise failure from error

    def _follow(self, event: Event) -> None:
        if not event.gone:
            row = (*event.id, event.key, msgspec.json.encode(event.new))
            self._base.execute("INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?)", row)
            return
        self._base.execute("DELETE FROM object WHERE room = ? AND plural = ? AND key = ?", (*event.id, event.key))
        if event.id == DEFINITIONS.id:
            for room, plural in {each.id for each in defined(event.new)}:
                self._base.execute("DELETE FROM object WHERE room = ? AND plural = ?", (room, plural))
