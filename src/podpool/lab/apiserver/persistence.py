"""A store in a SQLite file: what was answered survives the process, and versions continue.

A write is in the file before it is answered. The file is written in the same step of the event loop as the store; if
that fails, the store is ahead of its file, and the process must end instead of answering.
"""

import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from podpool.core.errors import PodpoolError
from podpool.lab.apiserver.registry import CRDS, GroupResource, resources_of
from podpool.lab.apiserver.store import ObjectStore, StoreSnapshot
from podpool.lab.apiserver.watch_cache import StoreEvent

_SCHEMA = """
CREATE TABLE IF NOT EXISTS object (
  api_group TEXT NOT NULL, plural TEXT NOT NULL, key TEXT NOT NULL, body BLOB NOT NULL,
  PRIMARY KEY (api_group, plural, key)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS revision (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER NOT NULL);
"""


class StoreFileError(PodpoolError):
    """The file cannot be read or written."""

    def __init__(self, path: Path, reason: object) -> None:
        super().__init__(f"cannot store the cluster's objects in {path}: {reason}: give another file with --file")


class StoreFile:
    """The file of one store."""

    def __init__(self, path: Path, *, on_failure: Callable[[StoreFileError], None]) -> None:
        self._path = path
        self._on_failure = on_failure
        try:
            self._database = sqlite3.connect(path, isolation_level=None, timeout=1)
            # a second server on the same file would overwrite the first one's objects
            self._database.execute("PRAGMA locking_mode=EXCLUSIVE")
            # a killed process loses nothing that it has written; only a power cut may lose the latest writes
            self._database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL; {_SCHEMA}")
        except sqlite3.Error as error:
            raise StoreFileError(path, error) from None

    def attach(self, store: ObjectStore) -> None:
        """Load the file into a new store, or write the store into a new file, and follow the store from then on."""
        last = self._database.execute("SELECT last FROM revision").fetchone()
        if last:
            store.restore(StoreSnapshot(revision=last[0], objects=self._read_all()))
        else:
            self._write_all(store.snapshot())
        store.on_write.append(self._write)

    def close(self) -> None:
        """Close the file."""
        self._database.close()

    def _read_all(self) -> dict[GroupResource, dict[str, Any]]:
        objects: dict[GroupResource, dict[str, Any]] = {}
        rows = self._database.execute("SELECT api_group, plural, key, body FROM object ORDER BY key")
        for group, plural, key, body in rows:
            objects.setdefault((group, plural), {})[key] = msgspec.json.decode(body)
        return objects

    def _write_all(self, snapshot: StoreSnapshot) -> None:
        found = ((id_, *each) for id_, objects in snapshot.objects.items() for each in objects.items())
        rows = [(*id_, key, msgspec.json.encode(obj)) for id_, key, obj in found]
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO object VALUES (?, ?, ?, ?)", rows)
        self._database.execute("INSERT INTO revision VALUES (1, ?)", (snapshot.revision,))
        self._database.execute("COMMIT")

    def _write(self, event: StoreEvent) -> None:
        try:
            with self._database:  # commits, or rolls back
                self._database.execute("BEGIN")
                self._apply(event)
                self._database.execute("UPDATE revision SET last = ?", (event.revision,))
        except Exception as error:
            failure = StoreFileError(self._path, error)
            self._on_failure(failure)
            raise failure from error

    def _apply(self, event: StoreEvent) -> None:
        if not event.deleted:
            row = (*event.id, event.key, msgspec.json.encode(event.new))
            self._database.execute("INSERT OR REPLACE INTO object VALUES (?, ?, ?, ?)", row)
            return
        statement = "DELETE FROM object WHERE api_group = ? AND plural = ? AND key = ?"
        self._database.execute(statement, (*event.id, event.key))
        if event.id == CRDS.id:
            for id_ in {each.id for each in resources_of(event.new)}:
                self._database.execute("DELETE FROM object WHERE api_group = ? AND plural = ?", id_)
