"""Polls the underlay while an NC is newer than what it has programmed."""

import asyncio

from podpool.agent.deps import AgentDeps
from podpool.agent.records import NCProgrammed
from podpool.agent.state import AgentState
from podpool.agent.underlay import BadUnderlay, Underlay
from podpool.kube.backoff import backoff_delay
from podpool.runtime.transport import Unreachable

FIRST_INTERVAL, LAST_INTERVAL = 0.05, 1.0
"""Seconds between two polls, doubled from the first to the last."""


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
        attempts = 0
        while True:
            self._changed.clear()
            programming, ncs = self._state.programming, self._state.pool.ncs
            pending = {each.id for each in ncs if not programming.covers(each.id, each.version)}
            if not pending:
                attempts = 0
                await self._changed.wait()
            elif versions := await self._poll(pending, first=not attempts):
                self._state.write(NCProgrammed(versions=versions))
                self._deps.log.info("underlay programmed network containers", nc=",".join(sorted(versions)))
                self._deps.changes.notify()
            else:
                attempts += 1
                await asyncio.sleep(
                    backoff_delay(attempts, rng=self._deps.rng, base=FIRST_INTERVAL, maximum=LAST_INTERVAL)
                )

    async def _poll(self, pending: set[str], *, first: bool) -> dict[str, int]:
        """Poll once; return the versions that were not known before."""
        try:
            return self._state.programming.new_versions(await self._underlay.programmed(), of=pending)
        except (BadUnderlay, Unreachable) as error:
            if first:
                self._deps.log.warning("cannot poll the underlay, new addresses wait", error=error)
            return {}
