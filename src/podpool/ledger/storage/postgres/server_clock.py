"""The clock of the PostgreSQL server: all replicas use it, whatever their own machines' clocks show."""

import asyncio
from typing import TYPE_CHECKING

from podpool.runtime.clock import Clock

if TYPE_CHECKING:
    from asyncpg import Connection


class ServerTime:
    """The latest reading of the server's clock."""

    def __init__(self) -> None:
        self._reading = 0.0
        self._read_at = 0.0

    async def read(self, connection: "Connection") -> None:
        """Read the server's clock."""
        self.record(await connection.fetchval("SELECT date_part('epoch', clock_timestamp())"))

    def record(self, reading: float) -> None:
        """Record a reading that the server has just sent."""
        self._reading, self._read_at = reading, asyncio.get_running_loop().time()

    def now(self) -> float:
        """Return the last reading, plus what has passed here since."""
        return self._reading + asyncio.get_running_loop().time() - self._read_at


class ServerClock:
    """The server's clock as the clock of a ledger.

    `boot` starts with the server's clock and advances with this machine's boot clock, so that a server's clock that is
    set while a replica runs is noticed: then `wall` and `boot` do not advance equally.
    """

    def __init__(self, server: ServerTime, local: Clock) -> None:
        self._server = server
        self._local = local
        self._start = server.now() - local.boot()

    def wall(self) -> float:
        """Return the server's clock."""
        return self._server.now()

    def boot(self) -> float:
        """Return the server's clock at the start of this replica, plus what has passed since."""
        return self._start + self._local.boot()
