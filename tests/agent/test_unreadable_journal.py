"""A journal that the disk cannot read: tried again for a while, then the agent exits and names the file."""

import asyncio
from pathlib import Path

import pytest

from podpool.agent.state import RETRY_INTERVAL
from podpool.agent.unreadable_journal import READ_TIMEOUT, JournalUnreadable
from podpool.runtime.disk import LocalDisk
from tests.agent.disks import UnreadableDisk
from tests.agent.node_env import SETTLE_TIME, NodeEnv, in_node_env

FILE = "segment.00000001"


async def start_on(env: NodeEnv, disk: UnreadableDisk) -> str:
    """Give a sandbox an address, and start the next agent on a disk with the same files; return the address."""
    await env.start()
    address = await env.add("a")
    await env.kill()
    disk.written = env.disk.written
    await env.start(disk=disk)
    return address


@in_node_env
async def test_a_disk_that_returns_has_the_whole_state(env: NodeEnv) -> None:
    disk = UnreadableDisk((FILE,))
    address = await start_on(env, disk)
    assert env.agent
    expected = "cannot read the journal, no new address is assigned; check the node's disk: [Errno 5] "
    assert f"{expected}Input/output error: '{FILE}'" == env.agent.not_ready_reason()
    (journal,) = (each for each in env.agent.health_checks() if each.name == "journal")
    assert journal.failure == env.agent.not_ready_reason()
    assert FILE in (await env.refused("b"))["details"]
    await asyncio.sleep(READ_TIMEOUT / 2)
    assert 1 == sum("cannot read the journal" in line and FILE in line for line in env.warnings)
    disk.unreadable = ()
    await asyncio.sleep(RETRY_INTERVAL + SETTLE_TIME)
    assert address == await env.add("a")


@pytest.mark.parametrize("file", [FILE, "shared-ranges.segment.00000001"])
def test_the_agent_exits_when_it_stays_unreadable_and_changes_nothing(file: str) -> None:
    @in_node_env
    async def test(env: NodeEnv) -> None:
        disk = UnreadableDisk((file,))
        disk.written = {file: b"anything"}
        await env.start(disk=disk)
        await asyncio.sleep(READ_TIMEOUT + RETRY_INTERVAL)
        with pytest.raises(AssertionError) as failed:
            await env.stop()
        assert isinstance(failed.value.__cause__, JournalUnreadable)
        message = str(failed.value.__cause__)
        assert f"[Errno 5] Input/output error: '{file}'), tried for 120 s" in message
        assert "move it out of the state directory" in message
        assert {file: b"anything"} == disk.written

    test()


def test_the_error_of_a_real_read_has_the_path(tmp_path: Path) -> None:
    (tmp_path / FILE).symlink_to("/proc/self/mem")  # can be opened, and reading at 0 fails with EIO
    with pytest.raises(OSError, match=r"Errno 5.*" + str(tmp_path / FILE)):
        LocalDisk(tmp_path).read(FILE)
