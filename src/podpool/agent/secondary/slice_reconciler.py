"""Takes the slices that are offered to this node, has their IPPools brought behind the journal, and hands slices back.

What must hold: nothing is given of a slice before its Lease names this agent, the controller has agreed to just that
signature, and the journal says so; a restored copy shows offers and signatures of the past, and nobody agrees to those.
Nor is anything given in a boot before the Lease names that boot: who finds no journal goes by what the Lease says. A
slice that was handed back or lost is closed for good under its Lease's UID; where a restored copy shows that Lease
again, it is handed back once no Pod has an address of it. So is one that is shown beside another of its addresses.
"""

import asyncio
from collections.abc import Callable

from podpool.agent.deps import AgentDeps
from podpool.agent.records import (
    SliceAcquired,
    SliceClosed,
    SliceCooledDown,
    SliceAcknowledged,
    SliceRangeChanged,
    SliceRemoved,
)
from podpool.agent.secondary.ippool_writer import IPPoolWriter, holder_from_allocation
from podpool.agent.secondary.slice_informers import SliceInformers
from podpool.agent.secondary.slice_leases import Acknowledgement, SliceLeases
from podpool.agent.secondary.slice_reporter import SliceReporter
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
"""Patches under way at once, of different pools."""


class SliceReconciler:
    """Keeps the slices' objects in line; `changed` is called when more can be given than before."""

    def __init__(
        self, deps: AgentDeps, state: AgentState, namespace: str, *, boot_id: str, changed: Callable[[], None]
    ) -> None:
        self.pools = SliceInformers(deps, namespace, changed=self._seen)
        self._deps = deps
        self._state = state
        self._boot_id = boot_id
        self._changed = changed
        self._leases = SliceLeases(deps, self.pools, boot_id=boot_id)
        self._writer = IPPoolWriter(deps, state, self.pools, boot_id=boot_id, tell_once=self._tell_once)
        self._account = SliceReporter(deps, state, verify=self._verify)
        self._queue = WorkQueue(rng=deps.rng)
        self._behind: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._told: set[str] = set()
        self._barred = False

    def follow(self, node: Node) -> None:
        """Follow the objects of this Node, and what its controller asks on it."""
        self.pools.follow(node.metadata.uid)
        self._account.see(node)

    def usable(self, slice_: Slice) -> bool:
        """Tell whether new addresses of a slice may be given: not while another holds its Lease.

        One that is to leave serves as long as there is no other: it is handed back when nothing of it is in use.
        """
        lease = self.pools.lease(slice_.name)
        if lease is not None and lease.metadata.uid == slice_.lease and not self._leases.is_ours(lease):
            return False
        others = self._state.slices.of(slice_.network, slice_.range)
        return not self._leaves(slice_) or all(map(self._leaves, others))

    def _leaves(self, slice_: Slice) -> bool:
        pool = self.pools.pool(slice_.name)
        return pool is not None and RETURN_ANNOTATION in pool.metadata.annotations

    def owned_by(self, uid: str) -> bool:
        """Tell whether every slice's Lease is labelled with this Node: only then is it known who must be missed."""
        kept = [each for each in self._state.slices if not each.closed]
        leases = [self.pools.lease(each.name) for each in kept]
        shown = all(lease and lease.metadata.uid == each.lease for lease, each in zip(leases, kept, strict=True))
        return not kept or (self.pools.uid == uid and shown)

    def lag(self, slice_: Slice) -> float:
        """Tell for how long its IPPool has been behind."""
        since = self._behind.get(slice_.name)
        return 0.0 if since is None else self._deps.clock.boot() - since

    def touched(self, slice_: Slice) -> None:
        """Bring its IPPool up to date soon."""
        self._behind.setdefault(slice_.name, self._deps.clock.boot())
        self._queue.add_after(slice_.name, WRITE_DELAY)

    def look(self) -> None:
        """Look at everything again: the Node, the fence or the watches are different."""
        for name in sorted({*self.pools.names(), *(each.name for each in self._state.slices)}):
            self._queue.add(name)

    def look_if_barred(self) -> None:
        """Look again at what the fence stood in the way of."""
        if self._barred and self._state.node_fence.is_open():
            self._barred = False
            self.look()

    async def run(self) -> None:
        """Keep them for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pools.run())
            group.create_task(self._account.run())
            group.create_task(run_workers(self._queue, self._keep, workers=WORKERS))

    def _seen(self, name: str) -> None:
        if name:
            self._queue.add(name)
        else:
            self.look()
        self._changed()

    async def _keep(self, name: str) -> Requeue | None:
        """Look at one slice, and at what goes wrong with it again, later each time; tells when."""
        try:
            again = await self._look_at(name) if self.pools.known else None
        except (ApiError, Unreachable) as error:
            if not isinstance(error, ApiConflict):
                self._tell_once(f"{name} fails", f"IPPool or Lease {name} cannot be kept, and is tried again: {error}")
            self._failures[name] = self._failures.get(name, 0) + 1
            return Requeue(backoff_delay(self._failures[name], rng=self._deps.rng, base=0.1, maximum=15.0))
        if self._failures.pop(name, 0):
            self._told.discard(f"{name} fails")
        self._account.look()
        return again

    async def _look_at(self, name: str) -> Requeue | None:
        """Bring one slice and its objects into line; tells when to look again."""
        lease = self.pools.lease(name)
        for known in [each for each in self._state.slices if each.name == name]:
            if lease is None or lease.metadata.uid != known.lease:
                lease = lease if known.closed else await self._lost(known)
        for known in [each for each in self._state.slices if each.name == name and each.closed]:
            if lease is None or lease.metadata.uid != known.lease:
                self._outlive(known)
        if lease is None:
            return None
        slice_ = self._state.slices.get(lease.metadata.uid)
        if slice_ is None:
            await self._take(name, lease)
            return None
        if slice_.closed and not self._in_use(slice_):
            await self._hand_back(slice_, lease)
            return None
        if slice_.closed and lease.spec.holder_identity and not self._leases.is_ours(lease):
            return None
        await self._sign(slice_, lease)
        return await self._bring(slice_, lease)

    async def _sign(self, slice_: Slice, lease: Lease) -> None:
        """Have its Lease name this boot: before that nothing is given of it."""
        if self._leases.is_signed(lease):
            if not slice_.signed:
                self._state.write(SliceAcknowledged(lease=slice_.lease))
                self._changed()
        elif self._may_sign():
            await self._leases.hold(lease)

    def _may_sign(self) -> bool:
        """Tell whether the Node is confirmed; if not, all is looked at again when it is."""
        is_open = self._state.node_fence.is_open()
        self._barred = self._barred or not is_open
        return is_open

    def _in_use(self, slice_: Slice) -> bool:
        return slice_.in_use(now=self._deps.clock.boot(), rest=self._deps.settings.cooldown)

    def _outlive(self, slice_: Slice) -> None:
        """Let what a slice without a Lease gave come to rest, and then forget it."""
        now, cooldown = self._deps.clock.boot(), self._deps.settings.cooldown
        settled = slice_.settled((), now=now, rest=cooldown)
        if settled:
            self._state.write(SliceCooledDown(slots=settled))
        rested = slice_.rests_until(rest=cooldown)
        if not self._in_use(slice_):
            self._state.write(SliceRemoved(lease=slice_.lease))
        elif rested is not None and rested > now:
            self._queue.add_after(slice_.name, max(rested - now, WRITE_DELAY))

    # Taking

    async def _take(self, name: str, lease: Lease) -> None:
        """Sign a Lease, and take its slice once the controller has agreed to that signature."""
        pool = self.pools.pool(name)
        if pool is None or not self._may_sign():
            return
        before = lease.spec.holder_identity or ""
        if before and not self._leases.is_ours(lease):
            told = f"Lease {name} is held by {before}: no address of its slice is given until it is empty"
            self._tell_once(f"{lease.metadata.uid} {before}", told)
            return
        unused = not (pool.spec.allocations or any(each.name == name for each in self._state.slices))
        if RETURN_ANNOTATION in pool.metadata.annotations and unused and not self._leases.may_be_in_use(lease):
            resting = self._deps.settings.cooldown - self._deps.clock.boot()
            if before and resting > 0 and self._leases.was_used(lease):  # in the boot before
                self._queue.add_after(name, resting)
            elif before:
                await self._leases.let_go(lease)
            return
        signed = self._leases.agreed(lease)
        if signed:
            await self._begin(name, lease, signed)
        elif not self._leases.is_pending(lease):
            await self._leases.sign(lease)

    async def _begin(self, name: str, lease: Lease, signed: Acknowledgement) -> None:
        """Give of a slice from now on, unless something was asked meanwhile that makes the signature void."""
        pool = await self.pools.read_pool(name)
        if pool and pool.spec.allocations and not signed.same_boot:
            pool = await self._writer.strike(pool)  # no sandbox has survived
        entries = self._writer.entries(pool) if pool else None
        if pool is None or entries is None or self._leases.agreed(lease) != signed:
            return
        notes = pool.metadata.annotations
        given = self._given_from(entries.prefix, notes.get(NETWORK_ANNOTATION, ""))
        if given and RETURN_ANNOTATION not in notes:
            return  # until that one is handed back
        if signed.used_before:
            told = "; nothing of it is given until every Pod has told what it has" if signed.same_boot else ""
            self._deps.tell(f"the journal knows nothing of slice {entries.prefix}: every address rests once{told}")
        self._state.write(
            SliceAcquired(
                lease=lease.metadata.uid,
                name=name,
                network=notes.get(NETWORK_ANNOTATION, ""),
                range=notes.get(RANGE_ANNOTATION, pool.spec.range),
                slice=str(entries.prefix),
                at=self._deps.clock.boot(),
                found={
                    str(each.address): holder_from_allocation(each.allocation)
                    for each in entries.listed
                    if not any(each.address in slice_.prefix for slice_ in given)
                },
                closed=bool(given),
                doubted=signed.used_before,
                unsure=signed.used_before and signed.same_boot,
            )
        )
        self._leases.forget(lease)
        await self._state.sync()
        self._queue.add(name)
        self._changed()

    def _given_from(self, prefix: Prefix, network: str) -> list[Slice]:
        """List the slices that have some of these addresses and are given from: they know who has which."""
        kept = (each for each in self._state.slices if not each.closed and each.network == network)
        return [each for each in kept if each.prefix.range.overlaps(prefix.range)]

    # Letting go

    async def _lost(self, slice_: Slice) -> Lease | None:
        """Close a slice whose Lease is not this Node's any more: a quorum read decides. Gives what has its name now.

        A Node that was registered again in the same boot keeps its slices: their labels follow. In another boot it is
        another Node, and what it had before is taken back once that one is gone.
        """
        lease = await self.pools.read_lease(slice_.name)
        same = lease if lease and lease.metadata.uid == slice_.lease else None
        if same and (self._leases.is_labelled(same) or same.metadata.annotations.get(BOOT_ANNOTATION) == self._boot_id):
            return same
        if not slice_.closed:
            self._deps.tell(f"Lease {slice_.name} is not ours any more: nothing more is given of {slice_.prefix}")
            self._state.write(SliceClosed(lease=slice_.lease))
            await self._state.sync()
            self._queue.add(slice_.name)
        return None if same else lease

    async def _verify(self) -> bool:
        """Find out, on quorum reads, which slices are still ours, and see that their Leases say so.

        What nobody has agreed to is signed anew. False when a Lease is to be signed, and the Node is not confirmed.
        """
        self._leases.void()
        for slice_ in [each for each in self._state.slices if not each.closed]:
            lease = await self._lost(slice_)
            if lease and lease.metadata.uid == slice_.lease and not self._leases.is_signed(lease):
                if not self._may_sign():
                    return False
                await self._leases.hold(lease)
        self.look()
        return True

    async def _hand_back(self, slice_: Slice, lease: Lease) -> None:
        """Hold it no longer, or never again, where a restored copy offers what was handed back since."""
        if not self._leases.is_ours(lease) and not self._leases.is_unsigned(lease):
            return
        pool = await self.pools.read_pool(slice_.name)
        if pool and pool.spec.allocations:
            await self._writer.strike(pool)
        await self._leases.let_go(lease)
        self._deps.tell(f"slice {slice_.prefix} was handed back: {_reason(pool)}")

    # Bringing up to date

    async def _bring(self, slice_: Slice, lease: Lease) -> Requeue | None:
        pool = self.pools.pool(slice_.name) or await self.pools.read_pool(slice_.name)
        if pool is None:
            told = f"IPPool {slice_.name} is gone: waiting for the controller to make it again"
            self._tell_once(f"{slice_.lease} pool", told)
            return None
        self._range(slice_, pool)
        since = self._behind.pop(slice_.name, None)
        try:
            pool = await self._writer.written(slice_, pool)
        except BaseException:
            self._behind[slice_.name] = since if since is not None else self._deps.clock.boot()
            raise
        now, cooldown = self._deps.clock.boot(), self._deps.settings.cooldown
        shown = [] if pool is None else [each.address.value for each in parse_ippool(pool.spec).listed]
        settled = slice_.settled(shown, now=now, rest=cooldown)
        if settled:
            self._state.write(SliceCooledDown(slots=settled))
        leaves = slice_.closed or (pool is not None and RETURN_ANNOTATION in pool.metadata.annotations)
        if leaves and not self._in_use(slice_):
            self._state.write(SliceClosed(lease=slice_.lease))
            await self._state.sync()
            await self._hand_back(slice_, lease)
            return None
        rested = slice_.rests_until(rest=cooldown)
        return None if rested is None or not (slice_.used or leaves) else Requeue(max(rested - now, WRITE_DELAY))

    def _range(self, slice_: Slice, pool: IPPool) -> None:
        """Have a slice be of the range that its IPPool names: one that was made larger or smaller may still have it."""
        told = pool.metadata.annotations.get(RANGE_ANNOTATION, str(slice_.range))
        if told != str(slice_.range) and self._writer.entries(pool):
            self._state.write(SliceRangeChanged(lease=slice_.lease, range=told))
            self._changed()

    def _tell_once(self, key: str, sentence: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._deps.tell(sentence)


def _reason(pool: IPPool | None) -> str:
    if pool is None:
        return "its IPPool is gone"
    return pool.metadata.annotations.get(RETURN_ANNOTATION, "its Lease had not been ours for a while")
