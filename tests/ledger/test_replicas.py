"""Several replicas on one PostgreSQL server: a response of one holds for all, also when the server fails."""

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
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import ClusterRow
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.messages import OpenTermRequest, ReconcileRequest, SubnetChange, SubnetName, SubnetSpec
from podpool.ledger.storage.postgres.store import PostgresStore
from tests.ledger.harness import item
from tests.ledger.load import SUBNETS, Cluster, call_until, check_consistent, ledger_on, make_subnets, recover

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    postgres.psql("CREATE DATABASE replicas")
    yield postgres.url("replicas")
    postgres.server.settle()
    postgres.psql("DROP DATABASE replicas")


@asynccontextmanager
async def replicas(url: str, count: int) -> AsyncIterator[Sequence[LedgerService]]:
    """Start ledgers, each with its own connections and row cache."""
    async with AsyncExitStack() as stack:
        ledgers = []
        for _ in range(count):
            store = await PostgresStore.open(url, rng=random.SystemRandom())
            stack.push_async_callback(store.close)
            ledgers.append(ledger_on(store))
            await ledgers[-1].start()
        yield ledgers


@pytest.mark.parametrize("count", [2, 4])
def test_no_address_has_two_owners_and_counts_are_right(url: str, count: int) -> None:
    async def main() -> None:
        async with replicas(url, count) as ledgers:
            await make_subnets(ledgers[0])
            clusters = [Cluster(f"c{number}", ledgers, seed=number) for number in range(6)]
            await asyncio.gather(*(cluster.lead() for cluster in clusters))
            for _ in range(3):
                await asyncio.gather(*(call_times(cluster, 8) for cluster in clusters))
                for ledger in ledgers:
                    await check_consistent(ledger, clusters)

    asyncio.run(main())


async def call_times(cluster: Cluster, calls: int) -> None:
    for _ in range(calls):
        await cluster.call()


def test_optimistic_group_is_repeated_when_another_replica_wrote_first(url: str) -> None:
    async def main() -> None:
        one = await PostgresStore.open(url, rng=random.SystemRandom())
        two = await PostgresStore.open(url, rng=random.SystemRandom())
        results = await asyncio.gather(
            *(increment(one, 40, pause=0.0) for _ in range(8)), increment(two, 20, pause=0.01)
        )
        assert list(range(1, 8 * 40 + 20 + 1)) == sorted(number for each in results for number in each)
        await one.close()
        await two.close()

    asyncio.run(main())


async def increment(store: PostgresStore, times: int, *, pause: float) -> list[int]:
    """Increment a number in the database repeatedly; returns the results."""

    def transaction(repo: Repository) -> int:
        row = repo.cluster("c1") or ClusterRow(id="c1")
        repo.put_cluster(replace(row, number=row.number + 1))
        return row.number + 1

    numbers = []
    for _ in range(times):
        numbers.append(await store.write(transaction))
        await asyncio.sleep(pause)
    return numbers


def test_term_of_one_replica_is_known_to_all(url: str) -> None:
    async def main() -> None:
        async with replicas(url, 2) as (first, second):
            await make_subnets(first)
            old = await first.open_term(OpenTermRequest(cluster="c1"))
            new = await second.open_term(OpenTermRequest(cluster="c1", known_term=old.term))
            call = ReconcileRequest(cluster="c1", term=old.term, number=1, items=(item(subnet=SUBNETS[0]),))
            for ledger in (first, second):
                with pytest.raises(Exception, match=f"the current one is {new.term}"):
                    await ledger.reconcile(call)

    asyncio.run(main())


def test_change_reaches_streams_of_other_replicas(url: str) -> None:
    async def main() -> None:
        async with replicas(url, 2) as (first, second):
            await make_subnets(first)
            stream = second.changes("c1")
            try:
                assert set(SUBNETS) == {(await next_change(stream)).state.subnet for _ in SUBNETS}
                term = (await first.open_term(OpenTermRequest(cluster="c1"))).term
                buffer_shortage = item(subnet=SUBNETS[1], wanted=5_000)
                await first.reconcile(ReconcileRequest(cluster="c1", term=term, number=1, items=(buffer_shortage,)))
                change = await next_change(stream)
                assert (SUBNETS[1], True) == (change.state.subnet, change.state.waiting_for_buffer > 0)
                new = SubnetSpec(network="vnet", name="late", cidr="10.9.0.0/24")
                await first.admin.create_subnet(new)
                assert SubnetName(network="vnet", name="late") == (await next_change(stream)).state.subnet
            finally:
                await stream.aclose()

    asyncio.run(main())


def test_notifications_that_are_not_podpools_stop_no_stream(url: str, postgres: Postgres) -> None:
    async def main() -> None:
        async with replicas(url, 2) as (first, second):
            await make_subnets(first)
            stream = second.changes("c1")
            try:
                assert set(SUBNETS) == {(await next_change(stream)).state.subnet for _ in SUBNETS}
                for payload in ("", "x", "x 1,²", "x 1,,2", f"x {10**40},-1", "x " + ",".join(map(str, range(1_500)))):
                    postgres.psql(f"NOTIFY podpool, '{payload}'", database="replicas")
                new = SubnetSpec(network="vnet", name="late", cidr="10.9.0.0/24")
                await first.admin.create_subnet(new)
                assert SubnetName(network="vnet", name="late") == (await next_change(stream)).state.subnet
            finally:
                await stream.aclose()

    asyncio.run(main())


async def next_change(stream: AsyncIterator[SubnetChange | None]) -> SubnetChange:
    """Return the next change; heartbeats are skipped."""
    async for change in stream:
        if change is not None:
            return change
    raise AssertionError("the stream has ended")


def test_server_killed_under_load_loses_no_response(postgres: Postgres, url: str) -> None:
    async def main() -> None:
        async with replicas(url, 2) as ledgers:
            await make_subnets(ledgers[0])
            clusters = [Cluster(f"c{number}", ledgers, seed=number) for number in range(6)]
            await asyncio.gather(*(cluster.lead() for cluster in clusters))
            for _ in range(3):
                stop = asyncio.Event()
                callers = [asyncio.create_task(call_until(cluster, stop)) for cluster in clusters]
                await progress(clusters, 5)
                postgres.kill()
                await asyncio.sleep(0.3)  # long enough for calls to be refused
                postgres.start()
                await progress(clusters, 2)
                stop.set()
                await asyncio.gather(*callers)
                for ledger in ledgers:
                    await check_consistent(ledger, clusters)

    asyncio.run(main())


async def progress(clusters: Sequence[Cluster], calls: int) -> None:
    """Wait until each cluster has completed this many more calls."""
    goals = [cluster.completed + calls for cluster in clusters]
    for cluster, goal in zip(clusters, goals, strict=True):
        await cluster.reached(goal)


@pytest.fixture
def primary_and_standby() -> Iterator[tuple[Postgres, Postgres]]:
    """A primary and a standby."""
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


def test_failover_that_lost_commits_is_detected_and_recovered(primary_and_standby: tuple[Postgres, Postgres]) -> None:
    """The standby is disconnected, calls continue, the primary fails: the later responses are lost."""
    first, second = primary_and_standby
    hosts = f"postgresql://postgres@/postgres?host={first.home},{second.home}"

    async def main() -> None:
        async with replicas(hosts, 2) as ledgers:
            await make_subnets(ledgers[0])
            clusters = [Cluster(f"c{number}", ledgers, seed=number) for number in range(3)]
            await asyncio.gather(*(cluster.lead() for cluster in clusters))
            await asyncio.gather(*(call_times(cluster, 4) for cluster in clusters))
            disconnect_standby(first, second)
            await asyncio.gather(*(call_times(cluster, 4) for cluster in clusters))
            first.kill()
            second.psql("SELECT pg_promote()")

            stop = asyncio.Event()
            await asyncio.gather(*(call_until(cluster, stop) for cluster in clusters))  # each gets StaleTerm
            pending_inventories = (await ledgers[0].admin.recovery()).pending_inventories
            assert {cluster.name for cluster in clusters} == {each.cluster for each in pending_inventories}
            await recover(clusters)
            assert () == (await ledgers[1].admin.recovery()).pending_inventories
            await asyncio.gather(*(call_times(cluster, 4) for cluster in clusters))
            for ledger in ledgers:
                await check_consistent(ledger, clusters, cooling=True)

    asyncio.run(main())


def disconnect_standby(first: Postgres, second: Postgres) -> None:
    """Let the standby replay everything, and nothing more."""
    now = first.psql("SELECT pg_current_wal_flush_lsn()")
    until(lambda: second.psql(f"SELECT pg_last_wal_replay_lsn() >= '{now}'") == "t", "the standby has replayed")
    second.psql("ALTER SYSTEM SET primary_conninfo = ''")
    second.psql("SELECT pg_reload_conf()")
    until(lambda: second.psql("SELECT count(*) FROM pg_stat_wal_receiver") == "0", "the standby is disconnected")


def test_command_serves_from_postgresql_and_stops_cleanly(url: str, tmp_path: Path) -> None:
    port, health = free_port(), free_port()
    arguments = ["ledger", "serve", "--database", url, "--listen", f"127.0.0.1:{port}"]
    arguments += ["--health-listen", f"127.0.0.1:{health}"]
    command = [sys.executable, "-m", "podpool", *arguments, "--admin-token-file", str(tmp_path / "token")]
    with subprocess.Popen(command) as serving:
        until(lambda: answers(health, "/readyz"), "the ledger is ready")
        serving.terminate()
        assert 0 == serving.wait()
