"""The databases on which the ledger is tested: each can be opened, copied, and opened from a copy."""

import asyncio
import io
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import asyncpg

from podpool.ledger.domain.repository import LedgerStore, Listener, QueueState, Repair, Repository
from podpool.ledger.storage.backup import TABLES, read_header
from podpool.ledger.storage.postgres.backup import back_up, restore
from podpool.ledger.storage.postgres.connection import migrate
from podpool.ledger.storage.postgres.store import PostgresStore
from podpool.ledger.storage.rollback_detector import MemoryRollbackDetector, detect_rollback
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from podpool.runtime.clock import Clock

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")


class CopyableStore(LedgerStore, Protocol):
    """A store that can be copied."""

    def image(self) -> bytes: ...


class Backend(Protocol):
    """A kind of database."""

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        """Run a call to completion."""

    def open(self, *, image: bytes | None, detector: MemoryRollbackDetector) -> CopyableStore:
        """Open an empty database, or a copy; the detector decides whether the copy counts as rolled back."""

    def record_revision(self, store: CopyableStore, detector: MemoryRollbackDetector) -> None:
        """Record the database's revision in the detector."""


class SqliteBackend:
    """SQLite in memory, where no call waits."""

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        try:
            call.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # whatever the call returns
        raise AssertionError("the call waits")

    def open(self, *, image: bytes | None, detector: MemoryRollbackDetector) -> CopyableStore:
        return InlineSqliteStore(detector=detector, image=image)

    def record_revision(self, store: CopyableStore, detector: MemoryRollbackDetector) -> None:
        """Do nothing: each commit is recorded."""


class PostgresBackend:
    """A real server with two databases, which are used alternately."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._runner = asyncio.Runner()
        self._databases = deque(self.run(_PostgresDatabase.connect(url, self._runner)) for url in urls)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def open(self, *, image: bytes | None, detector: MemoryRollbackDetector) -> CopyableStore:
        self._databases.rotate()
        return self.run(self._databases[0].open(image, detector))

    def record_revision(self, store: CopyableStore, detector: MemoryRollbackDetector) -> None:
        detector.record_commit(read_header(io.BytesIO(store.image())).revision)

    def close(self) -> None:
        for database in self._databases:
            self.run(database.disconnect())
        self._runner.close()


class _PostgresDatabase:
    """One database, which is emptied or replaced and opened again."""

    def __init__(self, url: str, connection: "Connection", runner: asyncio.Runner) -> None:
        self._url = url
        self._connection = connection
        self._runner = runner
        self._store: TwoReplicas | None = None

    @classmethod
    async def connect(cls, url: str, runner: asyncio.Runner) -> "_PostgresDatabase":
        connection = await asyncpg.connect(url)
        await migrate(connection)
        return cls(url, connection, runner)

    async def open(self, image: bytes | None, detector: MemoryRollbackDetector) -> "TwoReplicas":
        await self._close()
        rng = random.Random(1)  # noqa: S311  reproducible
        if image is None:
            for table in reversed(list(TABLES)):
                await self._connection.execute(f"DELETE FROM {table}")  # noqa: S608  our tables
            await self._connection.execute("DELETE FROM network_commit")
        else:
            header = await restore(self._connection, io.BytesIO(image), rng=rng)
            if detect_rollback(detector, revision=header.revision) is None:  # an undetected copy
                await self._connection.execute("UPDATE shard SET system_identifier = NULL, timeline = NULL")
        self._store = TwoReplicas(self._url, database=self)
        return self._store

    def image(self) -> bytes:
        file = io.BytesIO()
        self._runner.run(back_up(self._connection, file))
        return file.getvalue()

    async def disconnect(self) -> None:
        await self._close()
        await self._connection.close()

    async def _close(self) -> None:
        if self._store is not None:
            await self._store.close()
            self._store = None


class TwoReplicas:
    """Two stores on one database; transactions go to each alternately, three at a time."""

    def __init__(self, url: str, *, database: _PostgresDatabase) -> None:
        self._database = database
        self._replicas = [PostgresStore(url, rng=random.SystemRandom()) for _ in range(2)]
        self._next_replica = itertools.cycle(each for each in self._replicas for _ in range(3))

    @property
    def first(self) -> PostgresStore:
        """One replica: it runs transactions in order; two do not."""
        return self._replicas[0]

    async def begin(self, repair: Repair) -> None:
        for replica in self._replicas:
            await replica.begin(repair)

    async def write(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        return await next(self._next_replica).write(transaction, network=network)

    async def read(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        return await next(self._next_replica).read(transaction, network=network)

    async def query(self, transaction: Callable[[Repository], T]) -> T:
        return await next(self._next_replica).query(transaction)

    def queue(self) -> QueueState:
        return self.first.queue()

    def subscribe(self, listener: Listener) -> Callable[[], object]:
        return self._replicas[0].subscribe(listener)

    def clock(self, local: Clock) -> Clock:
        return local

    def on_commit(self, callback: Callable[[int], None]) -> None:
        for replica in self._replicas:
            replica.on_commit(callback)

    async def close(self) -> None:
        for replica in self._replicas:
            await replica.close()

    def image(self) -> bytes:
        return self._database.image()


backends: list[Backend] = [SqliteBackend()]
"""The last one is used."""
