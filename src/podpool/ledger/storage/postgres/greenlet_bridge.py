"""Waiting inside a plain function.

A work on the books is synchronous; what a database in another process answers is not. So a work runs on a stack of its
own: where it needs a row, it hands the question out to the event loop, and goes on where it was when the answer is
there. Meanwhile the loop turns. A question that fails ends the work, whatever the work would do about errors.
"""

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from greenlet import getcurrent, greenlet

T = TypeVar("T")


class Interrupted(BaseException):
    """Unwinds a work. Not an `Exception`: no handler of the work must take it for its own."""


async def _at_once() -> None:
    """Wait for nothing."""


async def bridged(call: Callable[[], T], *, first: Callable[[], Awaitable[None]] = _at_once) -> T:
    """Run a function that may `wait`; `first` comes before each of its questions, and must not fail."""
    stack = greenlet(call)
    handed: Any = stack.switch()
    while not stack.dead:
        try:
            await first()
            answer = await handed
        except BaseException:
            with contextlib.suppress(Interrupted):
                stack.throw(Interrupted)
            raise
        handed = stack.switch(answer)
    result: T = handed
    return result


def wait(question: Awaitable[T]) -> T:
    """Wait, within a function that was bridged."""
    outside = getcurrent().parent
    if outside is None:
        raise RuntimeError("only a bridged function can wait")
    answer: T = outside.switch(question)
    return answer
