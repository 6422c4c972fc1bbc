"""The ledger sessions of one leader: terms are those of a network, so each network has its own.

The networks that Nodes and NNCs name are opened before anything is reconciled, any other with its first request. The
end of one term ends all: tasks of the leader may use states of each, and they start again with new terms.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable

from podpool.controller.reconcile_batcher import LeaderTerm, ReconcileBatcher
from podpool.ledger.messages import NetworkContainerState, ReconcileItem


class NetworkSessions:
    """Passes each request to the session of its network."""

    def __init__(
        self,
        terms: Iterable[LeaderTerm],
        *,
        open_term: Callable[[str], Awaitable[LeaderTerm]],
        new_session: Callable[[LeaderTerm], ReconcileBatcher],
    ) -> None:
        self._sessions = {term.network: new_session(term) for term in terms}
        self._open_term = open_term
        self._new_session = new_session
        self._opening = asyncio.Lock()
        self._opened = asyncio.Event()

    @property
    def seen(self) -> dict[str, int]:
        """The highest revision that was received in each network."""
        return {network: session.seen for network, session in self._sessions.items()}

    async def reconcile(self, item: ReconcileItem) -> NetworkContainerState:
        """Send a request with the next call of its network; raises the ledger's error for it."""
        session = self._sessions.get(item.subnet.network) or await self._open(item.subnet.network)
        return await session.reconcile(item)

    def reload(self, network: str) -> None:
        """Reload the NCs of a network, and check that its term still lasts: a change may have been missed."""
        session = self._sessions.get(network)
        if session is not None:
            session.reload()

    def set_missing(self, networks: Iterable[str]) -> None:
        """Set the network of each NC without a Node now."""
        missing = Counter(networks)
        for network, session in self._sessions.items():
            session.missing_nodes = missing[network]

    async def run(self) -> None:
        """Send calls until a term ends."""
        running: set[str] = set()
        async with asyncio.TaskGroup() as group:
            while True:
                self._opened.clear()
                for network, session in self._sessions.items():
                    if network not in running:
                        running.add(network)
                        group.create_task(session.run())
                await self._opened.wait()

    async def _open(self, network: str) -> ReconcileBatcher:
        async with self._opening:
            if network not in self._sessions:
                self._sessions[network] = self._new_session(await self._open_term(network))
                self._opened.set()
            return self._sessions[network]
