"""The SQLite store: one writer for all networks, inline or in a thread.

SQLite's locks are unfair: eight writers starve one another for over a second, where one takes milliseconds. So there is
one writer, which drains its queue into a single commit (group commit). Each transaction has a savepoint: one that
raises does not affect the others. The rollback detector records the new revision within the transaction, before the
commit.
"""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeVar, cast

from podpool.ledger.domain.repository import Listener, QueueState, Repair, Repository, Rollback
from podpool.ledger.errors import LedgerError
from podpool.ledger.storage.group_commit import (
    MAX_GROUP_SIZE,
    ChangeListeners,
    Job,
    JobQueue,
    NetworkTransaction,
    TransactionResult,
    call_in_loop,
    run_group,
)
from podpool.ledger.storage.rollback_detector import (
    FileRollbackDetector,
    MemoryRollbackDetector,
    RollbackDetector,
    detect_rollback,
)
from podpool.ledger.storage.sqlite.reader import SqliteReader
from podpool.ledger.storage.sqlite.repository import SqliteRepository, connect
from podpool.runtime.clock import Clock

T = TypeVar("T")

_STOPPED = "the ledger has stopped: restart it"

_Changed = Mapping[str, Sequence[int]]
"""The subnets that a commit has changed, by network."""


class _Store:
    """What both stores share."""

    def __init__(self, writer: "_Writer") -> None:
        self._writer = writer
        self._listeners = ChangeListeners()
        self._on_commit: Callable[[int], None] | None = None

    def rollback(self) -> Rollback | None:
        """Return the rollback that the detector found, if any; must be called before the first write."""
        return self._writer.rollback()

    async def begin(self, repair: Repair) -> None:
        """Repair all networks if the file was rolled back. A database that is open cannot be replaced."""
        rollback = self.rollback()
        if rollback is not None:
            await self.write(partial(_repair_all, repair=repair, rollback=rollback))

    async def write(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        """Run a transaction on a network and commit it."""
        raise NotImplementedError

    async def read(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        """Run a transaction that changes nothing; it sees every earlier commit."""
        return await self.write(transaction, network=network)

    def clock(self, local: Clock) -> Clock:
        """Return the clock of this machine."""
        return local

    async def query(self, transaction: Callable[[Repository], T]) -> T:
        """Run a transaction that changes nothing and may be long."""
        return await self.read(transaction)

    def queue(self) -> QueueState:
        """Return the state of the queue."""
        return QueueState()

    def on_commit(self, callback: Callable[[int], None]) -> None:
        """Call a function after every commit with the size of its group, in the thread of the writer."""
        self._on_commit = callback

    def _notify(self, changed: _Changed) -> None:
        for network, numbers in changed.items():
            self._listeners.notify(network, numbers)

    def _committed(self, count: int) -> None:
        if self._on_commit:
            self._on_commit(count)


class InlineSqliteStore(_Store):
    """A database that is written by its callers: no thread, no waiting. For the simulator and for tests."""

    def __init__(
        self, path: str = ":memory:", *, detector: RollbackDetector | None = None, image: bytes | None = None
    ) -> None:
        super().__init__(_Writer(path, detector=detector or MemoryRollbackDetector(), image=image))

    async def write(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        """Run a transaction and commit it."""
        (result,), changed = self._writer.commit([(network, transaction)])
        self._committed(1)
        self._notify(changed)
        return cast("T", result.get())

    async def read(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        """Run a transaction that changes nothing."""
        return self._writer.read(transaction, network=network)

    def subscribe(self, listener: Listener) -> Callable[[], object]:
        """Call a listener after every commit; returns a function that removes it."""
        return self._listeners.add(listener)

    async def close(self) -> None:
        """Close the database."""
        self._writer.close()

    def image(self) -> bytes:
        """Return a copy of the database file."""
        return self._writer.image()


class SqliteStore(_Store):
    """A database file with a writer thread, for a real ledger. The rollback detector's files are beside it."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._detector = FileRollbackDetector(path)
        super().__init__(_Writer(str(path), detector=self._detector))
        self._wake = threading.Event()
        self._closing = False
        self._jobs = JobQueue(self._wake.set)
        self._reader = SqliteReader(path)
        self._thread = threading.Thread(target=self._run, name="ledger-writer", daemon=True)
        self._thread.start()

    async def write(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        """Queue a transaction for the writer and wait for its commit."""
        if not self._thread.is_alive():
            raise LedgerError(_STOPPED)
        return await self._jobs.run(transaction, network=network)

    async def query(self, transaction: Callable[[Repository], T]) -> T:
        """Run a transaction on a connection of its own, beside the writer."""
        if self._closing:
            raise LedgerError(_STOPPED)
        return await self._reader.run(transaction)

    def queue(self) -> QueueState:
        """Return the state of the queue."""
        return self._jobs.state

    def subscribe(self, listener: Listener) -> Callable[[], object]:
        """Call a listener after every commit, in the running loop; returns a function that removes it."""
        return self._listeners.add(listener, asyncio.get_running_loop())

    async def close(self) -> None:
        """Complete the queued transactions and close the files."""
        self._closing = True
        self._wake.set()
        await asyncio.to_thread(self._thread.join)
        await asyncio.to_thread(self._reader.close)
        self._writer.close()
        self._detector.close()

    def _run(self) -> None:
        while True:
            self._wake.clear()
            if jobs := self._jobs.take(MAX_GROUP_SIZE):
                self._commit(jobs)
            elif self._closing:
                return
            elif not len(self._jobs):
                self._wake.wait()

    def _commit(self, jobs: Sequence[Job]) -> None:
        try:
            results, changed = self._writer.commit([(job.network, job.transaction) for job in jobs])
        except Exception as error:  # noqa: BLE001  nothing was committed: every caller gets the error
            results, changed = [TransactionResult(error=error) for _ in jobs], {}
        self._committed(len(jobs))
        for job, result in zip(jobs, results, strict=True):
            call_in_loop(job.loop, job.resolve, result)
        self._notify(changed)


class _RolledBack(BaseException):
    """SQLite has rolled back the whole transaction because of an error, such as one of the disk: nothing more runs."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


class _Writer:
    """The connection and the rollback detector."""

    def __init__(self, path: str, *, detector: RollbackDetector, image: bytes | None = None) -> None:
        self._sql = connect(path, image=image)
        self._detector = detector

    def rollback(self) -> Rollback | None:
        return detect_rollback(self._detector, revision=self._revision())

    def image(self) -> bytes:
        return self._sql.serialize()

    def close(self) -> None:
        self._sql.close()

    def commit(self, transactions: Sequence[NetworkTransaction]) -> tuple[list[TransactionResult[object]], _Changed]:
        """Run transactions in one commit; returns the result of each, and the subnets that changed."""
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            before = self._revision()
            done: list[SqliteRepository] = []
            results: list[TransactionResult[object]] = []
            for network, group in groupby(transactions, key=itemgetter(0)):
                run = partial(self._run_in_savepoint, done, network)
                results += run_group([transaction for _, transaction in group], run)
            revision = self._finish(before, done)
        except _RolledBack as rolled_back:
            raise rolled_back.error from None
        except BaseException:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            raise
        if revision is not None:
            self._detector.record_commit(revision)
        return results, _changed(done)

    def read(self, transaction: Callable[[Repository], T], *, network: str) -> T:
        """Run a transaction that changes nothing."""
        self._sql.execute("BEGIN")
        try:
            return transaction(SqliteRepository(self._sql, network))
        finally:
            self._sql.execute("ROLLBACK")

    def _revision(self) -> int:
        """Return the sum of all revisions: it rises with each of them, and is above each."""
        (revision,) = self._sql.execute("SELECT coalesce(sum(revision), 0) FROM shard").fetchone()
        return int(revision)

    def _run_in_savepoint(
        self, done: list[SqliteRepository], network: str, transaction: Callable[[Repository], T]
    ) -> T:
        self._sql.execute("SAVEPOINT one")
        repository = SqliteRepository(self._sql, network)
        try:
            value = transaction(repository)
        except Exception as error:
            if not self._sql.in_transaction:  # another SAVEPOINT would begin a transaction that its RELEASE commits
                raise _RolledBack(error) from error
            self._sql.execute("ROLLBACK TO one")
            self._sql.execute("RELEASE one")
            raise
        self._sql.execute("RELEASE one")
        done += (repository, *repository.siblings)
        return value

    def _finish(self, before: int, done: Sequence[SqliteRepository]) -> int | None:
        """Commit if anything changed; returns the new revision."""
        if not any(repository.dirty for repository in done):
            self._sql.execute("ROLLBACK")
            return None
        revision = self._revision()
        members = tuple(dict.fromkeys(member for repository in done for member in repository.new_members))
        self._detector.record_intent(revision=revision, committed=before, members=members)
        self._sql.execute("COMMIT")
        return revision


def _changed(done: Sequence[SqliteRepository]) -> _Changed:
    changed: defaultdict[str, dict[int, None]] = defaultdict(dict)
    for repository in done:
        changed[repository.network].update(repository.changed)
    return {network: tuple(numbers) for network, numbers in changed.items() if numbers}


def _repair_all(repo: Repository, *, repair: Repair, rollback: Rollback) -> None:
    """Repair each network of a file, in one commit: the revisions of those that are repaired rise."""
    if not isinstance(repo, SqliteRepository):
        raise TypeError("networks of a SQLite file are repaired together")
    members = rollback.members
    known = {network for _, network, _ in members or ()}
    for network in sorted(known.union(repo.networks())):
        own = None if members is None else tuple(each for each in members if each[1] == network)
        repair(repo.of_network(network), Rollback(rollback.revision, own))
