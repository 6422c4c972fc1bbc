"""A part that fails unexpectedly is started again; expected errors reach the owner."""

import asyncio

import pytest

from podpool.core.errors import PodpoolError
from podpool.lab.sim.event_loop import VirtualLoop
from podpool.runtime.logging import get_logger
from podpool.runtime.supervision import MAX_DELAY, MIN_DELAY, is_expected, keep_running
from tests.kube.event_loops import run_in_virtual_time

log = get_logger(__name__)


class Part:
    """Fails so often, then runs for ever."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.starts: list[float] = []

    async def run(self) -> None:
        self.starts.append(asyncio.get_running_loop().time())
        if self.failures:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._fail(self.failures.pop(0)))
        await asyncio.Event().wait()

    async def _fail(self, error: Exception) -> None:
        raise error


def defects() -> list[str]:
    """Return the defects that were reported to the virtual loop, and forget them."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    found, loop.failures[:] = [each["message"] for each in loop.failures], []
    return found


@run_in_virtual_time
async def test_an_unexpected_exception_restarts_the_part_after_a_growing_delay() -> None:
    part = Part(RecursionError(), ValueError(), KeyError())
    task = asyncio.create_task(keep_running(part.run, log, part="x"))
    await asyncio.sleep(20 * MIN_DELAY)
    task.cancel()
    await asyncio.wait([task])
    assert [0, 1, 3, 7] == [round((each - part.starts[0]) / MIN_DELAY) for each in part.starts]
    assert 3 == len(defects())
    assert MAX_DELAY > 8 * MIN_DELAY


@pytest.mark.parametrize("error", [PodpoolError("stale"), OSError("disk"), TimeoutError()])
def test_an_expected_error_is_raised(error: Exception) -> None:
    @run_in_virtual_time
    async def check() -> None:
        with pytest.raises(ExceptionGroup):
            await keep_running(Part(error).run, log, part="x")

    check()


@run_in_virtual_time
async def test_a_part_that_ends_is_not_started_again() -> None:
    async def run() -> None:
        pass

    await keep_running(run, log, part="x")


def test_a_group_is_expected_if_one_of_its_errors_is() -> None:
    assert is_expected(ExceptionGroup("", [ValueError(), ExceptionGroup("", [PodpoolError()])]))
    assert not is_expected(ExceptionGroup("", [ValueError(), KeyError()]))
    assert is_expected(asyncio.CancelledError())
