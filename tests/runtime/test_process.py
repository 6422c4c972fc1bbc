"""A daemon: signals and health endpoints."""

import asyncio
import signal
import subprocess
import sys

import pytest

from podpool.core.errors import PodpoolError
from podpool.runtime.process import HealthCheck, health_handler, run
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


@pytest.mark.integration
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
    ("path", "failure", "status", "body"),
    [
        ("/healthz", "unreachable", 200, "ok\n"),
        ("/livez", "unreachable", 200, "ok\n"),
        ("/readyz", "unreachable", 503, "[+]caches ok: 3 kinds\n[-]ledger failed: unreachable\nreadyz check failed\n"),
        ("/readyz", "", 200, "[+]caches ok: 3 kinds\n[+]ledger ok\nreadyz check passed\n"),
        ("/", "", 404, "not found: use /healthz, /livez or /readyz\n"),
    ],
)
def test_readyz_has_a_line_for_each_check_and_fails_with_one(path: str, failure: str, status: int, body: str) -> None:
    def checks() -> tuple[HealthCheck, ...]:
        return HealthCheck("caches", note="3 kinds"), HealthCheck("ledger", failure, note="")

    async def ask() -> tuple[int, str]:
        answer = await health_handler(checks)(Request(method="GET", path=path))
        return answer.status, (await answer.read()).decode()

    assert (status, body) == asyncio.run(ask())
