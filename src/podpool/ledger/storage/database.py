"""The ledger's database, from its URL: `sqlite:///path` or `postgresql://...`."""

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

from podpool.core.errors import InvalidInput
from podpool.ledger.domain.repository import LedgerStore
from podpool.ledger.storage.backup import BackupHeader
from podpool.ledger.storage.sqlite import backup
from podpool.ledger.storage.sqlite.store import SqliteStore

DEFAULT_URL = "sqlite:///var/lib/podpool/ledger.db"
_SHOWN_PARAMETERS = frozenset({"host", "port", "dbname", "database", "user", "sslmode"})
_FORMS = "use sqlite:///var/lib/podpool/ledger.db or postgresql://user@host/name"


class Database(Protocol):
    """A database that may not be open."""

    @property
    def path_prefix(self) -> Path:
        """The path on this machine from which names of further files are derived."""

    async def open(self, *, rng: random.Random) -> LedgerStore:
        """Open the database, create it if it does not exist, and apply migrations."""

    def back_up(self, file: BinaryIO) -> int:
        """Write a consistent backup; returns the number of rows."""

    def restore(self, file: BinaryIO, *, rng: random.Random) -> BackupHeader:
        """Replace the content of the database by a backup."""


def parse_database(url: str) -> Database:
    """Return the database of a URL; raises `InvalidInput`."""
    scheme, separator, path = url.partition("://")
    if scheme == "sqlite" and separator and path:
        return _SqliteDatabase(Path(path))
    if scheme in ("postgresql", "postgres") and separator:
        return _PostgresDatabase(url)
    raise InvalidInput("--database", _without_password(url), f"is not a database URL: {_FORMS}")


class _SqliteDatabase:
    """A SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path_prefix = path

    def __str__(self) -> str:
        return str(self.path_prefix)

    async def open(self, *, rng: random.Random) -> LedgerStore:  # noqa: ARG002  SQLite needs none
        try:
            return SqliteStore(self.path_prefix)
        except (OSError, sqlite3.Error) as error:
            raise InvalidInput("--database", str(self), f"cannot be opened: {error}") from None

    def back_up(self, file: BinaryIO) -> int:
        return backup.back_up(self.path_prefix, file)

    def restore(self, file: BinaryIO, *, rng: random.Random) -> BackupHeader:  # noqa: ARG002  SQLite needs none
        return backup.restore(self.path_prefix, file)


class _PostgresDatabase:
    """A database on a PostgreSQL server. Its driver is imported only when it is used."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.path_prefix = Path(DEFAULT_URL.removeprefix("sqlite://"))

    def __str__(self) -> str:
        return _without_password(self._url)

    async def open(self, *, rng: random.Random) -> LedgerStore:
        from podpool.ledger.storage.postgres.store import PostgresStore  # noqa: PLC0415  see above

        return await PostgresStore.open(self._url, rng=rng)

    def back_up(self, file: BinaryIO) -> int:
        from podpool.ledger.storage.postgres import backup  # noqa: PLC0415  see above
        from podpool.ledger.storage.postgres.connection import open_maintenance_connection  # noqa: PLC0415  see above

        async def run() -> int:
            async with open_maintenance_connection(self._url) as connection:
                return await backup.back_up(connection, file)

        return asyncio.run(run())

    def restore(self, file: BinaryIO, *, rng: random.Random) -> BackupHeader:
        from podpool.ledger.storage.postgres import backup  # noqa: PLC0415  see above
        from podpool.ledger.storage.postgres.connection import open_maintenance_connection  # noqa: PLC0415  see above

        async def run() -> BackupHeader:
            async with open_maintenance_connection(self._url) as connection:
                return await backup.restore(connection, file, rng=rng)

        return asyncio.run(run())


def _without_password(url: str) -> str:
    """Return a URL without its secrets: the password, and parameters other than those that name the server."""
    parts = urlsplit(url)
    name, at, host = parts.netloc.rpartition("@")
    query = [pair for pair in parse_qsl(parts.query) if pair[0] in _SHOWN_PARAMETERS]
    shown = parts._replace(netloc=f"{name.partition(':')[0]}{at}{host}", query=urlencode(query, safe=",/:"))
    return urlunsplit(shown)
