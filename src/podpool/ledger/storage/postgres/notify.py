"""LISTEN/NOTIFY: each commit notifies all replicas of its network and the subnets that it changed.

It uses its own connection, which is reopened when it is lost; listeners are then called with all subnets.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import asyncpg

from podpool.ledger.errors import Unavailable
from podpool.ledger.storage.group_commit import ChangeListeners
from podpool.ledger.storage.postgres.commit import CHANNEL
from podpool.ledger.storage.postgres.connection import CONNECTION_ERRORS, connect
from podpool.runtime.logging import get_logger

if TYPE_CHECKING:
    from asyncpg import Connection

log = get_logger(__name__)

_RECONNECT_DELAY = 0.5
_MAX_PAYLOAD = 7_000
"""PostgreSQL accepts 8,000 bytes."""
_MAX_PENDING = 10_000

_Changed = Mapping[str, set[int]]
"""Subnets by network."""


class NotificationListener:
    """Passes on notifications of other replicas, and builds the payload of our own."""

    def __init__(self, url: str, listeners: ChangeListeners, *, replica: int) -> None:
        self._url = url
        self._listeners = listeners
        self._replica = f"{replica:016x}"
        self._task: asyncio.Task[None] | None = None

    def payload(self, network: str, changed: Sequence[int]) -> str:
        """Return the payload for a commit of this replica; empty if no subnet changed."""
        if not changed:
            return ""
        numbers = ",".join(map(str, changed))
        return f"{self._replica} {network} {numbers if len(numbers) < _MAX_PAYLOAD else ''}"

    def start(self) -> None:
        """Start listening, unless it has started."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="ledger-notifications")

    async def close(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except (Unavailable, *CONNECTION_ERRORS, asyncpg.PostgresError) as error:
                text = f"{type(error).__name__}: {error}"
                log.warning("PostgreSQL notifications interrupted, reconnecting", error=text)
            await asyncio.sleep(_RECONNECT_DELAY)

    async def _listen(self) -> None:
        connection = await connect(self._url)
        pending = _Pending()
        connection.add_termination_listener(lambda _: pending.close())
        try:
            await connection.add_listener(CHANNEL, lambda *notification: self._add(pending, notification[-1]))
            pending.add(None)
            while not pending.closed:
                await pending.event.wait()
                changed = pending.take()
                changed = await _all_subnets(connection) if changed is None else changed
                for network, numbers in changed.items():
                    self._listeners.notify(network, sorted(numbers))
        finally:
            connection.terminate()

    def _add(self, pending: "_Pending", payload: object) -> None:
        """Add what a notification says; of one that is not podpool's, that any subnet may have changed."""
        replica, _, rest = str(payload).partition(" ")
        if replica == self._replica:
            return  # listeners were called at the commit
        network, _, numbers = rest.partition(" ")
        try:
            pending.add({network: {int(number) for number in numbers.split(",")}} if numbers else None)
        except ValueError:
            pending.add(None)


class _Pending:
    """The subnets whose listeners are to be called next; as many as there are."""

    def __init__(self) -> None:
        self.event = asyncio.Event()
        self.closed = False
        self._changed: defaultdict[str, set[int]] = defaultdict(set)
        self._any = False

    def add(self, changed: _Changed | None) -> None:
        """Add subnets; None for all, as for more than are worth a list."""
        for network, numbers in (changed or {}).items():
            self._changed[network].update(numbers)
        self._any = self._any or changed is None or sum(map(len, self._changed.values())) > _MAX_PENDING
        self.event.set()

    def take(self) -> _Changed | None:
        """Return them, and begin anew; None for all."""
        changed = None if self._any else self._changed
        self._changed, self._any = defaultdict(set), False
        self.event.clear()
        return changed

    def close(self) -> None:
        """Note that the connection is lost."""
        self.closed = True
        self.event.set()


async def _all_subnets(connection: "Connection") -> _Changed:
    changed: defaultdict[str, set[int]] = defaultdict(set)
    for network, number in await connection.fetch("SELECT network, number FROM subnet"):
        changed[network].add(number)
    return changed
