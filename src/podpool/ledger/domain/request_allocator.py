"""The allocator: processes the items of one request in one subnet.

Releases come first, then new NCs get their primaries, then all are topped up in order of the fair queue. So addresses
whose cooldown is over may return to the NC that released them, as new grants, and a waiting Pod comes before a buffer
of the same request. An item is checked before anything is done for it; a rejected one leaves its NC unchanged.
"""

import random
from collections.abc import Collection, Sequence
from functools import cached_property

from msgspec.structs import replace

from podpool.ledger.domain.address_block import PRIMARY
from podpool.ledger.domain.allocations import AllocatedAddress, Allocations, event_entries
from podpool.ledger.domain.fair_shares import SKIPPED, fair_shares
from podpool.ledger.domain.item_validation import check_item
from podpool.ledger.domain.mass_loss_breaker import breaker_error
from podpool.ledger.domain.quota import Quota
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.row_to_message import nc_state, subnet_state
from podpool.ledger.domain.rows import AllocationEvent, ClusterRow, NcRow, SubnetRow
from podpool.ledger.domain.subnet_reevaluation import (
    cluster_shares,
    is_frozen,
    reevaluate,
    servable,
    waiter_of,
    waiting_ncs,
    with_request,
)
from podpool.ledger.errors import (
    Conflict,
    Invalid,
    LedgerError,
    NotFound,
    OwnershipDisputed,
    SubnetDraining,
    SubnetFrozen,
    SubnetFull,
    Superseded,
)
from podpool.ledger.messages import NetworkContainerResult, ReconcileItem, SubnetState
from podpool.runtime.entropy import new_uuid, new_uuids


class SubnetTransaction:
    """One subnet within one transaction, shared by all requests of the transaction."""

    def __init__(self, repo: Repository, subnet: SubnetRow, *, time: float) -> None:
        self.repo = repo
        self.allocations = Allocations(repo, subnet, time=time)
        self.frozen = is_frozen(repo, subnet, self.allocations.now)
        self.recovering = self.frozen and bool(repo.pending_inventories(subnet.name))
        conflicts = repo.conflicts() if subnet.conflicts else []
        self.disputed = {number for each in conflicts for number in (each.holder, each.claimant)}
        self.touched = False
        """Something may have changed: the subnet must be re-evaluated."""
        self._before = subnet
        self._time = time

    def finish(self) -> None:
        """Re-evaluate and write the subnet, after all requests."""
        if self.touched:
            reevaluate(self.allocations, before=self._before)

    @cached_property
    def state(self) -> SubnetState:
        """The state of the subnet, once it is re-evaluated."""
        return subnet_state(self.repo, self.allocations.subnet, time=self._time)

    def servable(self, cluster: str) -> list[str]:
        """Return the NCs of a cluster that would be granted addresses now."""
        return [nc.id for nc in self._servable if nc.cluster == cluster]

    @cached_property
    def _servable(self) -> list[NcRow]:
        available = 0 if self.state.frozen else self.allocations.available
        return servable(self.allocations, available=available)


class AllocatorItem:
    """One item, its NC, and the changes so far."""

    def __init__(self, item: ReconcileItem) -> None:
        self.item = item
        self.before: NcRow | None = None
        self.nc: NcRow | None = None
        self.held: list[AllocatedAddress] = []
        self.granted: list[AllocatedAddress] = []
        self.released: list[AllocatedAddress] = []
        self.error: LedgerError | None = None
        self.quota: int | None = None
        """How many more addresses the quota of its cluster permits it; None without a limit."""

    @property
    def secondaries(self) -> int:
        """How many secondary addresses the NC holds."""
        return len([each for each in self.held if each.id])

    @property
    def shortage(self) -> int:
        """How many more it wants, and may get."""
        return self._wanted if self.quota is None else min(self._wanted, self.quota)

    @property
    def quota_shortage(self) -> int:
        """How many more it wants, and may not get."""
        return self._wanted - self.shortage

    @property
    def _wanted(self) -> int:
        return max(0, self.nc.wanted - self.secondaries) if self.nc else 0

    @property
    def changed(self) -> bool:
        """Whether its addresses have changed."""
        return bool(self.granted or self.released)


class Allocator:
    """The part of a request that concerns one subnet."""

    def __init__(self, subnet: SubnetTransaction, *, cluster: ClusterRow, quota: Quota, rng: random.Random) -> None:
        self.repo = subnet.repo
        self.allocations = subnet.allocations
        self.events: list[AllocationEvent] = []
        self._subnet = subnet
        self._cluster = cluster
        self._quota = quota
        self._opened_ncs = 0
        self._breaker_error = breaker_error(cluster)
        self._rng = rng

    def show(self, items: Sequence[ReconcileItem]) -> list[NetworkContainerResult]:
        """Return the state of each NC, and change nothing."""
        return [self._result(self._superseded(each)) for each in map(self._prepare, items)]

    def reconcile(self, items: Sequence[ReconcileItem]) -> list[NetworkContainerResult]:
        """Bring each NC to its desired state."""
        self._subnet.touched = True
        prepared = [self._prepare(item) for item in items]
        _reject_duplicates(prepared)
        valid = [each for each in prepared if each.error is None and not (each.nc and each.nc.closed)]
        for each in valid:
            self._release(each)
        for each in valid:
            self._allocate_primary(each)
        staying = [each for each in valid if each.nc and not each.item.node_gone and each.error is None]
        self._top_up(staying, present={each.nc.number for each in valid if each.nc})
        for each in valid:
            self._write(each)
        return [self._result(each) for each in prepared]

    def _prepare(self, item: ReconcileItem) -> AllocatorItem:
        """Return an item with its NC, if there is one, or with the error in it."""
        prepared = AllocatorItem(item)
        try:
            check_item(item)
            prepared.before = prepared.nc = self._find(item)
        except LedgerError as error:
            prepared.error = error
        if prepared.nc is not None:
            prepared.held = self.allocations.held(prepared.nc)
        return prepared

    def _find(self, item: ReconcileItem) -> NcRow | None:
        cluster, subnet = self._cluster.id, self.allocations.subnet.number
        same_node = self.repo.nc_of_node(cluster=cluster, node=item.node, node_uid=item.node_uid, subnet=subnet)
        if item.nc_id is None:
            if item.node_gone:
                raise Invalid("an item with node_gone needs an nc_id", field="nc_id")
            nc = same_node
        else:
            nc = self._find_by_id(item)
            if same_node is not None and same_node.number != nc.number and not nc.closed:
                conflict = f"node {item.node} with UID {item.node_uid} has network container {same_node.id} already"
                raise Conflict(conflict, field="node_uid")
        if nc is not None:
            self._reject_uncertain(nc)
            if item.node_gone and not nc.closed and self._breaker_error is not None:
                raise self._breaker_error
        return nc

    def _find_by_id(self, item: ReconcileItem) -> NcRow:
        nc = self.repo.nc(item.nc_id or "")
        if nc is None or nc.cluster != self._cluster.id:
            raise NotFound(f"there is no network container {item.nc_id} of this cluster", field="nc_id")
        if nc.subnet != self.allocations.subnet.number:
            raise Conflict(f"network container {nc.id} is not in subnet {item.subnet}", field="subnet")
        if nc.node != item.node:
            raise Conflict(f"network container {nc.id} belongs to node {nc.node}, not {item.node}", field="node")
        return nc

    def _reject_uncertain(self, nc: NcRow) -> None:
        if nc.number in self._subnet.disputed:
            conflict = f"network container {nc.id} has an ownership conflict: an operator must resolve it"
            raise OwnershipDisputed(conflict, field="nc_id")
        if self._subnet.recovering and nc.epoch < self.repo.epoch:
            # another cluster, whose inventory is still missing, may hold its addresses by now
            raise SubnetFrozen(f"network container {nc.id} was not listed: wait until all inventories are in")

    def _release(self, each: AllocatorItem) -> None:
        nc, item = each.nc, each.item
        if nc is None:
            return
        released = frozenset(item.released)
        for held in [one for one in each.held if item.node_gone or (not one.primary and one.id in released)]:
            nc = self.allocations.release(nc, held, cooled_seconds=item.cooled_seconds)
            each.released.append(held)
            each.held.remove(held)
        each.nc = self._updated(nc, each)

    def _allocate_primary(self, each: AllocatorItem) -> None:
        """Open an NC, or allocate the primary of one that has lost it."""
        if each.item.node_gone or any(held.primary for held in each.held):
            return
        error = self._primary_error() or (self._quota.error(opened=self._opened_ncs) if each.nc is None else None)
        if error is not None:
            if each.nc is None:  # an open NC continues without, and gets one later
                each.error = error
            return
        if each.nc is not None and self._quota.addresses_left == 0:
            return
        nc = each.nc or self._updated(self._opened(each.item), each)
        each.nc, allocated = self.allocations.allocate(nc, [PRIMARY])
        each.held += allocated
        each.granted += allocated

    def _primary_error(self) -> LedgerError | None:
        subnet = self.allocations.subnet
        if self._subnet.frozen:
            return SubnetFrozen(f"subnet {subnet.name} recovers: nothing is granted yet", field="subnet")
        if subnet.draining:
            return SubnetDraining(f"subnet {subnet.name} is draining: nothing is granted", field="subnet")
        if self.allocations.free <= 0:
            return SubnetFull(f"subnet {subnet.name} has no free address, not even for a primary", field="subnet")
        return None

    def _opened(self, item: ReconcileItem) -> NcRow:
        subnet = self.allocations.subnet
        self._opened_ncs += 1
        self.repo.add_member((self._cluster.id, subnet.spec.network, subnet.spec.name))
        return self.repo.add_nc(
            NcRow(
                number=0,
                id=new_uuid(self._rng),
                cluster=self._cluster.id,
                subnet=subnet.number,
                node=item.node,
                node_uid=item.node_uid,
            )
        )

    def _updated(self, nc: NcRow, each: AllocatorItem) -> NcRow:
        """Return an NC with the fields of its item; what its quota does not permit is not projected."""
        item, left = each.item, self._quota.addresses_left
        if item.node_gone:
            return nc.close()
        if left is not None:
            item = replace(item, maximum=max(1, min(item.maximum, each.secondaries + left)))
        return replace(with_request(self.allocations, nc, item), notified_at=None)

    def _top_up(self, items: Sequence[AllocatorItem], *, present: Collection[int]) -> None:
        """Grant each NC its share, and record what it lacks."""
        self._apply_quota(items)
        subnet, available = self.allocations.subnet, 0 if self._subnet.frozen else self.allocations.available
        shortages = [each.shortage for each in items]
        enough = not (subnet.pod_shortage or subnet.buffer_shortage) and sum(shortages) <= available
        shares = shortages if enough else self._shares(items, available=available, present=present)
        for each, share in zip(items, shares, strict=True):
            nc = self._with_shortage(each, granted=share)
            each.nc, allocated = self.allocations.allocate(nc, new_uuids(self._rng, share))
            each.held += allocated
            each.granted += allocated

    def _apply_quota(self, items: Sequence[AllocatorItem]) -> None:
        """Limit what each NC wants to its share of what the cluster may still get."""
        left = self._quota.addresses_left
        if left is None or sum(each.shortage for each in items) <= left:
            return
        shares = fair_shares([waiter_of(self._with_shortage(each, granted=0), requesting=True) for each in items], left)
        for each in items:
            each.quota = shares.get(each.nc.number, 0) if each.nc else 0

    def _shares(self, items: Sequence[AllocatorItem], *, available: int, present: Collection[int]) -> list[int]:
        """Divide the available addresses among requesting and waiting NCs; returns the share of each item.

        An NC that is present in the request is queued as it requests now, not as its row says.
        """
        limit = available + len(present)
        waiting = waiting_ncs(self.repo, self.allocations.subnet, limit=limit) if available else {}
        others = [waiter_of(nc) for nc in waiting.values() if nc.number not in present]
        requesting = [waiter_of(self._with_shortage(each, granted=0), requesting=True) for each in items]
        waiters = [*others, *requesting]
        shares = fair_shares(waiters, available, cluster_shares(self.allocations, waiters))
        return [shares.get(waiter.nc, 0) for waiter in requesting]

    def _with_shortage(self, each: AllocatorItem, *, granted: int) -> NcRow:
        """Return an NC with what it lacks after a grant."""
        nc = each.nc
        if nc is None:
            raise AssertionError(f"node {each.item.node} has no network container that could lack addresses")
        if nc.report:  # a repeated one includes Pods that were served since
            waiting = max(0, nc.report.waiting - nc.served)
        else:
            waiting = max(0, (nc.load.demand if nc.load else 0) - each.secondaries)
        for_pods = max(0, min(each.shortage, waiting) - granted)
        for_buffer = max(0, each.shortage - granted - for_pods)
        return replace(
            nc,
            served=nc.served + granted if nc.report else 0,
            pod_shortage=for_pods,
            pod_short_since=_since(nc.pod_short_since, self.allocations.now) if for_pods else None,
            quota_shortage=each.quota_shortage,
            buffer_shortage=for_buffer,
            buffer_short_since=_since(nc.buffer_short_since, self.allocations.now) if for_buffer else None,
        )

    def _write(self, each: AllocatorItem) -> None:
        nc = each.nc
        if nc is None:
            return
        accepted = nc.report.version if nc.report else 0
        if each.changed or accepted > nc.version:
            nc = replace(nc, version=max(nc.version, accepted) + 1)
        each.nc = nc
        self.allocations.save(each.before, nc)
        if each.changed or nc.closed:
            self.events.append(
                AllocationEvent(
                    nc_id=nc.id,
                    granted=event_entries(each.granted),
                    released=event_entries(each.released),
                    closed=nc.closed,
                )
            )

    def _superseded(self, each: AllocatorItem) -> AllocatorItem:
        if each.nc is None and each.error is None:
            reason = "a later request was processed first; the network container was not opened"
            each.error = Superseded(reason, field="nc_id")
        return each

    def _result(self, each: AllocatorItem) -> NetworkContainerResult:
        if each.error is not None or each.nc is None:
            error = each.error or LedgerError("the network container is unknown")
            return NetworkContainerResult(error=error.response)
        return NetworkContainerResult(state=nc_state(self.allocations, each.nc, each.held))


def _reject_duplicates(items: Sequence[AllocatorItem]) -> None:
    """Reject the second item of an NC in one request: each would undo the other."""
    known: set[tuple[str, str] | int] = set()
    for each in items:
        key = each.nc.number if each.nc else (each.item.node, each.item.node_uid)
        if each.error is None and key in known:
            each.error = Invalid(f"node {each.item.node} has two items in one request", field="nc_id")
        known.add(key)


def _since(before: float | None, now: float) -> float:
    return now if before is None or before >= SKIPPED else before
