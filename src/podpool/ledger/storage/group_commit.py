"""Group commit: transactions that wait for their commit, how a group of them is run, and who is notified of commits.

What must hold under overload: a transaction whose caller has gone, or whose deadline has passed, is dropped and not
run; the queue is bounded, and a caller beyond the bound is refused at once with Retry-After; a large transaction does
not share a commit, so that others are answered before it.
"""

import asyncio
import itertools
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar, cast

import msgspec

from podpool.ledger.domain.deadline import current_deadline
from podpool.ledger.domain.repository import BatchTransaction, LargeTransaction, Listener, QueueState, Repository
from podpool.ledger.errors import Unavailable

T = TypeVar("T")

Transaction = Callable[[Repository], object]

MAX_GROUP_SIZE = 64
"""Transactions in one commit. More showed no gain, and the first caller waits for the last."""
MAX_GROUP_WEIGHT = 1_000
"""Items in one commit, about 0.3 s: callers are answered after each commit."""
MAX_QUEUED = 1_024
"""Transactions that wait. More would wait for longer than their callers do."""
_RETRY_AFTER = 1.0
"""Seconds after which a caller that was turned away may come back: a full queue is empty by then, or nearly."""


class TransactionResult(msgspec.Struct, Generic[T]):
    """The return value of a transaction, or the exception that it raised."""

    value: T | None = None
    error: Exception | None = None

    def get(self) -> T:
        """Return the value, or raise the exception."""
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


NetworkTransaction = tuple[str, Transaction]
"""A transaction and its network."""
RunAtomically = Callable[[Callable[[Repository], Sequence[object]]], Sequence[object]]
"""Runs a function on the repository; one that raises leaves no change."""


def run_group(
    transactions: Sequence[Transaction], run_atomically: RunAtomically
) -> Iterator[TransactionResult[object]]:
    """Run transactions in order, neighbouring batch transactions as one; a batch that fails is run one by one."""
    pending = deque(list(batch) for _, batch in itertools.groupby(transactions, _batch_key))
    while pending:
        batch = pending.popleft()
        try:
            values = run_atomically(partial(_run_batch, batch))
        except Exception as error:  # noqa: BLE001  its caller gets it
            if len(batch) == 1:
                yield TransactionResult(error=error)
            else:
                pending.extendleft([transaction] for transaction in reversed(batch))
        else:
            yield from map(TransactionResult, values)


def _batch_key(transaction: Transaction) -> object:
    return transaction.function if isinstance(transaction, BatchTransaction) else object()


def _run_batch(batch: Sequence[Transaction], repository: Repository) -> Sequence[object]:
    if len(batch) == 1:
        return [transaction(repository) for transaction in batch]
    same = [transaction for transaction in batch if isinstance(transaction, BatchTransaction)]
    return same[0].function(repository, [transaction.argument for transaction in same])


class Job(msgspec.Struct, frozen=True):
    """A transaction, and the future of its caller."""

    transaction: Transaction
    network: str
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[object]"

    @property
    def abandoned(self) -> bool:
        """Whether the caller has gone, or its deadline has passed."""
        return self.future.done()

    @property
    def weight(self) -> int:
        """The work, in items."""
        transaction = self.transaction
        return transaction.weight if isinstance(transaction, BatchTransaction | LargeTransaction) else 1

    def resolve(self, result: TransactionResult[object]) -> None:
        """Resolve the caller's future; must run in its loop."""
        if self.future.done():  # the caller was cancelled
            return
        if result.error is not None:
            self.future.set_exception(result.error)
        else:
            self.future.set_result(result.value)


class JobQueue:
    """The jobs that wait for a writer, which may be in another thread."""

    def __init__(self, wake: Callable[[], object]) -> None:
        self._dropped = self._refused = 0
        self._jobs: deque[Job] = deque()
        self._lock = threading.Lock()
        self._wake = wake

    def __len__(self) -> int:
        return len(self._jobs)

    @property
    def state(self) -> QueueState:
        """The state for metrics."""
        return QueueState(len(self._jobs), self._dropped, self._refused)

    async def run(self, transaction: Callable[[Repository], T], *, network: str) -> T:
        """Queue a transaction and wait for its commit, until the deadline of the request."""
        loop, deadline = asyncio.get_running_loop(), current_deadline()
        job = Job(transaction, network, loop, loop.create_future())
        self._add(job)
        self._wake()
        try:
            async with asyncio.timeout_at(deadline.at(loop.time()) if deadline else None):
                return cast("T", await job.future)
        except TimeoutError:
            late = f"no commit within {deadline.seconds:g} s, the deadline of the request" if deadline else ""
            raise Unavailable(f"{late}: it may have been processed, repeat it") from None

    def take(self, count: int) -> list[Job]:
        """Take the jobs of the next commit: at most so many, and not more than one large one."""
        taken: list[Job] = []
        weight = 0
        with self._lock:
            while self._jobs and len(taken) < count:
                if self._jobs[0].abandoned:
                    self._jobs.popleft()
                    self._dropped += 1
                    continue
                weight += self._jobs[0].weight
                if taken and weight > MAX_GROUP_WEIGHT:
                    break
                taken.append(self._jobs.popleft())
        return taken

    def put_back(self, jobs: Sequence[Job]) -> None:
        """Return jobs that were taken and not run, to be the next."""
        with self._lock:
            self._jobs.extendleft(reversed(jobs))

    def _add(self, job: Job) -> None:
        with self._lock:
            if len(self._jobs) >= MAX_QUEUED:
                waiting = [each for each in self._jobs if not each.abandoned]
                self._dropped += len(self._jobs) - len(waiting)
                self._jobs = deque(waiting)
            if len(self._jobs) >= MAX_QUEUED:
                self._refused += 1
                full = f"{MAX_QUEUED} transactions wait for the database: nothing was changed, repeat the call later"
                raise Unavailable(full, retry_after=_RETRY_AFTER)
            self._jobs.append(job)


class ChangeListeners:
    """The listeners that are called with the network of a commit and the subnets that it changed."""

    def __init__(self) -> None:
        self._listeners: dict[int, tuple[asyncio.AbstractEventLoop | None, Listener]] = {}
        self._ids = itertools.count()

    def add(self, listener: Listener, loop: asyncio.AbstractEventLoop | None = None) -> Callable[[], object]:
        """Add a listener, called in its loop if it has one; returns a function that removes it."""
        id_ = next(self._ids)
        self._listeners[id_] = (loop, listener)
        return partial(self._listeners.pop, id_, None)

    def notify(self, network: str, changed: Sequence[int]) -> None:
        """Call all listeners, unless no subnet changed."""
        for loop, listener in list(self._listeners.values()) if changed else ():
            if loop is None:
                listener(network, changed)
            else:
                call_in_loop(loop, listener, network, changed)


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """Call a function in a loop of another thread."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:  # the loop is closed, so no caller waits
        return
