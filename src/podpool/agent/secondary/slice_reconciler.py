"""Reconciles the slices of this node with their IPPools and Leases: acquires, writes and returns them.

Invariants:
- No address of a slice is assigned before its Lease names this agent, the controller has confirmed that very
  acknowledgement, and the journal contains the slice. A restored API server shows assignments and acknowledgements of
  the past, which are not confirmed again.
- In a new boot no address is assigned before the Lease names that boot: an agent without a journal relies on it.
- A slice that was returned or lost is closed for good under the UID of its Lease. If a restored API server shows that
  Lease again, it is returned once no Pod has an address of it. So is a Lease that overlaps another slice of this node.
"""

import asyncio
from collections.abc import Callable

from podpool.agent import records
from podpool.agent.deps import AgentDeps
from podpool.agent.secondary.lost_slice_reporter import SliceReporter
from podpool.agent.secondary.slice_informers import SliceInformers
from podpool.agent.secondary.slice_ippool_writer import IPPoolWriter, OnceLogger, holder_from_allocation
from podpool.agent.secondary.slice_leases import Acknowledgement, SliceLeases
from podpool.agent.secondary.slices import Slice
from podpool.agent.state import AgentState
from podpool.api.builtin import Lease, Node
from podpool.api.whereabouts import BOOT_ANNOTATION, RETURN_ANNOTATION, IPPool
from podpool.core.ranges import Prefix
from podpool.kube.backoff import backoff_delay
from podpool.kube.errors import ApiConflict, ApiError
from podpool.kube.workqueue import Requeue, WorkQueue, run_workers
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.ippool import parse_ippool
from podpool.whereabouts.ippool_owner import NETWORK_ANNOTATION, RANGE_ANNOTATION

WRITE_DELAY = 0.5
"""Seconds for which changes of a slice are collected into one patch of its IPPool."""
WORKERS = 16
"""Concurrent patches, of different IPPools."""


class SliceReconciler:
    """Reconciles slices by the name of their Lease. `on_change` is called when more addresses may be assignable."""

    def __init__(self, deps: AgentDeps, state: AgentState, namespace: str, *, on_change: Callable[[], None]) -> None:
        self.informers = SliceInformers(deps, namespace, on_change=self._on_object)
        self._deps = deps
        self._state = state
        self._on_change = on_change
        self._once_log = OnceLogger(deps.log)
        self._leases = SliceLeases(deps, self.informers)
        self._writer = IPPoolWriter(deps, state, self.informers, once_log=self._once_log)
        self._reporter = SliceReporter(deps, state, verify=self._verify)
        self._queue = WorkQueue(rng=deps.rng)
        self._unwritten_since: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._blocked_by_fence = False

    def follow(self, node: Node) -> None:
        """Watch the objects of this Node, and answer inventory requests on it."""
        self.informers.follow(node.metadata.uid)
        self._reporter.on_node(node)

    def is_usable(self, slice_: Slice) -> bool:
        """Return whether new addresses of a slice may be assigned: not while another node holds its Lease.

        A slice that is to be returned is used while there is no other one: it is returned when it is not in use.
        """
        lease = self.informers.lease(slice_.name)
        if lease is not None and lease.metadata.uid == slice_.lease and not self._leases.names_this_node(lease):
            return False
        others = self._state.slices.of(slice_.network, slice_.range)
        return not self._is_to_be_returned(slice_) or all(map(self._is_to_be_returned, others))

    def _is_to_be_returned(self, slice_: Slice) -> bool:
        pool = self.informers.pool(slice_.name)
        return pool is not None and RETURN_ANNOTATION in pool.metadata.annotations

    def owned_by(self, uid: str) -> bool:
        """Return whether every open slice's Lease is labelled with this Node, so that node GC judges by this UID."""
        open_ = [each for each in self._state.slices if not each.closed]
        leases = [self.informers.lease(each.name) for each in open_]
        listed = all(lease and lease.metadata.uid == each.lease for lease, each in zip(leases, open_, strict=True))
        return not open_ or (self.informers.uid == uid and listed)

    def write_lag(self, slice_: Slice) -> float:
        """Return for how many seconds its IPPool has been behind the journal."""
        since = self._unwritten_since.get(slice_.name)
        return 0.0 if since is None else self._deps.clock.boot() - since

    def assignments_changed(self, slice_: Slice) -> None:
        """Write its IPPool soon."""
        self._unwritten_since.setdefault(slice_.name, self._deps.clock.boot())
        self._queue.add_after(slice_.name, WRITE_DELAY)

    def on_fence_change(self) -> None:
        """Reconcile everything if a closed fence blocked it and the fence is open now."""
        if self._blocked_by_fence and self._state.node_fence.is_open():
            self._blocked_by_fence = False
            self._enqueue_all()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.informers.run())
            group.create_task(self._reporter.run())
            group.create_task(run_workers(self._queue, self._reconcile_or_retry, workers=WORKERS))

    def _enqueue_all(self) -> None:
        for name in sorted({*self.informers.names(), *(each.name for each in self._state.slices)}):
            self._queue.add(name)

    def _on_object(self, name: str) -> None:
        if name:
            self._queue.add(name)
        else:
            self._enqueue_all()
        self._on_change()

    async def _reconcile_or_retry(self, name: str) -> Requeue | None:
        try:
            requeue = await self._reconcile(name) if self.informers.synced else None
        except (ApiError, Unreachable) as error:
            if not isinstance(error, ApiConflict):
                event = "cannot reconcile IPPool and Lease of a slice, retrying"
                self._once_log.warning(event, key=f"{name} failed", ippool=name, error=error)
            self._failures[name] = self._failures.get(name, 0) + 1
            return Requeue(backoff_delay(self._failures[name], rng=self._deps.rng, base=0.1, maximum=15.0))
        if self._failures.pop(name, 0):
            self._once_log.reset(f"{name} failed")
        self._reporter.nudge()
        return requeue

    async def _reconcile(self, name: str) -> Requeue | None:
        """Reconcile the slice of one Lease; the result says when to reconcile again."""
        lease = self.informers.lease(name)
        for known in [each for each in self._state.slices if each.name == name]:
            if lease is None or lease.metadata.uid != known.lease:
                lease = lease if known.closed else await self._close_if_lost(known)
        for known in [each for each in self._state.slices if each.name == name and each.closed]:
            if lease is None or lease.metadata.uid != known.lease:
                self._remove_when_unused(known)
        if lease is None:
            return None
        slice_ = self._state.slices.get(lease.metadata.uid)
        if slice_ is None:
            await self._acknowledge_or_acquire(name, lease)
            return None
        if slice_.closed and not self._in_use(slice_):
            await self._return(slice_, lease)
            return None
        if slice_.closed and lease.spec.holder_identity and not self._leases.names_this_node(lease):
            return None
        await self._acknowledge_in_new_boot(slice_, lease)
        return await self._write_pool(slice_, lease)

    async def _acknowledge_in_new_boot(self, slice_: Slice, lease: Lease) -> None:
        """Write this boot to the Lease of a slice that the journal contains."""
        if self._leases.is_acknowledged(lease):
            if not slice_.acknowledged:
                self._state.write(records.SliceAcknowledged(lease=slice_.lease))
                self._on_change()
        elif self._may_acknowledge():
            await self._leases.hold(lease)

    def _may_acknowledge(self) -> bool:
        """Return whether the Node is confirmed; if not, all slices are reconciled when it is."""
        is_open = self._state.node_fence.is_open()
        self._blocked_by_fence = self._blocked_by_fence or not is_open
        return is_open

    def _in_use(self, slice_: Slice) -> bool:
        return slice_.in_use(now=self._deps.clock.boot(), cooldown=self._deps.settings.cooldown_roomy)

    def _remove_when_unused(self, slice_: Slice) -> None:
        """Remove a closed slice without a Lease after its addresses have cooled down."""
        now, cooldown = self._deps.clock.boot(), self._deps.settings.cooldown_roomy
        self._free_cooled_down(slice_, ())
        ends_at = slice_.cooldown_ends_at(cooldown=cooldown)
        if not self._in_use(slice_):
            self._state.write(records.SliceRemoved(lease=slice_.lease))
        elif ends_at is not None and ends_at > now:
            self._queue.add_after(slice_.name, max(ends_at - now, WRITE_DELAY))

    def _free_cooled_down(self, slice_: Slice, listed: tuple[int, ...]) -> None:
        now, cooldown = self._deps.clock.boot(), self._deps.settings.cooldown_roomy
        cooled_down = slice_.cooled_down(listed, now=now, cooldown=cooldown)
        if cooled_down:
            self._state.write(records.SliceCooledDown(addresses=cooled_down))

    # Acquire

    async def _acknowledge_or_acquire(self, name: str, lease: Lease) -> None:
        """Acknowledge a Lease, and acquire its slice once the controller has confirmed that."""
        pool = self.informers.pool(name)
        if pool is None or not self._may_acknowledge():
            return
        holder = lease.spec.holder_identity or ""
        if holder and not self._leases.names_this_node(lease):
            event = "Lease is held by another node, its slice is not used"
            self._once_log.warning(event, key=f"{lease.metadata.uid} {holder}", lease=name, holder=holder)
            return
        unused = not (pool.spec.allocations or any(each.name == name for each in self._state.slices))
        if RETURN_ANNOTATION in pool.metadata.annotations and unused and not self._leases.may_be_in_use(lease):
            cooldown_left = self._deps.settings.cooldown_roomy - self._deps.clock.boot()
            if holder and cooldown_left > 0 and self._leases.was_used(lease):  # in the previous boot
                self._queue.add_after(name, cooldown_left)
            elif holder:
                await self._leases.return_(lease)
            return
        confirmed = self._leases.confirmed(lease)
        if confirmed:
            await self._acquire(name, lease, confirmed)
        elif not self._leases.is_pending(lease):
            await self._leases.acknowledge(lease)

    async def _acquire(self, name: str, lease: Lease, confirmed: Acknowledgement) -> None:
        """Hold a slice from now on, unless the acknowledgement was invalidated meanwhile."""
        pool = await self.informers.read_pool(name)
        if pool and pool.spec.allocations and not confirmed.same_boot:
            pool = await self._writer.clear(pool)  # no sandbox has survived the reboot
        parsed = self._writer.parse(pool) if pool else None
        if pool is None or parsed is None or self._leases.confirmed(lease) != confirmed:
            return
        annotations = pool.metadata.annotations
        overlapping = self._open_overlapping(parsed.prefix, annotations.get(NETWORK_ANNOTATION, ""))
        if overlapping and RETURN_ANNOTATION not in annotations:
            return  # until the other one is returned
        if confirmed.used_before:
            self._deps.log.warning(
                "slice was in use but is not in the journal, all its addresses cool down",
                slice=parsed.prefix,
                recovering=confirmed.same_boot,
            )
        self._state.write(
            records.SliceAcquired(
                lease=lease.metadata.uid,
                name=name,
                network=annotations.get(NETWORK_ANNOTATION, ""),
                range=annotations.get(RANGE_ANNOTATION, pool.spec.range),
                slice=str(parsed.prefix),
                at=self._deps.clock.boot(),
                holders={
                    str(each.address): holder_from_allocation(each.allocation)
                    for each in parsed.entries
                    if not any(each.address in slice_.prefix for slice_ in overlapping)
                },
                closed=bool(overlapping),
                force_cooldown=confirmed.used_before,
                recovering=confirmed.used_before and confirmed.same_boot,
            )
        )
        self._leases.forget(lease)
        await self._state.sync()
        self._queue.add(name)
        self._on_change()

    def _open_overlapping(self, prefix: Prefix, network: str) -> list[Slice]:
        """Return the open slices with some of these addresses: they have the holders."""
        return [each for each in self._state.slices.overlapping(network, prefix) if not each.closed]

    # Return

    async def _close_if_lost(self, slice_: Slice) -> Lease | None:
        """Close a slice if a quorum read shows that its Lease is not this Node's any more. Return the current Lease.

        A Node that was registered again in the same boot keeps its slices: their labels are updated. In another boot it
        is another Node, and node GC releases what it had.
        """
        lease = await self.informers.read_lease(slice_.name)
        same = lease if lease and lease.metadata.uid == slice_.lease else None
        same_boot = same and same.metadata.annotations.get(BOOT_ANNOTATION) == self._deps.boot_id
        if same and (self._leases.is_labelled(same) or same_boot):
            return same
        if not slice_.closed:
            self._deps.log.warning(
                "slice Lease is gone, Pods keep their addresses, no new ones", lease=slice_.name, slice=slice_.prefix
            )
            await self._close(slice_)
            self._queue.add(slice_.name)
        return None if same else lease

    async def _close(self, slice_: Slice) -> None:
        self._state.write(records.SliceClosed(lease=slice_.lease))
        await self._state.sync()

    async def _verify(self) -> bool:
        """Read all Leases, close the slices that are lost, and acknowledge the others.

        Acknowledgements that are not confirmed yet become invalid. Returns False if a Lease is to be acknowledged and
        the Node is not confirmed.
        """
        self._leases.invalidate_all()
        for slice_ in [each for each in self._state.slices if not each.closed]:
            lease = await self._close_if_lost(slice_)
            if lease and lease.metadata.uid == slice_.lease and not self._leases.is_acknowledged(lease):
                if not self._may_acknowledge():
                    return False
                await self._leases.hold(lease)
        self._enqueue_all()
        return True

    async def _return(self, slice_: Slice, lease: Lease) -> None:
        """Clear the holder of a Lease. A Lease that was returned before a restore is never acknowledged again."""
        if not self._leases.names_this_node(lease) and not self._leases.was_never_held(lease):
            return
        pool = await self.informers.read_pool(slice_.name)
        if pool and pool.spec.allocations:
            await self._writer.clear(pool)
        await self._leases.return_(lease)
        self._deps.log.info("slice returned", slice=slice_.prefix, reason=_return_reason(pool))

    # Write

    async def _write_pool(self, slice_: Slice, lease: Lease) -> Requeue | None:
        """Write assignments to the IPPool, free what has cooled down, and return the slice if requested and unused."""
        pool = self.informers.pool(slice_.name) or await self.informers.read_pool(slice_.name)
        if pool is None:
            event = "IPPool is missing, waiting for the controller to create it"
            self._once_log.warning(event, key=f"{slice_.lease} pool", ippool=slice_.name)
            return None
        self._update_range(slice_, pool)
        since = self._unwritten_since.pop(slice_.name, None)
        try:
            pool = await self._writer.sync(slice_, pool)
        except BaseException:
            self._unwritten_since[slice_.name] = since if since is not None else self._deps.clock.boot()
            raise
        listed = () if pool is None else tuple(each.address.value for each in parse_ippool(pool.spec).entries)
        self._free_cooled_down(slice_, listed)
        to_be_returned = slice_.closed or (pool is not None and RETURN_ANNOTATION in pool.metadata.annotations)
        if to_be_returned and not self._in_use(slice_):
            await self._close(slice_)
            await self._return(slice_, lease)
            return None
        ends_at = slice_.cooldown_ends_at(cooldown=self._deps.settings.cooldown_roomy)
        if ends_at is None or not (slice_.used or to_be_returned):
            return None
        return Requeue(max(ends_at - self._deps.clock.boot(), WRITE_DELAY))

    def _update_range(self, slice_: Slice, pool: IPPool) -> None:
        """Record the range that the IPPool names: a range that became larger or smaller may keep its slices."""
        range_ = pool.metadata.annotations.get(RANGE_ANNOTATION, str(slice_.range))
        if range_ != str(slice_.range) and self._writer.parse(pool):
            self._state.write(records.SliceRangeChanged(lease=slice_.lease, range=range_))
            self._on_change()


def _return_reason(pool: IPPool | None) -> str:
    if pool is None:
        return "its IPPool is gone"
    return pool.metadata.annotations.get(RETURN_ANNOTATION, "its Lease was lost")
