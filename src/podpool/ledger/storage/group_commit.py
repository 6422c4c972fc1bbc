"""Group commit: transactions that wait for their commit, how a group of them is run, and who is notified of commits."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar, cast

import msgspec

from podpool.ledger.domain.repository import BatchTransaction, Listener, Repository

T = TypeVar("T")

Transaction = Callable[[Repository], object]

MAX_GROUP_SIZE = 64
"""Transactions in one commit. More showed no gain, and the first caller waits for the last."""


class TransactionResult(msgspec.Struct, Generic[T]):
    """The return value of a transaction, or the exception that it raised."""

    value: T | None = None
    error: Exception | None = None

    def get(self) -> T:
        """Return the value, or raise the exception."""
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


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
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[object]"

    def resolve(self, result: TransactionResult[object]) -> None:
        """Resolve the caller's future; must run in its loop."""
        if self.future.done():  # the caller was cancelled
            return
        if result.error is not None:
            self.future.set_exception(result.error)
        else:
            self.future.set_result(result.value)


def new_job(transaction: Transaction) -> Job:
    """Return a job whose caller waits in the running loop."""
    loop = asyncio.get_running_loop()
    return Job(transaction, loop, loop.create_future())


class ChangeListeners:
    """The listeners that are called with the subnets that a commit changed."""

    def __init__(self) -> None:
        self._listeners: dict[int, tuple[asyncio.AbstractEventLoop | None, Listener]] = {}
        self._ids = itertools.count()

    def add(self, listener: Listener, loop: asyncio.AbstractEventLoop | None = None) -> Callable[[], object]:
        """Add a listener, called in its loop if it has one; returns a function that removes it."""
        id_ = next(self._ids)
        self._listeners[id_] = (loop, listener)
        return partial(self._listeners.pop, id_, None)

    def notify(self, changed: Sequence[int]) -> None:
        """Call all listeners, unless no subnet changed."""
        for loop, listener in list(self._listeners.values()) if changed else ():
            if loop is None:
                listener(changed)
            else:
                call_in_loop(loop, listener, changed)


def call_in_loop(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *arguments: object) -> None:
    """Call a function in a loop of another thread."""
    try:
        loop.call_soon_threadsafe(function, *arguments)
    except RuntimeError:  # the loop is closed, so no caller waits
        return
