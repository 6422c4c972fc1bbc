"""Who held which address when, down to the Pod where its cluster reported it.

A call logs one event, whatever it moved; what is asked for later is made from events afterwards, a few at a time, so
that no grant waits for it. A question reads what is still unread first: its answer has everything that was answered.
"""

import datetime as dt
import math
from typing import Any

from msgspec.structs import replace

from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.ledger.admin_messages import History, PodReport, PodUse, ReportedUse, Tenure
from podpool.ledger.domain.convert import timestamp
from podpool.ledger.errors import Invalid
from podpool.ledger.messages import SubnetName
from podpool.ledger.storage.rows import Event, PodRow, Question, TenureRow
from podpool.ledger.storage.store import Books

MOST_TENURES = 1000
"""In one answer."""
MOST_PODS = 5000
"""In one report."""

_EVENTS = 64
"""Read in one work: about ten milliseconds, for which callers wait."""
_TRIMMED = 500
"""Rows of a kind forgotten in one work."""
_LONGEST_TEXT = 253


def read_events(books: Books) -> bool:
    """Read some events; tell whether there may be more."""
    rows = books.unread_events(_EVENTS)
    for row in rows:
        for event in row.events:
            _read(books, event, at=row.at)
    if rows:
        books.mark_read(row.number for row in rows)
    return len(rows) == _EVENTS


def trim(books: Books, *, before: float) -> bool:
    """Forget some of what is older; tell whether there may be more."""
    return books.trim_history(before=before, limit=_TRIMMED) >= _TRIMMED


def take_report(books: Books, report: PodReport) -> int:
    """Write down which Pods have which addresses; all of it is checked first."""
    if len(report.pods) > MOST_PODS:
        raise Invalid(f"{len(report.pods)} Pods are too many for one report: send {MOST_PODS} at once", field="pods")
    rows = [_pod_row(report.cluster, use) for use in report.pods]
    for row in rows:
        books.put_pod(row)
    return len(rows)


def history(books: Books, question: Question, *, kept: float) -> History:
    """Tell who held an address, or what a node or a Pod held, at some moment of a time; the latest first."""
    if question.by == "address":
        question = replace(question, value=_address(question.value, field="address"))
    rows = [] if question.by == "name" else books.tenures(question)
    tenures = [_tenure(books, row, begin=question.begin, end=question.end) for row in rows]
    uses = [ReportedUse(cluster=row.cluster, **_fields(row)) for row in books.reported(question)]
    return History(kept=kept, tenures=tuple(tenures), uses=tuple(uses))


def moment(text: str, *, field: str) -> float:
    """Read a moment: `2026-11-16T02:30:00Z`."""
    try:
        parsed = dt.datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"{text!r} is not a moment: write it as 2026-11-16T02:30:00Z", field=field) from None
    if parsed.tzinfo is None:
        raise Invalid(f"{text!r} does not say in which time zone: write it as 2026-11-16T02:30:00Z", field=field)
    return parsed.timestamp()


def _read(books: Books, event: Event, *, at: float) -> None:
    container = books.container(event.container)
    if container is None:  # of a subnet that is no more
        return
    name = books.subnet_at(container.subnet).name
    for address, grant in event.released:
        for row in books.lasting_tenures(network=name.network, address=address):
            if (row.container, row.grant) == (container.id, grant):
                books.end_tenures(until=at, number=row.number)
    for address, grant in event.granted:
        lasting = books.lasting_tenures(network=name.network, address=address)
        if any((row.container, row.grant) == (container.id, grant) for row in lasting):
            continue
        for row in lasting:
            books.end_tenures(until=at, number=row.number)
        books.begin_tenure(
            TenureRow(
                network=name.network,
                subnet=name.name,
                address=address,
                cluster=container.cluster,
                node=container.node,
                container=container.id,
                grant=grant,
                since=at,
            )
        )
    if event.closed:
        books.end_tenures(until=at, container=container.id)


def _tenure(books: Books, row: TenureRow, *, begin: float, end: float) -> Tenure:
    first, last = max(begin, row.since), min(end, math.inf if row.until is None else row.until)
    pods = books.pods(network=row.network, address=row.address, cluster=row.cluster, begin=first, end=last)
    return Tenure(
        subnet=SubnetName(network=row.network, name=row.subnet),
        address=row.address,
        cluster=row.cluster,
        node=row.node,
        container=row.container,
        grant=row.grant or None,
        since=timestamp(row.since),
        until=None if row.until is None else timestamp(row.until),
        pods=tuple(PodUse(**_fields(row)) for row in pods),
    )


def _fields(row: PodRow) -> dict[str, Any]:
    fields = {name: getattr(row, name) for name in PodUse.__struct_fields__}
    return fields | {"since": timestamp(row.since), "until": None if row.until is None else timestamp(row.until)}


def _pod_row(cluster: str, use: PodUse) -> PodRow:
    for field in ("network", "namespace", "name", "uid"):
        if not 0 < len(getattr(use, field)) <= _LONGEST_TEXT:
            raise Invalid(f"a Pod's {field} must have 1 to {_LONGEST_TEXT} letters", field=f"pods.{field}")
    if len(use.node) > _LONGEST_TEXT:
        raise Invalid(f"a Node's name has at most {_LONGEST_TEXT} letters", field="pods.node")
    address = _address(use.address, field="pods.address")
    since = moment(use.since, field="pods.since")
    until = None if use.until is None else moment(use.until, field="pods.until")
    if until is not None and until < since:
        raise Invalid(f"{use.until} is before {use.since}", field="pods.until")
    return PodRow(
        network=use.network,
        address=address,
        cluster=cluster,
        uid=use.uid,
        namespace=use.namespace,
        name=use.name,
        since=since,
        until=until,
        node=use.node,
    )


def _address(text: str, *, field: str) -> str:
    try:
        return str(parse_address(text))
    except InvalidInput as error:
        raise Invalid(str(error), field=field) from None
