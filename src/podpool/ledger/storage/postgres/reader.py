"""Long reads of a PostgreSQL database beside the writer: each in a snapshot, on a connection of its own."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from podpool.ledger.domain.deadline import current_deadline
from podpool.ledger.domain.repository import Repository
from podpool.ledger.errors import LedgerError, Unavailable
from podpool.ledger.storage.postgres.connection import CONNECTION_ERRORS, connect, server_identity
from podpool.ledger.storage.postgres.greenlet_bridge import greenlet_spawn
from podpool.ledger.storage.postgres.repository import PostgresRepository
from podpool.ledger.storage.postgres.row_cache import LedgerRow, RowCache

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

MAX_READS = 64
"""Reads that wait or run; one runs at a time."""
_LEDGER_COLUMNS = ", ".join(LedgerRow.__struct_fields__)


class AnotherServer(Exception):
    """The database was last written on another server: commits may be lost."""


class PostgresReader:
    """A connection for reads."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._connection: Connection | None = None
        self._identity = (0, 0)
        self._lock = asyncio.Lock()
        self._open = 0

    async def run(self, transaction: Callable[[Repository], T]) -> T:
        """Run a transaction that changes nothing; it sees every earlier commit of any replica."""
        if self._open >= MAX_READS:
            raise Unavailable(f"{MAX_READS} reads wait for the database: repeat the call later", retry_after=1.0)
        loop, deadline = asyncio.get_running_loop(), current_deadline()
        self._open += 1
        timeout = asyncio.timeout_at(deadline.at(loop.time()) if deadline else None)
        try:
            async with timeout, self._lock:
                return await self._read(transaction)
        except CONNECTION_ERRORS as error:
            reason = "deadline of the request" if timeout.expired() else str(error) or type(error).__name__
            raise Unavailable(f"PostgreSQL did not answer ({reason}): repeat the call") from None
        finally:
            self._open -= 1

    async def close(self) -> None:
        """Disconnect."""
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None

    async def _read(self, transaction: Callable[[Repository], T]) -> T:
        connection = await self._connected()
        try:
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                ledger = await read_ledger_row(connection)
                if (ledger.system_identifier, ledger.timeline) != self._identity:
                    raise AnotherServer
                repo = PostgresRepository(connection, RowCache(ledger), locked=True)
                return await greenlet_spawn(lambda: transaction(repo))
        except (asyncio.CancelledError, *CONNECTION_ERRORS):
            await self.close()
            raise

    async def _connected(self) -> "Connection":
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._url)
            self._identity = await server_identity(self._connection)
        return self._connection


async def read_ledger_row(connection: "Connection", lock: str = "") -> LedgerRow:
    """Read the one row of table `ledger`; with `FOR UPDATE` as lock, also lock it."""
    row = await connection.fetchrow(f"SELECT {_LEDGER_COLUMNS} FROM ledger {lock}")  # noqa: S608  our own names
    if row is None:
        raise LedgerError("table ledger is empty: restore a backup, or use another database")
    return LedgerRow(**dict(row))
