"""Restores entries of running sandboxes that IPPools have lost: the API server was restored from an older backup.

Lost entries are written again as soon as the restore is noticed, at the latest after the relist interval. Until then no
other sandbox of this node gets such an address. Other nodes and third-party plugins may allocate it: then it has two
owners, which the agent cannot resolve and logs as an error.
"""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from podpool.agent.deps import AgentDeps, event_or_timeout
from podpool.agent.secondary.shared_range_client import IPPoolClient
from podpool.agent.secondary.shared_range_journal import SharedAllocation, SharedRangeLog
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
Entry: TypeAlias = tuple[Address, SharedAllocation]
"""An address that a pool should have, and its allocation."""


class SharedRangeResync:
    """Compares the live allocations of this node with the shared IPPools."""

    def __init__(self, deps: AgentDeps, client: IPPoolClient, log: SharedRangeLog) -> None:
        self._deps = deps
        self._client = client
        self._log = log
        self._due = asyncio.Event()
        self._writing = asyncio.Lock()
        self._reported: Sequence[Difference] = ()
        self._failures: Mapping[str, str] = {}
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
        """Restore pool by pool: one that cannot be read or written does not keep the others from it."""
        pools, failures, complete = await self._client.list_pools(), dict[str, str](), True
        duplicates: list[Difference] = []
        for identifier, entries in self._live_entries().items():
            pool = pools.get(identifier.name)
            try:
                changes = [each for entry in entries if (each := _difference(pool, *entry))]
                duplicates += [(identifier, each) for each in changes if each.before]
                lost = [each for each in changes if not each.before]
                complete = complete and not lost
                await self._write(identifier, pool, lost)
            except (ApiError, InvalidInput) as error:
                complete, failures[identifier.name] = False, str(error)
        self._report_duplicates(duplicates)
        self._report_failures(failures)
        return complete

    async def _write(self, identifier: PoolIdentifier, pool: IPPool | None, lost: Sequence[AllocationChange]) -> None:
        """Write lost entries; a missing pool is created first, and has them after the next comparison."""
        if lost and pool is None:
            await self._client.create_pool(identifier)
        elif lost and pool:
            event = "IPPool has lost entries of this node, writing them again"
            self._deps.log.warning(event, ippool=identifier.name, count=len(lost))
            await self._client.patch_pool(pool, lost)

    def _live_entries(self) -> Mapping[PoolIdentifier, Sequence[Entry]]:
        entries: defaultdict[PoolIdentifier, list[Entry]] = defaultdict(list)
        for allocation in self._log.live():
            for range_, text in zip(allocation.ranges, allocation.addresses, strict=False):
                identifier = PoolIdentifier(range=parse_prefix(range_), network=allocation.network_name)
                address = parse_address(text)
                if address in identifier.range:
                    entries[identifier].append((address, allocation))
        return entries

    def _report_failures(self, failures: Mapping[str, str]) -> None:
        """Log the pools that could not be restored, each once until it is."""
        for ippool in failures.keys() - self._failures.keys():
            event = "cannot restore entries of this node in an IPPool, retrying; check that it is valid and writable"
            self._deps.log.error(event, ippool=ippool, error=failures[ippool])
        self._failures = failures

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
