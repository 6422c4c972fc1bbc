"""Entries of sandboxes that live, and that the API server knows nothing of: it was restored from an older copy.

What must hold: what was given is put back as soon as that is noticed, and at the latest when a cache would be listed
again. Until then no other sandbox of this node gets it. Other nodes, and foreign plugins, may: an address that somebody
else has by then has two owners, which nobody here can settle, and people are told.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from podpool.agent.deps import AgentDeps
from podpool.agent.secondary.ippool_client import IPPoolClient
from podpool.agent.secondary.shared_range_log import SharedAllocation, SharedRangeLog
from podpool.api.whereabouts import Allocation, IPPool, ReservationSpec
from podpool.core.addresses import Address, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.kube.backoff import backoff_delay
from podpool.kube.errors import ApiError
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.ippool import AllocationChange, parse_ippool
from podpool.whereabouts.object_names import PoolIdentifier

if TYPE_CHECKING:
    from podpool.cni.protocol import Attachment


class SharedRangeResync:
    """Compares what this node's sandboxes have with what the shared pools show."""

    def __init__(self, deps: AgentDeps, objects: IPPoolClient, lendings: SharedRangeLog, *, boot_id: str) -> None:
        self.leaving: set[Attachment] = set()
        """Whose entries are being taken out."""
        self._boot_id = boot_id
        self._deps = deps
        self._objects = objects
        self._lendings = lendings
        self._due = asyncio.Event()
        self._told: set[tuple[str, Allocation]] = set()
        self._writing = asyncio.Lock()

    def nudge(self) -> None:
        """Look now: the API server was restored."""
        self._due.set()

    def lent(self, place: PoolIdentifier, *, everywhere: bool) -> dict[Address, ReservationSpec]:
        """Find what this node's sandboxes have of a pool, or everywhere in its network, whatever the pools show."""
        return {
            parse_address(address): ReservationSpec(podref=each.podref, ifname=each.sandbox.ifname)
            for each in self._living()
            if each.network_name == place.network
            for range_, address in zip(each.ranges, each.addresses, strict=False)
            if everywhere or range_ == str(place.range)
        }

    def _living(self) -> Iterator[SharedAllocation]:
        """Go through the sandboxes of this boot that were given addresses, and have not let go of them."""
        for sandbox, each in self._lendings.all.items():
            if each.addresses and each.boot_id == self._boot_id and not each.leaving and sandbox not in self.leaving:
                yield each

    async def run(self) -> None:
        """Look now, whenever there is reason to, and now and then, for ever."""
        failures = 0
        while True:
            try:
                failures = 0 if await self.look() else failures + 1
            except (ApiError, Unreachable, InvalidInput):
                failures += 1
            wait = backoff_delay(failures, rng=self._deps.rng, base=0.2, maximum=30.0)
            with suppress(TimeoutError):
                async with asyncio.timeout(wait if failures else self._deps.settings.relist_interval):
                    await self._due.wait()
            self._due.clear()

    async def settled(self) -> None:
        """Wait until whatever was about to be put back is: a sandbox may be `leaving` since."""
        async with self._writing:
            return

    async def look(self) -> bool:
        """Put back what is missing; tells whether nothing was."""
        if not any(self._living()):
            return True
        async with self._writing:
            return await self._put_back()

    async def _put_back(self) -> bool:
        pools = await self._objects.look()
        missing = self._missing(pools)
        for place, changes in missing.items():
            pool = pools.get(place.name)
            if pool is None:
                await self._objects.make(place)
            else:
                self._deps.tell(f"IPPool {place.name} has lost {len(changes)} entries of this node: they are put back")
                await self._objects.write(pool, changes)
        return not missing

    def _missing(self, pools: Mapping[str, IPPool]) -> dict[PoolIdentifier, list[AllocationChange]]:
        found: defaultdict[PoolIdentifier, list[AllocationChange]] = defaultdict(list)
        for lending in self._living():
            for range_, address in zip(lending.ranges, lending.addresses, strict=False):
                place = PoolIdentifier(range=parse_prefix(range_), network=lending.network_name)
                given = parse_address(address)
                change = self._change(pools.get(place.name), given, lending) if given in place.range else None
                if change:
                    found[place].append(change)
        return found

    def _change(self, pool: IPPool | None, address: Address, lending: SharedAllocation) -> AllocationChange | None:
        """Write down what is missing; None when nothing is, or somebody else has the address."""
        sandbox = lending.sandbox
        ours = Allocation(id=sandbox.container_id, podref=lending.podref, ifname=sandbox.ifname)
        if pool is None:
            return AllocationChange(key="", address=address, before=None, after=ours)
        key = parse_ippool(pool.spec).key(address)
        found = pool.spec.allocations.get(key)
        if found is None:
            return AllocationChange(key=key, address=address, before=None, after=ours)
        if (found.podref, found.ifname) != (ours.podref, ours.ifname) and (str(address), found) not in self._told:
            self._told.add((str(address), found))
            told = f"{address} has two owners: {ours.podref} on this node, and {found.podref} in IPPool"
            self._deps.tell(f"{told} {pool.metadata.name}, which had lost its entry: delete one of the Pods")
        return None
