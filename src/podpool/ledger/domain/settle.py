"""What is done in a subnet after every change, and when time alone changes something.

Those who can be served are called, and who was called and did not come lets the turn pass. Rung and exhaustion are
decided anew. When the scaler changes, foreign requests are read anew: they may answer the old one for a while.
"""

from msgspec.structs import replace

from podpool.core.batch_policy import Load
from podpool.core.inferred_demand import infer_demand
from podpool.core.scaling import Scaler
from podpool.ledger.domain.allocations import Allocations
from podpool.ledger.domain.fair_queue import PASSED, PATIENCE, Waiter, shares
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import NetworkContainerRow, SubnetRow
from podpool.ledger.domain.scaling_policy import judge, scaler_of

FOREIGN_PATIENCE = 60.0
"""How long a foreign agent may take to answer a change of the scaler: it polls, and is written to one by one."""


def is_frozen(books: Repository, subnet: SubnetRow, now: float) -> bool:
    """Tell whether nothing may be granted: lists are missing, an address has two owners, or lost rests may run."""
    return now < subnet.quiet_until or subnet.alarms > 0 or bool(books.awaited(subnet.name))


def with_load(
    row: NetworkContainerRow,
    *,
    offered: Scaler,
    maximum: int,
    now: float,
) -> NetworkContainerRow:
    """Work out what a container counts for: from its agent's report, or from how its request must be read."""
    if row.report is not None:
        load = Load(row.report.demand, maximum=maximum, pinned=row.pinned)
        return replace(row, load=load, reading=None)
    reading = infer_demand(
        row.reading, now=now, requested=row.wanted, offered=row.pinned or offered, patience=FOREIGN_PATIENCE
    )
    return replace(row, reading=reading, load=Load(reading.demand(primaries=1), maximum=maximum, pinned=row.pinned))


def tend(books: Repository, number: int, *, wall: float, announce: bool = False) -> None:
    """Do what is due in a subnet; announce it even when nothing in its row has changed."""
    subnet = books.subnet_at(number)
    holdings = Allocations(books, subnet, wall=wall)
    holdings.changed = announce
    finish(holdings, before=subnet)


def finish(holdings: Allocations, *, before: SubnetRow) -> None:
    """Bring a subnet to rest after changes, and write it, unless it is as it was."""
    holdings.flush()
    _pass_turns(holdings)
    _call(holdings)
    judged = judge(holdings.subnet, holdings.now)
    reread_at = judged.reread_at
    if scaler_of(judged) != scaler_of(before) or (reread_at is not None and reread_at <= holdings.now):
        holdings.subnet = judged
        _reread(holdings)
        judged = judge(holdings.subnet, holdings.now)
    elif reread_at is None and judged.unsettled:
        judged = judge(replace(judged, reread_at=holdings.now + FOREIGN_PATIENCE), holdings.now)
    elif reread_at is not None and not judged.unsettled:
        judged = judge(replace(judged, reread_at=None), holdings.now)
    holdings.subnet = judged
    if holdings.changed or not _same(before, judged):
        holdings.subnet = replace(judged, revision=holdings.books.advance())
        holdings.books.put_subnet(holdings.subnet)


def servable(books: Repository, subnet: SubnetRow, *, spare: int) -> list[NetworkContainerRow]:
    """List the containers that are short and would be given something now, first come first."""
    rows = waiters(books, subnet, limit=spare) if spare > 0 else {}
    return [rows[number] for number in shares(map(waiter_of, rows.values()), spare)] if rows else []


def waiter_of(row: NetworkContainerRow, *, here: bool = False) -> Waiter:
    """Tell what a container is short of."""
    return Waiter(
        container=row.number,
        need=row.need,
        need_since=row.need_since,
        wish=row.wish,
        wish_since=row.wish_since,
        here=here,
    )


def waiters(books: Repository, subnet: SubnetRow, *, limit: int) -> dict[int, NetworkContainerRow]:
    """Find those who are short: as many as can have a part in so many addresses."""
    rows = books.needing(subnet.number, limit) if subnet.need else []
    rows += books.wishing(subnet.number, limit) if subnet.wish else []
    return {row.number: row for row in rows}


def _call(holdings: Allocations) -> None:
    """Note since when those are called who can be served now."""
    subnet, now = holdings.subnet, holdings.now
    if not (subnet.need or subnet.wish) or is_frozen(holdings.books, subnet, now):
        return
    for row in servable(holdings.books, subnet, spare=holdings.spare):
        if row.called is None and not _passed(row):
            holdings.save(row, replace(row, called=now))
            lapse_at = holdings.subnet.lapse_at
            holdings.subnet = replace(holdings.subnet, lapse_at=lapse_at or now + PATIENCE)


def _pass_turns(holdings: Allocations) -> None:
    """Send to the end of the line whoever was called and has not come."""
    lapse_at = holdings.subnet.lapse_at
    if lapse_at is None or lapse_at > holdings.now:
        return
    everybody = waiters(holdings.books, holdings.subnet, limit=holdings.subnet.need + holdings.subnet.wish)
    still = [PASSED]
    for row in everybody.values():
        if row.called is not None and row.called + PATIENCE <= holdings.now:
            holdings.save(row, _sent_back(row))
        elif row.called is not None:
            still.append(row.called + PATIENCE)
    earliest = min(still)
    holdings.subnet = replace(holdings.subnet, lapse_at=None if earliest == PASSED else earliest)


def _sent_back(row: NetworkContainerRow) -> NetworkContainerRow:
    return replace(
        row,
        called=None,
        need_since=None if row.need_since is None else PASSED,
        wish_since=None if row.wish_since is None else PASSED,
    )


def _passed(row: NetworkContainerRow) -> bool:
    return PASSED in (row.need_since, row.wish_since)


def _reread(holdings: Allocations) -> None:
    """Read every foreign request with the scaler that is offered now."""
    now, offered = holdings.now, scaler_of(holdings.subnet)
    waiting_for: list[float] = []
    for row in holdings.books.foreign(holdings.subnet.number):
        maximum = row.load.maximum if row.load else 0
        read = with_load(row, offered=offered, maximum=maximum, now=now)
        holdings.save(row, read)
        if read.reading and not read.reading.settled:
            waiting_for.append(read.reading.offered_at + FOREIGN_PATIENCE)
    holdings.subnet = replace(holdings.subnet, reread_at=min(waiting_for, default=None))


def _same(before: SubnetRow, after: SubnetRow) -> bool:
    """Compare two states of a subnet, but for the passing of time."""
    return before == replace(
        after, latest=before.latest, shift=before.shift, awake=before.awake, resting=before.resting
    )
