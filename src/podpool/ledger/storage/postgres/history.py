"""Tokens and history in PostgreSQL, and how statements are run from within a work."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from podpool.ledger.storage.migrate import pods_asked_for, tenures_asked_for
from podpool.ledger.storage.postgres.greenlet_bridge import wait
from podpool.ledger.storage.postgres.row_cache import Shelf
from podpool.ledger.domain.rows import Event, EventRow, PodRow, Question, TenureRow, TokenRow, text_of

if TYPE_CHECKING:
    from asyncpg import Connection, Record

_token = msgspec.json.Decoder(TokenRow)
_events = msgspec.json.Decoder(tuple[Event, ...])

_TENURE = 'number, network, subnet, address, cluster, node, container, "grant", since, until'
_POD = "network, address, cluster, uid, namespace, name, since, until, node"

_BEGIN_TENURE = f"INSERT INTO tenure ({_TENURE}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)"  # noqa: S608  ours
_PUT_POD = f"""
WITH ended AS (
  UPDATE pod SET until = $7
  WHERE network = $1 AND address = $2 AND cluster = $3 AND uid <> $4 AND until IS NULL AND since < $7
)
INSERT INTO pod ({_POD}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)
ON CONFLICT (network, address, cluster, uid) DO UPDATE SET
  since = least(pod.since, excluded.since), until = greatest(pod.until, excluded.until),
  node = greatest(pod.node, excluded.node)
"""  # noqa: S608  ours
_DRAWN = 256
"""Settings of tenures that are drawn at once."""


class Slate(msgspec.Struct):
    """Tenures and Pods that a work has changed and that are not written yet."""

    lasting: dict[str, list[TenureRow]] = msgspec.field(default_factory=dict)
    """Who has the addresses that the work is about, as it is so far,"""
    addresses: dict[int, str] = msgspec.field(default_factory=dict)
    """and which address each of these tenures is of."""
    begun: list[tuple[object, ...]] = msgspec.field(default_factory=list)
    ended: list[tuple[float, int]] = msgspec.field(default_factory=list)
    closed: list[tuple[float, str]] = msgspec.field(default_factory=list)
    pods: list[tuple[object, ...]] = msgspec.field(default_factory=list)
    numbers: list[int] = msgspec.field(default_factory=list)
    """Drawn, and not used yet."""

    @property
    def used(self) -> bool:
        """Something was read for it, or is to be written."""
        return bool(self.lasting or self.begun or self.ended or self.closed or self.pods)

    def begin(self, row: TenureRow) -> None:
        """Begin a tenure."""
        self.begun.append(msgspec.structs.astuple(row))
        self.note(row)

    def note(self, row: TenureRow) -> None:
        """Note who has an address, if it is one that the work is about."""
        if row.address in self.lasting:
            self.lasting[row.address].append(row)
            self.addresses[row.number] = row.address

    def end(self, number: int, until: float) -> None:
        """End a tenure."""
        self.ended.append((until, number))
        rows = self.lasting.get(self.addresses.get(number, ""), [])
        rows[:] = [row for row in rows if row.number != number]

    def end_all(self, container: str, until: float) -> None:
        """End all that a container has."""
        self.closed.append((until, container))
        for rows in self.lasting.values():
            rows[:] = [row for row in rows if row.container != container]


class TurnWanted(BaseException):
    """What changes something at once needs the turn. Not an `Exception`: no work must take it for its own."""


class PostgresHistory:
    """The rows that no grant depends on. What is not on the shelf is read and written at once, within the turn."""

    def __init__(self, connection: "Connection", shelf: Shelf, *, in_turn: bool) -> None:
        self._sql = connection
        self._in_turn = in_turn
        self.shelf = shelf
        self.dirty = False
        self.saved = False
        """The work at hand has a savepoint."""
        self._slate = Slate()
        self.rare = False
        """Something on the shelf was changed that is not worth naming to other replicas row by row."""

    def token(self, id_: str) -> TokenRow | None:
        """Find a token."""
        tokens = self.shelf.tokens
        if id_ not in tokens.rows:
            found = self._one("SELECT row FROM token WHERE id = $1", id_)
            tokens.see(id_, _token.decode(found["row"]) if found else None)
        return tokens.rows[id_]

    def tokens(self) -> list[TokenRow]:
        """List all tokens."""
        for found in self._all("SELECT id, row FROM token"):
            self.shelf.tokens.see(found["id"], _token.decode(found["row"]))
        return sorted(self.shelf.tokens.there(), key=lambda row: row.id)

    def put_token(self, row: TokenRow) -> None:
        """Write a token."""
        self.rare = True
        self._do("INSERT INTO token VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET row = $2", row.id, text_of(row))
        self.shelf.tokens.put(row.id, row)

    def unread_events(self, limit: int) -> list[EventRow]:
        """List what was logged and not read yet."""
        found = self._all(
            "SELECT number, at, cluster, events FROM event WHERE unread = 1 ORDER BY number LIMIT $1", limit
        )
        events = [
            EventRow(number=row["number"], at=row["at"], cluster=row["cluster"], events=_events.decode(row["events"]))
            for row in found
        ]
        self._foresee(events)
        return events

    def mark_read(self, numbers: Iterable[int]) -> None:
        """Note that events were read."""
        self._do("UPDATE event SET unread = 0 WHERE number = ANY($1::bigint[])", list(numbers))

    def lasting_tenures(self, *, network: str, address: str) -> list[TenureRow]:
        """List who has an address."""
        foreseen = self._slate.lasting.get(address)
        if foreseen is None:
            return self._tenures("network = $1 AND address = $2 AND until IS NULL", network, address)
        return [row for row in foreseen if row.network == network]

    def begin_tenure(self, row: TenureRow) -> None:
        """Write a new tenure."""
        self._need_turn()
        if not self._slate.numbers:
            drawn = self._all(
                "SELECT nextval(pg_get_serial_sequence('tenure', 'number')) FROM generate_series(1, $1)", _DRAWN
            )
            self._slate.numbers = [number for (number,) in reversed(drawn)]
        self._slate.begin(msgspec.structs.replace(row, number=self._slate.numbers.pop()))

    def end_tenures(self, *, until: float, number: int | None = None, container: str | None = None) -> None:
        """Write the end of one tenure, or of all that a container has."""
        self._need_turn()
        if number is not None:
            self._slate.end(number, until)
        else:
            self._slate.end_all(container or "", until)

    def tenures(self, question: Question) -> list[TenureRow]:
        """List tenures of an address, or of a node's containers, that overlap a time."""
        condition, values = tenures_asked_for(question, "$")
        return self._tenures(condition, *values)

    def put_pod(self, row: PodRow) -> None:
        """Write what is known of a Pod and an address."""
        self._need_turn()
        self._slate.pods.append(msgspec.structs.astuple(row))

    def pods(self, *, network: str, address: str, cluster: str, begin: float, end: float) -> list[PodRow]:
        """List the Pods of a cluster that had an address within a time."""
        return self._pods(
            "network = $1 AND address = $2 AND cluster = $3 AND since <= $4 AND (until IS NULL OR until > $5)"
            " ORDER BY since DESC, uid",
            *(network, address, cluster, end, begin),
        )

    def reported(self, question: Question) -> list[PodRow]:
        """List what Pods had within a time."""
        condition, values = pods_asked_for(question, "$")
        return self._pods(condition, *values)

    def trim_history(self, *, before: float, limit: int) -> int:
        """Forget what ended before a time."""
        self.write_slate()
        # the oldest events have the lowest numbers: an index by time would cost every call something
        oldest = "SELECT number, at, unread FROM event ORDER BY number LIMIT $2"
        pods = "SELECT network, address, cluster, uid FROM pod WHERE until < $1 LIMIT $2"
        return sum(
            self._do(f"DELETE FROM {table} WHERE {key} IN ({chosen})", before, limit)  # noqa: S608  ours
            for table, key, chosen in (
                ("tenure", "number", "SELECT number FROM tenure WHERE until < $1 LIMIT $2"),
                # the statement is ours alone
                ("event", "number", f"SELECT number FROM ({oldest}) AS oldest WHERE at < $1 AND unread = 0"),  # noqa: S608
                ("pod", "(network, address, cluster, uid)", pods),
            )
        )

    def write_slate(self) -> None:
        """Write what was put off: rows of one kind together, without waiting for each."""
        slate = self._slate
        if not slate.used:
            return
        for statement, rows in (
            (_BEGIN_TENURE, slate.begun),
            ("UPDATE tenure SET until = $1 WHERE number = $2", slate.ended),
            ("UPDATE tenure SET until = $1 WHERE container = $2 AND until IS NULL", slate.closed),
            (_PUT_POD, slate.pods),
        ):
            if rows:
                self._save()
                self.dirty = True
                wait(self._sql.executemany(statement, rows))
        self._slate = Slate(numbers=slate.numbers)

    def drop_slate(self) -> None:
        """Forget what was put off."""
        self._slate = Slate()

    def _foresee(self, events: Sequence[EventRow]) -> None:
        """Read who has the addresses that events are about, all at once: each of them is asked for next."""
        self.write_slate()
        moved = (pair for row in events for event in row.events for pair in (*event.released, *event.granted))
        self._slate.lasting = {address: [] for address, _ in moved}
        for row in self._tenures("address = ANY($1::text[]) AND until IS NULL", list(self._slate.lasting)):
            self._slate.note(row)

    def _pods(self, condition: str, *values: object) -> list[PodRow]:
        self.write_slate()
        found = self._all(f"SELECT {_POD} FROM pod WHERE {condition}", *values)  # noqa: S608  ours alone
        return [PodRow(**dict(row)) for row in found]

    def _tenures(self, condition: str, *values: object) -> list[TenureRow]:
        if self._slate.begun or self._slate.ended or self._slate.closed:
            self.write_slate()
        found = self._all(f"SELECT {_TENURE} FROM tenure WHERE {condition}", *values)  # noqa: S608  ours alone
        return [TenureRow(**dict(row)) for row in found]

    def _all(self, statement: str, *values: object) -> "list[Record]":
        found: list[Record] = wait(self._sql.fetch(statement, *values))
        return found

    def _one(self, statement: str, *values: object) -> "Record | None":
        found: Record | None = wait(self._sql.fetchrow(statement, *values))
        return found

    def _do(self, statement: str, *values: Any) -> int:  # noqa: ANN401  whatever the statement takes
        """Change something at once; tell how many rows were."""
        self._need_turn()
        self._save()
        status: str = wait(self._sql.execute(statement, *values))
        count = int(status.rsplit(" ", 1)[-1])
        self.dirty = self.dirty or count > 0
        return count

    def _need_turn(self) -> None:
        if not self._in_turn:
            raise TurnWanted

    def _save(self) -> None:
        if not self.saved:
            wait(self._sql.execute("SAVEPOINT work"))
            self.saved = True
