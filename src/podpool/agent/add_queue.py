"""ADDs that wait for an address, first come, first served.

A sandbox waits once, however often it asks: all who ask for it get one answer. A DEL ends its waiting.
"""

import asyncio
from typing import Generic, TypeVar

import msgspec

from podpool.agent.records import Owner

A = TypeVar("A")
R = TypeVar("R")


class Ended(msgspec.Struct, frozen=True):
    """There will be no address: the sandbox is gone."""


class _Place(Generic[A, R]):
    def __init__(self, asker: A) -> None:
        self.asker = asker
        self.answer: asyncio.Future[R | Ended] = asyncio.get_running_loop().create_future()
        self.asking = 0


class Queue(Generic[A, R]):
    """Who waits: askers, each for a sandbox, who are answered with what it got."""

    def __init__(self) -> None:
        self._places: dict[Owner, _Place[A, R]] = {}

    def __len__(self) -> int:
        return len(self._places)

    def first(self) -> A | None:
        """Find who has waited for longest."""
        return next((place.asker for place in self._places.values()), None)

    def waiting(self) -> dict[Owner, A]:
        """Tell who waits, the longest waiting first."""
        return {owner: place.asker for owner, place in self._places.items()}

    async def wait(self, owner: Owner, asker: A, *, timeout: float) -> R | Ended | None:  # noqa: ASYNC109  a wait is all it does
        """Wait for an address, or the end of the sandbox; None when neither came in time."""
        place = self._places.setdefault(owner, _Place(asker))
        place.asking += 1
        try:
            await asyncio.wait({place.answer}, timeout=timeout)
            return place.answer.result() if place.answer.done() else None
        finally:
            place.asking -= 1
            if not place.asking and self._places.get(owner) is place:
                del self._places[owner]

    def serve(self, owner: Owner, answer: R) -> None:
        """Answer whoever waits for this owner."""
        self._answer(owner, answer)

    def end(self, owner: Owner) -> None:
        """End the waiting of a sandbox that is gone."""
        self._answer(owner, Ended())

    def _answer(self, owner: Owner, answer: R | Ended) -> None:
        place = self._places.pop(owner, None)
        if place:
            place.answer.set_result(answer)
