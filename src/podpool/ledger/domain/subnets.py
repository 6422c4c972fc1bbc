"""Making, growing, emptying and deleting subnets, and showing who holds them."""

from collections.abc import Sequence
from itertools import groupby

from msgspec.structs import replace

from podpool.core.errors import InvalidInput
from podpool.core.quantities import show_duration
from podpool.core.settings import Settings
from podpool.ledger.admin_messages import Holder, Network, SubnetDetails
from podpool.ledger.domain.allocations import Holdings
from podpool.ledger.domain.convert import subnet_state
from podpool.ledger.domain.history import read_events
from podpool.ledger.domain.scaling_policy import reserved, rungs_of
from podpool.ledger.domain.settle import finish
from podpool.ledger.domain.subnet_layout import ground_of
from podpool.ledger.errors import Conflict, Invalid, NotFound
from podpool.ledger.messages import Growth, NewSubnet, SubnetName
from podpool.ledger.domain.rows import ContainerRow, SubnetRow
from podpool.ledger.domain.repository import Books

_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST_NAME = 63
_LONGEST_COOLDOWN = 86_400.0


def found(books: Books, name: SubnetName) -> SubnetRow:
    """Find a subnet that should be there."""
    row = books.subnet(name)
    if row is None:
        raise NotFound(f"there is no subnet {name}", field="subnet")
    return row


def create_subnet(books: Books, new: NewSubnet, *, wall: float) -> SubnetRow:
    """Make a subnet; the same again is the one that is there."""
    try:
        row = _checked(new)
    except InvalidInput as error:
        raise Invalid(str(error), field=error.what) from None
    there = books.subnet(row.name)
    if there is not None:
        if there.made != row.made:
            raise Conflict(f"there is a subnet {row.name} already, and it is another", field="name")
        return there
    _refuse_overlap(books, row)
    row = books.add_subnet(replace(row, revision=books.advance()))
    # books that were restored may have lost this very subnet: who has not listed may have something in it
    awaited = dict.fromkeys(cluster for cluster, _, _ in books.awaited())
    books.await_lists((cluster, new.network, new.name) for cluster in awaited)
    books.log(at=wall, cluster="", kind=f"subnet {row.name} made", events=())
    return row


def grow_subnet(books: Books, name: SubnetName, growth: Growth, *, wall: float) -> SubnetRow:
    """Give a subnet more addresses; the same again changes nothing."""
    before = found(books, name)
    if growth in before.grown:
        return before
    row = replace(before, grown=(*before.grown, growth))
    try:
        new = row.ground.members - before.ground.members
    except InvalidInput as error:
        raise Invalid(str(error), field=error.what) from None
    if (before.ground.members - row.ground.members).size:
        raise Invalid("keep_back may name only addresses that are new", field="keep_back")
    _refuse_overlap(books, row)
    ends = before.ground.stretches[-1].end
    holdings = Holdings(books, replace(row, next_block=ends if row.next_block is None else row.next_block), wall=wall)
    holdings.changed = True
    for edge in before.ground.edges:  # what was a network or broadcast address may be one in the middle now
        if edge in new:
            holdings.open_up(edge)
    finish(holdings, before=before)
    books.log(at=wall, cluster="", kind=f"subnet {name} grown by {growth.cidr}", events=())
    return holdings.subnet


def drain_subnet(books: Books, name: SubnetName, *, draining: bool, wall: float) -> SubnetRow:
    """Grant nothing in a subnet any more, or again; idle addresses come back as its nodes let go of them."""
    before = found(books, name)
    if before.draining == draining:
        return before
    holdings = Holdings(books, replace(before, draining=draining), wall=wall)
    finish(holdings, before=before)
    books.log(at=wall, cluster="", kind=f"subnet {name} {'drains' if draining else 'reopened'}", events=())
    return holdings.subnet


def delete_subnet(books: Books, name: SubnetName, *, wall: float) -> None:
    """Forget a subnet that nobody has anything in, not even resting."""
    row = found(books, name)
    now, _ = row.steady(wall)
    if books.awaited(name):
        raise Conflict(f"subnet {name} recovers: somebody may have something in it", field="subnet")
    open_ones, busy = len(books.containers_in(row.number)), reserved(row, now)
    if open_ones or busy:
        told = f"subnet {name} is not empty: it has {open_ones} containers, and {busy} addresses are held or rest"
        raise Conflict(f"{told}; drain it, and wait", field="subnet")
    while read_events(books):  # its containers' names are needed for that
        pass
    books.advance()
    books.remove_subnet(row)
    books.log(at=wall, cluster="", kind=f"subnet {name} deleted", events=())


def details(books: Books, name: SubnetName, *, cluster: str | None, wall: float) -> SubnetDetails:
    """Show a subnet with who holds it; to a cluster, only itself."""
    row = found(books, name)
    holdings = Holdings(books, row, wall=wall)
    rows = [each for each in books.containers_in(row.number) if cluster in (None, each.cluster)]
    by_cluster = groupby(sorted(rows, key=lambda each: (each.cluster, each.number)), key=lambda each: each.cluster)
    return SubnetDetails(
        state=subnet_state(books, row, wall=wall),
        made=row.made,
        grown=row.grown,
        holders=tuple(_holder(holdings, id_, list(group)) for id_, group in by_cluster),
    )


def networks(books: Books, *, wall: float) -> list[Network]:
    """Show the networks that subnets are in."""
    shown = []
    for name, group in groupby(books.subnets(), key=lambda row: row.made.network):
        rows = list(group)
        shown.append(
            Network(
                name=name,
                subnets=tuple(row.made.name for row in rows),
                capacity=sum(row.ground.capacity for row in rows),
                reserved=sum(reserved(row, row.steady(wall)[0]) for row in rows),
            )
        )
    return shown


def _holder(holdings: Holdings, cluster: str, rows: Sequence[ContainerRow]) -> Holder:
    return Holder(
        cluster=cluster,
        containers=len(rows),
        held=sum(len(holdings.held(row)) for row in rows),
        waiting=sum(row.need for row in rows),
        wishing=sum(row.wish for row in rows),
    )


def _refuse_overlap(books: Books, row: SubnetRow) -> None:
    for other in books.subnets(network=row.made.network):
        theirs = row.ground.overlaps(other.ground) if other.number != row.number else None
        if theirs is not None:
            raise Conflict(f"{row.ground} overlaps {theirs} of subnet {other.name}", field="cidr")


def _checked(new: NewSubnet) -> SubnetRow:
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
    ground_of(new.cidr, new.gateway, new.keep_back)
    row = SubnetRow(number=0, made=new)
    return SubnetRow(number=0, made=new, totals=(0,) * len(rungs_of(row)))


def _check_name(field: str, text: str) -> None:
    """Names become Kubernetes names, label values and parts of paths."""
    if not 0 < len(text) <= _LONGEST_NAME or not set(text) <= _LETTERS or text.strip("-") != text:
        rule = f"use at most {_LONGEST_NAME} lower-case letters, digits and dashes, no dash at either end"
        raise InvalidInput(field, text, rule)
