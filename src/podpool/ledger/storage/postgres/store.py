"""The PostgreSQL store: any number of replicas on one database, with a writer for each network (`shard`)."""

import random
from collections.abc import Callable
from typing import TypeVar

from podpool.ledger.domain.repository import Listener, QueueState, Repair, Repository
from podpool.ledger.errors import LedgerError
from podpool.ledger.storage.postgres.connection import open_maintenance_connection
from podpool.ledger.storage.postgres.reader import AnotherServer, PostgresReader
from podpool.ledger.storage.postgres.server_clock import ServerClock
from podpool.ledger.storage.postgres.shard import STOPPED, ShardWriter, SharedState
from podpool.runtime.clock import Clock

T = TypeVar("T")


class PostgresStore:
    """A database on a PostgreSQL server."""

    def __init__(self, url: str, *, rng: random.Random) -> None:
        self._shared = SharedState(url, rng=rng)
        self._reader = PostgresReader(url, self._shared.server_time)
        self._writers: dict[str, ShardWriter] = {}
        self._closing = False

    @classmethod
    async def open(cls, url: str, *, rng: random.Random) -> "PostgresStore":
        """Connect and apply migrations."""
        async with open_maintenance_connection(url) as connection:
            store = cls(url, rng=rng)
            await store._shared.server_time.read(connection)
            return store

    def clock(self, local: Clock) -> Clock:
        """Return the server's clock."""
        return ServerClock(self._shared.server_time, local)

    async def begin(self, repair: Repair) -> None:
        """Repair the networks now and whenever the server is not the one that they were last written on."""
        self._shared.repair = repair
        await self.read(_nothing)
        await self.query(_nothing)

    async def write(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        """Queue a transaction for the writer of a network and wait for its commit."""
        if self._closing:
            raise LedgerError(STOPPED)
        writer = self._writers.get(network)
        if writer is None:
            writer = self._writers[network] = ShardWriter(network, self._shared)
        return await writer.run(transaction)

    async def read(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        """Run a transaction that changes nothing; it sees every earlier commit of any replica."""
        return await self.write(transaction, network=network)

    async def query(self, transaction: Callable[[Repository], T]) -> T:
        """Run a transaction on all networks, on a connection of its own, beside the writers."""
        if self._closing:
            raise LedgerError(STOPPED)
        try:
            return await self._reader.run(transaction)
        except AnotherServer as other:  # the writers must repair their networks first
            for network in other.networks:
                await self.read(_nothing, network=network)
            return await self._reader.run(transaction)

    def queue(self) -> QueueState:
        """Return the state of all queues."""
        states = [writer.queue for writer in self._writers.values()]
        return QueueState(
            waiting=sum(each.waiting for each in states),
            dropped=sum(each.dropped for each in states),
            refused=sum(each.refused for each in states),
        )

    def subscribe(self, listener: Listener) -> Callable[[], object]:
        """Call a listener after every commit of every replica; returns a function that removes it."""
        self._shared.notifications.start()
        return self._shared.listeners.add(listener)

    def on_commit(self, callback: Callable[[int], None]) -> None:
        """Call a function after every commit with the size of its group."""
        self._shared.on_commit = callback

    async def close(self) -> None:
        """Complete the queued transactions and disconnect."""
        self._closing = True
        for writer in self._writers.values():
            await writer.close()
        await self._shared.notifications.close()
        await self._reader.close()


def _nothing(repo: Repository) -> None:
    """Read nothing, which repairs a network that was rolled back."""
