"""The second line of defence of a daemon: an exception that nothing expects ends one step, not the process.

Authors of Pods, annotations and configurations are not administrators, and the first line is that whatever reads their
text returns a value or an expected error. A defect there must still not stop a component for all others. Expected
errors (`PodpoolError`, `OSError`) are not handled here: the owner of the task knows what they mean.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from podpool.core.errors import PodpoolError
from podpool.runtime.logging import Logger

MIN_DELAY, MAX_DELAY = 1.0, 60.0
"""Seconds before a part starts again; doubled each time, until it has run for the longest delay."""


def is_expected(error: BaseException) -> bool:
    """Return whether the owner of a task handles this error; of a group, any of its errors."""
    if isinstance(error, BaseExceptionGroup):
        return any(map(is_expected, error.exceptions))
    return isinstance(error, PodpoolError | OSError) or not isinstance(error, Exception)


def report_defect(log: Logger, event: str, error: Exception, **fields: object) -> None:
    """Log an exception that is a defect, from an except block, and pass it to the loop's exception handler.

    Only the simulator's loop has one, so that a defect fails a run although the component goes on.
    """
    log.exception(event, **fields)  # noqa: LOG004  called while it is handled
    with suppress(RuntimeError):  # no loop runs
        loop = asyncio.get_running_loop()
        if handler := loop.get_exception_handler():
            handler(loop, {"message": event, "exception": error})


async def keep_running(run: Callable[[], Awaitable[None]], log: Logger, *, part: str) -> None:
    """Run a part of a daemon; start it again after an exception that is not expected, which is logged."""
    delay, clock = MIN_DELAY, asyncio.get_running_loop().time
    while True:
        started = clock()
        try:
            await asyncio.ensure_future(run())  # a failing task group leaves its own task half cancelled
        except Exception as error:
            if is_expected(error):
                raise
            report_defect(log, "part failed unexpectedly, starting it again", error, part=part)
        else:
            return
        raise_if_cancelled()
        delay = MIN_DELAY if clock() - started >= MAX_DELAY else delay
        await asyncio.sleep(delay)
        delay = min(2 * delay, MAX_DELAY)


def raise_if_cancelled() -> None:
    """Raise `CancelledError` if the task is cancelled: a task group that fails meanwhile raises the failure alone."""
    task = asyncio.current_task()
    if task and task.cancelling():
        raise asyncio.CancelledError
