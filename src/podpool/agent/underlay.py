"""An underlay that must know of an address before it works: a cloud's host, which programs its routes.

Somebody else tells it; the agent asks how far it is, for as long as a container is newer than that. What must hold:
nothing is given that does not work yet (PendingProgramming). That is not stored of a grant: it follows from the version
of the container at which the grant came, and from how far the underlay is. A machine without one has nothing to ask.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import msgspec

from podpool.agent.records import AnyRecord, Programmed, Snapshot, Started
from podpool.core.errors import PodpoolError
from podpool.runtime.transport import Request, Transport, Unreachable

PATIENCE = 5.0
"""Seconds that one answer may take."""


class BadUnderlay(PodpoolError):
    """The underlay answered something that cannot be used."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the underlay's answer cannot be used: {reason}")


class Underlay(Protocol):
    """Whom the agent asks."""

    async def programmed(self) -> Mapping[str, int]:
        """Tell up to which version each container is programmed; raises `Unreachable` or `BadUnderlay`."""


class _Programmed(msgspec.Struct, frozen=True, rename="camel"):
    network_container_id: str
    version: str


class _Answer(msgspec.Struct, frozen=True, rename="camel"):
    network_containers: tuple[_Programmed, ...] = ()
    http_status_code: str = "200"
    """What the host itself was answered: the wire's own status is of whoever passed it on."""


class HostAgent:
    """The host of an Azure machine, by its wire format."""

    PATH = "/machine/plugins"
    QUERY: Mapping[str, str] = {"comp": "nmagent", "type": "NetworkManagement/interfaces/api-version/2"}

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def programmed(self) -> Mapping[str, int]:
        """Tell up to which version each container is programmed; raises `Unreachable` or `BadUnderlay`."""
        try:
            async with asyncio.timeout(PATIENCE):
                response = await self._transport.send(Request(method="GET", path=self.PATH, query=self.QUERY))
                body = await response.read()
        except TimeoutError:
            raise Unreachable("the underlay", f"no answer within {PATIENCE:g} s") from None
        if response.status != 200:
            raise BadUnderlay(f"status {response.status}")
        try:
            answer = msgspec.json.decode(body, type=_Answer)
            if answer.http_status_code != "200":
                raise BadUnderlay(f"httpStatusCode {answer.http_status_code}")
            return {each.network_container_id: int(each.version) for each in answer.network_containers}
        except ValueError as error:
            raise BadUnderlay(str(error)) from error


class Programming:
    """How far the underlay is, as the records tell; without one everything works at once."""

    def __init__(self, *, asked: bool) -> None:
        self._asked = asked
        self._boot_id = ""
        self._versions: dict[str, int] = {}

    @property
    def versions(self) -> Mapping[str, int]:
        """Up to which version each container is programmed."""
        return self._versions

    def covers(self, container: str, version: int) -> bool:
        """Tell whether what a container had at a version can be used."""
        return not self._asked or version <= self._versions.get(_spelled(container), -1)

    def news(self, told: Mapping[str, int], of: set[str]) -> dict[str, int]:
        """Find what was not known, of the containers that matter; a host spells their names in its own way."""
        ours = {_spelled(each) for each in of}
        spelled = {_spelled(container): version for container, version in told.items()}
        return {each: version for each, version in spelled.items() if each in ours and not self.covers(each, version)}

    def apply(self, record: AnyRecord) -> None:
        """Change as the record says; a machine that rebooted may be on another host."""
        match record:
            case Programmed():
                self._versions |= record.versions
            case Started():
                if record.boot_id != self._boot_id:
                    self._boot_id, self._versions = record.boot_id, {}
            case Snapshot():
                self._boot_id, self._versions = record.boot_id, dict(record.programmed)


def _spelled(container: str) -> str:
    return container.lower()
