"""Asks an underlay how far it is, for as long as a container is newer than what it knows."""

import asyncio
from collections.abc import Callable

from podpool.agent.deps import Ground
from podpool.agent.records import Programmed
from podpool.agent.state import Book
from podpool.agent.underlay import BadUnderlay, Underlay
from podpool.kube.backoff import backoff
from podpool.runtime.transport import Unreachable

OFTEN, SELDOM = 0.05, 1.0
"""Seconds between two questions, at first and in the end."""


class Asking:
    """Looks when something changed, and asks in between."""

    def __init__(self, ground: Ground, book: Book, underlay: Underlay) -> None:
        self._ground = ground
        self._book = book
        self._underlay = underlay
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Look again: a container may be newer."""
        self._changed.set()

    async def run(self, learned: Callable[[], None]) -> None:
        """Ask for ever; whoever must know of it is told when more works."""
        vain = 0
        while True:
            self._changed.clear()
            programming, containers = self._book.programming, self._book.pool.containers
            behind = {each.id for each in containers if not programming.covers(each.id, each.version)}
            if not behind:
                vain = 0
                await self._changed.wait()
            elif news := await self._ask(behind, first=not vain):
                self._book.write(Programmed(versions=news))
                learned()
            else:
                vain += 1
                await asyncio.sleep(backoff(vain, rng=self._ground.rng, base=OFTEN, most=SELDOM))

    async def _ask(self, behind: set[str], *, first: bool) -> dict[str, int]:
        """Ask once; gives what was not known before."""
        try:
            return self._book.programming.news(await self._underlay.programmed(), of=behind)
        except (BadUnderlay, Unreachable) as error:
            if first:
                self._ground.tell(f"new addresses wait for the underlay, which is asked again: {error}")
            return {}
