"""The hosts under the machines: they program what NNCs show, each version after a while, and tell how far they are."""

import random
from collections.abc import Mapping

import msgspec

from podpool.lab.apiserver.watch_cache import Event
from podpool.lab.sim.event_loop import VirtualLoop
from podpool.runtime.transport import Request, Response

SLOWEST = 3.0
"""Seconds that it takes at the most to program one version."""


class Version(msgspec.Struct, frozen=True):
    """A container at one version, and when it is programmed."""

    number: int
    addresses: frozenset[str]
    at: float


class Fabric:
    """What is programmed, one version of a container after the other."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._versions: dict[str, list[Version]] = {}

    def see(self, event: Event) -> None:
        """Begin with what an NNC shows for the first time."""
        if event.id[1] == "nodenetworkconfigs":
            for container in event.new.get("status", {}).get("networkContainers", ()):
                self._begin(container)

    def works(self, container: str, address: str) -> bool:
        """Tell whether an address of a container is programmed."""
        done = self._done(self._versions.get(container, []))
        return done is not None and address in done.addresses

    async def handle(self, _request: Request) -> Response:
        """Answer as an Azure host does, which has a spelling of its own."""
        done = {container: self._done(versions) for container, versions in self._versions.items()}
        listed = [
            {"networkContainerId": container.upper(), "version": str(version.number)}
            for container, version in done.items()
            if version
        ]
        return Response(200, msgspec.json.encode({"httpStatusCode": "200", "networkContainers": listed}))

    def _begin(self, container: Mapping[str, object]) -> None:
        shown = msgspec.convert(container, _Shown)
        versions = self._versions.setdefault(shown.id, [])
        last = versions[-1] if versions else Version(-1, frozenset(), 0.0)
        if shown.version > last.number:
            at = max(last.at, self._loop.time() + self._rng.uniform(0.0, SLOWEST))
            versions.append(Version(shown.version, frozenset(each.ip for each in shown.ip_assignments), at))

    def _done(self, versions: list[Version]) -> Version | None:
        return next((each for each in reversed(versions) if each.at <= self._loop.time()), None)


class _Assigned(msgspec.Struct, frozen=True):
    ip: str


class _Shown(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    version: int = 0
    ip_assignments: tuple[_Assigned, ...] = ()
