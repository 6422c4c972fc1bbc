"""A process that runs until it is told to stop, and says how it is.

TERM and INT end it cleanly: its work is cancelled, its `finally` blocks run, and it exits with 0. What its work raises
goes to whoever runs it. `/healthz` answers while the loop turns; `/readyz` when the work says so, with the reason
when it does not.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable

import uvloop

from podpool.runtime.transport import Handler, Request, Response

_log = logging.getLogger(__name__)

Readiness = Callable[[], str | None]
"""What still stands in the way; None when nothing does."""


def run(work: Callable[[], Awaitable[None]]) -> None:
    """Run to the end, or to a signal."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_until_signal(work))


async def _until_signal(work: Callable[[], Awaitable[None]]) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    working = asyncio.ensure_future(work())
    waiting = asyncio.ensure_future(stopping.wait())
    await asyncio.wait([working, waiting], return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()
    if not working.done():
        _log.info("stopping")
        working.cancel()
        await asyncio.wait([working])
    if not working.cancelled():
        working.result()


def health_handler(ready: Readiness) -> Handler:
    """Make the handler of the health port."""

    async def answer(request: Request) -> Response:
        if request.path == "/healthz":
            return Response(200, b"ok\n")
        if request.path == "/readyz":
            missing = ready()
            return Response(503 if missing else 200, f"{missing or 'ok'}\n".encode())
        return Response(404, b"there is /healthz and /readyz\n")

    return answer
