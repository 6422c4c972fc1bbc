"""Looks on while an agent talks to the API server: nothing is guessed, and what confirms an agent is known.

After each start an agent changes its request only once it was told which Pods it has, what its NNC says, and what its
subnet asks of it. It counts as confirmed from when it sent the quorum reads of its Node and NNC that were answered
last. Whoever looks on sees what was asked and that it was answered, not what the agent made of it.
"""

import asyncio
from collections.abc import Callable

import msgspec

from podpool.lab.sim.oracle import Violation
from podpool.runtime.transport import Request, Response, Transport

KNOWN_FIRST = ("pods", "nodenetworkconfigs", "clustersubnets")
CONFIRMING = ("nodes", "nodenetworkconfigs")


class Onlooker:
    """The road of one agent, from its start on, with somebody beside it who reports what should not be."""

    def __init__(
        self, road: Transport, *, machine: str, report: Callable[[Violation], None], reads: dict[str, float]
    ) -> None:
        self._road = road
        self._machine = machine
        self._report = report
        self._reads = reads
        """When the reads that were answered last were sent, by what was read."""
        self._told: set[str] = set()

    async def send(self, request: Request) -> Response:
        """Pass a request on, and remember what was answered."""
        unknown = [kind for kind in KNOWN_FIRST if kind not in self._told]
        if unknown and _scales(request):
            story = f"the agent of {self._machine} changed its request before it had seen {', '.join(unknown)}"
            self._report(Violation("nothing is guessed", story))
        sent = asyncio.get_running_loop().time()
        response = await self._road.send(request)
        if request.method == "GET" and response.status == 200:
            words = request.path.split("/")
            self._told.update(each for each in KNOWN_FIRST if each in words)
            for each in CONFIRMING:
                if words[-2:] == [each, self._machine]:
                    self._reads[each] = max(sent, self._reads.get(each, sent))  # one may overtake another
        return response


def _scales(request: Request) -> bool:
    if request.method != "PATCH" or "nodenetworkconfigs" not in request.path.split("/"):
        return False
    return "requestedIPCount" in msgspec.json.decode(request.body).get("spec", {})
