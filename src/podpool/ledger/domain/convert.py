"""What others are shown of the books."""

import datetime as dt
from collections.abc import Iterable
from operator import attrgetter

from podpool.ledger.domain.allocations import Held, Holdings
from podpool.ledger.domain.scaling_policy import reserved, scaler_of
from podpool.ledger.domain.settle import is_frozen
from podpool.ledger.messages import ContainerRecord, ContainerState, Grant, SubnetState, Utilization
from podpool.ledger.domain.rows import ContainerRow, SubnetRow
from podpool.ledger.domain.repository import Books


def timestamp(wall: float) -> str:
    """Write a moment as RFC 3339 has it."""
    return dt.datetime.fromtimestamp(wall, dt.UTC).isoformat(timespec="milliseconds")


def container_state(holdings: Holdings, row: ContainerRow, held: Iterable[Held] | None = None) -> ContainerState:
    """Show what a container has."""
    having = sorted(holdings.held(row) if held is None else held, key=attrgetter("address"))
    return ContainerState(
        container=row.id,
        subnet=holdings.subnet.name,
        version=row.version,
        primary=next((each.text for each in having if each.primary), ""),
        grants=tuple([Grant(id=each.id, address=each.text) for each in having if each.id]),
        short=row.need + row.wish,
        closed=row.closed,
    )


def container_record(holdings: Holdings, row: ContainerRow) -> ContainerRecord:
    """Show what a container has, and what an NNC can be made again from."""
    return ContainerRecord(
        state=container_state(holdings, row),
        node=row.node,
        node_uid=row.node_uid,
        boot_id=row.boot_id,
        wanted=row.wanted,
        released=row.released,
        rested=row.rested,
        report=row.report,
        pinned=row.pinned,
    )


def subnet_state(books: Books, subnet: SubnetRow, *, wall: float) -> SubnetState:
    """Show a subnet at this moment."""
    now, _ = subnet.steady(wall)
    ground, resting = subnet.ground, subnet.asleep(now)
    cidr, *further = ground.cidrs
    return SubnetState(
        subnet=subnet.name,
        revision=subnet.revision,
        timestamp=timestamp(wall),
        cidr=cidr,
        further=tuple(further),
        gateway=subnet.made.gateway,
        capacity=ground.capacity,
        reserved=subnet.held + resting,
        resting=resting,
        kept_back=ground.kept_back,
        reserved_for_primaries=subnet.made.reserved_for_primaries,
        cooldown=subnet.cooldown,
        scaler=scaler_of(subnet),
        exhausted=subnet.exhausted,
        projected=subnet.totals[subnet.grade.rung],
        waiting=subnet.need,
        wishing=subnet.wish,
        frozen=is_frozen(books, subnet, now),
        draining=subnet.draining,
    )


def utilization(subnet: SubnetRow, *, wall: float) -> Utilization:
    """Show how full a subnet is, from its row alone."""
    now, _ = subnet.steady(wall)
    return Utilization(timestamp=timestamp(wall), capacity=subnet.ground.capacity, reserved=reserved(subnet, now))
