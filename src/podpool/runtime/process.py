"""Main function and health endpoints of a daemon.

SIGTERM and SIGINT stop it cleanly: its main task is cancelled, `finally` blocks run, and it exits with 0. Exceptions of
the main task are raised. `/healthz` and `/livez` answer while the loop runs. `/readyz` has a line for each check, as
kube-apiserver's verbose form, and answers 503 while one of them fails.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Sequence

import msgspec
import uvloop

from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Handler, Request, Response

log = get_logger(__name__)


class HealthCheck(msgspec.Struct, frozen=True):
    """A condition of readiness."""

    name: str
    failure: str = ""
    """Why it fails and what to do; empty if it passes."""
    note: str = ""
    """What an operator may want to know if it passes."""

    def __str__(self) -> str:
        if self.failure:
            return f"[-]{self.name} failed: {self.failure}"
        return f"[+]{self.name} ok{f': {self.note}' if self.note else ''}"


HealthChecks = Callable[[], Sequence[HealthCheck]]
"""Returns the checks of a daemon."""


def run(main: Callable[[], Awaitable[None]]) -> None:
    """Run until the main task ends or a signal arrives."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signal(main))


async def _until_signal(main: Callable[[], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    working = asyncio.ensure_future(main())
    waiting = asyncio.ensure_future(stopping.wait())
    await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not working.done():
        log.info("signal received, stopping")
        working.cancel()
        await asyncio.wait([working])
    if not working.cancelled():
        working.result()


def health_handler(checks: HealthChecks) -> Handler:
    """Return the handler of the health port."""

    async def answer(request: Request) -> Response:
        if request.path in {"/healthz", "/livez"}:
            return Response(200, b"ok\n")
        if request.path == "/readyz":
            return _readyz(checks())
        return Response(404, b"not found: use /healthz, /livez or /readyz\n")

    return answer


def _readyz(checks: Sequence[HealthCheck]) -> Response:
    failed = any(each.failure for each in checks)
    lines = (*checks, f"readyz check {'failed' if failed else 'passed'}")
    return Response(503 if failed else 200, "".join(f"{line}\n" for line in lines).encode())
