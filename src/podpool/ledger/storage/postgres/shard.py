"""The writer of one network in one replica; any number of replicas may write to the network, one at a time.

Each commit writes a new random number, the commit token, into the row of the network in table `shard`. A replica that
finds its own token there knows that no other has written since, and continues with its row cache. So a single writer
needs one round trip for a group of transactions, and runs the next group on the cache while the last one is being
written. A replica that finds another token locks the row first, and refreshes its cache with what the others list as
changed; transactions of two replicas never interleave. There is one token for all subnets of a network, because its
revision must rise in the order of the commits: otherwise lost commits could hide behind a higher revision. Two networks
share no row that both write, so their commits are independent.

If the connection breaks during a commit, the token shows afterwards whether it took effect. Only if another replica has
written in between is that unknown; callers get an error that says so, and may repeat their calls.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import asyncpg
import msgspec
from msgspec.structs import replace

from podpool.ledger.domain.repository import QueueState, Repair, Repository, Rollback
from podpool.ledger.errors import LedgerError, Unavailable
from podpool.ledger.storage.group_commit import (
    MAX_GROUP_SIZE,
    ChangeListeners,
    Job,
    JobQueue,
    Transaction,
    TransactionResult,
    run_group,
)
from podpool.ledger.storage.postgres.commit import refresh, write_changes
from podpool.ledger.storage.postgres.connection import (
    CONNECTION_ERRORS,
    RETRYABLE_ERRORS,
)
from podpool.ledger.storage.postgres.connection_pool import ConnectionPool, ServerSession
from podpool.ledger.storage.postgres.greenlet_bridge import greenlet_spawn
from podpool.ledger.storage.postgres.history import ShardLockRequired
from podpool.ledger.storage.postgres.notify import NotificationListener
from podpool.ledger.storage.postgres.reader import lock_shard
from podpool.ledger.storage.postgres.repository import PostgresRepository
from podpool.ledger.storage.postgres.row_cache import CachedTime, RowCache, ShardRow
from podpool.ledger.storage.postgres.server_clock import ServerTime
from podpool.runtime.logging import get_logger

if TYPE_CHECKING:
    from asyncpg import Connection

T = TypeVar("T")

log = get_logger(__name__)

_RECONNECT_TIMEOUT = 10.0
"""Seconds for which callers wait while the server is unreachable."""
_RETRY_DELAY = 0.1
STOPPED = "the ledger has stopped: restart it"
_MAX_CACHED_ROWS = 50_000
"""Beyond it the cache is dropped, and rows are read again when they are needed."""

_Results = Sequence[TransactionResult[object]]
_Committed = tuple[_Results, Sequence[int]]
"""The results of transactions, and the subnets that they changed."""


class _UncertainCommit(msgspec.Struct, frozen=True):
    """A commit without an answer from the server."""

    token_before: int
    token_after: int
    results: _Results
    changed: Sequence[int]


class _InFlightCommit(msgspec.Struct, frozen=True):
    """A group whose transactions were run, and whose changes are being written."""

    group: Sequence[Job]
    written: asyncio.Task[bool]


class SharedState:
    """What the writers of all networks of a replica share."""

    def __init__(self, url: str, *, rng: random.Random) -> None:
        self.rng = rng
        self.server_time = ServerTime()
        self.time_row = CachedTime()
        self.pool = ConnectionPool(url, self.server_time)
        self.listeners = ChangeListeners()
        self.notifications = NotificationListener(url, self.listeners, replica=rng.getrandbits(63))
        self.repair: Repair | None = None
        self.on_commit: Callable[[int], None] | None = None


class ShardWriter:
    """Commits the transactions of one network."""

    def __init__(self, network: str, shared: SharedState) -> None:
        self._network = network
        self._shared = shared
        self._wake = asyncio.Event()
        self._jobs = JobQueue(self._wake.set)
        self._closing = False
        self._session: ServerSession | None = None
        self._cache: RowCache | None = None
        self._sole_writer = True
        """No other replica wrote before our last commit under the lock."""
        self._uncertain: _UncertainCommit | None = None
        self._in_flight: _InFlightCommit | None = None
        self._writer = asyncio.create_task(self._run(), name="ledger-writer")

    @property
    def queue(self) -> QueueState:
        """The state of the queue."""
        return self._jobs.state

    async def run(self, transaction: Callable[[Repository], T]) -> T:
        """Queue a transaction and wait for its commit."""
        if self._closing or self._writer.done():
            raise LedgerError(STOPPED)
        return await self._jobs.run(transaction, network=self._network)

    def on_reclaimed(self) -> None:
        """Forget the connection, which another writer has taken; the cache is valid on any."""
        self._session = None

    async def close(self) -> None:
        """Complete the queued transactions and disconnect."""
        self._closing = True
        self._wake.set()
        await self._writer
        await self._disconnect()

    async def _run(self) -> None:
        while True:
            if group := self._next_group():
                await self._commit(group)
            elif len(self._jobs):
                continue
            elif self._writing or not (self._in_flight or self._closing):
                await self._wait_for_work()
            elif self._in_flight:
                await self._finish_in_flight()
            else:
                return

    async def _wait_for_work(self) -> None:
        self._wake.clear()
        session = None if self._in_flight else self._session
        if session is not None:
            await self._shared.pool.park(self, session)
        await self._wake.wait()
        if session is not None:
            self._shared.pool.resume(self)

    @property
    def _connection(self) -> "Connection | None":
        return self._session.connection if self._session else None

    @property
    def _writing(self) -> bool:
        return self._in_flight is not None and not self._in_flight.written.done()

    def _next_group(self) -> list[Job]:
        """Take all queued jobs; half of them if they can be written while the others run."""
        waiting = len(self._jobs)
        count = -(-waiting // 2) if self._usable_cache and not self._writing else waiting
        return self._jobs.take(min(MAX_GROUP_SIZE, count))

    @property
    def _usable_cache(self) -> "tuple[Connection, RowCache] | None":
        """The cache on which the next group can run without the lock, and the connection to write it."""
        connection, cache = self._connection, self._cache
        if connection is None or connection.is_closed() or cache is None:
            return None
        return (connection, cache) if self._sole_writer and self._uncertain is None else None

    async def _commit(self, group: Sequence[Job]) -> None:
        if not await self._commit_optimistically(group):
            await self._finish_in_flight()
            await self._commit_locked(group)

    async def _commit_optimistically(self, group: Sequence[Job]) -> bool:
        """Run transactions on the cache while the previous group is being written, and start to write them after it.

        Returns False if that is not possible: then nothing was done.
        """
        if self._usable_cache is None:
            return False
        connection, cache = self._usable_cache
        self._cache = None  # until it is known to be what the database will contain
        repo = PostgresRepository(connection, cache, locked=False)
        try:
            run = partial(self._run_transactions, repo, [job.transaction for job in group])
            results = await greenlet_spawn(run, before_await=self._wait_written)
        except ShardLockRequired:
            if await self._finish_in_flight():
                self._cache = cache
            return False
        except Exception:  # noqa: BLE001  it is retried once under the lock, and reported if it fails again
            return False
        if not await self._finish_in_flight():
            return False
        self._cache = cache if cache.size < _MAX_CACHED_ROWS else None
        self._jobs.put_back(group[len(results) :])
        done = group[: len(results)]
        written = asyncio.create_task(self._write(connection, repo, done, results), name="ledger-commit")
        written.add_done_callback(lambda _: self._wake.set())
        self._in_flight = _InFlightCommit(done, written)
        for _ in range(2):  # the loop sends data at the end of an iteration: it must leave before the next group runs
            await asyncio.sleep(0)
        return True

    async def _write(
        self, connection: "Connection", repo: PostgresRepository, group: Sequence[Job], results: _Results
    ) -> bool:
        """Write the changes and resolve the jobs; returns False if another replica has written, or on failure."""
        before, after = repo.cache.shard.commit_token, self._shared.rng.getrandbits(63)
        changed = tuple(repo.changed)
        try:
            if repo.dirty:
                notification = self._shared.notifications.payload(self._network, changed)
                current = await write_changes(connection, repo, commit_token=after, notification=notification)
            else:
                current = before == await self._read_token(connection)
        except CONNECTION_ERRORS:
            await self._disconnect()
            self._uncertain = _UncertainCommit(before, after, results, changed) if repo.dirty else None
            return False
        except Exception:  # noqa: BLE001  the server has answered: nothing was done, and it is retried once
            await self._disconnect()
            return False
        if current:
            self._resolve(group, results, changed)
        else:
            self._sole_writer, self._cache = False, None
        return current

    async def _read_token(self, connection: "Connection") -> int:
        time = "date_part('epoch', clock_timestamp()) AS time"
        row = await connection.fetchrow(f"SELECT commit_token, {time} FROM shard WHERE network = $1", self._network)  # noqa: S608  our own names
        if row is None:
            return -1
        self._shared.server_time.record(row["time"])
        return int(row["commit_token"])

    async def _wait_written(self) -> None:
        """Wait until the connection is free."""
        if self._in_flight is not None:
            await self._in_flight.written

    async def _finish_in_flight(self) -> bool:
        """Wait for the commit in flight; returns False if it failed and was repeated under the lock."""
        in_flight, self._in_flight = self._in_flight, None
        if in_flight is None or await in_flight.written:
            return True
        await self._commit_locked(in_flight.group)
        return False

    async def _commit_locked(self, group: Sequence[Job]) -> None:
        """Commit transactions while no other replica can write."""
        results, changed = await self._retry_locked([job.transaction for job in group])
        self._jobs.put_back(group[len(results) :])
        self._resolve(group, results, changed)

    def _resolve(self, group: Sequence[Job], results: _Results, changed: Sequence[int]) -> None:
        if self._shared.on_commit:
            self._shared.on_commit(len(results))
        self._shared.listeners.notify(self._network, changed)
        for job, result in zip(group, results, strict=False):
            job.resolve(result)

    async def _retry_locked(self, transactions: Sequence[Transaction]) -> _Committed:
        """Commit all or the first of the transactions; retries while that is safe and the server may come back."""
        deadline = asyncio.get_running_loop().time() + _RECONNECT_TIMEOUT
        while True:
            try:
                return await self._run_locked(transactions)
            except RETRYABLE_ERRORS as error:
                self._cache = self._uncertain = None
                if asyncio.get_running_loop().time() > deadline:
                    return _refused(transactions, error), ()
                await asyncio.sleep(_RETRY_DELAY)
            except CONNECTION_ERRORS as error:
                await self._disconnect()
                if asyncio.get_running_loop().time() > deadline:
                    return self._unreachable(transactions, error), ()
                await asyncio.sleep(_RETRY_DELAY)
            except asyncpg.PostgresError as error:  # a full disk, a missing privilege
                await self._disconnect()
                self._uncertain = None  # the server has answered: nothing was committed
                return _refused(transactions, error), ()
            except Exception as error:  # noqa: BLE001  every caller gets it
                await self._disconnect()
                self._uncertain = None  # the server has answered: nothing was committed
                return [TransactionResult(error=error) for _ in transactions], ()

    def _unreachable(self, transactions: Sequence[Transaction], error: BaseException) -> _Results:
        log.error(
            "PostgreSQL unreachable", error=f"{type(error).__name__}: {error}", failed_transactions=len(transactions)
        )
        effect = "nothing was changed" if self._uncertain is None else "the change may have been made"
        self._uncertain = None
        failed = Unavailable(f"PostgreSQL is unreachable, {effect}: repeat the call")
        return [TransactionResult(error=failed) for _ in transactions]

    async def _run_locked(self, transactions: Sequence[Transaction]) -> _Committed:
        """Run transactions in one database transaction; returns their results and the subnets that changed."""
        connection = await self._connected()
        async with connection.transaction():
            shard = await lock_shard(connection, self._network)
            uncertain, self._uncertain = self._uncertain, None
            if uncertain is not None and uncertain.token_before != shard.commit_token:
                return _resolve_uncertain(uncertain, shard.commit_token), uncertain.changed
            cache = await self._current_cache(connection, shard)
            committed = await self._run_and_write(connection, cache, transactions)
        self._uncertain = None
        self._cache = cache if cache.size < _MAX_CACHED_ROWS else None
        return committed

    async def _current_cache(self, connection: "Connection", shard: ShardRow) -> RowCache:
        """Return the refreshed cache, or a new one; must hold the lock."""
        cache, self._cache = self._cache, None
        self._sole_writer = cache is None or cache.shard.commit_token == shard.commit_token
        if cache is None or not (self._sole_writer or await refresh(connection, cache, shard)):
            return RowCache(shard, self._shared.time_row)
        return cache

    async def _run_and_write(
        self, connection: "Connection", cache: RowCache, transactions: Sequence[Transaction]
    ) -> _Committed:
        repo = PostgresRepository(connection, cache, locked=True)
        before = cache.shard.commit_token
        results = await greenlet_spawn(lambda: self._run_transactions(repo, transactions))
        changed = tuple(repo.changed)
        if repo.dirty:
            after = self._shared.rng.getrandbits(63)
            self._uncertain = _UncertainCommit(before, after, results, changed)
            notification = self._shared.notifications.payload(self._network, changed)
            await write_changes(connection, repo, commit_token=after, notification=notification)
        return results, changed

    def _run_transactions(self, repo: PostgresRepository, transactions: Sequence[Transaction]) -> _Results:
        self._check_server(repo)
        results: list[TransactionResult[object]] = []
        try:
            for result in run_group(transactions, repo.run_atomically):
                results.append(result)  # noqa: PERF402  results before the exception are kept
        except ShardLockRequired:
            if not results:
                raise
        return results

    def _check_server(self, repo: PostgresRepository) -> None:
        """Repair the network if it was last written on another server or timeline."""
        shard, session = repo.cache.shard, self._session
        if session is None or (shard.system_identifier, shard.timeline) == session.identity:
            return
        if shard.system_identifier is not None:
            repair = self._shared.repair
            if repair is None:
                raise LedgerError("the database was last written on another server: start the ledger to recover it")
            rollback = Rollback(repo.revision, None)
            repo.run_atomically(lambda repo: repair(repo, rollback))
        system_identifier, timeline = session.identity
        repo.cache.shard = replace(repo.cache.shard, system_identifier=system_identifier, timeline=timeline)
        repo.dirty = True

    async def _connected(self) -> "Connection":
        if self._session is None or self._session.connection.is_closed():
            await self._disconnect()
            self._session = await self._shared.pool.acquire()
        return self._session.connection

    async def _disconnect(self) -> None:
        """Drop the connection and the cache that was read through it."""
        session, self._session, self._cache = self._session, None, None
        if session is not None:
            await self._shared.pool.discard(session)


def _refused(transactions: Sequence[Transaction], error: Exception) -> _Results:
    text = f"{type(error).__name__}: {error}"
    log.error("PostgreSQL refused a commit", error=text, failed_transactions=len(transactions))
    failed = Unavailable(f"PostgreSQL refused the commit ({text}), nothing was changed: repeat the call")
    return [TransactionResult(error=failed) for _ in transactions]


def _resolve_uncertain(uncertain: _UncertainCommit, token: int) -> _Results:
    """Return the results of a commit without an answer, when the token is not the one before it."""
    if token == uncertain.token_after:
        return uncertain.results
    broken = "the connection to PostgreSQL broke during the commit, which may have taken effect: repeat the call"
    error = Unavailable(broken)
    return [TransactionResult(error=error) for _ in uncertain.results]
