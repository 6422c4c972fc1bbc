"""PostgreSQL as a store: any number of replicas on one database.

Writers take turns. Whoever commits puts a new random number, the turn, into the ledger's one row; a replica that finds
the number which it wrote itself knows that nothing has changed since, and works on from the rows that it has at hand.
So a lone writer needs one round trip for a whole group of works, and decides the next group on these rows while the
last one is being written. Who finds another number locks that row first, and reads again what the others say to have
changed; works of two replicas are never mixed. There is one turn for all subnets, not one for each, because the
revision must rise in the order of the commits: else a lost tail of them could hide behind a higher number.

When the connection breaks while a group commits, the number tells afterwards whether it was done. Only when somebody
else has written in between does nobody know, and the callers are told so; their calls may be sent again.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import msgspec
from msgspec.structs import replace

from podpool.ledger.errors import LedgerError, Unavailable
from podpool.ledger.storage.group_commit import MOST_WORKS, Followers, Job, Outcome, Work, attempts, job
from podpool.ledger.storage.postgres.commit import renew, write
from podpool.ledger.storage.postgres.greenlet_bridge import bridged
from podpool.ledger.storage.postgres.history import TurnWanted
from podpool.ledger.storage.postgres.notify import News
from podpool.ledger.storage.postgres.repository import PostgresBooks
from podpool.ledger.storage.postgres.row_cache import Counters, Shelf
from podpool.ledger.storage.postgres.server_settings import AGAIN, LOST, Witness, connect, connected, identify
from podpool.ledger.storage.store import Books, Listener, Mend, Restored

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

_log = logging.getLogger(__name__)

_PATIENCE = 10.0
"""Seconds for which callers wait while the server is away."""
_PAUSE = 0.1
_MOST_ROWS = 50_000
"""At hand; beyond it they are all forgotten, and read again as they are needed."""
_COUNTERS = ", ".join(Counters.__struct_fields__)

_Done = tuple[Sequence[Outcome[object]], Sequence[int]]
"""What became of works, and which subnets they have changed."""


class _Doubt(msgspec.Struct, frozen=True):
    """A commit whose answer is missing."""

    before: int
    after: int
    outcomes: Sequence[Outcome[object]]
    changed: Sequence[int]


class _Flight(msgspec.Struct, frozen=True):
    """A group that was decided and is being written."""

    group: Sequence[Job]
    written: asyncio.Task[bool]


class PostgresStore:
    """Books on a server."""

    def __init__(self, url: str, *, rng: random.Random) -> None:
        self._url = url
        self._rng = rng
        self._mend: Mend | None = None
        self._jobs: deque[Job] = deque()
        self._stirred = asyncio.Event()
        self._closing = False
        self._followers = Followers()
        self._news = News(url, self._followers, replica=rng.getrandbits(63))
        self._connection: Connection | None = None
        self._witness: Witness | None = None
        self._shelf: Shelf | None = None
        self._alone = True
        """Nobody else wrote before our last turn."""
        self._doubt: _Doubt | None = None
        self._flight: _Flight | None = None
        self._hear: Callable[[int], None] | None = None
        self._writer = asyncio.create_task(self._run(), name="ledger-writer")

    @classmethod
    async def open(cls, url: str, *, rng: random.Random) -> "PostgresStore":
        """Connect, and bring the tables up to date."""
        async with connected(url):
            return cls(url, rng=rng)

    async def begin(self, mend: Mend) -> None:
        """Have the books mended whenever the server is not the one that they were last written on."""
        self._mend = mend
        await self.read(lambda books: books.revision)

    async def write(self, work: Callable[[Books], T]) -> T:
        """Hand a work to the writer and wait for its commit."""
        if self._closing or self._writer.done():
            raise LedgerError("the ledger has stopped: start it again")
        waiting = job(work)
        self._jobs.append(waiting)
        self._stirred.set()
        return cast("T", await waiting.future)

    async def read(self, work: Callable[[Books], T]) -> T:
        """Run a work that changes nothing; it sees every commit that was answered before, by any replica."""
        return await self.write(work)

    def follow(self, listener: Listener) -> Callable[[], object]:
        """Tell a listener about every commit of every replica."""
        self._news.begin()
        return self._followers.add(listener)

    def count_commits(self, hear: Callable[[int], None]) -> None:
        """Tell somebody of every commit how many works it carried."""
        self._hear = hear

    async def close(self) -> None:
        """Finish what was taken, and leave."""
        self._closing = True
        self._stirred.set()
        await self._writer
        await self._news.close()
        await self._leave()

    async def _run(self) -> None:
        while True:
            if self._jobs:
                await self._serve(self._next_group())
            elif self._writing or not (self._flight or self._closing):
                self._stirred.clear()
                await self._stirred.wait()
            elif self._flight:
                await self._land()
            else:
                return

    @property
    def _writing(self) -> bool:
        return self._flight is not None and not self._flight.written.done()

    def _next_group(self) -> list[Job]:
        """Take all who wait; half of them when they can be written while the others are decided."""
        waiting = len(self._jobs)
        count = -(-waiting // 2) if self._at_hand and not self._writing else waiting
        return [self._jobs.popleft() for _ in range(min(MOST_WORKS, count))]

    @property
    def _at_hand(self) -> "tuple[Connection, Shelf] | None":
        """The rows on which the next group can be decided without a turn, and where to write it."""
        connection, shelf = self._connection, self._shelf
        if connection is None or connection.is_closed() or shelf is None:
            return None
        return (connection, shelf) if self._alone and self._doubt is None else None

    async def _serve(self, group: Sequence[Job]) -> None:
        if not await self._fly(group):
            await self._land()
            await self._take_turn(group)

    async def _fly(self, group: Sequence[Job]) -> bool:
        """Decide works on the rows at hand while the group before is being written, and have them written behind it.

        False when that cannot be: then nothing was done.
        """
        if self._at_hand is None:
            return False
        connection, shelf = self._at_hand
        self._shelf = None  # until it is known to be what the database will have
        books = PostgresBooks(connection, shelf, in_turn=False)
        works = [each.work for each in group]
        try:
            outcomes = await bridged(lambda: self._attempt_all(books, works), first=self._written)
        except TurnWanted:
            if await self._land():
                self._shelf = shelf
            return False
        except Exception:  # noqa: BLE001  it is tried once more, and told if it fails again
            return False
        if not await self._land():
            return False
        self._shelf = shelf if shelf.size < _MOST_ROWS else None
        self._jobs.extendleft(reversed(group[len(outcomes) :]))
        done = group[: len(outcomes)]
        written = asyncio.create_task(self._write(connection, books, done, outcomes), name="ledger-commit")
        written.add_done_callback(lambda _: self._stirred.set())
        self._flight = _Flight(done, written)
        for _ in range(2):  # the loop sends what is written at the end of a turn: before anything else is decided
            await asyncio.sleep(0)
        return True

    async def _write(
        self, connection: "Connection", books: PostgresBooks, group: Sequence[Job], outcomes: Sequence[Outcome[object]]
    ) -> bool:
        """Write what was decided, and tell the callers; False when somebody else has written before, or it failed."""
        before, after, changed = books.shelf.counters.turn, self._rng.getrandbits(63), tuple(books.changed)
        try:
            if books.dirty:
                ours = await write(connection, books, turn=after, notice=self._news.notice(changed))
            else:
                ours = before == await connection.fetchval("SELECT turn FROM ledger")
        except LOST:
            await self._leave()
            self._doubt = _Doubt(before, after, outcomes, changed) if books.dirty else None
            return False
        except Exception:  # noqa: BLE001  the server has answered: nothing was done, and it is tried once more
            await self._leave()
            return False
        if ours:
            self._answer(group, outcomes, changed)
        else:
            self._alone, self._shelf = False, None
        return ours

    async def _written(self) -> None:
        """Wait until the connection is free."""
        if self._flight is not None:
            await self._flight.written

    async def _land(self) -> bool:
        """Wait for what is being written; False when that failed, and was done again in our turn."""
        flight, self._flight = self._flight, None
        if flight is None or await flight.written:
            return True
        await self._take_turn(flight.group)
        return False

    async def _take_turn(self, group: Sequence[Job]) -> None:
        """Do works when nobody else can write."""
        outcomes, changed = await self._commit([each.work for each in group])
        self._jobs.extendleft(reversed(group[len(outcomes) :]))
        self._answer(group, outcomes, changed)

    def _answer(self, group: Sequence[Job], outcomes: Sequence[Outcome[object]], changed: Sequence[int]) -> None:
        if self._hear:
            self._hear(len(outcomes))
        self._followers.tell(changed)
        for each, outcome in zip(group, outcomes, strict=False):
            each.settle(outcome)

    async def _commit(self, works: Sequence[Work]) -> _Done:
        """Do works, all or the first of them; try again as long as that is safe and there is hope."""
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        while True:
            try:
                return await self._transact(works)
            except AGAIN:
                self._shelf = self._doubt = None
            except LOST as error:
                await self._leave()
                if asyncio.get_running_loop().time() > deadline:
                    return self._give_up(works, error), ()
                await asyncio.sleep(_PAUSE)
            except Exception as error:  # noqa: BLE001  every caller is told
                await self._leave()
                self._doubt = None  # the server has answered: it was not done
                return [Outcome(error=error) for _ in works], ()

    def _give_up(self, works: Sequence[Work], error: BaseException) -> Sequence[Outcome[object]]:
        _log.error("PostgreSQL is away: %s: %s", type(error).__name__, error)
        known = "nothing was done" if self._doubt is None else "nobody knows whether it was done"
        self._doubt = None
        return [Outcome(error=Unavailable(f"PostgreSQL is away, {known}: send the call again")) for _ in works]

    async def _transact(self, works: Sequence[Work]) -> _Done:
        """Do works in one transaction; tell what became of each, and which subnets changed."""
        connection = await self._connected()
        async with connection.transaction():
            counters = await _lock(connection)
            doubt, self._doubt = self._doubt, None
            if doubt is not None and doubt.before != counters.turn:
                return _settled(doubt, counters.turn), doubt.changed
            shelf = await self._current(connection, counters)
            done = await self._work(connection, shelf, works)
        self._doubt = None
        self._shelf = shelf if shelf.size < _MOST_ROWS else None
        return done

    async def _current(self, connection: "Connection", counters: Counters) -> Shelf:
        """Bring the rows at hand up to date, in our turn."""
        shelf, self._shelf = self._shelf, None
        self._alone = shelf is None or shelf.counters.turn == counters.turn
        if shelf is None or not (self._alone or await renew(connection, shelf, counters)):
            return Shelf(counters)
        return shelf

    async def _work(self, connection: "Connection", shelf: Shelf, works: Sequence[Work]) -> _Done:
        books = PostgresBooks(connection, shelf, in_turn=True)
        before = shelf.counters.turn
        outcomes = await bridged(lambda: self._attempt_all(books, works))
        changed = tuple(books.changed)
        if books.dirty:
            after = self._rng.getrandbits(63)
            self._doubt = _Doubt(before, after, outcomes, changed)
            await write(connection, books, turn=after, notice=self._news.notice(changed))
        return outcomes, changed

    def _attempt_all(self, books: PostgresBooks, works: Sequence[Work]) -> list[Outcome[object]]:
        self._examine(books)
        outcomes: list[Outcome[object]] = []
        try:
            for outcome in attempts(works, books.attempt):
                outcomes.append(outcome)  # noqa: PERF402  those that came before a refusal are kept
        except TurnWanted:
            if not outcomes:
                raise
        return outcomes

    def _examine(self, books: PostgresBooks) -> None:
        """Compare the server with the one that the books were last written on."""
        counters = books.shelf.counters
        known = (counters.system, counters.timeline)
        if known == self._witness or self._witness is None:
            return
        if counters.system is not None:
            if self._mend is None:
                raise LedgerError(
                    "the books were last written on another server: start the ledger, so that it recovers"
                )
            restored, mend = Restored(books.revision, None), self._mend
            books.attempt(lambda mended: mend(mended, restored))
        system, timeline = self._witness
        books.shelf.counters = replace(books.shelf.counters, system=system, timeline=timeline)
        books.dirty = True

    async def _connected(self) -> "Connection":
        if self._connection is None or self._connection.is_closed():
            await self._leave()
            self._connection = await connect(self._url)
            self._witness = await identify(self._connection)
        return self._connection

    async def _leave(self) -> None:
        """Give the connection up, and everything that was read through it."""
        connection, self._connection, self._shelf = self._connection, None, None
        if connection is not None:
            connection.terminate()


async def _lock(connection: "Connection") -> Counters:
    row = await connection.fetchrow(f"SELECT {_COUNTERS} FROM ledger FOR UPDATE")  # noqa: S608  ours alone
    if row is None:
        raise LedgerError("the database has no books: restore them, or use another database")
    return Counters(**dict(row))


def _settled(doubt: _Doubt, turn: int) -> Sequence[Outcome[object]]:
    """Tell what is known of a commit whose answer was lost, when the turn is not the one before it."""
    if turn == doubt.after:
        return doubt.outcomes
    lost = Unavailable("PostgreSQL went away while it committed, nobody knows whether it was done: send the call again")
    return [Outcome(error=lost) for _ in doubt.outcomes]
