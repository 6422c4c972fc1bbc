"""Decorators that run a test in an event loop: a real one, or the simulator's with virtual time."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from podpool.lab.sim.event_loop import VirtualLoop

P = ParamSpec("P")


def run_in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def run_in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        run_virtual(test(*args, **kwargs))

    return run


def run_virtual(main: Coroutine[Any, Any, None], loop: VirtualLoop | None = None) -> None:
    """Run a coroutine in virtual time; exceptions of tasks that were not awaited fail the test."""
    loop = loop or VirtualLoop()
    try:
        loop.run_until_complete(main)
    finally:
        loop.shutdown()
    assert [] == loop.failures, loop.failures
