"""The databases that a ledger is tested on: each can be opened, copied, and opened from a copy."""

import asyncio
import io
import itertools
import random
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import asyncpg

from podpool.ledger.storage.backup import TABLES
from podpool.ledger.storage.postgres.backup import back_up, restore
from podpool.ledger.storage.postgres.server_settings import migrate
from podpool.ledger.storage.postgres.store import PostgresStore
from podpool.ledger.storage.rollback_detector import MemoryWitness, examine
from podpool.ledger.storage.sqlite.store import InlineStore
from podpool.ledger.storage.store import Books, Listener, Mend, Store

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")


class Imaged(Store, Protocol):
    """A store of which copies can be made."""

    def image(self) -> bytes: ...


class Database(Protocol):
    """One kind of database."""

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a call to its end."""

    def open(self, *, image: bytes | None, witness: MemoryWitness) -> Imaged:
        """Open new books, or those of an image; the witness says whether they may be older than the last answer."""

    def attest(self, store: Imaged, witness: MemoryWitness) -> None:
        """Let the witness know what the books have come to."""


class InMemory:
    """SQLite in this process, where nothing ever waits."""

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            work.send(None)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]  # whatever the call returns
        raise AssertionError("it waits")

    def open(self, *, image: bytes | None, witness: MemoryWitness) -> Imaged:
        return InlineStore(witness=witness, image=image)

    def attest(self, store: Imaged, witness: MemoryWitness) -> None:
        """It knows already: it was told with each commit."""


class OnPostgres:
    """A real server with room for two sets of books at a time: the third takes the place of the first."""

    def __init__(self, urls: Sequence[str]) -> None:
        self._runner = asyncio.Runner()
        self._rooms = deque(self.done(Room.enter(url, self._runner)) for url in urls)

    def done(self, work: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(work)

    def open(self, *, image: bytes | None, witness: MemoryWitness) -> Imaged:
        self._rooms.rotate()
        return self.done(self._rooms[0].open(image, witness))

    def attest(self, store: Imaged, witness: MemoryWitness) -> None:
        witness.keep(self.done(store.read(lambda books: books.revision)))

    def close(self) -> None:
        for room in self._rooms:
            self.done(room.leave())
        self._runner.close()


class Room:
    """One database: its books are emptied or exchanged, and opened again."""

    def __init__(self, url: str, connection: "Connection", runner: asyncio.Runner) -> None:
        self._url = url
        self._connection = connection
        self._runner = runner
        self._store: TwoReplicas | None = None

    @classmethod
    async def enter(cls, url: str, runner: asyncio.Runner) -> "Room":
        connection = await asyncpg.connect(url)
        await migrate(connection)
        return cls(url, connection, runner)

    async def open(self, image: bytes | None, witness: MemoryWitness) -> "TwoReplicas":
        await self._close()
        rng = random.Random(1)  # noqa: S311  the same each time
        if image is None:
            for table in reversed(list(TABLES)):
                await self._connection.execute(f"DELETE FROM {table}")  # noqa: S608  our tables
            await self._connection.execute("DELETE FROM change; INSERT INTO ledger VALUES (1, 0, 0, 0, 0, 0, 0)")
        else:
            head = await restore(self._connection, io.BytesIO(image), rng=rng)
            if examine(witness, revision=head.revision) is None:  # a copy that nobody knows to be one
                await self._connection.execute("UPDATE ledger SET system = NULL, timeline = NULL")
        self._store = TwoReplicas(self._url, room=self)
        return self._store

    def image(self) -> bytes:
        file = io.BytesIO()
        self._runner.run(back_up(self._connection, file))
        return file.getvalue()

    async def leave(self) -> None:
        await self._close()
        await self._connection.close()

    async def _close(self) -> None:
        if self._store is not None:
            await self._store.close()
            self._store = None


class TwoReplicas:
    """Two stores on one database; works go to each of them by turns, three at a time."""

    def __init__(self, url: str, *, room: Room) -> None:
        self._room = room
        self._replicas = [PostgresStore(url, rng=random.SystemRandom()) for _ in range(2)]
        self._turns = itertools.cycle(each for each in self._replicas for _ in range(3))

    @property
    def first(self) -> PostgresStore:
        """One of them, which does what it is asked for in that order; the two together do not."""
        return self._replicas[0]

    async def begin(self, mend: Mend) -> None:
        for replica in self._replicas:
            await replica.begin(mend)

    async def write(self, work: Callable[[Books], T]) -> T:
        return await next(self._turns).write(work)

    async def read(self, work: Callable[[Books], T]) -> T:
        return await next(self._turns).read(work)

    def follow(self, listener: Listener) -> Callable[[], object]:
        return self._replicas[0].follow(listener)

    def count_commits(self, hear: Callable[[int], None]) -> None:
        for replica in self._replicas:
            replica.count_commits(hear)

    async def close(self) -> None:
        for replica in self._replicas:
            await replica.close()

    def image(self) -> bytes:
        return self._room.image()


in_use: list[Database] = [InMemory()]
"""The last one is what offices open their books on."""
