"""A commit whose answer is lost on the way: known to be done where it can be known, and said where it cannot."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parts.postgres import Postgres
from podpool.ledger.domain.service import Ledger
from podpool.ledger.errors import Unavailable
from podpool.ledger.messages import NewSubnet, OpenTerm, Reconcile, ReconcileAnswer
from podpool.ledger.storage.postgres.store import PostgresStore
from tests.ledger.crowds import ledger_on
from tests.ledger.offices import SUBNET, item

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    postgres.psql("CREATE DATABASE answers")
    yield postgres.url("answers")
    postgres.psql("DROP DATABASE answers")


class Road:
    """A road to a server that can lose what the server says next."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self.losing = False
        self.open = asyncio.Event()
        self.open.set()
        self.lost = asyncio.Event()

    async def travel(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.open.wait()
        theirs, ours = await asyncio.open_unix_connection(str(self._server))
        ways = [
            asyncio.ensure_future(self.carry(reader, ours)),
            asyncio.ensure_future(self.carry(theirs, writer, back=True)),
        ]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            ours.close()
            writer.close()

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, back: bool = False) -> None:
        while data := await reader.read(1 << 16):
            if back and self.losing:
                self.losing = False
                self.open.clear()
                self.lost.set()
                return
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def ledger_behind(url: str, road: Road, at: Path) -> AsyncIterator[Ledger]:
    """A ledger that reaches its server over a road; its rows are at hand, so that a call is one question."""
    server = await asyncio.start_unix_server(road.travel, at / ".s.PGSQL.5432")
    store = await PostgresStore.open(url.partition("?")[0] + f"?host={at}", rng=random.SystemRandom())
    try:
        ledger = ledger_on(store)
        await ledger.start()
        await ledger.create_subnet(NewSubnet(network=SUBNET.network, name=SUBNET.name, cidr="10.0.0.0/24"))
        yield ledger
    finally:
        await store.close()
        server.close()


class Leader:
    """Calls that can be sent again as they were."""

    def __init__(self, term: int) -> None:
        self.term = term

    async def call(self, ledger: Ledger, number: int) -> ReconcileAnswer:
        call = Reconcile(cluster="c1", term=self.term, number=number, items=(item(wanted=3 * number),))
        return await ledger.reconcile(call)


def test_a_commit_that_the_server_has_done_is_answered_as_done(postgres: Postgres, url: str, tmp_path: Path) -> None:
    async def main() -> None:
        road = Road(postgres.home / ".s.PGSQL.5432")
        async with ledger_behind(url, road, tmp_path) as ledger:
            leader = Leader((await ledger.open_term(OpenTerm(cluster="c1"))).term)
            await leader.call(ledger, 1)
            road.losing = True
            calling = asyncio.create_task(leader.call(ledger, 2))
            await road.lost.wait()
            road.open.set()
            answer = await calling
            assert answer.changed
            again = await leader.call(ledger, 2)
            assert (False, answer.results) == (again.changed, again.results)

    asyncio.run(main())


def test_where_another_has_written_since_the_caller_is_told_that_nobody_knows(
    postgres: Postgres, url: str, tmp_path: Path
) -> None:
    async def main() -> None:
        road = Road(postgres.home / ".s.PGSQL.5432")
        async with ledger_behind(url, road, tmp_path) as ledger:
            leader = Leader((await ledger.open_term(OpenTerm(cluster="c1"))).term)
            await leader.call(ledger, 1)
            road.losing = True
            calling = asyncio.create_task(leader.call(ledger, 2))
            await road.lost.wait()
            other = await PostgresStore.open(url, rng=random.SystemRandom())
            await ledger_on(other).open_term(OpenTerm(cluster="c2"))
            await other.close()
            road.open.set()
            with pytest.raises(Unavailable, match="nobody knows whether it was done"):
                await calling
            again = await leader.call(ledger, 2)
            assert not again.changed
            state = again.results[0].state
            assert state is not None
            assert 6 == len(state.grants)

    asyncio.run(main())
