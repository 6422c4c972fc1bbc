"""Long reads of a SQLite file beside its writer: in WAL mode neither waits for the other."""

import asyncio
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from podpool.ledger.domain.deadline import current_deadline
from podpool.ledger.domain.repository import Repository
from podpool.ledger.errors import Unavailable
from podpool.ledger.storage.sqlite.repository import SqliteRepository

T = TypeVar("T")

MAX_READS = 64
"""Reads that wait or run; one runs at a time."""


class SqliteReader:
    """A connection in a thread of its own. A read that its caller has given up before it began is not run."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sql: sqlite3.Connection | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="ledger-reader")
        self._open = 0

    async def run(self, transaction: Callable[[Repository], T]) -> T:
        """Run a transaction that changes nothing; it sees every earlier commit."""
        if self._open >= MAX_READS:
            raise Unavailable(f"{MAX_READS} reads wait for the database: repeat the call later", retry_after=1.0)
        loop, deadline = asyncio.get_running_loop(), current_deadline()
        self._open += 1
        try:
            async with asyncio.timeout_at(deadline.at(loop.time()) if deadline else None):
                return await loop.run_in_executor(self._thread, self._read, transaction)
        except TimeoutError:
            raise Unavailable("the read was not completed within the deadline of the request") from None
        finally:
            self._open -= 1

    def close(self) -> None:
        """Complete the running read, and close the file."""
        self._thread.shutdown(cancel_futures=True)
        if self._sql is not None:
            self._sql.close()

    def _read(self, transaction: Callable[[Repository], T]) -> T:
        if self._sql is None:
            self._sql = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._sql.execute("PRAGMA query_only=ON").close()
            self._sql.execute("PRAGMA busy_timeout=10000").close()
        self._sql.execute("BEGIN")
        try:
            return transaction(SqliteRepository(self._sql))
        finally:
            self._sql.execute("ROLLBACK")
