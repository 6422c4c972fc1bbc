"""Writes IPPools and Leases of slices, for Whereabouts' tools, after the journal: no decision depends on them.

They are created behind the first ADD in a slice and deleted when it is returned. The journal is authoritative. What a
third party changed is read before it is overwritten: a changed entry of this agent is restored, and an address that a
third party allocated counts as in use, so that no Pod gets it. It is noticed when the precondition of a patch fails.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.agent.records import SliceAssigned, SliceCooledDown, SliceHolder
from podpool.agent.secondary.slices import Slice
from podpool.agent.state import AgentState
from podpool.api.builtin import LEASES
from podpool.api.node_slices import Assignment
from podpool.api.whereabouts import (
    IP_POOLS,
    NETWORK_ANNOTATION,
    NODE_ANNOTATION,
    NODE_UID_LABEL,
    RANGE_ANNOTATION,
    SLICE_ANNOTATION,
    Allocation,
    IPPool,
)
from podpool.cni.protocol import Attachment
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, parse_prefix
from podpool.kube.errors import ApiAlreadyExists, ApiConflict, ApiError, ApiForbidden, ApiNotFound
from podpool.kube.workqueue import Requeue, WorkQueue, log_failure, run_workers
from podpool.runtime.logging import OnceLogger
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.ippool import ParsedIPPool, parse_ippool
from podpool.whereabouts.object_names import PoolIdentifier

WRITE_DELAY = 0.5
"""Seconds for which changes of a slice are collected into one patch of its IPPool."""
WORKERS = 16
"""Concurrent patches, of different IPPools."""


class IPPoolWriter:
    """Keeps the IPPools of slices, by name, equal to the journal. `on_write` is called after each write."""

    def __init__(
        self,
        deps: AgentDeps,
        state: AgentState,
        namespace: str,
        *,
        node_uid: Callable[[], str],
        on_write: Callable[[], None],
    ) -> None:
        self.namespace = namespace
        self._deps = deps
        self._kube = deps.kube
        self._state = state
        self._node_uid = node_uid
        self._on_write = on_write
        self._once_log = OnceLogger(deps.log)
        self._queue = WorkQueue(rng=deps.rng)
        self._written: dict[str, IPPool] = {}
        """The last response for each IPPool."""
        self._leases: dict[str, tuple[str, str]] = {}
        """The UIDs of Node and IPPool in each Lease that was written."""
        self._leftover: set[str] = set()
        """Names whose objects are of returned slices only, and not deleted yet."""
        self._unwritten_since: dict[str, float] = {}

    def assignments_changed(self, slice_: Slice) -> None:
        """Write its IPPool soon."""
        self._unwritten_since.setdefault(slice_.name, self._deps.clock.boot())
        self._queue.add_after(slice_.name, WRITE_DELAY)

    def verify(self) -> None:
        """Compare all IPPools with the journal: this agent has started, or the API server was restored."""
        self._written.clear()
        self._leases.clear()
        slices = self._state.slices
        names = {each.name for each in slices}
        for name in sorted(names):
            self._queue.add(name)
        for name in sorted({*slices.returned.values()} - names):
            self.delete(name)

    def lag(self, slice_: Slice) -> float:
        """Return for how many seconds its IPPool has been behind the journal."""
        since = self._unwritten_since.get(slice_.name)
        return 0.0 if since is None else self._deps.clock.boot() - since

    def delete(self, name: str) -> None:
        """Delete the objects of a returned slice, unless another one has the same name."""
        if not self._state.slices.named(name):
            self._leftover.add(name)
        self._queue.add(name)

    def name_of(self, assignment: Assignment) -> str:
        """Return the name of IPPool and Lease; raises `InvalidInput`."""
        range_, network = parse_prefix(assignment.slice), assignment.network
        return PoolIdentifier(range=range_, network=network, node=self._deps.node).name

    async def run(self) -> None:
        """Write until cancelled."""
        self.verify()
        await run_workers(self._queue, self._reconcile, workers=WORKERS, on_error=self._on_error)

    async def take_over(self, assignment: Assignment, *, same_boot: bool | None) -> dict[str, SliceHolder]:
        """Return by address what an existing IPPool of a slice contains; what no sandbox can have is removed.

        `same_boot`: the slice was used in this boot, in another one, or not by an agent of this Node (None).
        """
        name = self.name_of(assignment)
        if name in self._leftover:  # a deletion that is delayed must not hit what is written from now on
            await self._delete(name)
        pool = await self._read(name)
        parsed = self._parse(pool, parse_prefix(assignment.slice)) if pool else None
        if pool is None or parsed is None:
            return {}
        of_node = pool.metadata.labels.get(NODE_UID_LABEL) in (None, self._node_uid())  # a plugin writes no label
        if parsed.entries and not (of_node if same_boot is None else same_boot):
            await self._delete(name)
            return {}
        self._queue.add(name)
        return {str(each.address): holder_from_allocation(each.allocation) for each in parsed.entries}

    async def adopt(self, slice_: Slice) -> None:
        """Read its IPPool, and count what a third party allocated as in use."""
        pool = await self._read(slice_.name)
        parsed = self._parse(pool, slice_.prefix) if pool else None
        if parsed:
            self._adopt(slice_, parsed)

    def _on_error(self, name: str, error: Exception) -> None:
        self._written.pop(name, None)
        if isinstance(error, ApiConflict) or not isinstance(error, ApiError | Unreachable):
            log_failure(name, error)
        else:
            event = "cannot write the IPPool of a slice, retrying"
            self._once_log.warning(event, key=name, ippool=name, error=error)

    async def _reconcile(self, name: str) -> Requeue | None:
        requeue = await self._write(name)
        self._once_log.reset(name)
        self._on_write()
        return requeue

    async def _write(self, name: str) -> Requeue | None:
        """Write the assignments, and free what has cooled down; or delete the objects of slices that are returned."""
        slices = self._state.slices.named(name)
        if all(each.closed and not self._in_use(each) for each in slices):
            await self._delete(name)
            return None
        since = self._unwritten_since.pop(name, self._deps.clock.boot())
        try:
            listed = await self._sync(name)
        except BaseException:
            self._unwritten_since[name] = since
            raise
        slices = self._state.slices.named(name)  # some may have been returned meanwhile
        now, cooldown = self._deps.clock.boot(), self._deps.settings.cooldown_roomy
        cooled_down = tuple(
            address for each in slices for address in each.cooled_down(listed, now=now, cooldown=cooldown)
        )
        if cooled_down:
            self._state.write(SliceCooledDown(addresses=cooled_down))
        ends = [each.cooldown_ends_at(cooldown=cooldown) for each in slices if each.used]
        due = min((each for each in ends if each is not None), default=None)
        return None if due is None else Requeue(max(due - now, WRITE_DELAY))

    def _in_use(self, slice_: Slice) -> bool:
        return slice_.in_use(now=self._deps.clock.boot(), cooldown=self._deps.settings.cooldown_roomy)

    async def _sync(self, name: str) -> tuple[int, ...]:
        """Write what differs from the journal; return the addresses that the IPPool has afterwards."""
        pool = self._written.get(name) or await self._read(name)
        slices = self._state.slices.named(name)
        if not slices or (pool is None and not any(each.assigned for each in slices)):
            return ()
        newest = slices[-1]
        parsed = self._parse(pool, newest.prefix) if pool else _empty(newest.prefix)
        if parsed is None:
            return ()
        self._adopt(newest, parsed, slices=slices)
        changes, metadata = _changes(slices, parsed), self._metadata(newest)
        if pool is None or changes or not _has_metadata(pool, metadata):
            await self._state.sync()  # after a reboot, entries of the IPPool must be recognised as this agent's
            allocations = {key: each and msgspec.to_builtins(each) for key, each in changes.items()}
            body: dict[str, dict[str, Any]] = {"metadata": metadata, "spec": {"allocations": allocations}}
            pool = await (self._patch(pool, body) if pool else self._create(newest, body))
        self._written[name] = pool
        await self._write_lease(newest, metadata, pool)
        return tuple(each.address.value for each in parse_ippool(pool.spec).entries)

    async def _create(self, slice_: Slice, body: dict[str, dict[str, Any]]) -> IPPool:
        spec, metadata = {"range": str(slice_.prefix), **body["spec"]}, {"name": slice_.name, **body["metadata"]}
        return await self._kube.create(IP_POOLS, {"metadata": metadata, "spec": spec}, namespace=self.namespace)

    async def _patch(self, pool: IPPool, body: dict[str, dict[str, Any]]) -> IPPool:
        name, version = pool.metadata.name, pool.metadata.resource_version
        return await self._kube.merge_patch(IP_POOLS, name, body, namespace=self.namespace, precondition=version)

    async def _write_lease(self, slice_: Slice, metadata: dict[str, dict[str, str]], pool: IPPool) -> None:
        """Write the Lease, once for each UID of Node and IPPool. It is deleted with the IPPool, its owner."""
        uid, name, namespace = self._node_uid(), slice_.name, self.namespace
        if not uid or self._leases.get(name) == (uid, pool.metadata.uid):
            return
        owner = {"apiVersion": IP_POOLS.api_version, "kind": IP_POOLS.kind, "name": name, "uid": pool.metadata.uid}
        annotations = {**metadata["annotations"], SLICE_ANNOTATION: str(slice_.prefix)}
        meta = {**metadata, "annotations": annotations, "ownerReferences": [owner]}
        spec = {"holderIdentity": f"{self._deps.node}/{uid}"}
        try:
            await self._kube.create(LEASES, {"metadata": {**meta, "name": name}, "spec": spec}, namespace=namespace)
        except ApiAlreadyExists:
            await self._kube.merge_patch(LEASES, name, {"metadata": meta, "spec": spec}, namespace=namespace)
        self._leases[name] = (uid, pool.metadata.uid)

    async def _delete(self, name: str) -> None:
        """Delete the Lease, then the IPPool: while that exists, node GC finds what a machine that died left."""
        pool = self._written.pop(name, None) or await self._read(name)
        with suppress(ApiNotFound, ApiForbidden):  # a Lease of a Whereabouts plugin is not this agent's
            await self._kube.delete(LEASES, name, namespace=self.namespace)
        if pool and pool.metadata.annotations.get(NODE_ANNOTATION) == self._deps.node:
            uid, version = pool.metadata.uid, pool.metadata.resource_version
            with suppress(ApiNotFound):
                await self._kube.delete(IP_POOLS, name, namespace=self.namespace, uid=uid, resource_version=version)
        self._unwritten_since.pop(name, None)
        self._leases.pop(name, None)
        self._leftover.discard(name)

    async def _read(self, name: str) -> IPPool | None:
        self._written.pop(name, None)
        return await self._kube.find(IP_POOLS, name, namespace=self.namespace)

    def _metadata(self, slice_: Slice) -> dict[str, dict[str, str]]:
        labels, node = {NODE_UID_LABEL: self._node_uid()}, self._deps.node
        annotations = {NODE_ANNOTATION: node, NETWORK_ANNOTATION: slice_.network, RANGE_ANNOTATION: str(slice_.range)}
        return {"labels": labels if self._node_uid() else {}, "annotations": annotations}

    def _parse(self, pool: IPPool, prefix: Prefix) -> ParsedIPPool | None:
        """Parse an IPPool; None if it is not of this slice, which is logged once."""
        try:
            parsed = parse_ippool(pool.spec)
            if parsed.prefix == prefix:
                return parsed
            reason = f"its range is {parsed.prefix}"
        except InvalidInput as error:
            reason = str(error)
        event = "IPPool is not of its slice, it is neither read nor written"
        self._once_log.warning(event, key=pool.metadata.uid, ippool=pool.metadata.name, slice=prefix, reason=reason)
        return None

    def _adopt(self, slice_: Slice, parsed: ParsedIPPool, *, slices: list[Slice] | None = None) -> None:
        """Count the entries that this agent cannot have written as in use."""
        for each in parsed.entries:
            value, known = each.address.value, slices or [slice_]
            past = (other.used.get(value) for other in known)
            own = any(use and allocation_from_holder(use.holder) == each.allocation for use in past)
            if own or any(value in other.assigned for other in known):
                continue
            self._deps.log.warning(
                "third-party allocation found in the IPPool, counted as in use",
                address=each.address,
                holder=each.allocation.podref,
                ippool=slice_.name,
            )
            holder = holder_from_allocation(each.allocation)
            self._state.write(SliceAssigned(holder=holder, addresses=(slice_.slice_address(value),)))


def _empty(prefix: Prefix) -> ParsedIPPool:
    return ParsedIPPool(prefix=prefix, base=prefix.at(0))


def _has_metadata(pool: IPPool, metadata: Mapping[str, Mapping[str, str]]) -> bool:
    labels, annotations = pool.metadata.labels, pool.metadata.annotations
    return metadata["labels"].items() <= labels.items() and metadata["annotations"].items() <= annotations.items()


def _changes(slices: list[Slice], parsed: ParsedIPPool) -> dict[str, Allocation | None]:
    """Return the allocations to write by key; None removes one."""
    desired = {
        parsed.key(slice_.address(value)): allocation_from_holder(holder)
        for slice_ in slices
        for value, holder in slice_.assigned.items()
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
