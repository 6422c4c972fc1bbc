"""The pool in a journal snapshot."""

from typing import TYPE_CHECKING

from podpool.agent.records import Snapshot

if TYPE_CHECKING:
    from podpool.agent.pool import Pool


def take_snapshot(pool: "Pool") -> Snapshot:
    """Return the whole pool as one record."""
    grants = pool.grants
    return Snapshot(
        boot_id=pool.boot_id,
        stopped=pool.stopped,
        incomplete=pool.incomplete,
        cooldown_forced_at=pool.cooldown_forced_at,
        adopted_nc=pool.adopted_nc,
        closed_ncs=tuple(sorted(pool.closed_ncs)),
        nc=pool.nc,
        additional_ncs=tuple(pool.additional_ncs.values()),
        unused=tuple(grants.unused.values()),
        used=tuple(grants.used.values()),
        assigned=tuple(grants.assigned.values()),
        pending_release=tuple(grants.pending_release.values()),
        departed=dict(pool.departed),
        unusable=dict(pool.unusable),
        lost=tuple(sorted(pool.lost)),
    )


def restore_snapshot(pool: "Pool", record: Snapshot) -> None:
    """Replace everything in the pool by the contents of a snapshot."""
    pool.boot_id = record.boot_id
    pool.stopped = record.stopped
    pool.incomplete = record.incomplete
    pool.cooldown_forced_at = record.cooldown_forced_at
    pool.adopted_nc = record.adopted_nc
    pool.closed_ncs = set(record.closed_ncs)
    pool.nc = record.nc
    pool.additional_ncs = {each.id: each for each in record.additional_ncs}
    pool.grants.restore(
        unused=record.unused, used=record.used, assigned=record.assigned, pending_release=record.pending_release
    )
    pool.departed = dict(record.departed)
    pool.unusable = dict(record.unusable)
    pool.lost = set(record.lost)
