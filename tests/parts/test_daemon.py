"""Real servers die with the tests that started them, and one that does not come up says why."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from parts.daemon import Daemon, StartFailed, lives
from parts.polling import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.real

STARTS_ONE = """
import os, sys
from pathlib import Path
from parts.daemon import Daemon
log = Path(sys.argv[1])
daemon = Daemon(["sh", "-c", "echo up; exec sleep infinity"], log=log, ready=lambda: "up" in log.read_text())
daemon.start()
print(daemon.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_a_server_dies_with_the_killed_process_that_started_it(tmp_path: Path) -> None:
    starter = [sys.executable, "-c", STARTS_ONE, str(tmp_path / "log")]
    pid = int(subprocess.run(starter, check=False, stdout=subprocess.PIPE, text=True).stdout)
    until(lambda: not lives(pid), "the server has died")


def test_one_that_ends_at_once_shows_its_last_words(tmp_path: Path) -> None:
    daemon = Daemon(["sh", "-c", "echo the port is taken; exit 3"], log=tmp_path / "log", ready=lambda: False)
    with pytest.raises(StartFailed, match="the port is taken"):
        daemon.start()
    assert not daemon.alive


def test_a_paused_one_can_be_stopped_and_settled(tmp_path: Path) -> None:
    daemon = Daemon(["sleep", "infinity"], log=tmp_path / "log", ready=lambda: True)
    daemon.start()
    daemon.pause()
    daemon.stop()
    assert not daemon.alive
    daemon.settle()
    assert daemon.alive
    daemon.kill()
