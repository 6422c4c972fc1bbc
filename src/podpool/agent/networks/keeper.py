"""Takes the slices that are offered to this node, brings their IPPools behind the journal, and hands slices back.

What must hold: nothing is given of a slice before its Lease names this agent and the journal says so; the journal
decides who has which address, and the IPPool follows it, one patch at a time, with a precondition. What another hand
wrote into it is seen before anything is written over: an entry of ours that it changed is put back, and an address that
it gave away is believed to be in use, so that no Pod gets it. A slice that was handed back or lost is closed for good
under its Lease's UID; where a restored copy shows that Lease again, it is handed back once no Pod has an address of it.
"""

import asyncio
from collections.abc import Callable

import msgspec

from podpool.agent.book import Book
from podpool.agent.ground import Ground
from podpool.agent.networks.pools import OwnPools
from podpool.agent.networks.slices import Slice
from podpool.agent.records import Owner, SliceClosed, SliceGiven, SliceSettled, SliceTaken, Tenant
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.kube.backoff import backoff
from podpool.kube.errors import ApiError, Conflict
from podpool.kube.queue import Again, WorkQueue, work
from podpool.resources.builtin import LEASES, Lease
from podpool.resources.whereabouts import (
    BOOT_ANNOTATION,
    IP_POOLS,
    LEAVE_ANNOTATION,
    NODE_UID_LABEL,
    Allocation,
    IPPool,
)
from podpool.runtime.transport import Unreachable
from podpool.slices.entries import Entries, read_entries
from podpool.slices.places import NETWORK_ANNOTATION, RANGE_ANNOTATION

BEHIND = 0.5
"""Seconds for which changes of a slice are collected into one patch of its IPPool."""
WORKERS = 16
"""Patches under way at once, of different pools."""


class Keeper:
    """Keeps the slices' objects in line; `changed` is called when more can be given than before."""

    def __init__(
        self, ground: Ground, book: Book, namespace: str, *, boot_id: str, changed: Callable[[], None]
    ) -> None:
        self.pools = OwnPools(ground, namespace, changed=self._seen)
        self._ground = ground
        self._book = book
        self._boot_id = boot_id
        self._changed = changed
        self._queue = WorkQueue(rng=ground.rng)
        self._behind: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._told: set[str] = set()

    def usable(self, slice_: Slice) -> bool:
        """Tell whether new addresses of a slice may be given: not while it is to leave, or another holds its Lease."""
        pool, lease = self.pools.pool(slice_.name), self.pools.lease(slice_.name)
        leaving = pool is not None and LEAVE_ANNOTATION in pool.metadata.annotations
        return not leaving and (lease is None or lease.metadata.uid != slice_.lease or self._is_ours(lease))

    def owned_by(self, uid: str) -> bool:
        """Tell whether every slice's Lease is labelled with this Node: only then is it known who must be missed."""
        kept = [each for each in self._book.slices if not each.closed]
        leases = [self.pools.lease(each.name) for each in kept]
        shown = all(lease and lease.metadata.uid == each.lease for lease, each in zip(leases, kept, strict=True))
        return not kept or (self.pools.uid == uid and shown)

    def lag(self, slice_: Slice) -> float:
        """Tell for how long its IPPool has been behind."""
        since = self._behind.get(slice_.name)
        return 0.0 if since is None else self._ground.clock.boot() - since

    def touched(self, slice_: Slice) -> None:
        """Bring its IPPool up to date soon."""
        self._behind.setdefault(slice_.name, self._ground.clock.boot())
        self._queue.add_after(slice_.name, BEHIND)

    def look(self) -> None:
        """Look at everything again: the Node, the fence or the watches are different."""
        for name in sorted({*self.pools.names(), *(each.name for each in self._book.slices)}):
            self._queue.add(name)

    async def run(self) -> None:
        """Keep them for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pools.run())
            group.create_task(work(self._queue, self._keep, workers=WORKERS))

    def _seen(self, name: str) -> None:
        if name:
            self._queue.add(name)
        else:
            self.look()
        self._changed()

    async def _keep(self, name: str) -> Again | None:
        """Look at one slice, and at what goes wrong with it again, later each time; tells when."""
        try:
            again = await self._look_at(name) if self.pools.known else None
        except (ApiError, Unreachable) as error:
            if not isinstance(error, Conflict):
                self._tell_once(f"{name} fails", f"IPPool or Lease {name} cannot be kept, and is tried again: {error}")
            self._failures[name] = self._failures.get(name, 0) + 1
            return Again(backoff(self._failures[name], rng=self._ground.rng, base=0.1, most=15.0))
        if self._failures.pop(name, 0):
            self._told.discard(f"{name} fails")
        return again

    async def _look_at(self, name: str) -> Again | None:
        """Bring one slice and its objects into line; tells when to look again."""
        lease = self.pools.lease(name)
        for known in [each for each in self._book.slices if each.name == name and not each.closed]:
            if lease is None or lease.metadata.uid != known.lease:
                lease = await self._lost(known)
        if lease is None:
            return None
        slice_ = self._book.slices.get(lease.metadata.uid)
        if slice_ is None:
            await self._take(name, lease)
            return None
        if slice_.closed and not (slice_.held or slice_.used):
            await self._hand_back(slice_, lease)
            return None
        if slice_.closed and lease.spec.holder_identity and not self._is_ours(lease):
            return None
        if self._book.node_fence.is_open() and not self._is_signed(lease):
            await self._hold(lease)
        return await self._bring(slice_, lease)

    # Taking

    async def _take(self, name: str, lease: Lease) -> None:
        pool = self.pools.pool(name)
        if pool is None or not self._book.node_fence.is_open():
            return
        before = lease.spec.holder_identity or ""
        if before and not self._is_ours(lease):
            told = f"Lease {name} is held by {before}: no address of its slice is given until it is empty"
            self._tell_once(f"{lease.metadata.uid} {before}", told)
            return
        if not self._is_signed(lease):
            await self._hold(lease)
        pool = await self.pools.read_pool(name)
        if pool is None:
            return
        notes = pool.metadata.annotations
        entries = self._entries(pool)
        same_boot = lease.metadata.annotations.get(BOOT_ANNOTATION, self._boot_id) == self._boot_id
        if entries is None:
            return
        self._book.write(
            SliceTaken(
                lease=lease.metadata.uid,
                name=name,
                network=notes.get(NETWORK_ANNOTATION, ""),
                range=notes.get(RANGE_ANNOTATION, pool.spec.range),
                slice=str(entries.prefix),
                at=self._ground.clock.boot(),
                found={str(each.address): _tenant(each.allocation) for each in entries.listed} if same_boot else {},
                doubted=bool(before),
            )
        )
        await self._book.sync()
        self._queue.add(name)
        self._changed()

    def _entries(self, pool: IPPool) -> Entries | None:
        try:
            parse_prefix(pool.metadata.annotations.get(RANGE_ANNOTATION, pool.spec.range))
            return read_entries(pool.spec)
        except InvalidInput as error:
            self._tell_once(f"{pool.metadata.uid}", f"IPPool {pool.metadata.name} cannot be used: {error}")
            return None

    async def _hold(self, lease: Lease) -> None:
        """Sign a Lease, in this node's name and with its boot."""
        await self._ground.kube.merge(
            LEASES,
            lease.metadata.name,
            {"spec": {"holderIdentity": self._identity}, "metadata": {"annotations": {BOOT_ANNOTATION: self._boot_id}}},
            namespace=self.pools.namespace,
            precondition=lease.metadata.resource_version,
        )

    @property
    def _identity(self) -> str:
        return f"{self._ground.node}/{self.pools.uid}"

    def _is_ours(self, lease: Lease) -> bool:
        """Tell whether it names this node, under whichever of the UIDs that it had."""
        return (lease.spec.holder_identity or "").startswith(f"{self._ground.node}/")

    def _is_labelled(self, lease: Lease) -> bool:
        return lease.metadata.labels.get(NODE_UID_LABEL) == self.pools.uid

    def _is_signed(self, lease: Lease) -> bool:
        boot = lease.metadata.annotations.get(BOOT_ANNOTATION)
        return lease.spec.holder_identity == self._identity and boot == self._boot_id

    # Letting go

    async def _lost(self, slice_: Slice) -> Lease | None:
        """Close a slice whose Lease is not this Node's any more: a quorum read decides. Gives what has its name now.

        A Node that was registered again in the same boot keeps its slices: their labels follow. In another boot it is
        another Node, and what it had before is taken back once that one is gone.
        """
        lease = await self.pools.read_lease(slice_.name)
        same = lease if lease and lease.metadata.uid == slice_.lease else None
        if same and (self._is_labelled(same) or same.metadata.annotations.get(BOOT_ANNOTATION) == self._boot_id):
            return same
        self._ground.tell(f"Lease {slice_.name} is not ours any more: nothing more is given of {slice_.prefix}")
        self._book.write(SliceClosed(lease=slice_.lease))
        await self._book.sync()
        return None if same else lease

    async def _hand_back(self, slice_: Slice, lease: Lease) -> None:
        if not self._is_ours(lease):
            return
        pool = await self.pools.read_pool(slice_.name)
        if pool and pool.spec.allocations:
            await self._patch(pool, dict.fromkeys(pool.spec.allocations))
        await self._ground.kube.merge(
            LEASES,
            slice_.name,
            {"spec": {"holderIdentity": None}},
            namespace=self.pools.namespace,
            precondition=lease.metadata.resource_version,
        )
        self._ground.tell(f"slice {slice_.prefix} was handed back: {_reason(pool)}")

    # Bringing up to date

    async def _bring(self, slice_: Slice, lease: Lease) -> Again | None:
        pool = self.pools.pool(slice_.name) or await self.pools.read_pool(slice_.name)
        if pool is None:
            told = f"IPPool {slice_.name} is gone: waiting for the controller to make it again"
            self._tell_once(f"{slice_.lease} pool", told)
            return None
        since = self._behind.pop(slice_.name, None)
        try:
            pool = await self._written(slice_, pool)
        except BaseException:
            self._behind[slice_.name] = since if since is not None else self._ground.clock.boot()
            raise
        now, cooldown = self._ground.clock.boot(), self._ground.numbers.cooldown
        shown = [] if pool is None else [each.address.value for each in read_entries(pool.spec).listed]
        settled = slice_.settled(shown, now=now, rest=cooldown)
        if settled:
            self._book.write(SliceSettled(slots=settled))
        leaves = slice_.closed or (pool is not None and LEAVE_ANNOTATION in pool.metadata.annotations)
        if leaves and not (slice_.held or slice_.used):
            self._book.write(SliceClosed(lease=slice_.lease))
            await self._book.sync()
            await self._hand_back(slice_, lease)
            return None
        oldest = min((past.since for past in slice_.used.values()), default=None)
        return None if oldest is None else Again(max(oldest + cooldown - now, BEHIND))

    async def _written(self, slice_: Slice, pool: IPPool) -> IPPool | None:
        """Write what differs, on what is there now; gives the IPPool as it is then."""
        entries = self._entries(pool)
        if entries is None or entries.prefix != slice_.prefix:
            self._tell_once(f"{slice_.lease} range", f"IPPool {slice_.name} is not of slice {slice_.prefix} any more")
            return None
        foreign = self._foreign(slice_, entries)
        if foreign:
            fresh = await self.pools.read_pool(slice_.name)
            entries = self._entries(fresh) if fresh else None
            if fresh is None or entries is None:
                return None
            pool = fresh
            self._believe(slice_, self._foreign(slice_, entries))
        wanted = {entries.key(slice_.address(value)): _entry(tenant) for value, tenant in slice_.held.items()}
        shown = {each.key: each.allocation for each in entries.listed}
        changes: dict[str, Allocation | None] = {key: each for key, each in wanted.items() if shown.get(key) != each}
        changes |= {key: None for key in shown if key not in wanted}
        if not changes:
            return pool
        await self._book.sync()  # what is on the wire is on the platter: after a reboot it is known for ours
        return await self._patch(pool, changes)

    def _foreign(self, slice_: Slice, entries: Entries) -> dict[int, Allocation]:
        """Find entries that nobody of us can have written."""
        found: dict[int, Allocation] = {}
        for each in entries.listed:
            value, past = each.address.value, slice_.used.get(each.address.value)
            if value in slice_.held or (past and _entry(past.tenant) == each.allocation):
                continue
            found[value] = each.allocation
        return found

    def _believe(self, slice_: Slice, foreign: dict[int, Allocation]) -> None:
        for value, entry in foreign.items():
            told = f"{slice_.address(value)} was given to {entry.podref} by another hand, in IPPool {slice_.name}"
            self._ground.tell(f"{told}: no Pod gets it from us")
            self._book.write(SliceGiven(tenant=_tenant(entry), slots=(slice_.slot(value),)))

    async def _patch(self, pool: IPPool, changes: "dict[str, Allocation | None] | dict[str, None]") -> IPPool:
        allocations = {key: None if each is None else msgspec.to_builtins(each) for key, each in changes.items()}
        name = pool.metadata.name
        try:
            answer = await self._ground.kube.merge(
                IP_POOLS,
                name,
                {"spec": {"allocations": allocations}},
                namespace=self.pools.namespace,
                precondition=pool.metadata.resource_version,
            )
        except Conflict:
            await self.pools.read_pool(name)
            raise
        self.pools.see(answer)
        return answer

    def _tell_once(self, key: str, sentence: str) -> None:
        if key not in self._told:
            self._told.add(key)
            self._ground.tell(sentence)


def _tenant(entry: Allocation) -> Tenant:
    owner = Owner(container_id=entry.id, ifname=entry.ifname)
    return Tenant(owner=owner, podref=entry.podref, found=True)


def _entry(tenant: Tenant) -> Allocation:
    return Allocation(id=tenant.owner.container_id, podref=tenant.podref, ifname=tenant.owner.ifname)


def _reason(pool: IPPool | None) -> str:
    if pool is None:
        return "its IPPool is gone"
    return pool.metadata.annotations.get(LEAVE_ANNOTATION, "its Lease had not been ours for a while")
