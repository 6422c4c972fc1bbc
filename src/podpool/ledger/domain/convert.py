"""What others are shown of the books."""

import datetime as dt
from collections.abc import Iterable
from operator import attrgetter

from podpool.ledger.domain.allocations import AllocatedAddress, Allocations
from podpool.ledger.domain.scaling_policy import reserved, scaler_of
from podpool.ledger.domain.settle import is_frozen
from podpool.ledger.messages import NetworkContainerRecord, NetworkContainerState, Grant, SubnetState, Utilization
from podpool.ledger.domain.rows import NetworkContainerRow, SubnetRow
from podpool.ledger.domain.repository import Repository


def timestamp(wall: float) -> str:
    """Write a moment as RFC 3339 has it."""
    return dt.datetime.fromtimestamp(wall, dt.UTC).isoformat(timespec="milliseconds")


def nc_state(allocations: Allocations, row: NetworkContainerRow, held: Iterable[AllocatedAddress] | None = None) -> NetworkContainerState:
    """Show what a container has."""
    having = sorted(allocations.held(row) if held is None else held, key=attrgetter("address"))
    return NetworkContainerState(
        nc_id=row.id,
        subnet=allocations.subnet.name,
        version=row.version,
        primary=next((each.text for each in having if each.primary), ""),
        grants=tuple([Grant(id=each.id, address=each.text) for each in having if each.id]),
        short=row.pod_shortage + row.buffer_shortage,
        closed=row.closed,
    )


def nc_record(allocations: Allocations, row: NetworkContainerRow) -> NetworkContainerRecord:
    """Show what a container has, and what an NNC can be made again from."""
    return NetworkContainerRecord(
        state=nc_state(allocations, row),
        node=row.node,
        node_uid=row.node_uid,
        boot_id=row.boot_id,
        wanted=row.wanted,
        released=row.released,
        cooled_seconds=row.cooled_seconds,
        report=row.report,
        pinned=row.pinned,
    )


def subnet_state(repo: Repository, subnet: SubnetRow, *, wall: float) -> SubnetState:
    """Show a subnet at this moment."""
    now, _ = subnet.time_at(wall)
    layout, cooling = subnet.layout, subnet.cooling_down(now)
    cidr, *further = layout.cidrs
    return SubnetState(
        subnet=subnet.name,
        revision=subnet.revision,
        timestamp=timestamp(wall),
        cidr=cidr,
        further=tuple(further),
        gateway=subnet.spec.gateway,
        capacity=layout.capacity,
        reserved=subnet.held + cooling,
        cooling=cooling,
        excluded=layout.excluded,
        reserved_for_primaries=subnet.spec.reserved_for_primaries,
        cooldown=subnet.cooldown,
        scaler=scaler_of(subnet),
        exhausted=subnet.exhausted,
        projected=subnet.totals[subnet.grade.rung],
        waiting=subnet.pod_shortage,
        waiting_for_buffer=subnet.buffer_shortage,
        frozen=is_frozen(repo, subnet, now),
        draining=subnet.draining,
    )


def utilization(subnet: SubnetRow, *, wall: float) -> Utilization:
    """Show how full a subnet is, from its row alone."""
    now, _ = subnet.time_at(wall)
    return Utilization(timestamp=timestamp(wall), capacity=subnet.layout.capacity, reserved=reserved(subnet, now))
