"""A process that runs until it is told to stop."""

import asyncio
import signal
import subprocess
import sys

import pytest

from podpool.runtime.daemon import health
from podpool.runtime.transport import Request

PROGRAM = """
import asyncio
from podpool.core.errors import PodpoolError
from podpool.runtime import daemon, logs

async def work():
    try:
        async with asyncio.TaskGroup() as group:
            group.create_task({work})
    finally:
        print("tidied up", flush=True)

async def forever():
    print("running", flush=True)
    await asyncio.Event().wait()

async def fail():
    raise PodpoolError("the ledger has no such subnet: create it first")

logs.to_stderr()
daemon.run(work)
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(work="forever()")], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert "running\n" == process.stdout.readline()
        process.send_signal(number)
        assert "tidied up\n" == process.stdout.read()
    assert 0 == process.returncode


def test_what_its_work_raises_is_said_in_one_sentence() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(work="fail()")], capture_output=True, text=True, check=False
    )
    assert (1, "tidied up\n") == (ended.returncode, ended.stdout)
    assert "podpool: the ledger has no such subnet: create it first\n" == ended.stderr


@pytest.mark.parametrize(
    ("path", "missing", "status"),
    [("/healthz", "all", 200), ("/readyz", "no NNC yet", 503), ("/readyz", None, 200), ("/", None, 404)],
)
def test_health_says_what_is_missing(path: str, missing: str | None, status: int) -> None:
    async def ask() -> tuple[int, bytes]:
        answer = await health(lambda: missing)(Request(method="GET", path=path))
        return answer.status, await answer.read()

    answered, body = asyncio.run(ask())
    assert status == answered
    assert status != 503 or b"no NNC yet\n" == body
