"""A commit whose response from the server is dropped: resolved by the commit token where possible, else an error."""

import asyncio
import random
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from parts.postgres import Postgres
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.errors import Unavailable
from podpool.ledger.messages import OpenTermRequest, ReconcileRequest, ReconcileResponse, SubnetSpec
from podpool.ledger.storage.postgres.store import PostgresStore
from tests.ledger.harness import SUBNET, item
from tests.ledger.load import ledger_on

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    postgres.psql("CREATE DATABASE uncertain")
    yield postgres.url("uncertain")
    postgres.psql("DROP DATABASE uncertain")


class LossyProxy:
    """A proxy to the server that can drop the server's next response."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self.drop_next = False
        self.open = asyncio.Event()
        self.open.set()
        self.dropped = asyncio.Event()

    async def forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.open.wait()
        server_reader, server_writer = await asyncio.open_unix_connection(str(self._server))
        directions = [
            asyncio.ensure_future(self.copy(reader, server_writer)),
            asyncio.ensure_future(self.copy(server_reader, writer, from_server=True)),
        ]
        try:
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for direction in directions:
                direction.cancel()
            server_writer.close()
            writer.close()

    async def copy(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, from_server: bool = False
    ) -> None:
        while data := await reader.read(1 << 16):
            if from_server and self.drop_next:
                self.drop_next = False
                self.open.clear()
                self.dropped.set()
                return
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def ledger_behind(url: str, proxy: LossyProxy, directory: Path) -> AsyncIterator[LedgerService]:
    """A ledger that connects through a proxy; its rows are cached, so that a call is one statement."""
    server = await asyncio.start_unix_server(proxy.forward, directory / ".s.PGSQL.5432")
    store = await PostgresStore.open(url.partition("?")[0] + f"?host={directory}", rng=random.SystemRandom())
    try:
        ledger = ledger_on(store)
        await ledger.start()
        await ledger.admin.create_subnet(SubnetSpec(network=SUBNET.network, name=SUBNET.name, cidr="10.0.0.0/24"))
        yield ledger
    finally:
        await store.close()
        server.close()


class Leader:
    """Sends calls that can be repeated unchanged."""

    def __init__(self, term: int) -> None:
        self.term = term

    async def reconcile(self, ledger: LedgerService, number: int) -> ReconcileResponse:
        call = ReconcileRequest(cluster="c1", term=self.term, number=number, items=(item(wanted=3 * number),))
        return await ledger.reconcile(call)


def test_commit_that_took_effect_is_reported_as_done(postgres: Postgres, url: str, tmp_path: Path) -> None:
    async def main() -> None:
        proxy = LossyProxy(postgres.home / ".s.PGSQL.5432")
        async with ledger_behind(url, proxy, tmp_path) as ledger:
            leader = Leader((await ledger.open_term(OpenTermRequest(cluster="c1"))).term)
            await leader.reconcile(ledger, 1)
            proxy.drop_next = True
            pending_call = asyncio.create_task(leader.reconcile(ledger, 2))
            await proxy.dropped.wait()
            proxy.open.set()
            response = await pending_call
            assert response.changed
            again = await leader.reconcile(ledger, 2)
            assert (False, response.results) == (again.changed, again.results)

    asyncio.run(main())


def test_error_names_another_replica_that_has_written_since(postgres: Postgres, url: str, tmp_path: Path) -> None:
    async def main() -> None:
        proxy = LossyProxy(postgres.home / ".s.PGSQL.5432")
        async with ledger_behind(url, proxy, tmp_path) as ledger:
            leader = Leader((await ledger.open_term(OpenTermRequest(cluster="c1"))).term)
            await leader.reconcile(ledger, 1)
            proxy.drop_next = True
            pending_call = asyncio.create_task(leader.reconcile(ledger, 2))
            await proxy.dropped.wait()
            other = await PostgresStore.open(url, rng=random.SystemRandom())
            await ledger_on(other).open_term(OpenTermRequest(cluster="c2"))
            await other.close()
            proxy.open.set()
            with pytest.raises(Unavailable, match="may have taken effect"):
                await pending_call
            again = await leader.reconcile(ledger, 2)
            assert not again.changed
            state = again.results[0].state
            assert state is not None
            assert 6 == len(state.grants)

    asyncio.run(main())
