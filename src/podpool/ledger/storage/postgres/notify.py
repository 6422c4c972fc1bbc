"""LISTEN/NOTIFY: each commit notifies all replicas of the subnets that it changed.

It uses its own connection, which is reopened when it is lost; listeners are then called with all subnets.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

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


class NotificationListener:
    """Passes on notifications of other replicas, and builds the payload of our own."""

    def __init__(self, url: str, listeners: ChangeListeners, *, replica: int) -> None:
        self._url = url
        self._listeners = listeners
        self._replica = f"{replica:016x}"
        self._task: asyncio.Task[None] | None = None

    def payload(self, changed: Sequence[int]) -> str:
        """Return the payload for a commit of this replica; empty if no subnet changed."""
        if not changed:
            return ""
        numbers = ",".join(map(str, changed))
        return f"{self._replica} {numbers if len(numbers) < _MAX_PAYLOAD else ''}"

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
            except CONNECTION_ERRORS as error:
                text = f"{type(error).__name__}: {error}"
                log.warning("PostgreSQL notifications interrupted, reconnecting", error=text)
            await asyncio.sleep(_RECONNECT_DELAY)

    async def _listen(self) -> None:
        connection = await connect(self._url)
        disconnected = asyncio.Event()
        payloads: asyncio.Queue[str] = asyncio.Queue()
        connection.add_termination_listener(lambda _: disconnected.set())
        try:
            await connection.add_listener(CHANNEL, lambda *notification: payloads.put_nowait(notification[-1]))
            self._listeners.notify(await _all_subnets(connection))
            while not disconnected.is_set():
                await self._forward(connection, payloads, disconnected)
        finally:
            connection.terminate()

    async def _forward(
        self, connection: "Connection", payloads: "asyncio.Queue[str]", disconnected: asyncio.Event
    ) -> None:
        waits = [asyncio.ensure_future(payloads.get()), asyncio.ensure_future(disconnected.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits[waits[0].done() :]:
                each.cancel()
        if not waits[0].done():
            return
        replica, _, numbers = str(waits[0].result()).partition(" ")
        if replica != self._replica:  # listeners were called at the commit
            changed = [int(number) for number in numbers.split(",")] if numbers else await _all_subnets(connection)
            self._listeners.notify(changed)


async def _all_subnets(connection: "Connection") -> list[int]:
    return [row["number"] for row in await connection.fetch("SELECT number FROM subnet ORDER BY number")]
