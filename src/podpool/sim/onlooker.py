"""Looks on while an agent talks to the API server: nothing is guessed.

After each start an agent changes its request only once it was told which Pods it has, what its NNC says, and what its
subnet asks of it. Whoever looks on sees what was asked and that it was answered, not what the agent made of it.
"""

from collections.abc import Callable

import msgspec

from podpool.runtime.transport import Request, Response, Transport
from podpool.sim.truth import Violation

KNOWN_FIRST = ("pods", "nodenetworkconfigs", "clustersubnets")


class Onlooker:
    """The road of one agent, from its start on, with somebody beside it who reports what should not be."""

    def __init__(self, road: Transport, *, machine: str, report: Callable[[Violation], None]) -> None:
        self._road = road
        self._machine = machine
        self._report = report
        self._told: set[str] = set()

    async def send(self, request: Request) -> Response:
        """Pass a request on, and remember what was answered."""
        unknown = [kind for kind in KNOWN_FIRST if kind not in self._told]
        if unknown and _scales(request):
            story = f"the agent of {self._machine} changed its request before it had seen {', '.join(unknown)}"
            self._report(Violation("nothing is guessed", story))
        response = await self._road.send(request)
        if request.method == "GET" and response.status == 200:
            self._told.update(each for each in KNOWN_FIRST if each in request.path.split("/"))
        return response


def _scales(request: Request) -> bool:
    if request.method != "PATCH" or "nodenetworkconfigs" not in request.path.split("/"):
        return False
    return "requestedIPCount" in msgspec.json.decode(request.body).get("spec", {})
