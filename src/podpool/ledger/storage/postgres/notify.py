"""What other replicas have changed: each commit says so on a channel that all of them listen to.

A connection of its own, which comes back when it was lost; whoever follows is then told that all may have changed.
"""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from podpool.ledger.storage.group_commit import Followers
from podpool.ledger.storage.postgres.commit import CHANNEL
from podpool.ledger.storage.postgres.server_settings import LOST, connect

if TYPE_CHECKING:
    from asyncpg import Connection

_log = logging.getLogger(__name__)

_PAUSE = 0.5
_LONGEST_NOTICE = 7_000
"""PostgreSQL takes 8,000 bytes."""


class News:
    """The channel, for one replica."""

    def __init__(self, url: str, followers: Followers, *, replica: int) -> None:
        self._url = url
        self._followers = followers
        self._replica = f"{replica:016x}"
        self._task: asyncio.Task[None] | None = None

    def notice(self, changed: Sequence[int]) -> str:
        """Word what a commit of ours has changed; nothing when it has changed no subnet."""
        if not changed:
            return ""
        numbers = ",".join(map(str, changed))
        return f"{self._replica} {numbers if len(numbers) < _LONGEST_NOTICE else ''}"

    def begin(self) -> None:
        """Listen, from the first follower on."""
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="ledger-news")

    async def close(self) -> None:
        """Listen no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            try:
                await self._listen()
            except LOST as error:
                _log.warning("no news from PostgreSQL: %s: %s", type(error).__name__, error)
            await asyncio.sleep(_PAUSE)

    async def _listen(self) -> None:
        connection = await connect(self._url)
        ended = asyncio.Event()
        heard: asyncio.Queue[str] = asyncio.Queue()
        connection.add_termination_listener(lambda _: ended.set())
        try:
            await connection.add_listener(CHANNEL, lambda *said: heard.put_nowait(said[-1]))
            self._followers.tell(await _everything(connection))
            while not ended.is_set():
                await self._pass_on(connection, heard, ended)
        finally:
            connection.terminate()

    async def _pass_on(self, connection: "Connection", heard: "asyncio.Queue[str]", ended: asyncio.Event) -> None:
        waits = [asyncio.ensure_future(heard.get()), asyncio.ensure_future(ended.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in waits[waits[0].done() :]:
                each.cancel()
        if not waits[0].done():
            return
        replica, _, numbers = str(waits[0].result()).partition(" ")
        if replica != self._replica:  # our own were told when they were committed
            changed = [int(number) for number in numbers.split(",")] if numbers else await _everything(connection)
            self._followers.tell(changed)


async def _everything(connection: "Connection") -> list[int]:
    return [row["number"] for row in await connection.fetch("SELECT number FROM subnet ORDER BY number")]
