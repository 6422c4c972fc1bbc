"""The history: which NC held an address when, and which Pod used it, as far as its cluster reported that.

A request logs one row of events. The history is indexed from them later, a few at a time, so that no grant waits for
it. A query indexes the remaining events first: its result includes every change that was answered before.
"""

import datetime as dt
from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.ledger.admin_messages import AddressHistory, AllocationPeriod, PodReport, PodUsage, ReportedPodUsage
from podpool.ledger.domain.ledger_time import timestamp
from podpool.ledger.domain.repository import LedgerStore, Repository
from podpool.ledger.domain.rows import AllocationEvent, AllocationPeriodRow, HistoryQuery, LedgerTimeRow, PodUsageRow
from podpool.ledger.errors import Invalid
from podpool.ledger.messages import SubnetName

MAX_PERIODS = 1000
"""In one response."""
MAX_PODS = 5000
"""In one report."""

_EVENTS_PER_TRANSACTION = 64
"""Indexing takes about ten milliseconds, for which callers wait."""
_TRIMMED_PER_TRANSACTION = 500
"""Rows of each kind."""
_MAX_NAME_LENGTH = 253


def index_events(repo: Repository) -> bool:
    """Index some events; returns whether there may be more."""
    rows = repo.unindexed_events(_EVENTS_PER_TRANSACTION)
    for row in rows:
        for event in row.events:
            _index(repo, event, at=row.at)
    if rows:
        repo.mark_indexed(row.number for row in rows)
    return len(rows) == _EVENTS_PER_TRANSACTION


async def index_all(store: LedgerStore, *, network: str | None = None) -> None:
    """Index the events of one network or of all; those of earlier versions, which have no network, come first."""
    for pending in await store.query(_unindexed_networks):
        while network in (None, pending) or not pending:
            if not await store.write(index_events, network=pending):
                break


def _unindexed_networks(repo: Repository) -> list[str]:
    return repo.unindexed_networks()


def trim(repo: Repository, *, before: float) -> bool:
    """Delete some history older than a time; returns whether there may be more."""
    return repo.trim_history(before=before, limit=_TRIMMED_PER_TRANSACTION) >= _TRIMMED_PER_TRANSACTION


def record_pods(repo: Repository, report: PodReport) -> int:
    """Record the addresses of Pods; all of the report is checked first. Returns how many."""
    if len(report.pods) > MAX_PODS:
        raise Invalid(f"{len(report.pods)} Pods in one report: send at most {MAX_PODS}", field="pods")
    rows = [_pod_usage_row(repo.time_row(), report.cluster, usage) for usage in report.pods]
    for row in rows:
        repo.put_pod_usage(row)
    return len(rows)


def history(repo: Repository, query: HistoryQuery, *, retention: float) -> AddressHistory:
    """Return the history of an address, a node or a Pod within a time, the latest first."""
    if query.by == "address":
        query = replace(query, value=_canonical_address(query.value, field="address"))
    rows = [] if query.by == "name" else repo.periods(query)
    shown = [_within(row, begin=query.begin, end=query.end) for row in rows]
    periods = [_period(repo, row, usages) for row, usages in zip(rows, repo.pod_usages(shown), strict=True)]
    usages = [ReportedPodUsage(cluster=row.cluster, **_fields(repo, row)) for row in repo.reported_usages(query)]
    return AddressHistory(retention_seconds=retention, periods=tuple(periods), pod_usages=tuple(usages))


def parse_time(text: str, *, field: str) -> float:
    """Parse a time such as `2026-11-16T02:30:00Z`."""
    try:
        parsed = dt.datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{text!r} is not a time: write it as 2026-11-16T02:30:00Z", field=field) from None
    if parsed.tzinfo is None:
        raise Invalid(f"{text!r} has no time zone: write it as 2026-11-16T02:30:00Z", field=field)
    return parsed.timestamp()


def _index(repo: Repository, event: AllocationEvent, *, at: float) -> None:
    nc = repo.nc(event.nc_id)
    if nc is None:  # of a deleted subnet
        return
    name = repo.subnet_by_number(nc.subnet).name
    for address, grant in event.released:
        for row in repo.open_periods(network=name.network, address=address):
            if (row.nc_id, row.grant) == (nc.id, grant):
                repo.close_periods(until=at, number=row.number)
    for address, grant in event.granted:
        open_periods = repo.open_periods(network=name.network, address=address)
        if any((row.nc_id, row.grant) == (nc.id, grant) for row in open_periods):
            continue
        for row in open_periods:
            repo.close_periods(until=at, number=row.number)
        repo.open_period(
            AllocationPeriodRow(
                network=name.network,
                subnet=name.name,
                address=address,
                cluster=nc.cluster,
                node=nc.node,
                nc_id=nc.id,
                grant=grant,
                since=at,
            )
        )
    if event.closed:
        repo.close_periods(until=at, nc_id=nc.id)


def _within(row: AllocationPeriodRow, *, begin: float, end: float) -> AllocationPeriodRow:
    return replace(row, since=max(begin, row.since), until=end if row.until is None else min(end, row.until))


def _period(repo: Repository, row: AllocationPeriodRow, usages: Sequence[PodUsageRow]) -> AllocationPeriod:
    return AllocationPeriod(
        subnet=SubnetName(network=row.network, name=row.subnet),
        address=row.address,
        cluster=row.cluster,
        node=row.node,
        nc_id=row.nc_id,
        grant=row.grant or None,
        since=timestamp(repo, row.since),
        until=None if row.until is None else timestamp(repo, row.until),
        pods=tuple(PodUsage(**_fields(repo, each)) for each in usages),
    )


def _fields(repo: Repository, row: PodUsageRow) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in PodUsage.__struct_fields__}
    return fields | {
        "since": timestamp(repo, row.since),
        "until": None if row.until is None else timestamp(repo, row.until),
    }


def _pod_usage_row(time_row: LedgerTimeRow, cluster: str, usage: PodUsage) -> PodUsageRow:
    for field in ("network", "namespace", "name", "uid"):
        if not 0 < len(getattr(usage, field)) <= _MAX_NAME_LENGTH:
            raise Invalid(f"a Pod's {field} must have 1 to {_MAX_NAME_LENGTH} characters", field=f"pods.{field}")
    if len(usage.node) > _MAX_NAME_LENGTH:
        raise Invalid(f"a Node's name has at most {_MAX_NAME_LENGTH} characters", field="pods.node")
    address = _canonical_address(usage.address, field="pods.address")
    since = parse_time(usage.since, field="pods.since")
    until = None if usage.until is None else parse_time(usage.until, field="pods.until")
    if until is not None and until < since:
        raise Invalid(f"until {usage.until} is before since {usage.since}", field="pods.until")
    return PodUsageRow(
        network=usage.network,
        address=address,
        cluster=cluster,
        uid=usage.uid,
        namespace=usage.namespace,
        name=usage.name,
        since=time_row.time_of(since),
        until=None if until is None else time_row.time_of(until),
        node=usage.node,
    )


def _canonical_address(text: str, *, field: str) -> str:
    try:
        return str(parse_address(text))
    except InvalidInput as error:
        raise Invalid(str(error), field=field) from None
