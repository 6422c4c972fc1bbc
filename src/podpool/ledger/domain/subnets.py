"""Making, growing, emptying and deleting subnets, and showing who holds them."""

from collections.abc import Sequence
from itertools import groupby

from msgspec.structs import replace

from podpool.core.errors import InvalidInput
from podpool.core.quantities import show_duration
from podpool.core.settings import Settings
from podpool.ledger.admin_messages import ClusterUsage, NetworkSummary, SubnetDetails
from podpool.ledger.domain.allocations import Allocations
from podpool.ledger.domain.convert import subnet_state
from podpool.ledger.domain.history import index_events
from podpool.ledger.domain.scaling_policy import reserved, rungs_of
from podpool.ledger.domain.settle import finish
from podpool.ledger.domain.subnet_layout import subnet_layout
from podpool.ledger.errors import Conflict, Invalid, NotFound
from podpool.ledger.messages import SubnetGrowth, SubnetSpec, SubnetName
from podpool.ledger.domain.rows import NetworkContainerRow, SubnetRow
from podpool.ledger.domain.repository import Repository

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST_NAME = 63
_LONGEST_COOLDOWN = 86_400.0


def found(repo: Repository, name: SubnetName) -> SubnetRow:
    """Find a subnet that should be there."""
    row = repo.subnet(name)
    if row is None:
        raise NotFound(f"there is no subnet {name}", field="subnet")
    return row


def create_subnet(repo: Repository, new: SubnetSpec, *, wall: float) -> SubnetRow:
    """Make a subnet; the same again is the one that is there."""
    try:
        row = _checked(new)
    except InvalidInput as error:
        raise Invalid(str(error), field=error.what) from None
    there = repo.subnet(row.name)
    if there is not None:
        if there.spec != row.spec:
            raise Conflict(f"there is a subnet {row.name} already, and it is another", field="name")
        return there
    _refuse_overlap(repo, row)
    row = repo.add_subnet(replace(row, revision=repo.advance_revision()))
    # books that were restored may have lost this very subnet: who has not listed may have something in it
    pending_inventories = dict.fromkeys(cluster for cluster, _, _ in repo.pending_inventories())
    repo.require_inventories((cluster, new.network, new.name) for cluster in pending_inventories)
    repo.log(at=wall, cluster="", kind=f"subnet {row.name} made", events=())
    return row


def grow_subnet(repo: Repository, name: SubnetName, growth: SubnetGrowth, *, wall: float) -> SubnetRow:
    """Give a subnet more addresses; the same again changes nothing."""
    before = found(repo, name)
    if growth in before.growths:
        return before
    row = replace(before, growths=(*before.growths, growth))
    try:
        new = row.layout.members - before.layout.members
    except InvalidInput as error:
        raise Invalid(str(error), field=error.what) from None
    if (before.layout.members - row.layout.members).size:
        raise Invalid("keep_back may name only addresses that are new", field="keep_back")
    _refuse_overlap(repo, row)
    ends = before.layout.stretches[-1].end
    allocations = Allocations(repo, replace(row, next_block=ends if row.next_block is None else row.next_block), wall=wall)
    allocations.changed = True
    for edge in before.layout.edges:  # what was a network or broadcast address may be one in the middle now
        if edge in new:
            allocations.open_up(edge)
    finish(allocations, before=before)
    repo.log(at=wall, cluster="", kind=f"subnet {name} grown by {growth.cidr}", events=())
    return allocations.subnet


def drain_subnet(repo: Repository, name: SubnetName, *, draining: bool, wall: float) -> SubnetRow:
    """Grant nothing in a subnet any more, or again; idle addresses come back as its nodes let go of them."""
    before = found(repo, name)
    if before.draining == draining:
        return before
    allocations = Allocations(repo, replace(before, draining=draining), wall=wall)
    finish(allocations, before=before)
    repo.log(at=wall, cluster="", kind=f"subnet {name} {'drains' if draining else 'reopened'}", events=())
    return allocations.subnet


def delete_subnet(repo: Repository, name: SubnetName, *, wall: float) -> None:
    """Forget a subnet that nobody has anything in, not even resting."""
    row = found(repo, name)
    now, _ = row.time_at(wall)
    if repo.pending_inventories(name):
        raise Conflict(f"subnet {name} recovers: somebody may have something in it", field="subnet")
    open_ones, busy = len(repo.ncs_in_subnet(row.number)), reserved(row, now)
    if open_ones or busy:
        told = f"subnet {name} is not empty: it has {open_ones} containers, and {busy} addresses are held or rest"
        raise Conflict(f"{told}; drain it, and wait", field="subnet")
    while index_events(repo):  # its containers' names are needed for that
        pass
    repo.advance_revision()
    repo.delete_subnet_row(row)
    repo.log(at=wall, cluster="", kind=f"subnet {name} deleted", events=())


def details(repo: Repository, name: SubnetName, *, cluster: str | None, wall: float) -> SubnetDetails:
    """Show a subnet with who holds it; to a cluster, only itself."""
    row = found(repo, name)
    allocations = Allocations(repo, row, wall=wall)
    rows = [each for each in repo.ncs_in_subnet(row.number) if cluster in (None, each.cluster)]
    by_cluster = groupby(sorted(rows, key=lambda each: (each.cluster, each.number)), key=lambda each: each.cluster)
    return SubnetDetails(
        state=subnet_state(repo, row, wall=wall),
        spec=row.spec,
        growths=row.growths,
        holders=tuple(_holder(allocations, id_, list(group)) for id_, group in by_cluster),
    )


def networks(repo: Repository, *, wall: float) -> list[NetworkSummary]:
    """Show the networks that subnets are in."""
    shown = []
    for name, group in groupby(repo.subnets(), key=lambda row: row.spec.network):
        rows = list(group)
        shown.append(
            NetworkSummary(
                name=name,
                subnets=tuple(row.spec.name for row in rows),
                capacity=sum(row.layout.capacity for row in rows),
                reserved=sum(reserved(row, row.time_at(wall)[0]) for row in rows),
            )
        )
    return shown


def _holder(allocations: Allocations, cluster: str, rows: Sequence[NetworkContainerRow]) -> ClusterUsage:
    return ClusterUsage(
        cluster=cluster,
        network_containers=len(rows),
        held=sum(len(allocations.held(row)) for row in rows),
        waiting=sum(row.pod_shortage for row in rows),
        waiting_for_buffer=sum(row.buffer_shortage for row in rows),
    )


def _refuse_overlap(repo: Repository, row: SubnetRow) -> None:
    for other in repo.subnets(network=row.spec.network):
        theirs = row.layout.overlaps(other.layout) if other.number != row.number else None
        if theirs is not None:
            raise Conflict(f"{row.layout} overlaps {theirs} of subnet {other.name}", field="cidr")


def _checked(new: SubnetSpec) -> SubnetRow:
    """Check every field; a subnet that is made is a good one."""
    _check_name("network", new.network)
    _check_name("name", new.name)
    Settings(
        batch=new.batch,
        buffer=new.buffer,
        upper_threshold=new.upper_threshold,
        lower_threshold=new.lower_threshold,
        cooldown=new.cooldown,
        cooldown_exhausted=new.cooldown_exhausted,
        reserved_for_primaries=new.reserved_for_primaries,
        step_up_margin=new.step_up_margin,
        step_up_hold=new.step_up_hold,
    )
    if new.cooldown > _LONGEST_COOLDOWN:
        raise InvalidInput("cooldown", new.cooldown, f"must be at most {show_duration(_LONGEST_COOLDOWN)}")
    subnet_layout(new.cidr, new.gateway, new.excluded_ranges)
    row = SubnetRow(number=0, spec=new)
    return SubnetRow(number=0, spec=new, totals=(0,) * len(rungs_of(row)))


def _check_name(field: str, text: str) -> None:
    """Names become Kubernetes names, label values and parts of paths."""
    if not 0 < len(text) <= _LONGEST_NAME or not set(text) <= _LETTERS or text.strip("-") != text:
        rule = f"use at most {_LONGEST_NAME} lower-case letters, digits and dashes, no dash at either end"
        raise InvalidInput(field, text, rule)
