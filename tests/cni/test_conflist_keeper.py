"""The CNI configuration stays in place while the agent runs."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from podpool.cni import conflist
from podpool.cni.conflist_keeper import CHECK_INTERVAL, LONGEST_INTERVAL, RETRY_INTERVAL, keep_conflist
from podpool.lab.sim.event_loop import VirtualLoop
from tests.kube.event_loops import run_in_loop, run_virtual

CONTENT = conflist.load()


class LoopWithoutThreads(VirtualLoop):
    """Runs at once what is for a thread: virtual time does not wait for threads."""

    def run_in_executor(  # type: ignore[override]  # functions without arguments only
        self, _executor: None, function: Callable[[], object]
    ) -> asyncio.Future[object]:
        future = self.create_future()
        try:
            future.set_result(function())
        except OSError as error:
            future.set_exception(error)
        return future


def keeping(conf_dir: Path, scenario: Callable[[], Awaitable[None]]) -> None:
    """Run a scenario in virtual time while the configuration is kept."""

    async def run() -> None:
        keeper = asyncio.create_task(keep_conflist(conf_dir, CONTENT))
        try:
            await scenario()
        finally:
            keeper.cancel()

    run_virtual(run(), LoopWithoutThreads())


def test_a_removed_configuration_is_restored_within_one_interval(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / conflist.NAME

    async def scenario() -> None:
        await asyncio.sleep(1)
        assert CONTENT == path.read_bytes()
        path.unlink()
        await asyncio.sleep(CHECK_INTERVAL)
        assert CONTENT == path.read_bytes()

    keeping(tmp_path, scenario)
    assert ["CNI configuration was removed or changed, restored; use --cni-template to change it"] == [
        each.message for each in caplog.records if each.levelname == "WARNING"
    ]


def test_a_component_that_keeps_removing_it_is_answered_ever_more_rarely(tmp_path: Path) -> None:
    path, restored = tmp_path / conflist.NAME, 0

    async def scenario() -> None:
        nonlocal restored
        for _ in range(3600):
            await asyncio.sleep(1)
            if path.exists():
                restored += 1
                path.unlink()

    keeping(tmp_path, scenario)
    assert 3600 / LONGEST_INTERVAL <= restored <= 3600 / LONGEST_INTERVAL + 6


def test_a_directory_that_cannot_be_written_is_tried_again(tmp_path: Path) -> None:
    conf_dir = tmp_path / "net.d"
    conf_dir.write_text("not a directory")

    async def scenario() -> None:
        await asyncio.sleep(1)
        conf_dir.unlink()
        await asyncio.sleep(RETRY_INTERVAL)
        assert CONTENT == (conf_dir / conflist.NAME).read_bytes()
        (conf_dir / conflist.NAME).unlink()
        conf_dir.rmdir()
        conf_dir.write_text("not a directory again")
        await asyncio.sleep(CHECK_INTERVAL)
        conf_dir.unlink()
        await asyncio.sleep(2 * CHECK_INTERVAL)
        assert CONTENT == (conf_dir / conflist.NAME).read_bytes()

    keeping(conf_dir, scenario)


@pytest.mark.parametrize("name", ["write", "restore"])
def test_a_file_system_that_hangs_does_not_block_the_agent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    ended = threading.Event()

    @run_in_loop
    async def run() -> None:
        loop = asyncio.get_running_loop()
        keeper, started = asyncio.create_task(keep_conflist(tmp_path, CONTENT, interval=0.01)), loop.time()
        await asyncio.sleep(0.1)
        assert loop.time() - started < 1.0
        ended.set()
        keeper.cancel()

    monkeypatch.setattr(conflist, name, lambda *_: ended.wait(2.0))
    run()
