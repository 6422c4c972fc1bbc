"""The underlay: a cloud host that programs routes before an address works.

Another component configures the host; the agent polls it while an NC is newer than what is programmed. No
address is assigned before (PendingProgramming). This is not stored per grant: it follows from the NC version that first
listed the grant and the version that the underlay has programmed.
"""

import asyncio
from collections.abc import Mapping
from typing import Protocol

import msgspec

from podpool.agent.records import AnyRecord, NCProgrammed, Snapshot, Started
from podpool.core.errors import PodpoolError
from podpool.runtime.transport import Request, Transport, Unreachable

TIMEOUT = 5.0
"""Seconds for one response."""


class BadUnderlay(PodpoolError):
    """The response of the underlay is invalid."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"invalid response of the underlay: {reason}")


class Underlay(Protocol):
    """Reports what is programmed."""

    async def programmed(self) -> Mapping[str, int]:
        """Return the programmed version of each NC; raises `Unreachable` or `BadUnderlay`."""


class _Programmed(msgspec.Struct, frozen=True, rename="camel"):
    network_container_id: str
    version: str


class _HostResponse(msgspec.Struct, frozen=True, rename="camel"):
    network_containers: tuple[_Programmed, ...] = ()
    http_status_code: str = "200"
    """The status of the host; the HTTP status is that of the proxy before it."""


class NMAgentClient:
    """The NMAgent of an Azure host."""

    PATH = "/machine/plugins"
    QUERY: Mapping[str, str] = {"comp": "nmagent", "type": "NetworkManagement/interfaces/api-version/2"}

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def programmed(self) -> Mapping[str, int]:
        """Return the programmed version of each NC; raises `Unreachable` or `BadUnderlay`."""
        try:
            async with asyncio.timeout(TIMEOUT):
                response = await self._transport.send(Request(method="GET", path=self.PATH, query=self.QUERY))
                body = await response.read()
        except TimeoutError:
            raise Unreachable("the underlay", f"no response within {TIMEOUT:g} s") from None
        if response.status != 200:
            raise BadUnderlay(f"status {response.status}")
        try:
            answer = msgspec.json.decode(body, type=_HostResponse)
            if answer.http_status_code != "200":
                raise BadUnderlay(f"httpStatusCode {answer.http_status_code}")
            return {each.network_container_id: int(each.version) for each in answer.network_containers}
        except ValueError as error:
            raise BadUnderlay(str(error)) from error


class ProgrammedVersions:
    """The versions that the underlay has programmed; without an underlay every version counts as programmed."""

    def __init__(self, *, required: bool) -> None:
        self._required = required
        self._boot_id = ""
        self._versions: dict[str, int] = {}

    @property
    def versions(self) -> Mapping[str, int]:
        """The programmed version of each NC."""
        return self._versions

    def covers(self, nc: str, version: int) -> bool:
        """Return whether an NC is programmed up to a version."""
        return not self._required or version <= self._versions.get(_normalized(nc), -1)

    def new_versions(self, programmed: Mapping[str, int], of: set[str]) -> dict[str, int]:
        """Return the versions of these NCs that were not known; a host may write NC IDs in other letter case."""
        ours = {_normalized(each) for each in of}
        versions = {_normalized(nc): version for nc, version in programmed.items()}
        return {nc: version for nc, version in versions.items() if nc in ours and not self.covers(nc, version)}

    def apply(self, record: AnyRecord) -> None:
        """Apply a record; a machine that rebooted may be on another host."""
        match record:
            case NCProgrammed():
                self._versions |= record.versions
            case Started():
                if record.boot_id != self._boot_id:
                    self._boot_id, self._versions = record.boot_id, {}
            case Snapshot():
                self._boot_id, self._versions = record.boot_id, dict(record.programmed)


def _normalized(nc: str) -> str:
    return nc.lower()
