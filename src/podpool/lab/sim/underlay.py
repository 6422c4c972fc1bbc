"""The underlay: hosts that program the addresses of NNCs, each version after a delay, and report their progress."""

import random
from collections.abc import Mapping

import msgspec

from podpool.lab.apiserver.watch_cache import StoreEvent
from podpool.lab.sim.event_loop import VirtualLoop
from podpool.runtime.transport import Request, Response

MAX_PROGRAMMING_SECONDS = 3.0


class ProgrammedVersion(msgspec.Struct, frozen=True):
    """A version of a network container, and when it is programmed."""

    number: int
    addresses: frozenset[str]
    at: float


class SimUnderlay:
    """Programs the versions of each network container in order."""

    def __init__(self, loop: VirtualLoop, rng: random.Random) -> None:
        self._loop = loop
        self._rng = rng
        self._versions: dict[str, list[ProgrammedVersion]] = {}

    def on_write(self, event: StoreEvent) -> None:
        """Start to program a version that an NNC shows for the first time."""
        if event.id[1] == "nodenetworkconfigs":
            for nc in event.new.get("status", {}).get("networkContainers", ()):
                self._program(nc)

    def is_programmed(self, nc: str, address: str) -> bool:
        """Return whether an address of a network container is programmed."""
        version = self._latest(self._versions.get(nc, []))
        return version is not None and address in version.addresses

    async def handle(self, _request: Request) -> Response:
        """Return the programmed versions, as an Azure host does, which upper-cases IDs."""
        latest = [(nc.upper(), self._latest(versions)) for nc, versions in self._versions.items()]
        listed = [{"networkContainerId": nc, "version": str(version.number)} for nc, version in latest if version]
        return Response(200, msgspec.json.encode({"httpStatusCode": "200", "networkContainers": listed}))

    def _program(self, nc: Mapping[str, object]) -> None:
        shown = msgspec.convert(nc, _NetworkContainer)
        versions = self._versions.setdefault(shown.id, [])
        last = versions[-1] if versions else ProgrammedVersion(-1, frozenset(), 0.0)
        if shown.version > last.number:
            at = max(last.at, self._loop.time() + self._rng.uniform(0.0, MAX_PROGRAMMING_SECONDS))
            addresses = frozenset(each.ip for each in shown.ip_assignments)
            versions.append(ProgrammedVersion(shown.version, addresses, at))

    def _latest(self, versions: list[ProgrammedVersion]) -> ProgrammedVersion | None:
        return next((each for each in reversed(versions) if each.at <= self._loop.time()), None)


class _IPAssignment(msgspec.Struct, frozen=True):
    ip: str


class _NetworkContainer(msgspec.Struct, frozen=True, rename="camel"):
    id: str
    version: int = 0
    ip_assignments: tuple[_IPAssignment, ...] = ()
