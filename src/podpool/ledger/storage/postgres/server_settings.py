"""The road to a PostgreSQL server: connections, migrations, and which server it is.

The witness is the server's own identity and its timeline: a server that was restored, or promoted from a standby, has
another of one or the other, and may have lost the last commits that somebody was answered from.
"""

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import asyncpg
from asyncpg.connect_utils import SessionAttribute

from podpool.ledger.errors import Unavailable
from podpool.ledger.storage.migrate import scripts

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from asyncpg import Connection

_LOCK = 7780
"""Held while the tables are made: replicas start at the same time."""
_CONNECTING = 5.0
_ANSWERING = 30.0
"""Seconds after which a server that says nothing counts as lost."""

_STANDING = 10.0
"""Seconds for which a replica may have the turn and do nothing."""

Witness = tuple[int, int]
"""System identifier and timeline."""

LOST = (
    OSError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # what the client makes of a connection that breaks at the wrong moment
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # it stops, it has crashed, it is starting
    asyncpg.IdleInTransactionSessionTimeoutError,  # we stood still in our turn
    asyncpg.ReadOnlySQLTransactionError,  # it is a standby now
    asyncpg.TooManyConnectionsError,
)
"""What is raised when the server is away: it may be back in a moment."""
AGAIN = (asyncpg.SerializationError, asyncpg.DeadlockDetectedError)
"""What is raised when somebody else was in the way: everything was rolled back."""


async def connect(url: str) -> "Connection":
    """Open a connection to a server that can be written to."""
    return await asyncpg.connect(
        url,
        timeout=_CONNECTING,
        command_timeout=_ANSWERING,
        target_session_attrs=SessionAttribute.primary,
        server_settings={
            "application_name": "podpool-ledger",
            # a replica that stands still in its turn must not hold up the others
            "idle_in_transaction_session_timeout": str(round(_STANDING * 1_000)),
        },
    )


@asynccontextmanager
async def connected(url: str) -> "AsyncIterator[Connection]":
    """Have a connection for a while, to a database whose tables are up to date."""
    try:
        connection = await connect(url)
    except (*LOST, asyncpg.PostgresError) as error:
        raise Unavailable(f"PostgreSQL cannot be reached: {error}") from None
    try:
        await migrate(connection)
        yield connection
    finally:
        await connection.close()


async def migrate(connection: "Connection", *, upto: int | None = None) -> None:
    """Apply the migrations that the database has not seen, each in a transaction of its own."""
    for number, script in enumerate(scripts("postgres")[:upto], start=1):
        async with connection.transaction():
            await connection.execute("SELECT pg_advisory_xact_lock($1)", _LOCK)
            await connection.execute("CREATE TABLE IF NOT EXISTS schema_version (version integer NOT NULL)")
            if number > (await connection.fetchval("SELECT max(version) FROM schema_version") or 0):
                await connection.execute(script)
                await connection.execute("INSERT INTO schema_version VALUES ($1)", number)


async def identify(connection: "Connection") -> Witness:
    """Ask the server who it is."""
    row = await connection.fetchrow(
        "SELECT system_identifier, ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint"
        " FROM pg_control_system()"
    )
    if row is None:
        raise Unavailable("PostgreSQL does not say which server it is")
    return row[0], row[1]
