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
from podpool.ledger.domain.allocations import Held, Holdings, told
from podpool.ledger.domain.scaling_policy import scaler_of
from podpool.ledger.domain.settle import finish, tend, with_load
from podpool.ledger.domain.validation import check, grant_bytes
from podpool.ledger.errors import Conflict, Invalid, NotFound
from podpool.ledger.messages import Alarm, Awaited, ListedContainer, Listing, Recovery, Settle, SubnetName
from podpool.ledger.storage.block import PRIMARY
from podpool.ledger.storage.rows import AlarmRow, ClusterRow, ContainerRow, Event, SubnetRow
from podpool.ledger.storage.store import Books


def take_listing(books: Books, listing: Listing, cluster: ClusterRow, *, wall: float) -> None:
    """Make the books from a cluster's list; all of it is checked before anything is done."""
    rows = [_checked(books, listed, cluster=cluster) for listed in listing.containers]
    _refuse_twins(listing.containers)
    books.advance()
    _loosen(books, listing.containers)
    events: list[Event] = []
    order = sorted(zip(rows, listing.containers, strict=True), key=lambda pair: pair[0].number)
    for subnet, pairs in groupby(order, key=lambda pair: pair[0]):
        desk = _Desk(books, subnet, cluster=cluster, wall=wall)
        for _, listed in pairs:
            desk.take_in(listed)
        events += desk.events
        finish(desk.holdings, before=subnet)
    books.put_cluster(replace(cluster, epoch=books.epoch))
    thawing = [name for id_, *name in books.awaited() if id_ == cluster.id]
    books.stop_awaiting(cluster.id)
    _tend_all(books, thawing, wall=wall)
    books.log(at=wall, cluster=cluster.id, kind=f"listing {listing.term}", events=events)


def excuse(books: Books, cluster: str, *, wall: float) -> None:
    """Wait for a cluster no longer. It lists all the same when it returns, and may then raise alarms."""
    awaited = [name for id_, *name in books.awaited() if id_ == cluster]
    if not awaited:
        raise NotFound(f"cluster {cluster} is not waited for", field="cluster")
    books.advance()
    books.stop_awaiting(cluster)
    _tend_all(books, awaited, wall=wall)
    books.log(at=wall, cluster=cluster, kind="excused", events=())


def settle(books: Books, decision: Settle, *, wall: float) -> None:
    """Give an address that two lists claim to one of them; the other has it no more."""
    subnet = books.subnet(decision.subnet)
    if subnet is None:
        raise NotFound(f"there is no subnet {decision.subnet}", field="subnet")
    address = _member(subnet, decision.address, field="address")
    claims = [each for each in books.alarms() if (each.subnet, each.address) == (subnet.number, address)]
    winner = books.container(decision.container)
    if not claims:
        raise NotFound(f"{decision.address} has no two owners", field="address")
    if winner is None or winner.number not in {each for claim in claims for each in (claim.holder, claim.claimant)}:
        raise NotFound(f"container {decision.container} does not claim {decision.address}", field="container")
    books.advance()
    holdings = Holdings(books, subnet, wall=wall)
    events = [_settle_claim(holdings, claim, winner=winner.number) for claim in claims]
    dropped = books.drop_alarms(subnet=subnet.number, address=address)
    holdings.subnet = replace(holdings.subnet, alarms=holdings.subnet.alarms - dropped)
    finish(holdings, before=subnet)
    books.log(at=wall, cluster=winner.cluster, kind="settled", events=events)


def recovery_state(books: Books) -> Recovery:
    """Show whom the ledger waits for, and what must be settled."""
    return Recovery(
        revision=books.revision,
        awaited=tuple(
            Awaited(subnet=SubnetName(network=network, name=name), cluster=cluster)
            for cluster, network, name in books.awaited()
        ),
        alarms=alarms(books),
    )


def alarms(books: Books) -> tuple[Alarm, ...]:
    """Show the addresses with two owners."""
    return tuple(
        Alarm(
            subnet=subnet.name,
            address=subnet.ground.text(row.address),
            holder=books.container_at(row.holder).id,
            claimant=books.container_at(row.claimant).id,
        )
        for row in books.alarms()
        for subnet in (books.subnet_at(row.subnet),)
    )


class _Desk:
    """One subnet's part of a list."""

    def __init__(self, books: Books, subnet: SubnetRow, *, cluster: ClusterRow, wall: float) -> None:
        self.holdings = Holdings(books, subnet, wall=wall)
        self.events: list[Event] = []
        self._books = books
        self._cluster = cluster

    def take_in(self, listed: ListedContainer) -> None:
        """Make a container what its list says."""
        before = self._books.container(listed.container)
        if before is not None and before.closed:  # it was given up before the copy was made: closed for good
            self.events.append(Event(container=listed.container, note="listed, but closed"))
            return
        self._close_forerunner(listed)
        row = self._noted(before or self._added(listed), listed)
        names = frozenset(listed.released)
        claimed = {each.address: each for each in self._claims(listed)}
        kept = {address: each for address, each in claimed.items() if each.primary or each.id not in names}
        dropped = [each for each in self.holdings.held(row) if each.address not in kept]
        for held in dropped:
            seen = held.address in claimed or held.id in names
            row = self.holdings.release(row, held, rested=listed.rested if seen else 0.0)
        for address, held in claimed.items():
            if address in kept:
                row = self._claim(row, held)
            else:
                self.holdings.rest(address, rested=listed.rested)
        accepted = listed.report.version if listed.report else 0
        row = replace(row, version=max(row.version, listed.version, accepted) + 1)
        self.holdings.save(before, row)
        self.events.append(self._event(row, dropped))

    def _close_forerunner(self, listed: ListedContainer) -> None:
        """Close the container that the books have for the same node, if no list has it: it was followed by this one."""
        row = self._books.container_of(
            cluster=self._cluster.id,
            node=listed.node,
            node_uid=listed.node_uid,
            subnet=self.holdings.subnet.number,
        )
        if row is None or row.id == listed.container:
            return
        after = row
        for held in self.holdings.held(row):
            after = self.holdings.release(after, held, rested=0.0)
        self.holdings.save(row, replace(after.shut(), version=row.version + 1))
        self.events.append(Event(container=row.id, closed=True, note=f"followed by {listed.container}"))

    def _claims(self, listed: ListedContainer) -> list[Held]:
        """Read what a list claims; the primary first."""
        parse, hold = self.holdings.ground.parse, self.holdings.hold
        claims = [hold(parse(listed.primary, what="primary"), PRIMARY)] if listed.primary else []
        return claims + [hold(parse(grant.address, what="grants"), grant_bytes(grant.id)) for grant in listed.grants]

    def _claim(self, row: ContainerRow, held: Held) -> ContainerRow:
        """Give an address to its claimant, unless another list has claimed it."""
        holder = self.holdings.holder(held.address)
        if holder is not None and holder != row.number:
            other = self._books.container_at(holder)
            if other.epoch == self._books.epoch:
                self._raise_alarm(row, held, holder=holder)
                return row
            _take_away(self.holdings, other, held.address)
        return self.holdings.assign(row, held.address, held.grant)

    def _raise_alarm(self, row: ContainerRow, held: Held, *, holder: int) -> None:
        subnet = self.holdings.subnet
        self._books.add_alarm(
            AlarmRow(subnet=subnet.number, address=held.address, holder=holder, claimant=row.number, grant=held.grant)
        )
        self.holdings.subnet = replace(subnet, alarms=subnet.alarms + 1)

    def _added(self, listed: ListedContainer) -> ContainerRow:
        name = listed.subnet
        self._books.add_member((self._cluster.id, name.network, name.name))
        return self._books.add_container(
            ContainerRow(
                number=0,
                id=listed.container,
                cluster=self._cluster.id,
                subnet=self.holdings.subnet.number,
                node=listed.node,
                node_uid=listed.node_uid,
            )
        )

    def _noted(self, row: ContainerRow, listed: ListedContainer) -> ContainerRow:
        noted = replace(
            row,
            node_uid=listed.node_uid,
            boot_id=listed.boot_id or row.boot_id,
            epoch=self._books.epoch,
            wanted=listed.wanted,
            released=listed.released,
            rested=listed.rested,
            report=listed.report,
            pinned=listed.pinned,
        )
        offered = scaler_of(self.holdings.subnet)
        return with_load(noted, offered=offered, maximum=listed.maximum, now=self.holdings.now)

    def _event(self, row: ContainerRow, dropped: Iterable[Held]) -> Event:
        return Event(
            container=row.id,
            granted=told(self.holdings.held(row)),
            released=told(dropped),
            note="listed",
        )


def _checked(books: Books, listed: ListedContainer, *, cluster: ClusterRow) -> SubnetRow:
    """Check a listed container against the books; tell its subnet."""
    check(listed)
    subnet = books.subnet(listed.subnet)
    if subnet is None:
        raise NotFound(f"there is no subnet {listed.subnet}: create it as it was, then list again", field="subnet")
    grant_bytes(listed.container, field="container")
    row = books.container(listed.container)
    if row is not None and (row.cluster, row.subnet, row.node) != (cluster.id, subnet.number, listed.node):
        raise Conflict(f"container {listed.container} is in the books as another's", field="container")
    for grant in listed.grants:
        grant_bytes(grant.id)
        _member(subnet, grant.address, field="grants")
    if listed.primary:
        _member(subnet, listed.primary, field="primary")
    return subnet


def _member(subnet: SubnetRow, text: str, *, field: str) -> int:
    try:
        return subnet.ground.parse(text, what=field)
    except InvalidInput as error:
        raise Invalid(str(error), field=field) from None


def _refuse_twins(containers: Iterable[ListedContainer]) -> None:
    known: set[object] = set()
    for listed in containers:
        place = (listed.subnet, listed.node, listed.node_uid)
        addresses = [listed.primary, *(grant.address for grant in listed.grants)]
        if listed.container in known or place in known or len(set(addresses)) < len(addresses):
            raise Invalid(
                f"container {listed.container}, its node or an address of it is listed twice", field="containers"
            )
        known.update((listed.container, place))


def _loosen(books: Books, containers: Iterable[ListedContainer]) -> None:
    """Take containers off the Nodes that they are not on any more, so that others can be put there in any order."""
    for listed in containers:
        row = books.container(listed.container)
        if row is not None and not row.closed and row.node_uid != listed.node_uid:
            books.put_container(replace(row, node_uid=f"was {row.id}"))


def _settle_claim(holdings: Holdings, claim: AlarmRow, *, winner: int) -> Event:
    """Let one claim win or fail; whoever loses gets a new version, so that it is told."""
    claimant = holdings.books.container_at(claim.claimant)
    after, held = replace(claimant, version=claimant.version + 1), holdings.hold(claim.address, claim.grant)
    won = claim.claimant == winner
    if won:
        _take_away(holdings, holdings.books.container_at(claim.holder), claim.address)
        after = holdings.assign(after, claim.address, claim.grant)
    holdings.save(claimant, after)
    return Event(container=claimant.id, granted=told([held] if won else []), note=f"{held.text} settled")


def _take_away(holdings: Holdings, row: ContainerRow, address: int) -> None:
    held = next(each for each in holdings.held(row) if each.address == address)
    after = holdings.release(row, held, rested=0.0)
    holdings.save(row, replace(after, version=row.version + 1))


def _tend_all(books: Books, names: Iterable[list[str]], *, wall: float) -> None:
    for network, name in names:
        subnet = books.subnet(SubnetName(network=network, name=name))
        if subnet is not None:
            tend(books, subnet.number, wall=wall, announce=True)
