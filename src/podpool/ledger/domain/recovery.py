"""Recovery after a restore: the inventories of the clusters, less their released grants, become the database.

Invariants: nothing is granted in a subnet before all its members have sent their inventory. An inventory overrides the
restored database. Two inventories that claim one address are an ownership conflict, which an operator resolves; until
then the subnet grants nothing and the state of both NCs is not returned. An NC's version becomes one above the highest
of the database, the inventory and its agent's report, so that the next state is newer than any earlier one.

An NC that is in the database but in no inventory keeps what no inventory claims: its NNC may be about to be created.
"""

from collections.abc import Iterable
from itertools import groupby

from msgspec.structs import replace

from podpool.core.errors import InvalidInput
from podpool.ledger.domain.address_block import PRIMARY
from podpool.ledger.domain.allocations import AllocatedAddress, Allocations, event_entries
from podpool.ledger.domain.item_validation import check_item, parse_uuid
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.row_to_message import nc_state
from podpool.ledger.domain.rows import AllocationEvent, ClusterRow, NcRow, OwnershipConflictRow, SubnetRow
from podpool.ledger.domain.subnet_reevaluation import reevaluate, reevaluate_due, with_request
from podpool.ledger.errors import Conflict, Invalid, NotFound, OwnershipDisputed
from podpool.ledger.messages import (
    Inventory,
    InventoryItem,
    InventoryResponse,
    NetworkContainerResult,
    OwnershipConflict,
    PendingInventory,
    RecoveryStatus,
    ResolveConflictRequest,
    SubnetName,
)


def apply_inventory(repo: Repository, inventory: Inventory, cluster: ClusterRow, *, time: float) -> None:
    """Make a cluster's inventory the state of the database; all of it is checked before anything is written."""
    subnets = [_checked_subnet(repo, item, cluster=cluster) for item in inventory.network_containers]
    _reject_duplicates(inventory.network_containers)
    repo.advance_revision()
    _detach_from_nodes(repo, inventory.network_containers)
    events: list[AllocationEvent] = []
    order = sorted(zip(subnets, inventory.network_containers, strict=True), key=lambda pair: pair[0].number)
    for subnet, pairs in groupby(order, key=lambda pair: pair[0]):
        recovered = _SubnetRecovery(repo, subnet, cluster=cluster, time=time)
        for _, item in pairs:
            recovered.apply(item)
        events += recovered.events
        reevaluate(recovered.allocations, before=subnet)
    repo.put_cluster(replace(cluster, epoch=repo.epoch))
    clear_pending_inventories(repo, cluster.id, time=time)
    repo.log(at=time, cluster=cluster.id, kind=f"inventory {inventory.term}", events=events)


def inventory_response(repo: Repository, inventory: Inventory, *, time: float) -> InventoryResponse:
    """Return the state of each NC of an inventory."""
    disputed = {number for row in repo.conflicts() for number in (row.holder, row.claimant)}
    found = [repo.nc(each.nc_id) for each in inventory.network_containers]
    own = [nc if nc and nc.cluster == inventory.cluster else None for nc in found]
    ids = {nc.id for nc in own if nc}
    conflicts = tuple(each for each in ownership_conflicts(repo) if ids & {each.holder, each.claimant})
    results = [_result(repo, nc, disputed, time=time) for nc in own]
    return InventoryResponse(revision=repo.revision, results=tuple(results), conflicts=conflicts)


def networks_awaiting(repo: Repository, cluster: str) -> list[str]:
    """Return the networks that wait for a cluster's inventory; raises NotFound if there is none."""
    networks = sorted({network for id_, network, _ in repo.pending_inventories() if id_ == cluster})
    if not networks:
        raise NotFound(f"no inventory of cluster {cluster} is pending", field="cluster")
    return networks


def excuse(repo: Repository, cluster: str, *, time: float) -> None:
    """Recover without a cluster's inventory. It sends one when it returns, which may then raise conflicts."""
    if not any(id_ == cluster for id_, *_ in repo.pending_inventories()):
        return
    repo.advance_revision()
    clear_pending_inventories(repo, cluster, time=time)
    repo.log(at=time, cluster=cluster, kind="excused", events=())


def clear_pending_inventories(repo: Repository, cluster: str, *, time: float) -> None:
    """Require no inventory of a cluster, and re-evaluate the subnets that waited for it."""
    pending = [each for each in repo.pending_inventories() if each[0] == cluster]
    repo.clear_pending_inventories(cluster)
    for _, network, name in pending:
        subnet = repo.subnet(SubnetName(network=network, name=name))
        if subnet is not None:
            reevaluate_due(repo, subnet.number, time=time, notify=True)


def resolve_conflict(repo: Repository, request: ResolveConflictRequest, *, time: float) -> None:
    """Assign an address that two inventories claim to one NC; the other loses it."""
    subnet = repo.subnet(request.subnet)
    if subnet is None:
        raise NotFound(f"there is no subnet {request.subnet}", field="subnet")
    address = _parse_address(subnet, request.address, field="address")
    claims = [each for each in repo.conflicts() if (each.subnet, each.address) == (subnet.number, address)]
    winner = repo.nc(request.nc_id)
    if not claims:
        raise NotFound(f"{request.address} has no ownership conflict", field="address")
    if winner is None or winner.number not in {each for claim in claims for each in (claim.holder, claim.claimant)}:
        raise NotFound(f"network container {request.nc_id} does not claim {request.address}", field="nc_id")
    repo.advance_revision()
    allocations = Allocations(repo, subnet, time=time)
    events = [_resolve_claim(allocations, claim, winner=winner.number) for claim in claims]
    resolved = repo.delete_conflicts(subnet=subnet.number, address=address)
    allocations.subnet = replace(allocations.subnet, conflicts=allocations.subnet.conflicts - resolved)
    reevaluate(allocations, before=subnet)
    repo.log(at=time, cluster=winner.cluster, kind="conflict resolved", events=events)


def recovery_status(repo: Repository) -> RecoveryStatus:
    """Return the inventories that are missing, and the ownership conflicts."""
    return RecoveryStatus(
        revision=repo.revision,
        pending_inventories=tuple(
            PendingInventory(subnet=SubnetName(network=network, name=name), cluster=cluster)
            for cluster, network, name in repo.pending_inventories()
        ),
        conflicts=ownership_conflicts(repo),
    )


def ownership_conflicts(repo: Repository) -> tuple[OwnershipConflict, ...]:
    """Return the addresses with two owners."""
    return tuple(
        OwnershipConflict(
            subnet=subnet.name,
            address=subnet.layout.text(row.address),
            holder=repo.nc_by_number(row.holder).id,
            claimant=repo.nc_by_number(row.claimant).id,
        )
        for row in repo.conflicts()
        for subnet in (repo.subnet_by_number(row.subnet),)
    )


class _SubnetRecovery:
    """The part of an inventory that concerns one subnet."""

    def __init__(self, repo: Repository, subnet: SubnetRow, *, cluster: ClusterRow, time: float) -> None:
        self.allocations = Allocations(repo, subnet, time=time)
        self.events: list[AllocationEvent] = []
        self._repo = repo
        self._cluster = cluster

    def apply(self, item: InventoryItem) -> None:
        """Make an NC what its inventory says."""
        before = self._repo.nc(item.nc_id)
        if before is not None and before.closed:  # it was closed before the copy was made: closed for good
            self.events.append(AllocationEvent(nc_id=item.nc_id, note="listed, but closed"))
            return
        self._close_predecessor(item)
        nc = with_request(self.allocations, before or self._added(item), item)
        released = frozenset(item.released)
        claimed = {each.address: each for each in self._claims(item)}
        kept = {address: each for address, each in claimed.items() if each.primary or each.id not in released}
        dropped = [each for each in self.allocations.held(nc) if each.address not in kept]
        for held in dropped:
            listed = held.address in claimed or held.id in released
            nc = self.allocations.release(nc, held, cooled_seconds=item.cooled_seconds if listed else 0.0)
        for address, held in claimed.items():
            if address in kept:
                nc = self._claim(nc, held)
            else:
                self.allocations.cool_down(address, cooled_seconds=item.cooled_seconds)
        accepted = item.report.version if item.report else 0
        nc = replace(nc, version=max(nc.version, item.version, accepted) + 1)
        self.allocations.save(before, nc)
        granted, released_entries = event_entries(self.allocations.held(nc)), event_entries(dropped)
        self.events.append(AllocationEvent(nc_id=nc.id, granted=granted, released=released_entries, note="listed"))

    def _close_predecessor(self, item: InventoryItem) -> None:
        """Close the NC that the database has for the same node: it was followed by the listed one."""
        cluster, subnet = self._cluster.id, self.allocations.subnet.number
        nc = self._repo.nc_of_node(cluster=cluster, node=item.node, node_uid=item.node_uid, subnet=subnet)
        if nc is None or nc.id == item.nc_id:
            return
        self.allocations.close(nc)
        self.events.append(AllocationEvent(nc_id=nc.id, closed=True, note=f"followed by {item.nc_id}"))

    def _claims(self, item: InventoryItem) -> list[AllocatedAddress]:
        """Return the addresses that an item claims, the primary first."""
        parse, allocated = self.allocations.layout.parse, self.allocations.allocated
        claims = [allocated(parse(item.primary, what="primary"), PRIMARY)] if item.primary else []
        return claims + [allocated(parse(grant.address, what="grants"), parse_uuid(grant.id)) for grant in item.grants]

    def _claim(self, nc: NcRow, held: AllocatedAddress) -> NcRow:
        """Assign an address to its claimant, unless another inventory has claimed it."""
        holder = self.allocations.holder(held.address)
        if holder is not None and holder != nc.number:
            other = self._repo.nc_by_number(holder)
            if other.epoch == self._repo.epoch:
                self._add_conflict(nc, held, holder=holder)
                return nc
            _take_away(self.allocations, other, held.address)
        return self.allocations.assign(nc, held.address, held.grant)

    def _add_conflict(self, nc: NcRow, held: AllocatedAddress, *, holder: int) -> None:
        subnet, address, grant = self.allocations.subnet, held.address, held.grant
        claim = {"subnet": subnet.number, "address": address, "holder": holder, "claimant": nc.number}
        self._repo.add_conflict(OwnershipConflictRow(**claim, grant=grant))
        self.allocations.subnet = replace(subnet, conflicts=subnet.conflicts + 1)

    def _added(self, item: InventoryItem) -> NcRow:
        name = item.subnet
        self._repo.add_member((self._cluster.id, name.network, name.name))
        return self._repo.add_nc(
            NcRow(
                number=0,
                id=item.nc_id,
                cluster=self._cluster.id,
                subnet=self.allocations.subnet.number,
                node=item.node,
                node_uid=item.node_uid,
            )
        )


def _result(repo: Repository, nc: NcRow | None, disputed: set[int], *, time: float) -> NetworkContainerResult:
    if nc is None:
        error = NotFound("the ledger has no such network container", field="nc_id")
        return NetworkContainerResult(error=error.response)
    if nc.number in disputed:
        disputed_error = OwnershipDisputed(f"network container {nc.id} has an ownership conflict", field="nc_id")
        return NetworkContainerResult(error=disputed_error.response)
    allocations = Allocations(repo, repo.subnet_by_number(nc.subnet), time=time)
    return NetworkContainerResult(state=nc_state(allocations, nc))


def _checked_subnet(repo: Repository, item: InventoryItem, *, cluster: ClusterRow) -> SubnetRow:
    """Check an item against the database; returns its subnet."""
    check_item(item)
    subnet = repo.subnet(item.subnet)
    if subnet is None:
        remedy = "create it as it was, then send the inventory again"
        raise NotFound(f"there is no subnet {item.subnet}: {remedy}", field="subnet")
    parse_uuid(item.nc_id, field="nc_id")
    nc = repo.nc(item.nc_id)
    if nc is not None and (nc.cluster, nc.subnet, nc.node) != (cluster.id, subnet.number, item.node):
        raise Conflict(f"network container {item.nc_id} belongs to another cluster, subnet or node", field="nc_id")
    for grant in item.grants:
        parse_uuid(grant.id)
        _parse_address(subnet, grant.address, field="grants")
    if item.primary:
        _parse_address(subnet, item.primary, field="primary")
    return subnet


def _parse_address(subnet: SubnetRow, text: str, *, field: str) -> int:
    try:
        return subnet.layout.parse(text, what=field)
    except InvalidInput as error:
        raise Invalid(str(error), field=field) from None


def _reject_duplicates(items: Iterable[InventoryItem]) -> None:
    known: set[object] = set()
    for item in items:
        place = (item.subnet, item.node, item.node_uid)
        addresses = [item.primary, *(grant.address for grant in item.grants)]
        if item.nc_id in known or place in known or len(set(addresses)) < len(addresses):
            listed_twice = f"network container {item.nc_id}, its node or one of its addresses is listed twice"
            raise Invalid(listed_twice, field="network_containers")
        known.update((item.nc_id, place))


def _detach_from_nodes(repo: Repository, items: Iterable[InventoryItem]) -> None:
    """Detach NCs from Nodes that they have left, so that others can be attached there in any order."""
    for item in items:
        nc = repo.nc(item.nc_id)
        if nc is not None and not nc.closed and nc.node_uid != item.node_uid:
            repo.put_nc(replace(nc, node_uid=f"was {nc.id}"))


def _resolve_claim(allocations: Allocations, claim: OwnershipConflictRow, *, winner: int) -> AllocationEvent:
    """Decide one claim; the loser gets a new version too, so that its status is written."""
    claimant = allocations.repo.nc_by_number(claim.claimant)
    after, held = replace(claimant, version=claimant.version + 1), allocations.allocated(claim.address, claim.grant)
    won = claim.claimant == winner
    if won:
        _take_away(allocations, allocations.repo.nc_by_number(claim.holder), claim.address)
        after = allocations.assign(after, claim.address, claim.grant)
    allocations.save(claimant, after)
    granted = event_entries([held] if won else [])
    return AllocationEvent(nc_id=claimant.id, granted=granted, note=f"conflict over {held.text} resolved")


def _take_away(allocations: Allocations, nc: NcRow, address: int) -> None:
    held = next(each for each in allocations.held(nc) if each.address == address)
    after = allocations.release(nc, held, cooled_seconds=0.0)
    allocations.save(nc, replace(after, version=nc.version + 1))
