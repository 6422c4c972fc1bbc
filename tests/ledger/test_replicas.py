"""Several replicas on one PostgreSQL: what one answers holds for all, whatever happens to the server."""

import asyncio
import random
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from parts.loopback import answers, free_port
from parts.polling import until
from parts.postgres import Postgres
from podpool.ledger.domain.service import Ledger
from podpool.ledger.messages import Change, NewSubnet, OpenTerm, Reconcile, SubnetName
from podpool.ledger.storage.postgres.store import PostgresStore
from podpool.ledger.storage.rows import ClusterRow
from podpool.ledger.storage.store import Books
from tests.ledger.crowds import SUBNETS, Cluster, agree, call_until, lead_again, ledger_on, make_subnets
from tests.ledger.offices import item

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    postgres.psql("CREATE DATABASE replicas")
    yield postgres.url("replicas")
    postgres.server.settle()
    postgres.psql("DROP DATABASE replicas")


@asynccontextmanager
async def replicas(url: str, count: int) -> AsyncIterator[Sequence[Ledger]]:
    """Start ledgers, each with its own connections and its own rows at hand."""
    async with AsyncExitStack() as stack:
        ledgers = []
        for _ in range(count):
            store = await PostgresStore.open(url, rng=random.SystemRandom())
            stack.push_async_callback(store.close)
            ledgers.append(ledger_on(store))
            await ledgers[-1].start()
        yield ledgers


@pytest.mark.parametrize("count", [2, 4])
def test_nobody_is_given_what_another_has_and_every_count_is_right(url: str, count: int) -> None:
    async def main() -> None:
        async with replicas(url, count) as ledgers:
            await make_subnets(ledgers[0])
            clusters = [Cluster(f"c{number}", ledgers, seed=number) for number in range(6)]
            await asyncio.gather(*(cluster.lead() for cluster in clusters))
            for _ in range(3):
                await asyncio.gather(*(several(cluster, 8) for cluster in clusters))
                for ledger in ledgers:
                    await agree(ledger, clusters)

    asyncio.run(main())


async def several(cluster: Cluster, calls: int) -> None:
    for _ in range(calls):
        await cluster.call()


def test_what_is_decided_behind_a_commit_is_decided_anew_when_another_replica_came_first(url: str) -> None:
    async def main() -> None:
        one = await PostgresStore.open(url, rng=random.SystemRandom())
        two = await PostgresStore.open(url, rng=random.SystemRandom())
        told = await asyncio.gather(*(counted(one, 40, pause=0.0) for _ in range(8)), counted(two, 20, pause=0.01))
        assert list(range(1, 8 * 40 + 20 + 1)) == sorted(number for each in told for number in each)
        await one.close()
        await two.close()

    asyncio.run(main())


async def counted(store: PostgresStore, times: int, *, pause: float) -> list[int]:
    """Raise a number in the books, again and again; tell what it was raised to."""

    def work(books: Books) -> int:
        row = books.cluster("c1") or ClusterRow(id="c1")
        books.put_cluster(replace(row, number=row.number + 1))
        return row.number + 1

    numbers = []
    for _ in range(times):
        numbers.append(await store.write(work))
        await asyncio.sleep(pause)
    return numbers


def test_a_term_that_one_replica_gave_is_known_to_all(url: str) -> None:
    async def main() -> None:
        async with replicas(url, 2) as (first, second):
            await make_subnets(first)
            old = await first.open_term(OpenTerm(cluster="c1"))
            new = await second.open_term(OpenTerm(cluster="c1", known=old.term))
            call = Reconcile(cluster="c1", term=old.term, number=1, items=(item(subnet=SUBNETS[0]),))
            for ledger in (first, second):
                with pytest.raises(Exception, match=f"the current one is {new.term}"):
                    await ledger.reconcile(call)

    asyncio.run(main())


def test_a_change_reaches_the_streams_of_other_replicas(url: str) -> None:
    async def main() -> None:
        async with replicas(url, 2) as (first, second):
            await make_subnets(first)
            stream = second.changes("c1")
            try:
                assert set(SUBNETS) == {(await take(stream)).state.subnet for _ in SUBNETS}
                term = (await first.open_term(OpenTerm(cluster="c1"))).term
                wish = item(subnet=SUBNETS[1], wanted=5_000)
                await first.reconcile(Reconcile(cluster="c1", term=term, number=1, items=(wish,)))
                change = await take(stream)
                assert (SUBNETS[1], True) == (change.state.subnet, change.state.wishing > 0)
                new = NewSubnet(network="vnet", name="late", cidr="10.9.0.0/24")
                await first.create_subnet(new)
                assert SubnetName(network="vnet", name="late") == (await take(stream)).state.subnet
            finally:
                await stream.aclose()

    asyncio.run(main())


async def take(stream: AsyncIterator[Change | None]) -> Change:
    """The next change; signs of life are none."""
    async for change in stream:
        if change is not None:
            return change
    raise AssertionError("the stream has ended")


def test_a_server_that_is_killed_under_load_has_everything_that_was_answered(postgres: Postgres, url: str) -> None:
    async def main() -> None:
        async with replicas(url, 2) as ledgers:
            await make_subnets(ledgers[0])
            clusters = [Cluster(f"c{number}", ledgers, seed=number) for number in range(6)]
            await asyncio.gather(*(cluster.lead() for cluster in clusters))
            for _ in range(3):
                over = asyncio.Event()
                callers = [asyncio.create_task(call_until(cluster, over)) for cluster in clusters]
                await progress(clusters, 5)
                postgres.kill()
                await asyncio.sleep(0.3)  # long enough to be refused
                postgres.start()
                await progress(clusters, 2)
                over.set()
                await asyncio.gather(*callers)
                for ledger in ledgers:
                    await agree(ledger, clusters)

    asyncio.run(main())


async def progress(clusters: Sequence[Cluster], calls: int) -> None:
    """Wait until each cluster was answered so many more times."""
    goals = [cluster.answered + calls for cluster in clusters]
    for cluster, goal in zip(clusters, goals, strict=True):
        await cluster.reached(goal)


@pytest.fixture
def pair() -> Iterator[tuple[Postgres, Postgres]]:
    """A server, and one that follows it."""
    first = Postgres()
    try:
        first.start()
        second = first.standby()
        try:
            second.start()
            yield first, second
        finally:
            second.remove()
    finally:
        first.remove()


def test_a_failover_that_lost_commits_is_noticed_and_mended(pair: tuple[Postgres, Postgres]) -> None:
    """The standby is cut off, work goes on, the first server dies: what was answered since is in no books."""
    first, second = pair
    hosts = f"postgresql://postgres@/postgres?host={first.home},{second.home}"

    async def main() -> None:
        async with replicas(hosts, 2) as ledgers:
            await make_subnets(ledgers[0])
            clusters = [Cluster(f"c{number}", ledgers, seed=number) for number in range(3)]
            await asyncio.gather(*(cluster.lead() for cluster in clusters))
            await asyncio.gather(*(several(cluster, 4) for cluster in clusters))
            cut_off(first, second)
            await asyncio.gather(*(several(cluster, 4) for cluster in clusters))
            first.kill()
            second.psql("SELECT pg_promote()")

            over = asyncio.Event()
            await asyncio.gather(
                *(call_until(cluster, over) for cluster in clusters)
            )  # each is told that its term ended
            awaited = (await ledgers[0].administration.recovery()).awaited
            assert {cluster.name for cluster in clusters} == {each.cluster for each in awaited}
            await lead_again(clusters)
            assert () == (await ledgers[1].administration.recovery()).awaited
            await asyncio.gather(*(several(cluster, 4) for cluster in clusters))
            for ledger in ledgers:
                await agree(ledger, clusters, resting=True)

    asyncio.run(main())


def cut_off(first: Postgres, second: Postgres) -> None:
    """Let the second have all that there is now, and nothing more."""
    now = first.psql("SELECT pg_current_wal_flush_lsn()")
    until(lambda: second.psql(f"SELECT pg_last_wal_replay_lsn() >= '{now}'") == "t", "the standby has it all")
    second.psql("ALTER SYSTEM SET primary_conninfo = ''")
    second.psql("SELECT pg_reload_conf()")
    until(lambda: second.psql("SELECT count(*) FROM pg_stat_wal_receiver") == "0", "the standby is cut off")


def test_the_command_serves_from_postgresql_and_stops_in_order(url: str, tmp_path: Path) -> None:
    port = free_port()
    words = ["ledger", "serve", "--database", url, "--listen", f"127.0.0.1:{port}"]
    command = [sys.executable, "-m", "podpool", *words, "--admin-token-file", str(tmp_path / "token")]
    with subprocess.Popen(command) as serving:
        until(lambda: answers(port, "/readyz"), "the ledger is ready")
        serving.terminate()
        assert 0 == serving.wait()
