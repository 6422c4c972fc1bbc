"""Conversion of database rows into messages of the API."""

from collections.abc import Iterable
from operator import attrgetter

from podpool.ledger.domain.allocations import AllocatedAddress, Allocations
from podpool.ledger.domain.ledger_time import timestamp
from podpool.ledger.domain.quota import address_reason
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import NcRow, SubnetRow
from podpool.ledger.domain.scaling_policy import reserved, scaler_of
from podpool.ledger.domain.subnet_reevaluation import is_frozen
from podpool.ledger.messages import Grant, NetworkContainerRecord, NetworkContainerState, SubnetState, Utilization


def nc_state(
    allocations: Allocations, nc: NcRow, held: Iterable[AllocatedAddress] | None = None
) -> NetworkContainerState:
    """Return the addresses of an NC."""
    quota, network = "", allocations.subnet.spec.network
    if nc.quota_shortage:
        quota = address_reason(allocations.repo.cluster(nc.cluster, network=network), network)
    addresses = sorted(allocations.held(nc) if held is None else held, key=attrgetter("address"))
    return NetworkContainerState(
        nc_id=nc.id,
        subnet=allocations.subnet.name,
        version=nc.version,
        primary=next((each.text for each in addresses if each.primary), ""),
        grants=tuple([Grant(id=each.id, address=each.text) for each in addresses if each.id]),
        shortage=nc.pod_shortage + nc.buffer_shortage + nc.quota_shortage,
        shortage_reason=quota or None,
        closed=nc.closed,
    )


def nc_record(allocations: Allocations, nc: NcRow) -> NetworkContainerRecord:
    """Return the addresses of an NC and the last request for it."""
    return NetworkContainerRecord(
        state=nc_state(allocations, nc),
        node=nc.node,
        node_uid=nc.node_uid,
        boot_id=nc.boot_id,
        wanted=nc.wanted,
        released=nc.released,
        cooled_seconds=nc.cooled_seconds,
        report=nc.report,
        pinned=nc.pinned,
    )


def subnet_state(repo: Repository, subnet: SubnetRow, *, time: float) -> SubnetState:
    """Return the state of a subnet."""
    now, _ = subnet.time_at(time)
    layout, cooling_down = subnet.layout, subnet.cooling_down(now)
    cidr, *additional_cidrs = layout.cidrs
    return SubnetState(
        subnet=subnet.name,
        revision=subnet.revision,
        timestamp=timestamp(repo, time),
        cidr=cidr,
        additional_cidrs=tuple(additional_cidrs),
        gateway=subnet.spec.gateway,
        capacity=layout.capacity,
        reserved=subnet.held + cooling_down,
        cooling_down=cooling_down,
        excluded=layout.excluded,
        reserved_for_primaries=subnet.spec.reserved_for_primaries,
        cooldown=subnet.cooldown,
        shortest_cooldown=subnet.spec.cooldown_exhausted,
        network_containers=subnet.network_containers,
        scaler=scaler_of(subnet),
        exhausted=subnet.exhausted,
        projected=subnet.totals[subnet.grade.rung],
        waiting=subnet.pod_shortage,
        waiting_for_buffer=subnet.buffer_shortage,
        frozen=is_frozen(repo, subnet, now),
        draining=subnet.draining,
    )


def utilization(repo: Repository, subnet: SubnetRow, *, time: float) -> Utilization:
    """Return the utilization of a subnet, from its row alone."""
    now, _ = subnet.time_at(time)
    return Utilization(timestamp=timestamp(repo, time), capacity=subnet.layout.capacity, reserved=reserved(subnet, now))
