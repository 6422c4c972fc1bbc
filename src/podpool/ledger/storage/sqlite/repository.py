"""The repository in SQLite: all statements about subnets, network containers and blocks; tables: `migrations/sqlite`.

Durable means WAL with `synchronous=FULL`: a commit is on disk when it returns.
"""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from podpool.ledger.domain.address_block import Block
from podpool.ledger.domain.repository import Membership
from podpool.ledger.domain.rows import (
    AllocationEvent,
    ClusterRow,
    LedgerTimeRow,
    NcRow,
    OwnershipConflictRow,
    SubnetRow,
    encode_row,
)
from podpool.ledger.messages import SubnetName
from podpool.ledger.storage.schema_migrations import check_layout, check_version, migration_scripts, revision_table
from podpool.ledger.storage.sqlite.history import SqliteHistory

_subnet_decoder = msgspec.json.Decoder(SubnetRow)
_nc_decoder = msgspec.json.Decoder(NcRow)
_time_decoder = msgspec.json.Decoder(LedgerTimeRow)
_cluster_decoder = msgspec.json.Decoder(ClusterRow)


def connect(path: str, *, image: bytes | None = None) -> sqlite3.Connection:
    """Open a database and apply migrations; `image` is the content of a database in memory."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    if image is not None:
        connection.deserialize(image)
    _check_version(connection)  # first: nothing is written to a database that is refused
    _configure(connection)
    migrate(connection)
    return connection


def create(path: str, *, version: int) -> sqlite3.Connection:
    """Create a database with the tables of a version, without any row."""
    connection = sqlite3.connect(path, isolation_level=None)
    _configure(connection)
    migrate(connection, upto=version)
    connection.execute(f"DELETE FROM {revision_table(version)}")  # noqa: S608  our own names
    return connection


def _configure(connection: sqlite3.Connection) -> None:
    connection.execute("PRAGMA journal_mode=WAL").close()
    connection.execute("PRAGMA synchronous=FULL").close()
    connection.execute("PRAGMA foreign_keys=ON").close()
    connection.execute("PRAGMA busy_timeout=10000").close()
    connection.execute("PRAGMA temp_store=MEMORY").close()  # a container with a read-only root has no /tmp


def migrate(connection: sqlite3.Connection, *, upto: int | None = None) -> None:
    """Apply missing migrations, each in its own transaction."""
    version = _check_version(connection)
    for number, script in enumerate(migration_scripts("sqlite")[:upto], start=1):
        if number > version:
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version={number};\nCOMMIT;")


def _check_version(connection: sqlite3.Connection) -> int:
    """Return the version of the tables; raises `Invalid` for tables that are not known."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    check_version("database", version)
    tables = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
    check_layout(version, tables={name for (name,) in tables})
    return int(version)


class SqliteRepository(SqliteHistory):
    """The rows of a network within one transaction; collects what the commit needs."""

    def __init__(self, connection: sqlite3.Connection, network: str = "") -> None:
        super().__init__(connection, network)
        self.revision: int
        self.epoch: int
        found = self._fetch_one("SELECT revision, epoch FROM shard WHERE network = ?", network)
        self.revision, self.epoch = found or (0, 0)
        self.changed: dict[int, None] = {}
        self.new_members: dict[Membership, None] = {}
        self.siblings: list[SqliteRepository] = []
        """Of other networks, in the same transaction."""
        self._revision_advanced = False
        self._time_row: LedgerTimeRow | None = None

    def advance_revision(self, *, floor: int = 0) -> int:
        if floor or not self._revision_advanced:
            self.revision = max(self.revision + 1, floor)
            self._put_shard()
            self._revision_advanced = True
        return self.revision

    def start_epoch(self) -> int:
        self.epoch += 1
        self._put_shard()
        return self.epoch

    def of_network(self, network: str) -> "SqliteRepository":
        """Return the rows of another network in the same transaction."""
        self.siblings.append(SqliteRepository(self._sql, network))
        return self.siblings[-1]

    def networks(self) -> list[str]:
        found = self._sql.execute("SELECT network FROM shard WHERE network <> '' AND revision > 0 ORDER BY network")
        return [network for (network,) in found]

    def log(self, *, at: float, cluster: str, kind: str, events: Sequence[AllocationEvent]) -> None:
        statement = "INSERT INTO event (network, revision, at, cluster, kind, events) VALUES (?, ?, ?, ?, ?, ?)"
        self._execute(statement, self.network, self.revision, at, cluster, kind, encode_row(list(events)))

    def time_row(self) -> LedgerTimeRow:
        if self._time_row is None:
            found = self._fetch_one("SELECT row FROM ledger_time")
            self._time_row = _time_decoder.decode(found[0]) if found else LedgerTimeRow()
        return self._time_row

    def put_time_row(self, row: LedgerTimeRow) -> None:
        self._time_row = row
        self._execute("INSERT INTO ledger_time VALUES (1, ?1) ON CONFLICT DO UPDATE SET row = ?1", encode_row(row))

    def cluster(self, id_: str, *, network: str | None = None) -> ClusterRow | None:
        network = self.network if network is None else network
        found = self._fetch_one("SELECT row FROM cluster WHERE network = ? AND id = ?", network, id_)
        return _cluster_decoder.decode(found[0]) if found else None

    def clusters(self) -> list[ClusterRow]:
        found = self._sql.execute(f"SELECT row FROM cluster WHERE {self._own} ORDER BY id, network", (self.network,))  # noqa: S608  our own names
        return [_cluster_decoder.decode(row) for (row,) in found]

    def put_cluster(self, row: ClusterRow) -> None:
        row = msgspec.structs.replace(row, network=self.network)
        statement = "INSERT INTO cluster VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET row = ?3"
        self._execute(statement, self.network, row.id, encode_row(row))

    def subnet(self, name: SubnetName) -> SubnetRow | None:
        if self.network not in ("", name.network):
            return None
        found = self._fetch_one("SELECT row FROM subnet WHERE network = ? AND name = ?", name.network, name.name)
        return _subnet_decoder.decode(found[0]) if found else None

    def subnet_by_number(self, number: int) -> SubnetRow:
        found = self._fetch_one("SELECT row FROM subnet WHERE number = ?", number)
        if found is None:
            raise LookupError(f"subnet {number} does not exist")
        return _subnet_decoder.decode(found[0])

    def subnets(self) -> list[SubnetRow]:
        condition = f"{self._own} ORDER BY network, name"
        found = self._sql.execute(f"SELECT row FROM subnet WHERE {condition}", (self.network,))  # noqa: S608  our own names
        return [_subnet_decoder.decode(row) for (row,) in found]

    def due(self, time: float) -> list[tuple[str, int]]:
        condition = f"{self._own} AND due <= ?2 ORDER BY number"
        statement = f"SELECT network, number FROM subnet WHERE {condition}"  # noqa: S608  our own names
        return self._sql.execute(statement, (self.network, time)).fetchall()

    def add_subnet(self, row: SubnetRow) -> SubnetRow:
        found = self._fetch_one("SELECT coalesce(max(number), 0) + 1 FROM subnet") or (1,)
        numbered = msgspec.structs.replace(row, number=found[0])
        name = numbered.name
        self._execute("INSERT INTO subnet VALUES (?, ?, ?, NULL, '')", numbered.number, name.network, name.name)
        self.put_subnet(numbered)
        return numbered

    def put_subnet(self, row: SubnetRow) -> None:
        self._execute("UPDATE subnet SET due = ?, row = ? WHERE number = ?", row.due, encode_row(row), row.number)
        self.changed[row.number] = None

    def delete_subnet_row(self, row: SubnetRow) -> None:
        for table, column in (("block", "subnet"), ("network_container", "subnet"), ("subnet", "number")):
            self._execute(f"DELETE FROM {table} WHERE {column} = ?", row.number)  # noqa: S608  our own names
        self.changed[row.number] = None

    def nc(self, id_: str) -> NcRow | None:
        statement = f"SELECT row FROM network_container WHERE {self._own_subnet} AND id = ?2"  # noqa: S608  our own names
        found = self._fetch_one(statement, self.network, id_)
        return _nc_decoder.decode(found[0]) if found else None

    def nc_by_number(self, number: int) -> NcRow:
        (row,) = self._sql.execute("SELECT row FROM network_container WHERE number = ?", (number,)).fetchone()
        return _nc_decoder.decode(row)

    def nc_of_node(self, *, cluster: str, node: str, node_uid: str, subnet: int) -> NcRow | None:
        found = self._fetch_one(
            "SELECT row FROM network_container"
            " WHERE cluster = ? AND node = ? AND node_uid = ? AND subnet = ? AND NOT closed",
            *(cluster, node, node_uid, subnet),
        )
        return _nc_decoder.decode(found[0]) if found else None

    def ncs(self, cluster: str) -> list[NcRow]:
        return self._ncs(f"{self._own_subnet} AND cluster = ?2 AND NOT closed ORDER BY number", self.network, cluster)

    def nc_count(self, cluster: str) -> int:
        condition = f"{self._own_subnet} AND cluster = ?2 AND NOT closed"
        found = self._fetch_one(f"SELECT count(*) FROM network_container WHERE {condition}", self.network, cluster)  # noqa: S608  our own names
        (count,) = found or (0,)
        return int(count)

    def ncs_in_subnet(self, subnet: int) -> list[NcRow]:
        return self._ncs("subnet = ? AND NOT closed ORDER BY number", subnet)

    def waiting_for_pods(self, subnet: int, limit: int, *, of_each: bool = False) -> list[NcRow]:
        return self._first_waiting("pod_short_since", subnet, limit, of_each=of_each)

    def waiting_for_buffer(self, subnet: int, limit: int, *, of_each: bool = False) -> list[NcRow]:
        return self._first_waiting("buffer_short_since", subnet, limit, of_each=of_each)

    def third_party(self, subnet: int) -> list[NcRow]:
        return self._ncs("subnet = ? AND third_party ORDER BY number", subnet)

    def add_nc(self, row: NcRow) -> NcRow:
        found = self._fetch_one(
            "INSERT INTO network_container (id, cluster, subnet, node, node_uid, closed, third_party, row)"
            " VALUES (?, ?, ?, ?, ?, 0, 0, '') RETURNING number",
            *(row.id, row.cluster, row.subnet, row.node, row.node_uid),
        )
        return msgspec.structs.replace(row, number=found[0] if found else 0)

    def put_nc(self, row: NcRow) -> None:
        self._execute(
            "UPDATE network_container SET node_uid = ?, closed = ?, third_party = ?, pod_short_since = ?,"
            " buffer_short_since = ?, row = ? WHERE number = ?",
            *(row.node_uid, row.closed, row.inferred is not None, row.pod_short_since, row.buffer_short_since),
            *(encode_row(row), row.number),
        )

    def block(self, subnet: int, number: int) -> Block | None:
        found = self._fetch_one("SELECT slots FROM block WHERE subnet = ? AND number = ?", subnet, number)
        return Block.decode(found[0]) if found else None

    def reusable_block(self, subnet: int, reusable_stamp: int) -> int | None:
        condition = "subnet = ? AND ready <= ? ORDER BY ready, number LIMIT 1"
        found = self._fetch_one(f"SELECT number FROM block WHERE {condition}", subnet, reusable_stamp)  # noqa: S608  our own names
        return int(found[0]) if found else None

    def put_block(self, subnet: int, number: int, block: Block) -> None:
        statement = "INSERT INTO block VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET ready = ?3, slots = ?4"
        self._execute(statement, subnet, number, block.ready, block.encode())

    def add_member(self, member: Membership) -> None:
        added = self._sql.execute("INSERT OR IGNORE INTO membership VALUES (?, ?, ?)", member).rowcount
        if added:
            self.dirty = True
            self.new_members[member] = None

    def members(self) -> list[Membership]:
        statement = f"SELECT cluster, network, subnet FROM membership WHERE {self._own} ORDER BY 1, 2, 3"  # noqa: S608  our own names
        return self._sql.execute(statement, (self.network,)).fetchall()

    def pending_inventories(self, name: SubnetName | None = None) -> list[Membership]:
        pending = "SELECT cluster, network, subnet FROM pending_inventory"
        if name is None:
            return self._sql.execute(f"{pending} WHERE {self._own} ORDER BY 2, 3, 1", (self.network,)).fetchall()
        condition = "network = ? AND subnet = ? ORDER BY 1"
        return self._sql.execute(f"{pending} WHERE {condition}", (name.network, name.name)).fetchall()

    def require_inventories(self, members: Iterable[Membership]) -> None:
        for cluster, network, subnet in members:
            self._execute("INSERT OR IGNORE INTO pending_inventory VALUES (?, ?, ?)", network, subnet, cluster)

    def clear_pending_inventories(self, cluster: str) -> None:
        self._execute("DELETE FROM pending_inventory WHERE network = ? AND cluster = ?", self.network, cluster)

    def conflicts(self) -> list[OwnershipConflictRow]:
        columns = 'subnet, address, holder, claimant, "grant"'
        own = f"{self._own_subnet} ORDER BY subnet, address, claimant"
        found = self._sql.execute(f"SELECT {columns} FROM ownership_conflict WHERE {own}", (self.network,))  # noqa: S608  our own names
        return [
            OwnershipConflictRow(subnet=s, address=int(a), holder=h, claimant=c, grant=g) for s, a, h, c, g in found
        ]

    def add_conflict(self, row: OwnershipConflictRow) -> None:
        values = (row.subnet, str(row.address), row.holder, row.claimant, row.grant)
        self._execute("INSERT OR REPLACE INTO ownership_conflict VALUES (?, ?, ?, ?, ?)", *values)

    def delete_conflicts(self, *, subnet: int | None = None, address: int | None = None) -> int:
        self.dirty = True
        condition = f"{self._own_subnet} AND (?2 IS NULL OR (subnet = ?2 AND address = ?3))"
        statement = f"DELETE FROM ownership_conflict WHERE {condition}"  # noqa: S608  our own names
        return self._sql.execute(statement, (self.network, subnet, str(address))).rowcount

    @property
    def _own(self) -> str:
        """A condition for rows with a network, which is parameter 1."""
        return "network = ?1" if self.network else "?1 = ''"

    @property
    def _own_subnet(self) -> str:
        """A condition for rows with a subnet; parameter 1 is the network."""
        return "subnet IN (SELECT number FROM subnet WHERE network = ?1)" if self.network else "?1 = ''"

    def _put_shard(self) -> None:
        statement = "INSERT INTO shard VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET revision = ?2, epoch = ?3"
        self._execute(statement, self.network, self.revision, self.epoch)

    def _first_waiting(self, column: str, subnet: int, limit: int, *, of_each: bool) -> list[NcRow]:
        if of_each:  # only the rows that are chosen are read as a whole
            place = f"row_number() OVER (PARTITION BY cluster ORDER BY {column}, number) AS place"
            places = f"SELECT number, {place} FROM network_container WHERE subnet = ? AND {column} IS NOT NULL"  # noqa: S608  our own names
            first = f"SELECT number FROM ({places}) WHERE place <= ?"  # noqa: S608  our own names
            return self._ncs(f"number IN ({first}) ORDER BY {column}, number", subnet, limit)
        return self._ncs(f"subnet = ? AND {column} IS NOT NULL ORDER BY {column}, number LIMIT ?", subnet, limit)

    def _ncs(self, condition: str, *values: object) -> list[NcRow]:
        found = self._sql.execute(f"SELECT row FROM network_container WHERE {condition}", values)  # noqa: S608  our own names
        return [_nc_decoder.decode(row) for (row,) in found]
