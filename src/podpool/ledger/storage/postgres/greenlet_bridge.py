"""Lets synchronous code wait for coroutines, as SQLAlchemy's asyncio extension does.

A transaction on the repository is synchronous; the database driver is not. So a transaction runs in a greenlet: where
it needs a row, `await_only` hands the query to the event loop and resumes with the result. Other tasks run meanwhile.
A query that fails ends the transaction, whatever exceptions the transaction would handle.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")


class GreenletInterrupted(BaseException):
    """Unwinds a transaction. Not an `Exception`, so that no handler of the transaction catches it."""


async def _no_wait() -> None:
    pass


async def greenlet_spawn(function: Callable[[], T], *, before_await: Callable[[], Awaitable[None]] = _no_wait) -> T:
    """Run a function that may call `await_only`; `before_await` runs before each awaitable and must not fail."""
    context = greenlet(function)
    switched: Any = context.switch()
    while not context.dead:
        try:
            await before_await()
            value = await switched
        except BaseException:
            with contextlib.suppress(GreenletInterrupted):
                context.throw(GreenletInterrupted)
            raise
        switched = context.switch(value)
    result: T = switched
    return result


def await_only(awaitable: Awaitable[T]) -> T:
    """Wait for an awaitable within a function run by `greenlet_spawn`."""
    parent = getcurrent().parent
    if parent is None:
        raise RuntimeError("await_only was called outside of greenlet_spawn")
    value: T = parent.switch(awaitable)
    return value
