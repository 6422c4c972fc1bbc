"""Retries after a failed journal write, for example on a full disk.

What was not written did not happen, so nothing is lost: Pods keep their addresses, and new requests are refused.
Background work starts again after a pause, from the state that the journal has, so it recovers without a restart.
"""

import asyncio
from collections.abc import Awaitable, Callable

from podpool.agent.deps import AgentDeps
from podpool.agent.state import AgentState

RETRY_INTERVAL = 5.0
"""Seconds between two attempts: soon after space was freed, and with little load on the API server."""


class DiskRetry:
    """Retries work, and has the error of the last journal write."""

    def __init__(self, deps: AgentDeps, state: AgentState) -> None:
        self._log = deps.log
        self._journal = state.journal
        self._error = ""
        self._appended = -1

    @property
    def error(self) -> str | None:
        """The error of the last write; None when a later one succeeded."""
        return self._error if self._journal.appended == self._appended else None

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Run some work until it is done, and start it again when the disk fails."""
        while True:
            try:
                await asyncio.ensure_future(work())  # a failing task group leaves its own task half cancelled
            except* OSError as group:
                self._record(_first_error(group))
            else:
                return
            _raise_if_cancelled()
            await asyncio.sleep(RETRY_INTERVAL)

    def _record(self, error: BaseException) -> None:
        repeated = self.error is not None
        self._appended = self._journal.appended
        self._error = f"cannot write the agent's journal, no new address is assigned; check the node's disk: {error}"
        if not repeated:
            self._log.error("cannot write the journal, no new address is assigned; check the node's disk", error=error)


def _first_error(error: BaseException) -> BaseException:
    return _first_error(error.exceptions[0]) if isinstance(error, BaseExceptionGroup) else error


def _raise_if_cancelled() -> None:
    """A task group whose task fails while it is cancelled raises the failure alone."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError
