"""SQLite as a store: one writer, in place or in a thread of its own.

SQLite's locks are unfair: eight writers starve one another for over a second, where one takes milliseconds. So there is
one, and it drains whatever waits into a single commit. Each work has a savepoint: one that raises takes nothing else
with it. The witness is promised the revision before the commit, within the transaction.
"""

import asyncio
import contextlib
import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar, cast

import msgspec

from podpool.ledger.errors import LedgerError
from podpool.ledger.sqlite import SqliteBooks, connect
from podpool.ledger.store import Books, Listener, Restored
from podpool.ledger.witness import FileWitness, MemoryWitness, Witness, examine

T = TypeVar("T")

_MOST_WORKS = 64
"""In one commit; more gained nothing when measured, and the first caller waits for the last."""


class _Outcome(msgspec.Struct, Generic[T]):
    """What became of a work."""

    value: T | None = None
    error: Exception | None = None

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


class InlineStore:
    """Books whose writer is whoever calls: no thread, nothing waits. For the simulator and for tests."""

    def __init__(self, path: str = ":memory:", *, witness: Witness | None = None, image: bytes | None = None) -> None:
        self._writer = _Writer(path, witness=witness or MemoryWitness(), image=image)
        self._listeners: dict[int, Listener] = {}
        self._tickets = itertools.count()

    def restored(self) -> Restored | None:
        """Ask the witness."""
        return self._writer.restored()

    async def write(self, work: Callable[[Books], T]) -> T:
        """Run a work in a transaction of its own."""
        (outcome,), changed = self._writer.transact([work])
        for listener in list(self._listeners.values()) if changed else ():
            listener(changed)
        return cast("T", outcome.get())

    async def read(self, work: Callable[[Books], T]) -> T:
        """Run a work that changes nothing."""
        return await self.write(work)

    def follow(self, listener: Listener) -> Callable[[], object]:
        """Tell a listener about every commit."""
        ticket = next(self._tickets)
        self._listeners[ticket] = listener
        return partial(self._listeners.pop, ticket, None)

    async def close(self) -> None:
        """Close the database."""
        self._writer.close()

    def image(self) -> bytes:
        """Copy the books, as a backup would."""
        return self._writer.image()


class ThreadStore:
    """Books in a file, with a writer thread: what a real ledger runs on. The witness lies beside the file."""

    def __init__(self, path: Path, *, witness: Witness | None = None) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._witness = FileWitness(path) if witness is None else None
        self._writer = _Writer(str(path), witness=witness or cast("Witness", self._witness))
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._listeners: dict[int, tuple[asyncio.AbstractEventLoop, Listener]] = {}
        self._tickets = itertools.count()
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    def restored(self) -> Restored | None:
        """Ask the witness; before the first write."""
        return self._writer.restored()

    async def write(self, work: Callable[[Books], T]) -> T:
        """Hand a work to the writer and wait for its commit."""
        if not self._thread.is_alive():
            raise LedgerError("the ledger has stopped: start it again")
        loop = asyncio.get_running_loop()
        future: asyncio.Future[object] = loop.create_future()
        self._jobs.put(_Job(work, loop, future))
        return cast("T", await future)

    async def read(self, work: Callable[[Books], T]) -> T:
        """Run a work that changes nothing, in its turn: it sees every commit that was answered before."""
        return await self.write(work)

    def follow(self, listener: Listener) -> Callable[[], object]:
        """Tell a listener about every commit, in the loop that this is called from."""
        ticket = next(self._tickets)
        self._listeners[ticket] = (asyncio.get_running_loop(), listener)
        return partial(self._listeners.pop, ticket, None)

    async def close(self) -> None:
        """Let the writer finish what it was given, and close the files."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        self._writer.close()
        if self._witness:
            self._witness.close()

    def _run(self) -> None:
        while job := self._jobs.get():
            jobs = [job]
            while len(jobs) < _MOST_WORKS and not self._jobs.empty():
                following = self._jobs.get()
                if following is None:
                    self._jobs.put(None)
                    break
                jobs.append(following)
            self._commit(jobs)

    def _commit(self, jobs: Sequence["_Job"]) -> None:
        try:
            outcomes, changed = self._writer.transact([job.work for job in jobs])
        except Exception as error:  # noqa: BLE001  nothing was committed: every caller is told
            outcomes, changed = [_Outcome(error=error) for _ in jobs], ()
        for job, outcome in zip(jobs, outcomes, strict=True):
            _in(job.loop, _settle, job.future, outcome)
        for loop, listener in list(self._listeners.values()) if changed else ():
            _in(loop, listener, changed)


class _Job(msgspec.Struct, frozen=True):
    """A work, and who waits for it."""

    work: Callable[[Books], object]
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[object]"


class _Writer:
    """The connection and the witness: the only ones who write."""

    def __init__(self, path: str, *, witness: Witness, image: bytes | None = None) -> None:
        self._sql = connect(path, image=image)
        self._witness = witness

    def restored(self) -> Restored | None:
        return examine(self._witness, revision=SqliteBooks(self._sql).revision)

    def image(self) -> bytes:
        return self._sql.serialize()

    def close(self) -> None:
        self._sql.close()

    def transact(self, works: Sequence[Callable[[Books], object]]) -> tuple[list[_Outcome[object]], tuple[int, ...]]:
        """Run works in one transaction; tell what became of each, and which subnets changed."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            before = SqliteBooks(self._sql).revision
            done = [self._attempt(work) for work in works]
            revision = self._finish(before, [books for books, _ in done if books])
        except BaseException:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise
        if revision is not None:
            self._witness.keep(revision)
        changed = dict.fromkeys(number for books, _ in done if books for number in books.changed)
        return [outcome for _, outcome in done], tuple(changed)

    def _attempt(self, work: Callable[[Books], object]) -> tuple[SqliteBooks | None, _Outcome[object]]:
        self._sql.execute("SAVEPOINT work")
        books = SqliteBooks(self._sql)
        try:
            return books, _Outcome(work(books))
        except Exception as error:  # noqa: BLE001  its caller gets it
            self._sql.execute("ROLLBACK TO work")
            return None, _Outcome(error=error)
        finally:
            self._sql.execute("RELEASE work")

    def _finish(self, before: int, done: Sequence[SqliteBooks]) -> int | None:
        """Commit if anything changed; tell the revision that the books then have."""
        if not any(books.dirty for books in done):
            self._sql.execute("ROLLBACK")
            return None
        revision = done[-1].revision
        members = tuple(dict.fromkeys(member for books in done for member in books.new_members))
        self._witness.promise(revision=revision, kept=before, members=members)
        self._sql.execute("COMMIT")
        return revision


def _settle(future: "asyncio.Future[object]", outcome: _Outcome[object]) -> None:
    if future.done():  # its caller has gone
        return
    if outcome.error is not None:
        future.set_exception(outcome.error)
    else:
        future.set_result(outcome.value)


def _in(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody is left to be told
        loop.call_soon_threadsafe(call, *arguments)
