"""The reconcile call: bring many NCs to their desired state.

Invariants: it is atomic per NC, and one bad item fails alone; `held = (held - released), topped up to wanted`; a grant
that is not released stays; a version rises with each change of its NC's addresses; a request whose number is not above
the last changes nothing and returns the current state.

Requests of one group commit are processed one after the other, then each subnet is re-evaluated once for all of them.
The state in between is not visible, as they share a commit.
"""

import random
from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from podpool.core.mass_loss import BreakerSettings
from podpool.ledger.domain.controller_terms import check_recovered
from podpool.ledger.domain.mass_loss_breaker import check_losses
from podpool.ledger.domain.quota import Quota
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.request_allocator import Allocator, SubnetTransaction
from podpool.ledger.domain.rows import AllocationEvent, ClusterRow, ClusterUse
from podpool.ledger.errors import LedgerError, NotFound
from podpool.ledger.messages import (
    NetworkContainerResult,
    ReconcileItem,
    ReconcileRequest,
    ReconcileResponse,
    SubnetName,
)


def reconcile(
    repo: Repository, requests: Sequence[ReconcileRequest], *, time: float, rng: random.Random, breaker: BreakerSettings
) -> list[ReconcileResponse | LedgerError]:
    """Process requests; the error of a whole request is returned, not raised: a detected restore must commit."""
    clusters = _check_terms(repo, requests, time=time)
    batch = _ReconcileBatch(repo, time=time, rng=rng, breaker=breaker)
    processed = [
        cluster if isinstance(cluster, LedgerError) else batch.process(request, cluster)
        for request, cluster in zip(requests, clusters, strict=True)
    ]
    batch.finish()
    return [each if isinstance(each, LedgerError) else batch.response(each) for each in processed]


def _check_terms(
    repo: Repository, requests: Sequence[ReconcileRequest], *, time: float
) -> list[ClusterRow | LedgerError]:
    """Return the cluster of each request, or its error; a restore that one of them reveals ends all terms."""
    epoch = repo.epoch
    checked = [
        check_recovered(repo, each.cluster, term=each.term, known_revision=each.known_revision, time=time)
        for each in requests
    ]
    return checked if repo.epoch == epoch else _check_terms(repo, requests, time=time)


class _Processed(msgspec.Struct, frozen=True):
    """A processed request."""

    request: ReconcileRequest
    new: bool
    results: Sequence[NetworkContainerResult]
    subnets: Sequence[SubnetTransaction]
    events: Sequence[AllocationEvent]


class _ReconcileBatch:
    """Requests that share a commit: the current state of their clusters, and a transaction for each subnet."""

    def __init__(self, repo: Repository, *, time: float, rng: random.Random, breaker: BreakerSettings) -> None:
        self._repo = repo
        self._time = time
        self._rng = rng
        self._breaker = breaker
        self._clusters: dict[str, ClusterRow] = {}
        self._subnets: dict[SubnetName, SubnetTransaction | None] = {}

    def process(self, request: ReconcileRequest, cluster: ClusterRow) -> _Processed:
        """Bring the NCs of one request to their desired state."""
        cluster = self._clusters.get(request.cluster, cluster)
        new = request.number > cluster.number
        if new:
            cluster = replace(cluster, number=request.number)
            cluster = check_losses(self._repo, cluster, request, settings=self._breaker, time=self._time)
        subnets: list[SubnetTransaction] = []
        events: list[AllocationEvent] = []
        results: dict[int, NetworkContainerResult] = {}
        for name, indices in _by_subnet(request.items):
            subnet = self._subnet(name)
            if subnet is None:
                results.update(dict.fromkeys(indices, _no_subnet(name)))
                continue
            quota = Quota(cluster, subnet.allocations, elsewhere=self._use_elsewhere(cluster, name))
            allocator = Allocator(subnet, cluster=cluster, quota=quota, rng=self._rng)
            items = [request.items[index] for index in indices]
            outcomes = allocator.reconcile(items) if new else allocator.show(items)
            results.update(zip(indices, outcomes, strict=True))
            subnets.append(subnet)
            events += allocator.events
        if new:
            closed = sum(event.closed for event in events)
            losses = cluster.losses + (self._time,) * closed
            self._clusters[cluster.id] = replace(cluster, losses=losses) if closed else cluster
        return _Processed(request, new, [results[index] for index in range(len(request.items))], subnets, events)

    def finish(self) -> None:
        """Write the clusters, and re-evaluate the subnets."""
        for cluster in self._clusters.values():
            self._repo.put_cluster(cluster)
        for subnet in self._subnets.values():
            if subnet is not None:
                subnet.finish()

    def response(self, processed: _Processed) -> ReconcileResponse:
        """Log the events of a request, and return its response."""
        request, repo, subnets = processed.request, self._repo, processed.subnets
        if processed.events:
            kind = f"reconcile {request.term}.{request.number}"
            repo.log(at=self._time, cluster=request.cluster, kind=kind, events=processed.events)
        return ReconcileResponse(
            revision=repo.revision,
            results=tuple(processed.results),
            subnets=tuple(subnet.state for subnet in subnets),
            servable=tuple(id_ for subnet in subnets for id_ in subnet.servable(request.cluster)),
            changed=processed.new,
        )

    def _use_elsewhere(self, cluster: ClusterRow, name: SubnetName) -> ClusterUse:
        """Return what a cluster with a quota has in the other subnets of a network."""
        limits = cluster.limits
        if limits.max_addresses is None and limits.max_network_containers is None:
            return ClusterUse()
        found = []
        for row in self._repo.subnets():
            subnet = self._subnets.get(row.name)
            use = subnet.allocations.use(cluster.id) if subnet else (row.usage or {}).get(cluster.id, ClusterUse())
            found += [use] if row.name != name else []
        return ClusterUse(sum(use.network_containers for use in found), sum(use.held for use in found))

    def _subnet(self, name: SubnetName) -> SubnetTransaction | None:
        if name not in self._subnets:
            row = self._repo.subnet(name)
            self._subnets[name] = None if row is None else SubnetTransaction(self._repo, row, time=self._time)
        return self._subnets[name]


def _by_subnet(items: Sequence[ReconcileItem]) -> list[tuple[SubnetName, list[int]]]:
    """Return the indices of items by subnet, in the order in which subnets are locked."""
    indices: dict[SubnetName, list[int]] = {}
    for index, item in enumerate(items):
        indices.setdefault(item.subnet, []).append(index)
    return sorted(indices.items(), key=lambda each: (each[0].network, each[0].name))


def _no_subnet(name: SubnetName) -> NetworkContainerResult:
    error = NotFound(f"there is no subnet {name}: create it, or correct the name", field="subnet")
    return NetworkContainerResult(error=error.response)
