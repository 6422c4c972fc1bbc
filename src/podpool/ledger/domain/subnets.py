"""Administration of subnets: create, grow, drain, delete, and show their usage."""

from collections.abc import Sequence
from itertools import groupby

from msgspec.structs import replace

from podpool.core.cooldown_levels import MAX_COOLDOWN
from podpool.core.errors import InvalidInput
from podpool.core.quantities import show_duration
from podpool.core.settings import Settings
from podpool.ledger.admin_messages import ClusterUsage, NetworkSummary, SubnetDetails
from podpool.ledger.domain.allocations import Allocations
from podpool.ledger.domain.history import index_events
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.row_to_message import subnet_state
from podpool.ledger.domain.rows import NcRow, SubnetRow
from podpool.ledger.domain.scaling_policy import reserved, scaler_ladder
from podpool.ledger.domain.subnet_layout import subnet_layout
from podpool.ledger.domain.subnet_reevaluation import reevaluate
from podpool.ledger.domain.token_scope import TokenScope
from podpool.ledger.errors import Conflict, Invalid, NotFound
from podpool.ledger.messages import SubnetGrowth, SubnetName, SubnetSpec

_NAME_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_MAX_NAME_LENGTH = 63


def existing_subnet(repo: Repository, name: SubnetName) -> SubnetRow:
    """Return a subnet; raises NotFound if there is none."""
    row = repo.subnet(name)
    if row is None:
        raise NotFound(f"there is no subnet {name}", field="subnet")
    return row


def check_names(spec: SubnetSpec) -> None:
    """Check the names of a new subnet: they are used in Kubernetes names, label values and URL paths."""
    for field, text in (("network", spec.network), ("name", spec.name)):
        if not 0 < len(text) <= _MAX_NAME_LENGTH or not set(text) <= _NAME_CHARACTERS or text.strip("-") != text:
            rule = f"use at most {_MAX_NAME_LENGTH} lower-case letters, digits and dashes, no dash at either end"
            raise Invalid(str(InvalidInput(field, text, rule)), field=field)


def create_subnet(repo: Repository, spec: SubnetSpec, *, time: float) -> SubnetRow:
    """Create a subnet; if it exists with the same spec, return it."""
    try:
        row = _checked(spec)
    except InvalidInput as error:
        raise Invalid(str(error), field=error.what) from None
    existing = repo.subnet(row.name)
    if existing is not None:
        if existing.spec != row.spec:
            raise Conflict(f"subnet {row.name} exists with a different spec", field="name")
        return existing
    _reject_overlap(repo, row)
    row = repo.add_subnet(replace(row, revision=repo.advance_revision()))
    # a restored database may have lost this subnet: clusters whose inventory is missing may hold addresses of it
    pending = dict.fromkeys(cluster for cluster, _, _ in repo.pending_inventories())
    repo.require_inventories((cluster, spec.network, spec.name) for cluster in pending)
    repo.log(at=time, cluster="", kind=f"subnet {row.name} created", events=())
    return row


def grow_subnet(repo: Repository, name: SubnetName, growth: SubnetGrowth, *, time: float) -> SubnetRow:
    """Add addresses to a subnet; a repeated growth changes nothing."""
    before = existing_subnet(repo, name)
    if growth in before.growths:
        return before
    row = replace(before, growths=(*before.growths, growth))
    try:
        new = row.layout.members - before.layout.members
    except InvalidInput as error:
        raise Invalid(str(error), field=error.what) from None
    if (before.layout.members - row.layout.members).size:
        raise Invalid("excluded_ranges may contain only new addresses", field="excluded_ranges")
    _reject_overlap(repo, row)
    first_new = before.layout.segments[-1].end
    row = replace(row, next_block=first_new if row.next_block is None else row.next_block)
    allocations = Allocations(repo, row, time=time)
    allocations.changed = True
    for edge in before.layout.edges:  # a network or broadcast address may have become usable
        if edge in new:
            allocations.include(edge)
    reevaluate(allocations, before=before)
    repo.log(at=time, cluster="", kind=f"subnet {name} grown by {growth.cidr}", events=())
    return allocations.subnet


def drain_subnet(repo: Repository, name: SubnetName, *, draining: bool, time: float) -> SubnetRow:
    """Stop granting in a subnet, or start again; idle addresses return as nodes release them."""
    before = existing_subnet(repo, name)
    if before.draining == draining:
        return before
    allocations = Allocations(repo, replace(before, draining=draining), time=time)
    reevaluate(allocations, before=before)
    repo.log(at=time, cluster="", kind=f"subnet {name} {'draining' if draining else 'reopened'}", events=())
    return allocations.subnet


def delete_subnet(repo: Repository, name: SubnetName, *, time: float) -> None:
    """Delete a subnet without NCs, and without addresses that cool down."""
    row = existing_subnet(repo, name)
    now, _ = row.time_at(time)
    if repo.pending_inventories(name):
        raise Conflict(f"subnet {name} recovers: wait until all inventories are in", field="subnet")
    ncs, addresses = len(repo.ncs_in_subnet(row.number)), reserved(row, now)
    if ncs or addresses:
        busy = f"it has {ncs} network containers, and {addresses} addresses are held or cool down"
        raise Conflict(f"subnet {name} is not empty: {busy}; drain it, and wait", field="subnet")
    while index_events(repo):  # the history needs the rows of its NCs
        pass
    repo.advance_revision()
    repo.delete_subnet_row(row)
    repo.log(at=time, cluster="", kind=f"subnet {name} deleted", events=())


def details(repo: Repository, name: SubnetName, *, cluster: str | None, time: float) -> SubnetDetails:
    """Return a subnet with its usage per cluster; for a cluster, only its own."""
    row = existing_subnet(repo, name)
    allocations = Allocations(repo, row, time=time)
    ncs = [each for each in repo.ncs_in_subnet(row.number) if cluster in (None, each.cluster)]
    by_cluster = groupby(sorted(ncs, key=lambda each: (each.cluster, each.number)), key=lambda each: each.cluster)
    return SubnetDetails(
        state=subnet_state(repo, row, time=time),
        spec=row.spec,
        growths=row.growths,
        clusters=tuple(_usage(allocations, id_, list(group)) for id_, group in by_cluster),
    )


def networks(repo: Repository, *, scope: TokenScope, time: float) -> list[NetworkSummary]:
    """Return the networks of all subnets within a scope."""
    summaries = []
    found = [row for row in repo.subnets() if scope.allows(row.name)]
    for name, group in groupby(found, key=lambda row: row.spec.network):
        rows = list(group)
        summaries.append(
            NetworkSummary(
                name=name,
                subnets=tuple(row.spec.name for row in rows),
                capacity=sum(row.layout.capacity for row in rows),
                reserved=sum(reserved(row, row.time_at(time)[0]) for row in rows),
            )
        )
    return summaries


def _usage(allocations: Allocations, cluster: str, ncs: Sequence[NcRow]) -> ClusterUsage:
    return ClusterUsage(
        cluster=cluster,
        network_containers=len(ncs),
        held=sum(len(allocations.held(nc)) for nc in ncs),
        waiting=sum(nc.pod_shortage for nc in ncs),
        waiting_for_buffer=sum(nc.buffer_shortage for nc in ncs),
    )


def _reject_overlap(repo: Repository, row: SubnetRow) -> None:
    for other in repo.subnets():
        theirs = row.layout.overlaps(other.layout) if other.number != row.number else None
        if theirs is not None:
            raise Conflict(f"{row.layout} overlaps {theirs} of subnet {other.name}", field="cidr")


def _checked(spec: SubnetSpec) -> SubnetRow:
    """Check every field of a spec; returns the row of the new subnet."""
    shared = set(spec.__struct_fields__) & set(Settings.__struct_fields__)
    Settings(**{name: getattr(spec, name) for name in shared})
    if spec.cooldown_roomy > MAX_COOLDOWN:
        raise InvalidInput("cooldown_roomy", spec.cooldown_roomy, f"must be at most {show_duration(MAX_COOLDOWN)}")
    subnet_layout(spec.cidr, spec.gateway, spec.excluded_ranges)
    row = SubnetRow(number=0, spec=spec, usage={})
    return replace(row, totals=(0,) * len(scaler_ladder(row)))
