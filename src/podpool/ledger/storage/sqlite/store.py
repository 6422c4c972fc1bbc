"""SQLite as a store: one writer, in place or in a thread of its own.

SQLite's locks are unfair: eight writers starve one another for over a second, where one takes milliseconds. So there is
one, and it drains whatever waits into a single commit. Each work has a savepoint: one that raises takes nothing else
with it. The witness is promised the revision before the commit, within the transaction.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TypeVar, cast

from podpool.ledger.errors import LedgerError
from podpool.ledger.storage.group_commit import MOST_WORKS, Followers, Job, Outcome, Work, attempts, in_loop, job
from podpool.ledger.storage.rollback_detector import FileWitness, MemoryWitness, Witness, examine
from podpool.ledger.storage.sqlite.repository import SqliteBooks, connect
from podpool.ledger.storage.store import Books, Listener, Mend, Restored

T = TypeVar("T")


class InlineStore:
    """Books whose writer is whoever calls: no thread, nothing waits. For the simulator and for tests."""

    def __init__(self, path: str = ":memory:", *, witness: Witness | None = None, image: bytes | None = None) -> None:
        self._writer = _Writer(path, witness=witness or MemoryWitness(), image=image)
        self._followers = Followers()
        self._hear: Callable[[int], None] = _nobody

    def restored(self) -> Restored | None:
        """Ask the witness."""
        return self._writer.restored()

    async def begin(self, mend: Mend) -> None:
        """Mend the books if the witness says so."""
        restored = self.restored()
        if restored is not None:
            await self.write(lambda books: mend(books, restored))

    async def write(self, work: Callable[[Books], T]) -> T:
        """Run a work in a transaction of its own."""
        (outcome,), changed = self._writer.transact([work])
        self._hear(1)
        self._followers.tell(changed)
        return cast("T", outcome.get())

    async def read(self, work: Callable[[Books], T]) -> T:
        """Run a work that changes nothing."""
        return await self.write(work)

    def follow(self, listener: Listener) -> Callable[[], object]:
        """Tell a listener about every commit."""
        return self._followers.add(listener)

    def count_commits(self, hear: Callable[[int], None]) -> None:
        """Tell somebody of every commit how many works it carried."""
        self._hear = hear

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
        self._jobs: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
        self._followers = Followers()
        self._hear: Callable[[int], None] = _nobody
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    def restored(self) -> Restored | None:
        """Ask the witness; before the first write."""
        return self._writer.restored()

    async def begin(self, mend: Mend) -> None:
        """Mend the books if the witness says so; a file does not go away while it is open."""
        restored = self.restored()
        if restored is not None:
            await self.write(lambda books: mend(books, restored))

    async def write(self, work: Callable[[Books], T]) -> T:
        """Hand a work to the writer and wait for its commit."""
        if not self._thread.is_alive():
            raise LedgerError("the ledger has stopped: start it again")
        waiting = job(work)
        self._jobs.put(waiting)
        return cast("T", await waiting.future)

    async def read(self, work: Callable[[Books], T]) -> T:
        """Run a work that changes nothing, in its turn: it sees every commit that was answered before."""
        return await self.write(work)

    def follow(self, listener: Listener) -> Callable[[], object]:
        """Tell a listener about every commit, in the loop that this is called from."""
        return self._followers.add(listener, asyncio.get_running_loop())

    def count_commits(self, hear: Callable[[int], None]) -> None:
        """Tell somebody of every commit how many works it carried, in the writer's thread."""
        self._hear = hear

    async def close(self) -> None:
        """Let the writer finish what it was given, and close the files."""
        self._jobs.put(None)
        await asyncio.to_thread(self._thread.join)
        self._writer.close()
        if self._witness:
            self._witness.close()

    def _run(self) -> None:
        while first := self._jobs.get():
            jobs = [first]
            while len(jobs) < MOST_WORKS and not self._jobs.empty():
                following = self._jobs.get()
                if following is None:
                    self._jobs.put(None)
                    break
                jobs.append(following)
            self._commit(jobs)

    def _commit(self, jobs: Sequence[Job]) -> None:
        try:
            outcomes, changed = self._writer.transact([each.work for each in jobs])
        except Exception as error:  # noqa: BLE001  nothing was committed: every caller is told
            outcomes, changed = [Outcome(error=error) for _ in jobs], ()
        self._hear(len(jobs))
        for each, outcome in zip(jobs, outcomes, strict=True):
            in_loop(each.loop, each.settle, outcome)
        self._followers.tell(changed)


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

    def transact(self, works: Sequence[Work]) -> tuple[list[Outcome[object]], tuple[int, ...]]:
        """Run works in one transaction; tell what became of each, and which subnets changed."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            before = SqliteBooks(self._sql).revision
            done: list[SqliteBooks] = []
            outcomes = list(attempts(works, partial(self._attempt, done)))
            revision = self._finish(before, done)
        except BaseException:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise
        if revision is not None:
            self._witness.keep(revision)
        return outcomes, tuple(dict.fromkeys(number for books in done for number in books.changed))

    def _attempt(self, done: list[SqliteBooks], work: Callable[[Books], T]) -> T:
        self._sql.execute("SAVEPOINT work")
        books = SqliteBooks(self._sql)
        try:
            answer = work(books)
        except Exception:
            self._sql.execute("ROLLBACK TO work")
            raise
        finally:
            self._sql.execute("RELEASE work")
        done.append(books)
        return answer

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


def _nobody(_: int) -> None:
    """Nobody wants to know."""
