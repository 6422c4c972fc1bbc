"""Restores entries of running sandboxes that IPPools have lost: the API server was restored from an older backup.

Lost entries are written again as soon as the restore is noticed, at the latest after the relist interval. Until then no
other sandbox of this node gets such an address. Other nodes and third-party plugins may allocate it: then it has two
owners, which the agent cannot resolve and logs as an error.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeAlias

from podpool.agent.deps import AgentDeps, event_or_timeout
from podpool.agent.secondary.shared_range_client import IPPoolClient
from podpool.agent.secondary.shared_range_log import SharedAllocation, SharedRangeLog
from podpool.api.whereabouts import Allocation, IPPool
from podpool.core.addresses import Address, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.kube.backoff import Backoff
from podpool.kube.errors import ApiError
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.ippool import AllocationChange, parse_ippool
from podpool.whereabouts.object_names import PoolIdentifier

Difference: TypeAlias = tuple[PoolIdentifier, AllocationChange]
"""What a pool lacks of a live allocation, or has of another owner instead."""


class SharedRangeResync:
    """Compares the live allocations of this node with the shared IPPools."""

    def __init__(self, deps: AgentDeps, client: IPPoolClient, log: SharedRangeLog) -> None:
        self._deps = deps
        self._client = client
        self._log = log
        self._due = asyncio.Event()
        self._writing = asyncio.Lock()
        self._reported: Sequence[Difference] = ()
        self._backoff = Backoff(rng=deps.rng, base=0.2, maximum=30.0)

    def nudge(self) -> None:
        """Compare now: the API server was restored."""
        self._due.set()

    async def run(self) -> None:
        """Compare now, after each nudge and at the relist interval, until cancelled."""
        while True:
            delay = self._deps.settings.relist_interval
            try:
                if await self.resync():
                    self._backoff.reset()
                else:
                    delay = self._backoff.fail()
            except (ApiError, Unreachable, InvalidInput):
                delay = self._backoff.fail()
            await event_or_timeout(self._due, asyncio.timeout(delay))
            self._due.clear()

    async def wait_until_written(self) -> None:
        """Wait for a write in progress: it may contain entries of a sandbox that is being released since."""
        async with self._writing:
            return

    async def resync(self) -> bool:
        """Write lost entries; return whether there were none."""
        if not any(self._log.live()):
            return True
        async with self._writing:
            return await self._write_lost_entries()

    async def _write_lost_entries(self) -> bool:
        pools = await self._client.list_pools()
        differences = list(self._differences(pools))
        self._report_duplicates([each for each in differences if each[1].before])
        lost: defaultdict[PoolIdentifier, list[AllocationChange]] = defaultdict(list)
        for identifier, change in differences:
            if change.before is None:
                lost[identifier].append(change)
        for identifier, changes in lost.items():
            pool = pools.get(identifier.name)
            if pool is None:
                await self._client.create_pool(identifier)
            else:
                self._deps.log.warning(
                    "IPPool has lost entries of this node, writing them again",
                    ippool=identifier.name,
                    count=len(changes),
                )
                await self._client.patch_pool(pool, changes)
        return not lost

    def _differences(self, pools: Mapping[str, IPPool]) -> Iterator[Difference]:
        for allocation in self._log.live():
            for range_, text in zip(allocation.ranges, allocation.addresses, strict=False):
                identifier = PoolIdentifier(range=parse_prefix(range_), network=allocation.network_name)
                address = parse_address(text)
                if address in identifier.range:
                    change = _difference(pools.get(identifier.name), address, allocation)
                    if change:
                        yield identifier, change

    def _report_duplicates(self, duplicates: Sequence[Difference]) -> None:
        """Log the addresses with two owners that the last comparison has not found."""
        for identifier, change in duplicates:
            if change.before and change.after and (identifier, change) not in self._reported:
                self._deps.log.error(
                    "address has two owners after an API server restore, delete one of the Pods",
                    address=change.address,
                    pod=change.after.podref,
                    other_pod=change.before.podref,
                    ippool=identifier.name,
                )
        self._reported = duplicates


def _difference(pool: IPPool | None, address: Address, allocation: SharedAllocation) -> AllocationChange | None:
    """Return the entry that the pool has lost, or has of another owner; None if it has it."""
    attachment = allocation.attachment
    own = Allocation(id=attachment.container_id, podref=allocation.podref, ifname=attachment.ifname)
    if pool is None:
        return AllocationChange(key="", address=address, before=None, after=own)
    key = parse_ippool(pool.spec).key(address)
    found = pool.spec.allocations.get(key)
    if found and (found.podref, found.ifname) == (own.podref, own.ifname):
        return None
    return AllocationChange(key=key, address=address, before=found, after=own)
