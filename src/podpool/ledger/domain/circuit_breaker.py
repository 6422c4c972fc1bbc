"""The brake: when too many of a cluster's nodes are lost at once, none is given up before somebody agrees.

An API server that was emptied, or a tool that deleted the wrong Nodes, looks like a data centre that burned down; but
the Pods run on, and their addresses must not be given to others.
"""

import msgspec
from msgspec.structs import replace

from podpool.core.settings import Settings
from podpool.ledger.errors import Braked
from podpool.ledger.messages import Reconcile
from podpool.ledger.domain.rows import ClusterRow
from podpool.ledger.domain.repository import Books


class Brake(msgspec.Struct, frozen=True, kw_only=True):
    """How many are too many, and for how long."""

    share: int = 30
    """More than this share of a cluster's containers, in hundredths,"""
    least: int = 5
    """and at least so many,"""
    within: float = Settings().node_gc_delay
    """within so many seconds,"""
    holds: float = 86_400.0
    """wait for so many seconds, or for a person;"""
    agreed: float = 3_600.0
    """whose word counts for so many."""


def heed_losses(books: Books, cluster: ClusterRow, call: Reconcile, *, brake: Brake, wall: float) -> ClusterRow:
    """Brake if a call makes too many lost ones, or let go after a long time."""
    gone = sum(item.gone for item in call.items)
    if not gone:
        return cluster
    losses = tuple(at for at in cluster.losses if wall - at < brake.within)
    cluster = replace(cluster, losses=losses)
    if cluster.agreed_until is not None and wall < cluster.agreed_until:
        return cluster
    if cluster.braked is not None:
        waited = wall - cluster.braked >= brake.holds
        return agreed(cluster, brake=brake, wall=wall) if waited else cluster
    lost = len(losses) + max(gone, call.missing)
    known = books.container_count(cluster.id) + len(losses)
    return replace(cluster, braked=wall) if lost >= brake.least and 100 * lost > brake.share * known else cluster


def agreed(cluster: ClusterRow, *, brake: Brake, wall: float) -> ClusterRow:
    """Let go of the brake, and give up what is lost for a while."""
    return replace(cluster, braked=None, agreed_until=wall + brake.agreed)


def refusal(cluster: ClusterRow) -> Braked | None:
    """Tell why nothing of a cluster is given up, if it is braked."""
    if cluster.braked is None:
        return None
    return Braked(
        f"too many nodes of cluster {cluster.id} are gone at once: if they really are,"
        f" say so with `podpool ledger cluster confirm-loss {cluster.id}`",
        field="gone",
    )
