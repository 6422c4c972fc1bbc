"""Loops for tests: a usual one, and the simulator's, whose time passes only when all wait, and then at once."""

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from podpool.lab.sim.event_loop import VirtualLoop

P = ParamSpec("P")


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        play(test(*args, **kwargs))

    return run


def play(story: Coroutine[Any, Any, None], loop: VirtualLoop | None = None) -> None:
    """Run to the end in virtual time; what failed where nobody awaited it fails here."""
    loop = loop or VirtualLoop()
    try:
        loop.run_until_complete(story)
    finally:
        loop.shutdown()
    assert [] == loop.failures, loop.failures
