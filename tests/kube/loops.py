"""Loops for tests: a usual one, and one whose time passes only when all wait, and then at once."""

import asyncio
import functools
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

P = ParamSpec("P")


class VirtualLoop(asyncio.SelectorEventLoop):
    """Waiting costs nothing; when all wait for nothing, it says so."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Leaping(self))

    def time(self) -> float:
        return self.now


class _Leaping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self.loop = loop

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise AssertionError("everything waits, and nothing will ever happen")
        self.loop.now += timeout
        return super().select(0)


def in_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def in_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(test(*args, **kwargs))

    return run
