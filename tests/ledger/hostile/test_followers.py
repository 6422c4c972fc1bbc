"""Followers of the change stream: a commit is computed once for all, and one that does not read holds nobody up."""

import asyncio
from collections.abc import AsyncIterator

from podpool.ledger.messages import SubnetChange, SubnetSpec
from tests.ledger.hostile.hostile_ledger import HostileLedger

FOLLOWERS = 200


async def next_change(name: str, stream: AsyncIterator[SubnetChange | None]) -> SubnetChange:
    """Return the next change of a subnet."""
    async for change in stream:
        if change is not None and change.state.subnet.name == name:
            return change
    raise AssertionError("the stream has ended")


async def settle() -> None:
    """Let every task that can run do so."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_commit_costs_one_job_however_many_follow() -> None:
    async def main() -> None:
        harness = HostileLedger()
        await harness.prepare()
        streams = [harness.ledger.changes(f"c{number % 5}") for number in range(FOLLOWERS)]
        for stream in streams:
            await next_change("pods", stream)
        reads = [asyncio.ensure_future(next_change("new", stream)) for stream in streams]
        await settle()
        before = harness.store.jobs
        await harness.ledger.admin.create_subnet(SubnetSpec(network="vnet", name="new", cidr="10.9.0.0/24"))
        assert FOLLOWERS == len(await asyncio.gather(*reads))
        assert before + 2 == harness.store.jobs  # the change, and its one computation
        for stream in streams:
            await stream.aclose()

    asyncio.run(main())


def test_follower_that_does_not_read_delays_no_caller() -> None:
    async def main() -> None:
        harness = HostileLedger()
        await harness.prepare()
        stalled, reading = harness.ledger.changes("c1"), harness.ledger.changes("c2")
        for stream in (stalled, reading):
            await anext(stream)
        for number in range(3):
            read = asyncio.ensure_future(next_change(f"s{number}", reading))
            await settle()
            spec = SubnetSpec(network="vnet", name=f"s{number}", cidr=f"10.{9 + number}.0.0/24")
            await harness.ledger.admin.create_subnet(spec)
            assert f"s{number}" == (await read).state.subnet.name
        merged = [await anext(stalled) for _ in range(3)]
        assert ["s0", "s1", "s2"] == [change.state.subnet.name for change in merged if change]
        for stream in (stalled, reading):
            await stream.aclose()

    asyncio.run(main())


def test_follower_that_leaves_while_it_computes_loses_nothing_for_others() -> None:
    async def main() -> None:
        harness = HostileLedger()
        await harness.prepare()
        streams = [harness.ledger.changes(f"c{number}") for number in range(3)]
        for stream in streams:
            await anext(stream)
        reads = [asyncio.ensure_future(next_change("new", stream)) for stream in streams]
        await settle()
        await harness.ledger.admin.create_subnet(SubnetSpec(network="vnet", name="new", cidr="10.9.0.0/24"))
        reads[0].cancel()  # it was woken for the commit
        async with asyncio.timeout(5):
            assert ["new", "new"] == [each.state.subnet.name for each in await asyncio.gather(*reads[1:])]
        for stream in streams:
            await stream.aclose()

    asyncio.run(main())
