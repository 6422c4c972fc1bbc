"""Writes the assignments of slices to their IPPools, after the journal, one patch at a time with a precondition.

The journal is authoritative. Third-party changes are read before they are overwritten: a changed entry of this agent is
restored, and an address that a third party allocated counts as in use, so that no Pod gets it.
"""

from collections.abc import Mapping

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
from podpool.runtime.logging import Logger
from podpool.whereabouts.ippool import ParsedIPPool, parse_ippool
from podpool.whereabouts.ippool_owner import RANGE_ANNOTATION


class OnceLogger:
    """Logs a warning once per key: what it reports is retried again and again."""

    def __init__(self, log: Logger) -> None:
        self._log = log
        self._logged: set[str] = set()

    def warning(self, event: str, /, *, key: str, **fields: object) -> None:
        """Log an event, unless it was logged with this key."""
        if key not in self._logged:
            self._logged.add(key)
            self._log.warning(event, **fields)

    def reset(self, key: str) -> None:
        """Log it again next time."""
        self._logged.discard(key)


class IPPoolWriter:
    """Keeps the IPPools of slices equal to the journal."""

    def __init__(self, deps: AgentDeps, state: AgentState, informers: SliceInformers, *, once_log: OnceLogger) -> None:
        self._deps = deps
        self._state = state
        self._informers = informers
        self._once_log = once_log

    def parse(self, pool: IPPool) -> ParsedIPPool | None:
        """Parse an IPPool; None if it is invalid, which is logged once."""
        try:
            parse_prefix(pool.metadata.annotations.get(RANGE_ANNOTATION, pool.spec.range))
            return parse_ippool(pool.spec)
        except InvalidInput as error:
            name, uid = pool.metadata.name, pool.metadata.uid
            self._once_log.warning("IPPool is invalid, its slice is not used", key=uid, ippool=name, error=error)
            return None

    async def sync(self, slice_: Slice, pool: IPPool) -> IPPool | None:
        """Write the differences to the current IPPool; return it afterwards, or None if it cannot be used."""
        parsed = self.parse(pool)
        if parsed is None or parsed.prefix != slice_.prefix:
            self._once_log.warning(
                "IPPool is not of this slice any more",
                key=f"{slice_.lease} range",
                ippool=slice_.name,
                slice=slice_.prefix,
                range=pool.spec.range,
            )
            return None
        if self._third_party_entries(slice_, parsed):
            fresh = await self._informers.read_pool(slice_.name)
            parsed = self.parse(fresh) if fresh else None
            if fresh is None or parsed is None:
                return None
            pool = fresh
            self._adopt(slice_, self._third_party_entries(slice_, parsed))
        changes = _changes(slice_, parsed)
        if not changes:
            return pool
        await self._state.sync()  # after a reboot, entries of the IPPool must be recognised as this agent's
        return await self._patch(pool, changes)

    def _third_party_entries(self, slice_: Slice, parsed: ParsedIPPool) -> dict[int, Allocation]:
        """Return the entries that this agent cannot have written."""
        found: dict[int, Allocation] = {}
        for each in parsed.entries:
            value, past = each.address.value, slice_.used.get(each.address.value)
            if value in slice_.assigned or (past and allocation_from_holder(past.holder) == each.allocation):
                continue
            found[value] = each.allocation
        return found

    def _adopt(self, slice_: Slice, entries: Mapping[int, Allocation]) -> None:
        for value, entry in entries.items():
            self._deps.log.warning(
                "address was allocated by a third party, not assigning it",
                address=slice_.address(value),
                pod=entry.podref,
                ippool=slice_.name,
            )
            holder = holder_from_allocation(entry)
            self._state.write(SliceAssigned(holder=holder, addresses=(slice_.slice_address(value),)))

    async def clear(self, pool: IPPool) -> IPPool:
        """Remove all allocations."""
        return await self._patch(pool, dict.fromkeys(pool.spec.allocations))

    async def _patch(self, pool: IPPool, changes: Mapping[str, Allocation | None]) -> IPPool:
        allocations = {key: None if each is None else msgspec.to_builtins(each) for key, each in changes.items()}
        name, annotations = pool.metadata.name, {BOOT_ANNOTATION: self._deps.boot_id}
        try:
            patch = {"metadata": {"annotations": annotations}, "spec": {"allocations": allocations}}
            namespace, version = self._informers.namespace, pool.metadata.resource_version
            written = await self._deps.kube.merge_patch(
                IP_POOLS, name, patch, namespace=namespace, precondition=version
            )
        except ApiConflict:
            await self._informers.read_pool(name)
            raise
        self._informers.observe(written)
        return written


def _changes(slice_: Slice, parsed: ParsedIPPool) -> dict[str, Allocation | None]:
    """Return the allocations to write by key; None removes one."""
    desired = {
        parsed.key(slice_.address(value)): allocation_from_holder(holder) for value, holder in slice_.assigned.items()
    }
    current = {each.key: each.allocation for each in parsed.entries}
    changes: dict[str, Allocation | None] = {key: each for key, each in desired.items() if current.get(key) != each}
    return changes | {key: None for key in current if key not in desired}


def holder_from_allocation(allocation: Allocation) -> SliceHolder:
    """Return the holder that an entry of an IPPool names."""
    attachment = Attachment(container_id=allocation.id, ifname=allocation.ifname)
    return SliceHolder(attachment=attachment, podref=allocation.podref, inferred=True)


def allocation_from_holder(holder: SliceHolder) -> Allocation:
    """Return the entry of an IPPool for a holder."""
    return Allocation(id=holder.attachment.container_id, podref=holder.podref, ifname=holder.attachment.ifname)
