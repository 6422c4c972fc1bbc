"""Tokens and history in PostgreSQL, and how statements are run from within a work."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import msgspec

from podpool.ledger.bridge import wait
from podpool.ledger.rows import Event, EventRow, PodRow, TenureRow, TokenRow, text_of
from podpool.ledger.shelf import Shelf

if TYPE_CHECKING:
    from asyncpg import Connection, Record

_token = msgspec.json.Decoder(TokenRow)
_events = msgspec.json.Decoder(tuple[Event, ...])

_TENURE = 'number, network, subnet, address, cluster, node, container, "grant", since, until'
_POD = "network, address, cluster, uid, namespace, name, since, until"


class TurnWanted(BaseException):
    """A statement that changes something at once needs the turn. Not an `Exception`: a work must not take it for its own."""


class PostgresHistory:
    """The rows that no grant depends on. What is not on the shelf is read and written at once, within the turn."""

    def __init__(self, connection: "Connection", shelf: Shelf, *, in_turn: bool) -> None:
        self._sql = connection
        self._in_turn = in_turn
        self.shelf = shelf
        self.dirty = False
        self.saved = False
        """The work at hand has a savepoint."""

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
        self._do("INSERT INTO token VALUES ($1, $2) ON CONFLICT (id) DO UPDATE SET row = $2", row.id, text_of(row))
        self.shelf.tokens.put(row.id, row)

    def unread_events(self, limit: int) -> list[EventRow]:
        """List what was logged and not read yet."""
        found = self._all(
            "SELECT number, at, cluster, events FROM event WHERE unread = 1 ORDER BY number LIMIT $1", limit
        )
        return [
            EventRow(number=row["number"], at=row["at"], cluster=row["cluster"], events=_events.decode(row["events"]))
            for row in found
        ]

    def mark_read(self, numbers: Iterable[int]) -> None:
        """Note that events were read."""
        self._do("UPDATE event SET unread = 0 WHERE number = ANY($1::bigint[])", list(numbers))

    def lasting_tenures(self, *, network: str, address: str) -> list[TenureRow]:
        """List who has an address."""
        return self._tenures("network = $1 AND address = $2 AND until IS NULL", network, address)

    def begin_tenure(self, row: TenureRow) -> None:
        """Write a new tenure."""
        columns = _TENURE.removeprefix("number, ")
        values = msgspec.structs.astuple(row)[1:]
        self._do(f"INSERT INTO tenure ({columns}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)", *values)  # noqa: S608  ours

    def end_tenures(self, *, until: float, number: int | None = None, container: str | None = None) -> None:
        """Write the end of one tenure, or of all that a container has."""
        if number is not None:
            self._do("UPDATE tenure SET until = $1 WHERE number = $2", until, number)
        else:
            self._do("UPDATE tenure SET until = $1 WHERE container = $2 AND until IS NULL", until, container)

    def tenures(
        self, *, address: str | None, node: str | None, cluster: str | None, begin: float, end: float, limit: int
    ) -> list[TenureRow]:
        """List tenures of an address, or of a node's containers, that overlap a time."""
        return self._tenures(
            f"{'node' if address is None else 'address'} = $1 AND ($2::text IS NULL OR cluster = $2)"
            " AND since <= $3 AND (until IS NULL OR until > $4) ORDER BY since DESC, number DESC LIMIT $5",
            node if address is None else address,
            cluster,
            end,
            begin,
            limit,
        )

    def put_pod(self, row: PodRow) -> None:
        """Write what is known of a Pod and an address."""
        self._do(
            "UPDATE pod SET until = $1"
            " WHERE network = $2 AND address = $3 AND cluster = $4 AND uid <> $5 AND until IS NULL AND since < $1",
            row.since,
            row.network,
            row.address,
            row.cluster,
            row.uid,
        )
        self._do(
            f"INSERT INTO pod ({_POD}) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)"  # noqa: S608  ours
            " ON CONFLICT (network, address, cluster, uid) DO UPDATE SET"
            " since = least(pod.since, excluded.since), until = greatest(pod.until, excluded.until)",
            *msgspec.structs.astuple(row),
        )

    def pods(self, *, network: str, address: str, cluster: str, begin: float, end: float) -> list[PodRow]:
        """List the Pods of a cluster that had an address within a time."""
        found = self._all(
            f"SELECT {_POD} FROM pod WHERE network = $1 AND address = $2 AND cluster = $3"  # noqa: S608  ours
            " AND since <= $4 AND (until IS NULL OR until > $5) ORDER BY since DESC, uid",
            network,
            address,
            cluster,
            end,
            begin,
        )
        return [PodRow(**dict(row)) for row in found]

    def trim_history(self, *, before: float, limit: int) -> int:
        """Forget what ended before a time."""
        pods = "SELECT network, address, cluster, uid FROM pod WHERE until < $1 LIMIT $2"
        return sum(
            self._do(f"DELETE FROM {table} WHERE {key} IN ({chosen})", before, limit)  # noqa: S608  ours
            for table, key, chosen in (
                ("tenure", "number", "SELECT number FROM tenure WHERE until < $1 LIMIT $2"),
                ("event", "number", "SELECT number FROM event WHERE at < $1 AND unread = 0 LIMIT $2"),
                ("pod", "(network, address, cluster, uid)", pods),
            )
        )

    def _tenures(self, condition: str, *values: object) -> list[TenureRow]:
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
        if not self._in_turn:
            raise TurnWanted
        if not self.saved:
            wait(self._sql.execute("SAVEPOINT work"))
            self.saved = True
        status: str = wait(self._sql.execute(statement, *values))
        count = int(status.rsplit(" ", 1)[-1])
        self.dirty = self.dirty or count > 0
        return count
