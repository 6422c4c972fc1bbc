"""The underlay: a cloud host that programs routes before an address works.

Another component configures the host; the agent polls it while an NC is newer than what is programmed. No
address is assigned before (PendingProgramming). This is not stored per grant: it follows from the NC version that first
listed the grant and the version that the underlay has programmed.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from podpool.agent.deps import AgentDeps, Underlay
from podpool.agent.records import NCProgrammed
from podpool.agent.state import AgentState
from podpool.core.errors import PodpoolError
from podpool.kube.backoff import Backoff
from podpool.runtime.transport import Request, Transport, Unreachable

TIMEOUT = 5.0
"""Seconds for one response."""
FIRST_INTERVAL, LAST_INTERVAL = 0.05, 1.0
"""Seconds between two polls, doubled from the first to the last."""


class BadUnderlay(PodpoolError):
    """The response of the underlay is invalid."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"invalid response of the underlay: {reason}")


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
        except (ValueError, RecursionError) as error:
            raise BadUnderlay(str(error)) from error


class UnderlayPoller:
    """Records how far the underlay is; grants then become Available."""

    def __init__(self, deps: AgentDeps, state: AgentState, underlay: Underlay) -> None:
        self._deps = deps
        self._state = state
        self._underlay = underlay
        self._changed = asyncio.Event()

    def on_change(self) -> None:
        """Check again: an NC may be newer."""
        self._changed.set()

    async def run(self) -> None:
        """Poll until cancelled."""
        backoff = Backoff(rng=self._deps.rng, base=FIRST_INTERVAL, maximum=LAST_INTERVAL)
        while True:
            self._changed.clear()
            programming, ncs = self._state.programming, self._state.pool.ncs
            pending = {each.id for each in ncs if not programming.covers(each.id, each.version)}
            if not pending:
                backoff.reset()
                await self._changed.wait()
            elif versions := await self._poll(pending, first=not backoff.failures):
                self._state.write(NCProgrammed(versions=versions))
                self._deps.log.info("underlay programmed network containers", nc=",".join(sorted(versions)))
                self._deps.changes.notify()
            else:
                await backoff.wait()

    async def _poll(self, pending: set[str], *, first: bool) -> dict[str, int]:
        """Poll once; return the versions that were not known before."""
        try:
            return self._state.programming.new_versions(await self._underlay.programmed(), of=pending)
        except (BadUnderlay, Unreachable) as error:
            if first:
                self._deps.log.warning(
                    "cannot poll the underlay, new addresses are not assigned before it answers; check --underlay",
                    error=error,
                )
            return {}
