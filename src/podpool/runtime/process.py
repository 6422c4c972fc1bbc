"""Main function and health endpoints of a daemon.

SIGTERM and SIGINT stop it cleanly: its main task is cancelled, `finally` blocks run, and it exits with 0. Exceptions of
the main task are raised. `/healthz` answers while the loop runs, `/readyz` when the daemon is ready, else with the
reason.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable

import uvloop

from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Handler, Request, Response

log = get_logger(__name__)

Readiness = Callable[[], str | None]
"""Returns why the daemon is not ready; None if it is."""


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


def health_handler(ready: Readiness) -> Handler:
    """Return the handler of the health port."""

    async def answer(request: Request) -> Response:
        if request.path == "/healthz":
            return Response(200, b"ok\n")
        if request.path == "/readyz":
            reason = ready()
            return Response(503 if reason else 200, f"{reason or 'ok'}\n".encode())
        return Response(404, b"not found: use /healthz or /readyz\n")

    return answer
