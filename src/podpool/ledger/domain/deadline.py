"""The deadline of a request: when its caller stops waiting.

It begins with the first transaction of the request, and holds for all of them. A transaction that is still queued by
then is dropped, not run: its caller has given up, and would only repeat it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Deadline:
    """The deadline of one request."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._at: float | None = None

    def at(self, now: float) -> float:
        """Return the time of the deadline; `now` is the time of the running loop."""
        if self._at is None:
            self._at = now + self.seconds
        return self._at


_CURRENT: ContextVar[Deadline | None] = ContextVar("ledger_deadline", default=None)


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Give the transactions that are queued within the block this many seconds together."""
    token = _CURRENT.set(Deadline(seconds))
    try:
        yield
    finally:
        _CURRENT.reset(token)


def current_deadline() -> Deadline | None:
    """Return the deadline of the running request; the ledger's own timers have none."""
    return _CURRENT.get()
