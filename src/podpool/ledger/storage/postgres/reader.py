"""Long reads of a PostgreSQL database beside the writer: each in a snapshot, on a connection of its own."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from podpool.ledger.domain.deadline import current_deadline
from podpool.ledger.domain.repository import Repository
from podpool.ledger.errors import Unavailable
from podpool.ledger.storage.postgres.connection import CONNECTION_ERRORS, connect, server_identity
from podpool.ledger.storage.postgres.greenlet_bridge import greenlet_spawn
from podpool.ledger.storage.postgres.repository import PostgresRepository
from podpool.ledger.storage.postgres.row_cache import CachedTime, RowCache, ShardRow
from podpool.ledger.storage.postgres.server_clock import ServerTime

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

MAX_READS = 64
"""Reads that wait or run; one runs at a time."""
_SHARD_COLUMNS = ", ".join(ShardRow.__struct_fields__)

_SHARDS = f"SELECT {_SHARD_COLUMNS}, date_part('epoch', clock_timestamp()) AS time FROM shard"  # noqa: S608  our own names


class AnotherServer(Exception):
    """Networks were last written on another server: commits may be lost."""

    def __init__(self, networks: Sequence[str]) -> None:
        super().__init__(f"networks {', '.join(map(repr, networks))} were last written on another server")
        self.networks = networks


class PostgresReader:
    """A connection for reads."""

    def __init__(self, url: str, server_time: ServerTime) -> None:
        self._url = url
        self._server_time = server_time
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
                found = [dict(row) for row in await connection.fetch(_SHARDS)]
                for row in found:
                    self._server_time.record(row.pop("time"))
                shards = [ShardRow(**row) for row in found]
                other = [each.network for each in shards if (each.system_identifier, each.timeline) != self._identity]
                whole = next((each for each in shards if not each.network), None)
                if other or whole is None:
                    raise AnotherServer(other or [""])
                repo = PostgresRepository(connection, RowCache(whole, CachedTime()), locked=True)
                return await greenlet_spawn(lambda: transaction(repo))
        except (asyncio.CancelledError, *CONNECTION_ERRORS):
            await self.close()
            raise

    async def _connected(self) -> "Connection":
        if self._connection is None or self._connection.is_closed():
            self._connection = await connect(self._url)
            self._identity = await server_identity(self._connection)
        return self._connection


async def lock_shard(connection: "Connection", network: str) -> ShardRow:
    """Lock the row of a network until the transaction ends, and return it; a new network gets one."""
    statement = f"SELECT {_SHARD_COLUMNS} FROM shard WHERE network = $1 FOR UPDATE"  # noqa: S608  our own names
    while (row := await connection.fetchrow(statement, network)) is None:
        await connection.execute("INSERT INTO shard VALUES ($1, 0, 0, 0, 0, 0, 0) ON CONFLICT DO NOTHING", network)
    return ShardRow(**dict(row))
