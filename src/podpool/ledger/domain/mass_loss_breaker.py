"""The mass-loss circuit breaker: if too many nodes of a cluster are lost at once, none of their NCs is released.

An emptied API server, or a tool that deleted the wrong Nodes, looks like the loss of a data centre. But the Pods still
run, and their addresses must not be granted to others. The breaker closes when an operator confirms the loss, after
`hold_seconds`, or when enough nodes are back: each request has the number of those that are missing. A leader that has
not counted them yet may close it. It opens again with the first release that follows.
"""

from msgspec.structs import replace

from podpool.core.mass_loss import BreakerSettings
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import ClusterRow
from podpool.ledger.errors import BreakerOpen
from podpool.ledger.messages import ReconcileRequest


def check_losses(
    repo: Repository, cluster: ClusterRow, request: ReconcileRequest, *, settings: BreakerSettings, time: float
) -> ClusterRow:
    """Return the cluster with its breaker opened if a request loses too many NCs, or closed if the loss is over."""
    gone = sum(item.node_gone for item in request.items)
    if not (gone or cluster.breaker_open_since is not None):
        return cluster
    losses = tuple(at for at in cluster.losses if time - at < settings.window_seconds)
    lost, known = len(losses) + max(gone, request.missing), repo.nc_count(cluster.id) + len(losses)
    is_loss = settings.is_mass_loss(lost=lost, known=known)
    if not is_loss:
        cluster = replace(cluster, breaker_open_since=None)
    if not gone:
        return cluster
    cluster = replace(cluster, losses=losses)
    if cluster.loss_confirmed_until is not None and time < cluster.loss_confirmed_until:
        return cluster
    if cluster.breaker_open_since is not None:
        expired = time - cluster.breaker_open_since >= settings.hold_seconds
        return confirm(cluster, settings=settings, time=time) if expired else cluster
    return replace(cluster, breaker_open_since=time) if is_loss else cluster


def confirm(cluster: ClusterRow, *, settings: BreakerSettings, time: float) -> ClusterRow:
    """Return the cluster with its breaker closed for a while."""
    return replace(cluster, breaker_open_since=None, loss_confirmed_until=time + settings.confirmed_seconds)


def breaker_error(cluster: ClusterRow) -> BreakerOpen | None:
    """Return the error for items with `node_gone`, if the breaker is open."""
    if cluster.breaker_open_since is None:
        return None
    return BreakerOpen(
        f"too many nodes of cluster {cluster.id} are gone at once, so none is released:"
        f" if they really are gone, run `podpool ledger cluster confirm-loss {cluster.id}`",
        field="node_gone",
    )
