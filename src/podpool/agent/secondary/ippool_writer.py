"""Brings the IPPools of slices behind the journal, one patch at a time, with a precondition.

The journal decides who has which address. What another hand wrote is seen before anything is written over: an entry of
ours that it changed is put back, and an address that it gave away is believed to be in use, so that no Pod gets it.
"""

from collections.abc import Callable

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.agent.records import SliceAssigned, SliceHolder
from podpool.agent.secondary.slice_informers import SliceInformers
from podpool.agent.secondary.slices import Slice
from podpool.agent.state import AgentState
from podpool.api.whereabouts import BOOT_ANNOTATION, IP_POOLS, Allocation, IPPool
from podpool.cni.protocol import Attachment
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.kube.errors import ApiConflict
from podpool.whereabouts.ippool import ParsedIPPool, parse_ippool
from podpool.whereabouts.ippool_owner import RANGE_ANNOTATION


class IPPoolWriter:
    """Writes them; `tell_once` says what is wrong with one, under a key."""

    def __init__(
        self,
        deps: AgentDeps,
        state: AgentState,
        pools: SliceInformers,
        *,
        boot_id: str,
        tell_once: Callable[[str, str], None],
    ) -> None:
        self._deps = deps
        self._state = state
        self._pools = pools
        self._boot_id = boot_id
        self._tell_once = tell_once

    def entries(self, pool: IPPool) -> ParsedIPPool | None:
        """Read what it says; None when it cannot be used."""
        try:
            parse_prefix(pool.metadata.annotations.get(RANGE_ANNOTATION, pool.spec.range))
            return parse_ippool(pool.spec)
        except InvalidInput as error:
            self._tell_once(f"{pool.metadata.uid}", f"IPPool {pool.metadata.name} cannot be used: {error}")
            return None

    async def written(self, slice_: Slice, pool: IPPool) -> IPPool | None:
        """Write what differs, on what is there now; gives the IPPool as it is then."""
        entries = self.entries(pool)
        if entries is None or entries.prefix != slice_.prefix:
            self._tell_once(f"{slice_.lease} range", f"IPPool {slice_.name} is not of slice {slice_.prefix} any more")
            return None
        foreign = self._foreign(slice_, entries)
        if foreign:
            fresh = await self._pools.read_pool(slice_.name)
            entries = self.entries(fresh) if fresh else None
            if fresh is None or entries is None:
                return None
            pool = fresh
            self._believe(slice_, self._foreign(slice_, entries))
        wanted = {entries.key(slice_.address(value)): allocation_of(tenant) for value, tenant in slice_.held.items()}
        shown = {each.key: each.allocation for each in entries.listed}
        changes: dict[str, Allocation | None] = {key: each for key, each in wanted.items() if shown.get(key) != each}
        changes |= {key: None for key in shown if key not in wanted}
        if not changes:
            return pool
        await self._state.sync()  # what is on the wire is on the platter: after a reboot it is known for ours
        return await self._patch(pool, changes)

    def _foreign(self, slice_: Slice, entries: ParsedIPPool) -> dict[int, Allocation]:
        """Find entries that nobody of us can have written."""
        found: dict[int, Allocation] = {}
        for each in entries.listed:
            value, past = each.address.value, slice_.used.get(each.address.value)
            if value in slice_.held or (past and allocation_of(past.tenant) == each.allocation):
                continue
            found[value] = each.allocation
        return found

    def _believe(self, slice_: Slice, foreign: dict[int, Allocation]) -> None:
        for value, entry in foreign.items():
            told = f"{slice_.address(value)} was given to {entry.podref} by another hand, in IPPool {slice_.name}"
            self._deps.tell(f"{told}: no Pod gets it from us")
            self._state.write(SliceAssigned(tenant=holder_from_allocation(entry), slots=(slice_.slot(value),)))

    async def strike(self, pool: IPPool) -> IPPool:
        """Have it say that nobody has anything."""
        return await self._patch(pool, dict.fromkeys(pool.spec.allocations))

    async def _patch(self, pool: IPPool, changes: "dict[str, Allocation | None] | dict[str, None]") -> IPPool:
        allocations = {key: None if each is None else msgspec.to_builtins(each) for key, each in changes.items()}
        name, notes = pool.metadata.name, {BOOT_ANNOTATION: self._boot_id}
        try:
            answer = await self._deps.kube.merge_patch(
                IP_POOLS,
                name,
                {"metadata": {"annotations": notes}, "spec": {"allocations": allocations}},
                namespace=self._pools.namespace,
                precondition=pool.metadata.resource_version,
            )
        except ApiConflict:
            await self._pools.read_pool(name)
            raise
        self._pools.see(answer)
        return answer


def holder_from_allocation(entry: Allocation) -> SliceHolder:
    """Take an entry for what it says."""
    owner = Attachment(container_id=entry.id, ifname=entry.ifname)
    return SliceHolder(owner=owner, podref=entry.podref, found=True)


def allocation_of(tenant: SliceHolder) -> Allocation:
    """Write an entry for who has an address."""
    return Allocation(id=tenant.owner.container_id, podref=tenant.podref, ifname=tenant.owner.ifname)
