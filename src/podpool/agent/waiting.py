"""ADDs that wait for an address, first come, first served.

A sandbox waits once, however often it asks: all who ask for it get one answer. A DEL ends its waiting.
"""

import asyncio
from typing import TypeAlias

import msgspec

from podpool.agent.records import Holding, Owner, PodName


class Ended(msgspec.Struct, frozen=True):
    """There will be no address: the sandbox is gone."""


Holdings: TypeAlias = tuple[Holding, ...]
"""What a sandbox gets: one address of each container and family."""


class Asker(msgspec.Struct, frozen=True, kw_only=True):
    """Who asks: a sandbox' interface, for which Pod and on which of the runtime's networks."""

    owner: Owner
    pod: PodName = PodName()
    network: str = ""


class _Place:
    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.answer: asyncio.Future[Holdings | Ended] = asyncio.get_running_loop().create_future()
        self.asking = 0


class Queue:
    """Who waits."""

    def __init__(self) -> None:
        self._places: dict[Owner, _Place] = {}

    def __len__(self) -> int:
        return len(self._places)

    def first(self) -> Asker | None:
        """Find who has waited for longest."""
        return next((place.asker for place in self._places.values()), None)

    def pods(self) -> dict[Owner, PodName]:
        """Tell which Pods wait."""
        return {owner: place.asker.pod for owner, place in self._places.items()}

    async def wait(self, asker: Asker, *, timeout: float) -> Holdings | Ended | None:  # noqa: ASYNC109  a wait is all it does
        """Wait for an address, or the end of the sandbox; None when neither came in time."""
        owner = asker.owner
        place = self._places.setdefault(owner, _Place(asker))
        place.asking += 1
        try:
            await asyncio.wait({place.answer}, timeout=timeout)
            return place.answer.result() if place.answer.done() else None
        finally:
            place.asking -= 1
            if not place.asking and self._places.get(owner) is place:
                del self._places[owner]

    def serve(self, owner: Owner, holdings: Holdings) -> None:
        """Answer whoever waits for this owner."""
        self._answer(owner, holdings)

    def end(self, owner: Owner) -> None:
        """End the waiting of a sandbox that is gone."""
        self._answer(owner, Ended())

    def _answer(self, owner: Owner, answer: Holdings | Ended) -> None:
        place = self._places.pop(owner, None)
        if place:
            place.answer.set_result(answer)
