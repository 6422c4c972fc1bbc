"""After a restore: the lists of the clusters, less the grants that were named, become the books.

What must hold: nothing is granted in a subnet before everybody who has something in it has listed. A list counts more
than restored books; two lists that claim one address are an alarm that a person settles, and until then the subnet
grants nothing and tells nothing of the two. A container's version becomes one above the highest of the books, the list
and what its agent reports, so that whatever is told next is newer than anything that was ever told.

A container that the books know and no list shows keeps what nobody lists: perhaps its NNC is being made anew just now.
"""

from collections.abc import Iterable
from itertools import groupby

from msgspec.structs import replace

from podpool.core.errors import InvalidInput
from podpool.ledger.domain.allocations import AllocatedAddress, Allocations, told
from podpool.ledger.domain.scaling_policy import scaler_of
from podpool.ledger.domain.settle import finish, tend, with_load
from podpool.ledger.domain.validation import check, grant_bytes
from podpool.ledger.errors import Conflict, Invalid, NotFound
from podpool.ledger.messages import OwnershipConflict, PendingInventory, InventoryItem, Inventory, RecoveryStatus, ResolveConflictRequest, SubnetName
from podpool.ledger.domain.block import PRIMARY
from podpool.ledger.domain.rows import OwnershipConflictRow, ClusterRow, NetworkContainerRow, AllocationEvent, SubnetRow
from podpool.ledger.domain.repository import Repository


def take_listing(repo: Repository, listing: Inventory, cluster: ClusterRow, *, wall: float) -> None:
    """Make the books from a cluster's list; all of it is checked before anything is done."""
    rows = [_checked(repo, listed, cluster=cluster) for listed in listing.network_containers]
    _refuse_twins(listing.network_containers)
    repo.advance_revision()
    _loosen(repo, listing.network_containers)
    events: list[AllocationEvent] = []
    order = sorted(zip(rows, listing.network_containers, strict=True), key=lambda pair: pair[0].number)
    for subnet, pairs in groupby(order, key=lambda pair: pair[0]):
        desk = _Desk(repo, subnet, cluster=cluster, wall=wall)
        for _, listed in pairs:
            desk.take_in(listed)
        events += desk.events
        finish(desk.allocations, before=subnet)
    repo.put_cluster(replace(cluster, epoch=repo.epoch))
    thawing = [name for id_, *name in repo.pending_inventories() if id_ == cluster.id]
    repo.clear_pending_inventories(cluster.id)
    _tend_all(repo, thawing, wall=wall)
    repo.log(at=wall, cluster=cluster.id, kind=f"listing {listing.term}", events=events)


def excuse(repo: Repository, cluster: str, *, wall: float) -> None:
    """Wait for a cluster no longer. It lists all the same when it returns, and may then raise alarms."""
    pending_inventories = [name for id_, *name in repo.pending_inventories() if id_ == cluster]
    if not pending_inventories:
        raise NotFound(f"cluster {cluster} is not waited for", field="cluster")
    repo.advance_revision()
    repo.clear_pending_inventories(cluster)
    _tend_all(repo, pending_inventories, wall=wall)
    repo.log(at=wall, cluster=cluster, kind="excused", events=())


def settle(repo: Repository, decision: ResolveConflictRequest, *, wall: float) -> None:
    """Give an address that two lists claim to one of them; the other has it no more."""
    subnet = repo.subnet(decision.subnet)
    if subnet is None:
        raise NotFound(f"there is no subnet {decision.subnet}", field="subnet")
    address = _member(subnet, decision.address, field="address")
    claims = [each for each in repo.conflicts() if (each.subnet, each.address) == (subnet.number, address)]
    winner = repo.nc(decision.nc_id)
    if not claims:
        raise NotFound(f"{decision.address} has no two owners", field="address")
    if winner is None or winner.number not in {each for claim in claims for each in (claim.holder, claim.claimant)}:
        raise NotFound(f"container {decision.nc_id} does not claim {decision.address}", field="nc_id")
    repo.advance_revision()
    allocations = Allocations(repo, subnet, wall=wall)
    events = [_settle_claim(allocations, claim, winner=winner.number) for claim in claims]
    dropped = repo.delete_conflicts(subnet=subnet.number, address=address)
    allocations.subnet = replace(allocations.subnet, conflicts=allocations.subnet.conflicts - dropped)
    finish(allocations, before=subnet)
    repo.log(at=wall, cluster=winner.cluster, kind="settled", events=events)


def recovery_state(repo: Repository) -> RecoveryStatus:
    """Show whom the ledger waits for, and what must be settled."""
    return RecoveryStatus(
        revision=repo.revision,
        pending_inventories=tuple(
            PendingInventory(subnet=SubnetName(network=network, name=name), cluster=cluster)
            for cluster, network, name in repo.pending_inventories()
        ),
        conflicts=conflicts(repo),
    )


def conflicts(repo: Repository) -> tuple[OwnershipConflict, ...]:
    """Show the addresses with two owners."""
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


class _Desk:
    """One subnet's part of a list."""

    def __init__(self, repo: Repository, subnet: SubnetRow, *, cluster: ClusterRow, wall: float) -> None:
        self.allocations = Allocations(repo, subnet, wall=wall)
        self.events: list[AllocationEvent] = []
        self._books = repo
        self._cluster = cluster

    def take_in(self, listed: InventoryItem) -> None:
        """Make a container what its list says."""
        before = self._books.nc(listed.nc_id)
        if before is not None and before.closed:  # it was given up before the copy was made: closed for good
            self.events.append(AllocationEvent(nc_id=listed.nc_id, note="listed, but closed"))
            return
        self._close_forerunner(listed)
        row = self._noted(before or self._added(listed), listed)
        names = frozenset(listed.released)
        claimed = {each.address: each for each in self._claims(listed)}
        kept = {address: each for address, each in claimed.items() if each.primary or each.id not in names}
        dropped = [each for each in self.allocations.held(row) if each.address not in kept]
        for held in dropped:
            seen = held.address in claimed or held.id in names
            row = self.allocations.release(row, held, cooled_seconds=listed.cooled_seconds if seen else 0.0)
        for address, held in claimed.items():
            if address in kept:
                row = self._claim(row, held)
            else:
                self.allocations.rest(address, cooled_seconds=listed.cooled_seconds)
        accepted = listed.report.version if listed.report else 0
        row = replace(row, version=max(row.version, listed.version, accepted) + 1)
        self.allocations.save(before, row)
        self.events.append(self._event(row, dropped))

    def _close_forerunner(self, listed: InventoryItem) -> None:
        """Close the container that the books have for the same node, if no list has it: it was followed by this one."""
        row = self._books.nc_of_node(
            cluster=self._cluster.id,
            node=listed.node,
            node_uid=listed.node_uid,
            subnet=self.allocations.subnet.number,
        )
        if row is None or row.id == listed.nc_id:
            return
        after = row
        for held in self.allocations.held(row):
            after = self.allocations.release(after, held, cooled_seconds=0.0)
        self.allocations.save(row, replace(after.shut(), version=row.version + 1))
        self.events.append(AllocationEvent(nc_id=row.id, closed=True, note=f"followed by {listed.nc_id}"))

    def _claims(self, listed: InventoryItem) -> list[AllocatedAddress]:
        """Read what a list claims; the primary first."""
        parse, hold = self.allocations.layout.parse, self.allocations.hold
        claims = [hold(parse(listed.primary, what="primary"), PRIMARY)] if listed.primary else []
        return claims + [hold(parse(grant.address, what="grants"), grant_bytes(grant.id)) for grant in listed.grants]

    def _claim(self, row: NetworkContainerRow, held: AllocatedAddress) -> NetworkContainerRow:
        """Give an address to its claimant, unless another list has claimed it."""
        holder = self.allocations.holder(held.address)
        if holder is not None and holder != row.number:
            other = self._books.nc_by_number(holder)
            if other.epoch == self._books.epoch:
                self._raise_alarm(row, held, holder=holder)
                return row
            _take_away(self.allocations, other, held.address)
        return self.allocations.assign(row, held.address, held.grant)

    def _raise_alarm(self, row: NetworkContainerRow, held: AllocatedAddress, *, holder: int) -> None:
        subnet = self.allocations.subnet
        self._books.add_conflict(
            OwnershipConflictRow(subnet=subnet.number, address=held.address, holder=holder, claimant=row.number, grant=held.grant)
        )
        self.allocations.subnet = replace(subnet, conflicts=subnet.conflicts + 1)

    def _added(self, listed: InventoryItem) -> NetworkContainerRow:
        name = listed.subnet
        self._books.add_member((self._cluster.id, name.network, name.name))
        return self._books.add_nc(
            NetworkContainerRow(
                number=0,
                id=listed.nc_id,
                cluster=self._cluster.id,
                subnet=self.allocations.subnet.number,
                node=listed.node,
                node_uid=listed.node_uid,
            )
        )

    def _noted(self, row: NetworkContainerRow, listed: InventoryItem) -> NetworkContainerRow:
        noted = replace(
            row,
            node_uid=listed.node_uid,
            boot_id=listed.boot_id or row.boot_id,
            epoch=self._books.epoch,
            wanted=listed.wanted,
            released=listed.released,
            cooled_seconds=listed.cooled_seconds,
            report=listed.report,
            pinned=listed.pinned,
        )
        offered = scaler_of(self.allocations.subnet)
        return with_load(noted, offered=offered, maximum=listed.maximum, now=self.allocations.now)

    def _event(self, row: NetworkContainerRow, dropped: Iterable[AllocatedAddress]) -> AllocationEvent:
        return AllocationEvent(
            nc_id=row.id,
            granted=told(self.allocations.held(row)),
            released=told(dropped),
            note="listed",
        )


def _checked(repo: Repository, listed: InventoryItem, *, cluster: ClusterRow) -> SubnetRow:
    """Check a listed container against the books; tell its subnet."""
    check(listed)
    subnet = repo.subnet(listed.subnet)
    if subnet is None:
        raise NotFound(f"there is no subnet {listed.subnet}: create it as it was, then list again", field="subnet")
    grant_bytes(listed.nc_id, field="nc_id")
    row = repo.nc(listed.nc_id)
    if row is not None and (row.cluster, row.subnet, row.node) != (cluster.id, subnet.number, listed.node):
        raise Conflict(f"container {listed.nc_id} is in the books as another's", field="nc_id")
    for grant in listed.grants:
        grant_bytes(grant.id)
        _member(subnet, grant.address, field="grants")
    if listed.primary:
        _member(subnet, listed.primary, field="primary")
    return subnet


def _member(subnet: SubnetRow, text: str, *, field: str) -> int:
    try:
        return subnet.layout.parse(text, what=field)
    except InvalidInput as error:
        raise Invalid(str(error), field=field) from None


def _refuse_twins(containers: Iterable[InventoryItem]) -> None:
    known: set[object] = set()
    for listed in containers:
        place = (listed.subnet, listed.node, listed.node_uid)
        addresses = [listed.primary, *(grant.address for grant in listed.grants)]
        if listed.nc_id in known or place in known or len(set(addresses)) < len(addresses):
            raise Invalid(
                f"container {listed.nc_id}, its node or an address of it is listed twice", field="containers"
            )
        known.update((listed.nc_id, place))


def _loosen(repo: Repository, containers: Iterable[InventoryItem]) -> None:
    """Take containers off the Nodes that they are not on any more, so that others can be put there in any order."""
    for listed in containers:
        row = repo.nc(listed.nc_id)
        if row is not None and not row.closed and row.node_uid != listed.node_uid:
            repo.put_nc(replace(row, node_uid=f"was {row.id}"))


def _settle_claim(allocations: Allocations, claim: OwnershipConflictRow, *, winner: int) -> AllocationEvent:
    """Let one claim win or fail; whoever loses gets a new version, so that it is told."""
    claimant = allocations.repo.nc_by_number(claim.claimant)
    after, held = replace(claimant, version=claimant.version + 1), allocations.hold(claim.address, claim.grant)
    won = claim.claimant == winner
    if won:
        _take_away(allocations, allocations.repo.nc_by_number(claim.holder), claim.address)
        after = allocations.assign(after, claim.address, claim.grant)
    allocations.save(claimant, after)
    return AllocationEvent(nc_id=claimant.id, granted=told([held] if won else []), note=f"{held.text} settled")


def _take_away(allocations: Allocations, row: NetworkContainerRow, address: int) -> None:
    held = next(each for each in allocations.held(row) if each.address == address)
    after = allocations.release(row, held, cooled_seconds=0.0)
    allocations.save(row, replace(after, version=row.version + 1))


def _tend_all(repo: Repository, names: Iterable[list[str]], *, wall: float) -> None:
    for network, name in names:
        subnet = repo.subnet(SubnetName(network=network, name=name))
        if subnet is not None:
            tend(repo, subnet.number, wall=wall, announce=True)
