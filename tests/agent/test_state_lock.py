"""One agent per state directory: a successor waits for its predecessor, and nothing is read or written before."""

import asyncio
import logging
from errno import EROFS
from pathlib import Path

import pytest

from podpool.agent import state_lock
from podpool.agent.state import AgentState
from podpool.agent.state_lock import LockFailed, StateInUse, acquire_lock
from podpool.runtime.disk import LocalDisk
from podpool.runtime.logging import get_logger
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk
from tests.kube.event_loops import run_in_virtual_time

log = get_logger("podpool.agent")


class UnlockableDisk(MemoryDisk):
    """Its lock file cannot be opened."""

    writable = False

    def try_lock(self) -> str | None:
        if not self.writable:
            raise OSError(EROFS, "Read-only file system")
        return super().try_lock()


def test_no_agent_opens_the_journal_of_another(tmp_path: Path) -> None:
    """Also one that was not started by `podpool agent run`, which waits for the lock before."""
    first, second = LocalDisk(tmp_path), LocalDisk(tmp_path)
    AgentState(first, SetClock(), fence_limit=60.0).open(boot_id="boot-1")
    before = first.read("segment.00000001")
    with pytest.raises(StateInUse, match="in use by another agent"):
        AgentState(second, SetClock(), fence_limit=60.0).open(boot_id="boot-1")
    assert before == first.read("segment.00000001")
    first.close()
    AgentState(second, SetClock(), fence_limit=60.0).open(boot_id="boot-1")
    second.close()


@run_in_virtual_time
async def test_a_successor_waits_and_logs_for_whom(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    first, second = LocalDisk(tmp_path), LocalDisk(tmp_path)
    await acquire_lock(first, log, directory=str(tmp_path))
    assert "" == caplog.text
    waiting = asyncio.ensure_future(acquire_lock(second, log, directory=str(tmp_path)))
    await asyncio.sleep(40)
    assert not waiting.done()
    lines = [each.getMessage() for each in caplog.records if "waiting for it to stop" in each.getMessage()]
    assert 3 == len(lines)
    assert str(tmp_path) in caplog.text + str([vars(each) for each in caplog.records])
    assert "process" in str([vars(each) for each in caplog.records])
    first.close()
    await asyncio.sleep(2 * state_lock.POLL_INTERVAL)
    assert waiting.done()
    assert "lock of the state directory acquired" in caplog.text
    second.close()


@run_in_virtual_time
async def test_it_gives_up_with_the_directory_and_the_holder(tmp_path: Path) -> None:
    first, second = LocalDisk(tmp_path), LocalDisk(tmp_path)
    first.try_lock()
    with pytest.raises(StateInUse) as error:
        await acquire_lock(second, log, directory=str(tmp_path))
    assert f"the state directory {tmp_path} is in use by another agent (process " in str(error.value)
    assert f"did not stop within {state_lock.PREDECESSOR_TIMEOUT:g} s" in str(error.value)
    first.close()


@run_in_virtual_time
async def test_it_retries_while_the_lock_file_cannot_be_opened(caplog: pytest.LogCaptureFixture) -> None:
    """A process that exited at once would only be started again."""
    disk = UnlockableDisk()
    locking = asyncio.ensure_future(acquire_lock(disk, log, directory="/state"))
    await asyncio.sleep(40)
    assert not locking.done()
    assert 3 == sum("cannot lock the state directory" in each.getMessage() for each in caplog.records)
    assert "Read-only file system" in str([vars(each) for each in caplog.records])
    disk.writable = True
    await asyncio.sleep(2 * state_lock.POLL_INTERVAL)
    assert locking.done()
    await locking


@run_in_virtual_time
async def test_it_gives_up_with_the_directory_and_the_error() -> None:
    with pytest.raises(LockFailed, match=r"cannot lock the state directory /state .*Read-only file system.* 120 s"):
        await acquire_lock(UnlockableDisk(), log, directory="/state")
