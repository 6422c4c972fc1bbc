"""Which database a ledger keeps its books in, from what a person wrote: `sqlite:///path` or `postgresql://...`."""

import asyncio
import random
import sqlite3
from pathlib import Path
from typing import BinaryIO, Protocol
from urllib.parse import urlsplit, urlunsplit

from podpool.core.errors import InvalidInput
from podpool.ledger.storage.backup import Head
from podpool.ledger.storage.sqlite import backup
from podpool.ledger.storage.sqlite.store import ThreadStore
from podpool.ledger.storage.store import Store

USUAL = "sqlite:///var/lib/podpool/ledger.db"
_FORMS = "write it as sqlite:///var/lib/podpool/ledger.db or postgresql://user@host/name"


class Database(Protocol):
    """Books, somewhere."""

    @property
    def beside(self) -> Path:
        """A path on this machine which further files may be named after."""

    async def open(self, *, rng: random.Random) -> Store:
        """Open the books, make them if there are none, and bring their tables up to date."""

    def back_up(self, file: BinaryIO) -> int:
        """Copy the books as they are at one moment; tells how many rows there are."""

    def restore(self, file: BinaryIO, *, rng: random.Random) -> Head:
        """Exchange the books for a copy."""


def parse_database(text: str, *, what: str = "--database") -> Database:
    """Read where the books are."""
    scheme, colon, path = text.partition("://")
    if scheme == "sqlite" and colon and path:
        return _File(Path(path))
    if scheme in ("postgresql", "postgres") and colon:
        return _Server(text)
    raise InvalidInput(what, _without_password(text), f"is no database: {_FORMS}")


class _File:
    """Books in a SQLite file."""

    def __init__(self, path: Path) -> None:
        self.beside = path

    def __str__(self) -> str:
        return str(self.beside)

    async def open(self, *, rng: random.Random) -> Store:  # noqa: ARG002  it draws no turns
        try:
            return ThreadStore(self.beside)
        except (OSError, sqlite3.Error) as error:
            raise InvalidInput("--database", str(self), f"cannot be opened: {error}") from None

    def back_up(self, file: BinaryIO) -> int:
        return backup.back_up(self.beside, file)

    def restore(self, file: BinaryIO, *, rng: random.Random) -> Head:  # noqa: ARG002  it draws no turns
        return backup.restore(self.beside, file)


class _Server:
    """Books on a PostgreSQL server. Its driver is loaded by those who use it."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.beside = Path(USUAL.removeprefix("sqlite://"))

    def __str__(self) -> str:
        return _without_password(self._url)

    async def open(self, *, rng: random.Random) -> Store:
        from podpool.ledger.storage.postgres.store import PostgresStore  # noqa: PLC0415  see above

        return await PostgresStore.open(self._url, rng=rng)

    def back_up(self, file: BinaryIO) -> int:
        from podpool.ledger.storage.postgres import backup  # noqa: PLC0415  see above
        from podpool.ledger.storage.postgres.server_settings import connected  # noqa: PLC0415  see above

        async def work() -> int:
            async with connected(self._url) as connection:
                return await backup.back_up(connection, file)

        return asyncio.run(work())

    def restore(self, file: BinaryIO, *, rng: random.Random) -> Head:
        from podpool.ledger.storage.postgres import backup  # noqa: PLC0415  see above
        from podpool.ledger.storage.postgres.server_settings import connected  # noqa: PLC0415  see above

        async def work() -> Head:
            async with connected(self._url) as connection:
                return await backup.restore(connection, file, rng=rng)

        return asyncio.run(work())


def _without_password(text: str) -> str:
    parts = urlsplit(text)
    name, at, host = parts.netloc.rpartition("@")
    return urlunsplit(parts._replace(netloc=f"{name.partition(':')[0]}{at}{host}"))
