"""Re-evaluation of a subnet after every change and when a timer expires: queue of waiting NCs, scaler, exhaustion.

NCs that can be served are notified, and those that did not react to a notice lose their place in the queue. Scaler and
exhaustion are decided. If the scaler changes, the demand of third-party NCs is inferred again, because their requests
reflect the old scaler for a while.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from podpool.core.batch_ladder import Load
from podpool.core.demand_from_request import infer_demand
from podpool.core.scaling import Scaler
from podpool.ledger.domain.allocations import Allocations
from podpool.ledger.domain.fair_shares import NOTICE_TIMEOUT, SKIPPED, ClusterShare, Waiter, fair_shares
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import NcRow, SubnetRow
from podpool.ledger.domain.scaling_policy import decide_scaling, scaler_of
from podpool.ledger.messages import InventoryItem, ReconcileItem

THIRD_PARTY_SETTLE_TIME = 60.0
"""Seconds in which a third-party agent reacts to a new scaler: it polls, and NNCs are written one by one."""


def is_frozen(repo: Repository, subnet: SubnetRow, now: float) -> bool:
    """Whether nothing may be granted: an inventory is missing, an owner is disputed, or lost cooldowns may run."""
    return now < subnet.paused_until or subnet.conflicts > 0 or bool(repo.pending_inventories(subnet.name))


def with_load(nc: NcRow, *, published: Scaler, maximum: int, now: float) -> NcRow:
    """Return an NC with its load: from its agent's report, or inferred from its request."""
    if nc.report is not None:
        return replace(nc, load=Load(nc.report.demand, maximum=maximum, pinned=nc.pinned), inferred=None)
    inferred = infer_demand(
        nc.inferred, now=now, requested=nc.wanted, published=nc.pinned or published, settle_time=THIRD_PARTY_SETTLE_TIME
    )
    load = Load(inferred.demand(primaries=1), maximum=maximum, pinned=nc.pinned)
    return replace(nc, inferred=inferred, load=load)


def with_request(allocations: Allocations, nc: NcRow, item: ReconcileItem | InventoryItem) -> NcRow:
    """Return an NC with what an item requests or lists for it, and with its load."""
    repeated = nc.report is not None and nc.report == item.report and nc.epoch == allocations.repo.epoch
    updated = replace(
        nc,
        node_uid=item.node_uid,
        boot_id=item.boot_id or nc.boot_id,
        epoch=allocations.repo.epoch,
        wanted=item.wanted,
        released=item.released,
        cooled_seconds=item.cooled_seconds,
        report=item.report,
        served=nc.served if repeated else 0,
        pinned=item.pinned,
    )
    return with_load(updated, published=scaler_of(allocations.subnet), maximum=item.maximum, now=allocations.now)


def reevaluate_due(repo: Repository, number: int, *, time: float, notify: bool = False) -> None:
    """Re-evaluate a subnet whose timer has expired; `notify` notifies listeners even if its row has not changed."""
    subnet = repo.subnet_by_number(number)
    allocations = Allocations(repo, subnet, time=time)
    allocations.changed = notify
    reevaluate(allocations, before=subnet)


def reevaluate(allocations: Allocations, *, before: SubnetRow) -> None:
    """Re-evaluate a subnet after changes, and write it if it differs."""
    allocations.flush()
    _skip_expired(allocations)
    _notify(allocations)
    now, decided = allocations.now, decide_scaling(allocations.subnet, allocations.now)
    reinterpret_at = decided.reinterpret_at
    if scaler_of(decided) != scaler_of(before) or (reinterpret_at is not None and reinterpret_at <= now):
        allocations.subnet = decided
        _infer_again(allocations)
        decided = decide_scaling(allocations.subnet, now)
    elif reinterpret_at is None and decided.unsettled:
        decided = decide_scaling(replace(decided, reinterpret_at=now + THIRD_PARTY_SETTLE_TIME), now)
    elif reinterpret_at is not None and not decided.unsettled:
        decided = decide_scaling(replace(decided, reinterpret_at=None), now)
    allocations.subnet = decided
    if allocations.changed or not _same(before, decided):
        allocations.subnet = replace(decided, revision=allocations.repo.advance_revision())
        allocations.repo.put_subnet(allocations.subnet)


def servable(allocations: Allocations, *, available: int) -> list[NcRow]:
    """Return the NCs that would be granted addresses now, in order of the queue."""
    rows = waiting_ncs(allocations.repo, allocations.subnet, limit=available) if available > 0 else {}
    waiters = [waiter_of(nc) for nc in rows.values()]
    shares = fair_shares(waiters, available, cluster_shares(allocations, waiters)) if rows else {}
    return [rows[number] for number in shares]


def cluster_shares(allocations: Allocations, waiters: Sequence[Waiter]) -> dict[str, ClusterShare]:
    """Return what the clusters of these waiters hold, and their weights."""
    clusters = {waiter.cluster for waiter in waiters}
    if len(clusters) < 2:
        return {}
    network = allocations.subnet.spec.network
    rows = {cluster: allocations.repo.cluster(cluster, network=network) for cluster in clusters}
    return {
        cluster: ClusterShare(allocations.use(cluster).held, row.limits.priority if row else 1)
        for cluster, row in rows.items()
    }


def waiter_of(nc: NcRow, *, requesting: bool = False) -> Waiter:
    """Return an NC's place in the queue."""
    return Waiter(
        nc=nc.number,
        cluster=nc.cluster,
        pod_shortage=nc.pod_shortage,
        pod_short_since=nc.pod_short_since,
        buffer_shortage=nc.buffer_shortage,
        buffer_short_since=nc.buffer_short_since,
        requesting=requesting,
    )


def waiting_ncs(repo: Repository, subnet: SubnetRow, *, limit: int) -> dict[int, NcRow]:
    """Return the waiting NCs by number: of each cluster as many as can have a share of so many addresses."""
    of_each = len(subnet.usage or ()) > 1
    rows = repo.waiting_for_pods(subnet.number, limit, of_each=of_each) if subnet.pod_shortage else []
    rows += repo.waiting_for_buffer(subnet.number, limit, of_each=of_each) if subnet.buffer_shortage else []
    return {row.number: row for row in rows}


def _notify(allocations: Allocations) -> None:
    """Record when the NCs were notified that can be served now."""
    subnet, now = allocations.subnet, allocations.now
    if not (subnet.pod_shortage or subnet.buffer_shortage) or is_frozen(allocations.repo, subnet, now):
        return
    for nc in servable(allocations, available=allocations.available):
        if nc.notified_at is None and SKIPPED not in (nc.pod_short_since, nc.buffer_short_since):
            allocations.save(nc, replace(nc, notified_at=now))
            expires_at = allocations.subnet.notice_expires_at or now + NOTICE_TIMEOUT
            allocations.subnet = replace(allocations.subnet, notice_expires_at=expires_at)


def _skip_expired(allocations: Allocations) -> None:
    """Move NCs that did not react to their notice to the end of the queue."""
    subnet = allocations.subnet
    if subnet.notice_expires_at is None or subnet.notice_expires_at > allocations.now:
        return
    waiting = waiting_ncs(allocations.repo, subnet, limit=subnet.pod_shortage + subnet.buffer_shortage)
    pending: list[float] = []
    for nc in waiting.values():
        if nc.notified_at is not None and nc.notified_at + NOTICE_TIMEOUT <= allocations.now:
            allocations.save(nc, _skipped(nc))
        elif nc.notified_at is not None:
            pending.append(nc.notified_at + NOTICE_TIMEOUT)
    allocations.subnet = replace(allocations.subnet, notice_expires_at=min(pending, default=None))


def _skipped(nc: NcRow) -> NcRow:
    return replace(
        nc,
        notified_at=None,
        pod_short_since=None if nc.pod_short_since is None else SKIPPED,
        buffer_short_since=None if nc.buffer_short_since is None else SKIPPED,
    )


def _infer_again(allocations: Allocations) -> None:
    """Infer the demand of every third-party NC with the scaler that is published now."""
    now, published = allocations.now, scaler_of(allocations.subnet)
    deadlines: list[float] = []
    for nc in allocations.repo.third_party(allocations.subnet.number):
        after = with_load(nc, published=published, maximum=nc.load.maximum if nc.load else 0, now=now)
        allocations.save(nc, after)
        if after.inferred and not after.inferred.settled:
            deadlines.append(after.inferred.published_at + THIRD_PARTY_SETTLE_TIME)
    allocations.subnet = replace(allocations.subnet, reinterpret_at=min(deadlines, default=None))


def _same(before: SubnetRow, after: SubnetRow) -> bool:
    """Whether two states of a subnet differ in its time only."""
    times = ("latest_time", "clock_offset", "reusable_stamp", "cooling")
    return before == replace(after, **{name: getattr(before, name) for name in times})
