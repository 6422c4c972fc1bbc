"""Connections to a PostgreSQL server, migrations, and the server's identity.

The identity is the system identifier and the timeline: a server that was restored, or promoted from a standby, differs
in one of them, and may have lost commits whose callers were answered. A server that does not sync its commits loses
them without such a sign when it crashes: it is refused.
"""

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from podpool.ledger.errors import Unavailable
from podpool.ledger.storage.schema_migrations import check_layout, check_version, migration_scripts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asyncpg import Connection

_MIGRATION_LOCK = 7780
"""Advisory lock during migrations: replicas may start at the same time."""
_CONNECT_TIMEOUT = 5.0
_COMMAND_TIMEOUT = 30.0
_IDLE_IN_TRANSACTION_TIMEOUT = 10.0
"""A replica that hangs while it locks the ledger row must not block the others."""

_DURABILITY_SETTINGS = ("fsync", "full_page_writes", "synchronous_commit")

ServerIdentity = tuple[int, int]
"""System identifier and timeline."""

CONNECTION_ERRORS = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # raised when the connection breaks in some states
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # shutdown, crash, startup
    asyncpg.IdleInTransactionSessionTimeoutError,  # this process hung in a transaction
    asyncpg.ReadOnlySQLTransactionError,  # the server is a standby now
    asyncpg.TooManyConnectionsError,
)
"""Raised when the server is unreachable; a new connection may succeed."""
RETRYABLE_ERRORS = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError, asyncpg.LockNotAvailableError)
"""Raised on a conflict with another transaction, or if it takes longer than `lock_timeout`: all was rolled back."""


async def connect(url: str, *, maintenance: bool = False) -> "Connection":
    """Open a connection to a primary that syncs its commits; one for maintenance to any, without timeouts."""
    idle = 0 if maintenance else _IDLE_IN_TRANSACTION_TIMEOUT
    settings = {
        "application_name": "podpool-ledger",
        "idle_in_transaction_session_timeout": str(round(idle * 1_000)),
    }
    if maintenance:
        settings |= {"statement_timeout": "0", "lock_timeout": "0"}
    connection = await asyncpg.connect(
        url,
        timeout=_CONNECT_TIMEOUT,
        command_timeout=None if maintenance else _COMMAND_TIMEOUT,
        target_session_attrs=SessionAttribute.primary,
        server_settings=settings,
    )
    try:
        if not maintenance:
            await check_durable(connection)
    except BaseException:
        connection.terminate()
        raise
    return connection


async def check_durable(connection: "Connection") -> None:
    """Raise if the server answers a commit that a crash may lose: two nodes would own the addresses that it granted."""
    for name in _DURABILITY_SETTINGS:
        value = await connection.fetchval("SELECT current_setting($1)", name)
        if value == "off":
            lost = "a crash may lose commits whose callers were answered, and then two nodes own one address"
            remedy = f"set {name} to on for this server, database and role"
            raise Unavailable(f"PostgreSQL has {name}=off: {lost}; {remedy}")


@asynccontextmanager
async def open_maintenance_connection(url: str) -> "AsyncIterator[Connection]":
    """Return a connection for long statements, after migrations; it is closed at the end of the block.

    A migration, backup or restore of millions of rows takes minutes: neither ours nor the database's timeouts apply.
    """
    try:
        connection = await connect(url, maintenance=True)
    except (*CONNECTION_ERRORS, asyncpg.PostgresError) as error:
        raise Unavailable(f"cannot connect to PostgreSQL: {error}") from None
    try:
        await migrate(connection)
        yield connection
    finally:
        await connection.close()


async def migrate(connection: "Connection", *, upto: int | None = None) -> None:
    """Apply missing migrations, each in its own transaction."""
    for number, script in enumerate(migration_scripts("postgres")[:upto], start=1):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _MIGRATION_LOCK)
            await connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL)")
            version = await connection.fetchval("SELECT max(version) FROM schema_version") or 0
            check_version("database", version)
            check_layout(version, tables=await _tables(connection))
            if number > version:
                await connection.execute(script)
                await connection.execute("INSERT INTO schema_version VALUES ($1)", number)


async def _tables(connection: "Connection") -> set[str]:
    found = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = ANY (current_schemas(false))")
    return {row[0] for row in found}


async def server_identity(connection: "Connection") -> ServerIdentity:
    """Return the identity of the server."""
    row = await connection.fetchrow(
        "SELECT system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint"
        " FROM pg_control_system()"
    )
    if row is None:
        raise Unavailable("PostgreSQL returned no system identifier")
    return row[0], row[1]
