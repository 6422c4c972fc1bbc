"""Works that wait for their commit, how they are done, and who is told about commits."""

import asyncio
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Generic, TypeVar, cast

import msgspec

from podpool.ledger.storage.store import Books, Listener

A = TypeVar("A")
T = TypeVar("T")

Work = Callable[[Books], object]

MOST_WORKS = 64
"""In one commit; more gained nothing when measured, and the first caller waits for the last."""


class Outcome(msgspec.Struct, Generic[T]):
    """What became of a work."""

    value: T | None = None
    error: Exception | None = None

    def get(self) -> T:
        """Return what the work returned, or raise what it raised."""
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


class Shared(msgspec.Struct, Generic[A, T], frozen=True):
    """A work that is done once for all who wait for it at the same time, each of whom has asked for something."""

    together: Callable[[Books, Sequence[A]], Sequence[T]]
    asked: A

    def __call__(self, books: Books) -> T:
        """Do it for this one alone."""
        (answer,) = self.together(books, [self.asked])
        return answer


Attempt = Callable[[Callable[[Books], Sequence[object]]], Sequence[object]]
"""Does something with the books, or leaves no trace."""


def attempts(works: Sequence[Work], attempt: Attempt) -> Iterator[Outcome[object]]:
    """Do works in their order, together what is shared by neighbours; whatever fails together is done one by one."""
    waiting = deque(list(group) for _, group in itertools.groupby(works, _shared))
    while waiting:
        group = waiting.popleft()
        try:
            answers = attempt(partial(_do, group))
        except Exception as error:  # noqa: BLE001  its caller gets it
            if len(group) == 1:
                yield Outcome(error=error)
            else:
                waiting.extendleft([work] for work in reversed(group))
        else:
            yield from map(Outcome, answers)


def _shared(work: Work) -> object:
    return work.together if isinstance(work, Shared) else object()


def _do(group: Sequence[Work], books: Books) -> Sequence[object]:
    if len(group) == 1:
        return [work(books) for work in group]
    shared = [work for work in group if isinstance(work, Shared)]
    return shared[0].together(books, [work.asked for work in shared])


class Job(msgspec.Struct, frozen=True):
    """A work, and who waits for it."""

    work: Work
    loop: asyncio.AbstractEventLoop
    future: "asyncio.Future[object]"

    def settle(self, outcome: Outcome[object]) -> None:
        """Tell whoever waits, in its own loop."""
        if self.future.done():  # its caller has gone
            return
        if outcome.error is not None:
            self.future.set_exception(outcome.error)
        else:
            self.future.set_result(outcome.value)


def job(work: Callable[[Books], object]) -> Job:
    """Take a work from the loop that is running."""
    loop = asyncio.get_running_loop()
    return Job(work, loop, loop.create_future())


class Followers:
    """Those who are told which subnets a commit has changed."""

    def __init__(self) -> None:
        self._listeners: dict[int, tuple[asyncio.AbstractEventLoop | None, Listener]] = {}
        self._tickets = itertools.count()

    def add(self, listener: Listener, loop: asyncio.AbstractEventLoop | None = None) -> Callable[[], object]:
        """Tell a listener from now on, in a loop if it has one, until what this returns is called."""
        ticket = next(self._tickets)
        self._listeners[ticket] = (loop, listener)
        return partial(self._listeners.pop, ticket, None)

    def tell(self, changed: Sequence[int]) -> None:
        """Tell everybody."""
        for loop, listener in list(self._listeners.values()) if changed else ():
            if loop is None:
                listener(changed)
            else:
                in_loop(loop, listener, changed)


def in_loop(loop: asyncio.AbstractEventLoop, call: Callable[..., object], *arguments: object) -> None:
    """Call something in a loop, from another thread."""
    try:
        loop.call_soon_threadsafe(call, *arguments)
    except RuntimeError:  # the loop is closed: nobody is left to be told
        return
