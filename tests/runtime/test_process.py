"""A daemon: signals and health endpoints."""

import asyncio
import signal
import subprocess
import sys

import pytest

from podpool.core.errors import PodpoolError
from podpool.runtime.process import health_handler, run
from podpool.runtime.transport import Request

PROGRAM = """
import asyncio
from podpool.runtime import logging, process

async def work():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task(forever())
    finally:
        print("tidied up", flush=True)

async def forever():
    print("running", flush=True)
    await asyncio.Event().wait()

logging.configure_logging()
process.run(work)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(number: signal.Signals) -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert "running\n" == process.stdout.readline()
        process.send_signal(number)
        assert "tidied up\n" == process.stdout.read()
    assert 0 == process.returncode


def test_what_its_work_raises_is_raised_once_it_has_tidied_up(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> None:
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(fail())
        finally:
            print("tidied up")

    async def fail() -> None:
        raise PodpoolError("the ledger has no such subnet: create it first")

    with pytest.raises(ExceptionGroup, match="TaskGroup") as raised:
        run(work)
    assert raised.group_contains(PodpoolError, match="no such subnet")
    assert "tidied up\n" == capsys.readouterr().out


@pytest.mark.parametrize(
    ("path", "missing", "status"),
    [("/healthz", "all", 200), ("/readyz", "no NNC yet", 503), ("/readyz", None, 200), ("/", None, 404)],
)
def test_health_says_what_is_missing(path: str, missing: str | None, status: int) -> None:
    async def ask() -> tuple[int, bytes]:
        answer = await health_handler(lambda: missing)(Request(method="GET", path=path))
        return answer.status, await answer.read()

    answered, body = asyncio.run(ask())
    assert status == answered
    assert status != 503 or b"no NNC yet\n" == body
