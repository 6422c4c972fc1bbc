"""A disk that refuses a write, because it is full or worse: the agent says so, lives on, and tries again.

What was not written has not happened, so nothing is lost by it. What Pods have stays theirs and is told to who asks;
who asks for more is refused. Whatever works in the background begins anew after a pause, from what the journal has: so
it comes back by itself when there is room again.
"""

import asyncio
from collections.abc import Awaitable, Callable

from podpool.agent.journal import Journal
from podpool.agent.notices import Tell

PAUSE = 5.0
"""Seconds between two tries: who made room waits no longer, and what begins anew asks the API server for little."""


class Refusals:
    """Knows whether the last write of the background was refused."""

    def __init__(self, journal: Journal, *, tell: Tell) -> None:
        self._journal = journal
        self._tell = tell
        self._told = ""
        self._appended = -1

    @property
    def standing(self) -> str | None:
        """What was refused, in words; None when the journal has taken something since."""
        return self._told if self._journal.appended == self._appended else None

    async def outlast(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do some work, and begin it anew whenever the disk refuses it a write, until it is done."""
        while True:
            try:
                await asyncio.ensure_future(work())  # a group of tasks that fails leaves its own task half cancelled
            except* OSError as refused:
                self._note(_first(refused))
            else:
                return
            _end_if_cancelled()
            await asyncio.sleep(PAUSE)

    def _note(self, error: BaseException) -> None:
        again = self.standing is not None
        self._appended = self._journal.appended
        self._told = f"the agent cannot write its journal, and gives no new address: look at the node's disk: {error}"
        if not again:
            self._tell(self._told)


def _first(refused: BaseException) -> BaseException:
    return _first(refused.exceptions[0]) if isinstance(refused, BaseExceptionGroup) else refused


def _end_if_cancelled() -> None:
    """A group whose task failed at the moment of its cancellation tells of the failure alone."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError
