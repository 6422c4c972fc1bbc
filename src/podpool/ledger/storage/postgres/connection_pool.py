"""The connections of one replica to one server, which the writers of its networks share.

A writer keeps its connection while it has work, and after that until another writer needs one: so few networks never
wait, and many do not exceed what a server accepts.
"""

import asyncio
from typing import TYPE_CHECKING, Protocol

import msgspec

from podpool.ledger.storage.postgres.connection import ServerIdentity, connect, server_identity
from podpool.ledger.storage.postgres.server_clock import ServerTime

if TYPE_CHECKING:
    from asyncpg import Connection

MAX_CONNECTIONS = 16
"""Writers that work at the same time; a server accepts 100 connections by default."""
_ACQUIRE_TIMEOUT = 5.0


class ServerSession(msgspec.Struct, frozen=True):
    """A connection, and the server that it leads to."""

    connection: "Connection"
    identity: ServerIdentity


class Holder(Protocol):
    """A writer that has a session."""

    def on_reclaimed(self) -> None:
        """Forget the session: another writer has it."""


class ConnectionPool:
    """A bounded number of sessions."""

    def __init__(self, url: str, server_time: ServerTime, *, size: int = MAX_CONNECTIONS) -> None:
        self._url = url
        self._server_time = server_time
        self._size = size
        self._open = 0
        self._parked: dict[Holder, ServerSession] = {}
        """Sessions whose holders have no work, the longest parked first."""
        self._changed = asyncio.Condition()

    async def acquire(self) -> ServerSession:
        """Return a new session, or that of a writer without work; raises `TimeoutError` if all are in use."""
        async with asyncio.timeout(_ACQUIRE_TIMEOUT), self._changed:
            await self._changed.wait_for(lambda: self._open < self._size or self._parked)
            if self._open >= self._size:
                holder = next(iter(self._parked))
                session = self._parked.pop(holder)
                holder.on_reclaimed()
                if not session.connection.is_closed():
                    return session
                self._open -= 1
            self._open += 1
        try:
            return await self._connect()
        except BaseException:
            await self._forget()
            raise

    async def park(self, holder: Holder, session: ServerSession) -> None:
        """Let other writers have a session until `resume`."""
        async with self._changed:
            self._parked[holder] = session
            self._changed.notify()

    def resume(self, holder: Holder) -> None:
        """Keep the session again, if no other writer has taken it."""
        self._parked.pop(holder, None)

    async def discard(self, session: ServerSession) -> None:
        """Disconnect."""
        session.connection.terminate()
        await asyncio.sleep(0)  # its transport is closed in the next iteration of the loop
        await self._forget()

    async def _connect(self) -> ServerSession:
        connection = await connect(self._url)
        try:
            await self._server_time.read(connection)
            return ServerSession(connection, await server_identity(connection))
        except BaseException:
            connection.terminate()
            raise

    async def _forget(self) -> None:
        async with self._changed:
            self._open -= 1
            self._changed.notify()
