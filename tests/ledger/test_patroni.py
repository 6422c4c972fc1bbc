"""A PostgreSQL pair that Patroni fails over under load."""

import asyncio
from collections.abc import Iterator, Sequence

import pytest

from parts.patroni import Member, PatroniPair
from parts.polling import until
from podpool.ledger.domain.service import LedgerService
from tests.ledger.load import Cluster, call_until, check_consistent, make_subnets, recover
from tests.ledger.test_replicas import call_times, replicas

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("patroni"), pytest.mark.timeout(180)]


@pytest.fixture
def pair(request: pytest.FixtureRequest) -> Iterator[PatroniPair]:
    made = PatroniPair(synchronous=request.param)
    try:
        yield made
    finally:
        made.remove()


@pytest.mark.parametrize("pair", [True], ids=["synchronous"], indirect=True)
def test_failover_of_synchronous_replication_loses_no_response(pair: PatroniPair) -> None:
    first, second = pair.start()
    assert set() == asyncio.run(lost_in_failover(pair, first, second, disconnected=False))


@pytest.mark.parametrize("pair", [False], ids=["asynchronous"], indirect=True)
def test_failover_that_lost_responses_is_recovered(pair: PatroniPair) -> None:
    first, second = pair.start()
    assert asyncio.run(lost_in_failover(pair, first, second, disconnected=True))


async def lost_in_failover(pair: PatroniPair, first: Member, second: Member, *, disconnected: bool) -> set[str]:
    """Kill the primary under load and recover; returns the NCs of which a response was lost.

    After the recovery the database matches every response, and no address has two owners.
    """
    async with replicas(pair.url(), 2) as ledgers:
        await make_subnets(ledgers[0])
        clusters = [Cluster(f"c{number}", ledgers, seed=number) for number in range(3)]
        await asyncio.gather(*(cluster.lead() for cluster in clusters))
        await asyncio.gather(*(call_times(cluster, 4) for cluster in clusters))
        if disconnected:
            pair.disconnect(first, second)
        stop = asyncio.Event()
        callers = [asyncio.create_task(call_until(cluster, stop)) for cluster in clusters]
        for cluster in clusters:
            await cluster.reached(cluster.completed + 4)
        first.kill()
        await asyncio.to_thread(until, lambda: second.has_role("primary"), "the standby is promoted", timeout=60)
        for cluster, caller in zip(clusters, callers, strict=True):
            progressed = asyncio.create_task(cluster.reached(cluster.completed + 2))
            await asyncio.wait([progressed, caller], return_when=asyncio.FIRST_COMPLETED)  # its term may have ended
            progressed.cancel()
        stop.set()
        await asyncio.gather(*callers)
        lost = {nc for cluster in clusters for nc in await lost_of(cluster, ledgers)}
        await recover(clusters)
        assert () == (await ledgers[1].admin.recovery()).pending_inventories
        await asyncio.gather(*(call_times(cluster, 4) for cluster in clusters))
        for ledger in ledgers:
            await check_consistent(ledger, clusters, cooling=True)
        return lost


async def lost_of(cluster: Cluster, ledgers: Sequence[LedgerService]) -> set[str]:
    """Return the NCs that are older in the database than in a response."""
    records = (await ledgers[0].network_containers(cluster.name)).network_containers
    versions = {record.state.nc_id: record.state.version for record in records}
    return {state.nc_id for state in cluster.held.values() if versions.get(state.nc_id, 0) < state.version}
