"""The books in SQLite: every statement of this room is here, the tables are in `migrations/sqlite`.

Durable means WAL with `synchronous=FULL`: a commit has reached the disk when it returns.
"""

import sqlite3
from collections.abc import Iterable, Sequence

import msgspec

from podpool.ledger.messages import SubnetName
from podpool.ledger.storage.block import Block
from podpool.ledger.storage.migrate import scripts
from podpool.ledger.storage.rows import AlarmRow, ClusterRow, ContainerRow, Event, SubnetRow, text_of
from podpool.ledger.storage.sqlite.history import SqliteHistory
from podpool.ledger.storage.store import Member

_subnet = msgspec.json.Decoder(SubnetRow)
_container = msgspec.json.Decoder(ContainerRow)
_cluster = msgspec.json.Decoder(ClusterRow)


def connect(path: str, *, image: bytes | None = None) -> sqlite3.Connection:
    """Open a database and bring it up to date; an image is a copy of one, for books in memory."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, cached_statements=256)
    if image is not None:
        connection.deserialize(image)
    connection.execute("PRAGMA journal_mode=WAL").close()
    connection.execute("PRAGMA synchronous=FULL").close()
    connection.execute("PRAGMA foreign_keys=ON").close()
    connection.execute("PRAGMA busy_timeout=10000").close()
    migrate(connection)
    return connection


def migrate(connection: sqlite3.Connection, *, upto: int | None = None) -> None:
    """Apply the migrations that the database has not seen, each in a transaction of its own."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    for number, script in enumerate(scripts("sqlite")[:upto], start=1):
        if number > version:
            connection.executescript(f"BEGIN IMMEDIATE;\n{script}\nPRAGMA user_version={number};\nCOMMIT;")


class SqliteBooks(SqliteHistory):
    """The rows, through the connection of the one writer; what it collects is for the commit."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection)
        self.revision: int
        self.epoch: int
        self.revision, self.epoch = self._one("SELECT revision, epoch FROM ledger") or (0, 0)
        self.changed: dict[int, None] = {}
        self.new_members: dict[Member, None] = {}
        self._advanced = False

    def advance(self, *, floor: int = 0) -> int:
        """Raise the revision."""
        if floor or not self._advanced:
            self.revision = max(self.revision + 1, floor)
            self._do("UPDATE ledger SET revision = ?", self.revision)
            self._advanced = True
        return self.revision

    def begin_epoch(self) -> int:
        """Raise the epoch."""
        self.epoch += 1
        self._do("UPDATE ledger SET epoch = ?", self.epoch)
        return self.epoch

    def log(self, *, at: float, cluster: str, kind: str, events: Sequence[Event]) -> None:
        """Write what happened."""
        self._do(
            "INSERT INTO event (revision, at, cluster, kind, events) VALUES (?, ?, ?, ?, ?)",
            self.revision,
            at,
            cluster,
            kind,
            text_of(list(events)),
        )

    def cluster(self, id_: str) -> ClusterRow | None:
        """Find a cluster."""
        found = self._one("SELECT row FROM cluster WHERE id = ?", id_)
        return _cluster.decode(found[0]) if found else None

    def clusters(self) -> list[ClusterRow]:
        """List all clusters."""
        return [_cluster.decode(row) for (row,) in self._sql.execute("SELECT row FROM cluster ORDER BY id")]

    def put_cluster(self, row: ClusterRow) -> None:
        """Write a cluster."""
        self._do("INSERT INTO cluster VALUES (?1, ?2) ON CONFLICT DO UPDATE SET row = ?2", row.id, text_of(row))

    def subnet(self, name: SubnetName) -> SubnetRow | None:
        """Find a subnet by its name."""
        found = self._one("SELECT row FROM subnet WHERE network = ? AND name = ?", name.network, name.name)
        return _subnet.decode(found[0]) if found else None

    def subnet_at(self, number: int) -> SubnetRow:
        """Find a subnet by its number."""
        found = self._one("SELECT row FROM subnet WHERE number = ?", number)
        if found is None:
            raise LookupError(f"there is no subnet {number}")
        return _subnet.decode(found[0])

    def subnets(self, *, network: str | None = None) -> list[SubnetRow]:
        """List subnets by network and name."""
        found = self._sql.execute(
            "SELECT row FROM subnet WHERE ?1 IS NULL OR network = ?1 ORDER BY network, name", (network,)
        )
        return [_subnet.decode(row) for (row,) in found]

    def due(self, wall: float) -> list[int]:
        """List the subnets in which something changes by itself at this time or before."""
        return [number for (number,) in self._sql.execute("SELECT number FROM subnet WHERE due <= ?", (wall,))]

    def add_subnet(self, row: SubnetRow) -> SubnetRow:
        """Write a new subnet, and number it."""
        found = self._one("SELECT coalesce(max(number), 0) + 1 FROM subnet") or (1,)
        numbered = msgspec.structs.replace(row, number=found[0])
        name = numbered.name
        self._do("INSERT INTO subnet VALUES (?, ?, ?, NULL, '')", numbered.number, name.network, name.name)
        self.put_subnet(numbered)
        return numbered

    def put_subnet(self, row: SubnetRow) -> None:
        """Write a subnet."""
        self._do("UPDATE subnet SET due = ?, row = ? WHERE number = ?", row.due, text_of(row), row.number)
        self.changed[row.number] = None

    def remove_subnet(self, row: SubnetRow) -> None:
        """Forget a subnet."""
        for table, column in (("block", "subnet"), ("container", "subnet"), ("subnet", "number")):
            self._do(f"DELETE FROM {table} WHERE {column} = ?", row.number)  # noqa: S608  ours alone
        self.changed[row.number] = None

    def container(self, id_: str) -> ContainerRow | None:
        """Find a container."""
        found = self._one("SELECT row FROM container WHERE id = ?", id_)
        return _container.decode(found[0]) if found else None

    def container_at(self, number: int) -> ContainerRow:
        """Find a container by its number."""
        (row,) = self._sql.execute("SELECT row FROM container WHERE number = ?", (number,)).fetchone()
        return _container.decode(row)

    def container_of(self, *, cluster: str, node: str, node_uid: str, subnet: int) -> ContainerRow | None:
        """Find the container that is open for a node in a subnet."""
        found = self._one(
            "SELECT row FROM container WHERE cluster = ? AND node = ? AND node_uid = ? AND subnet = ? AND NOT closed",
            cluster,
            node,
            node_uid,
            subnet,
        )
        return _container.decode(found[0]) if found else None

    def containers(self, cluster: str) -> list[ContainerRow]:
        """List the open containers of a cluster."""
        return self._containers("cluster = ? AND NOT closed ORDER BY number", cluster)

    def container_count(self, cluster: str) -> int:
        """Count the open containers of a cluster."""
        (count,) = self._one("SELECT count(*) FROM container WHERE cluster = ? AND NOT closed", cluster) or (0,)
        return int(count)

    def containers_in(self, subnet: int) -> list[ContainerRow]:
        """List the open containers in a subnet."""
        return self._containers("subnet = ? AND NOT closed ORDER BY number", subnet)

    def needing(self, subnet: int, limit: int) -> list[ContainerRow]:
        """List containers with waiting Pods."""
        return self._containers(
            "subnet = ? AND need_since IS NOT NULL ORDER BY need_since, number LIMIT ?", subnet, limit
        )

    def wishing(self, subnet: int, limit: int) -> list[ContainerRow]:
        """List containers that are short of buffer."""
        return self._containers(
            "subnet = ? AND wish_since IS NOT NULL ORDER BY wish_since, number LIMIT ?", subnet, limit
        )

    def foreign(self, subnet: int) -> list[ContainerRow]:
        """List the open containers of foreign agents."""
        return self._containers("subnet = ? AND foreign_agent ORDER BY number", subnet)

    def add_container(self, row: ContainerRow) -> ContainerRow:
        """Number a new container."""
        found = self._one(
            "INSERT INTO container (id, cluster, subnet, node, node_uid, closed, foreign_agent, row)"
            " VALUES (?, ?, ?, ?, ?, 0, 0, '') RETURNING number",
            row.id,
            row.cluster,
            row.subnet,
            row.node,
            row.node_uid,
        )
        return msgspec.structs.replace(row, number=found[0] if found else 0)

    def put_container(self, row: ContainerRow) -> None:
        """Write a container."""
        self._do(
            "UPDATE container SET node_uid = ?, closed = ?, foreign_agent = ?, need_since = ?, wish_since = ?, row = ?"
            " WHERE number = ?",
            row.node_uid,
            row.closed,
            row.reading is not None,
            row.need_since,
            row.wish_since,
            text_of(row),
            row.number,
        )

    def block(self, subnet: int, number: int) -> Block | None:
        """Read a block."""
        found = self._one("SELECT slots FROM block WHERE subnet = ? AND number = ?", subnet, number)
        return Block.decode(found[0]) if found else None

    def ready_block(self, subnet: int, awake: int) -> int | None:
        """Find the block that has had room for longest."""
        found = self._one(
            "SELECT number FROM block WHERE subnet = ? AND ready <= ? ORDER BY ready, number LIMIT 1", subnet, awake
        )
        return int(found[0]) if found else None

    def put_block(self, subnet: int, number: int, block: Block) -> None:
        """Write a block."""
        self._do(
            "INSERT INTO block VALUES (?1, ?2, ?3, ?4) ON CONFLICT DO UPDATE SET ready = ?3, slots = ?4",
            subnet,
            number,
            block.ready,
            block.encode(),
        )

    def add_member(self, member: Member) -> None:
        """Remember who has something where."""
        added = self._sql.execute("INSERT OR IGNORE INTO member VALUES (?, ?, ?)", member).rowcount
        if added:
            self.dirty = True
            self.new_members[member] = None

    def members(self) -> list[Member]:
        """List who has, or had, something where."""
        return self._sql.execute("SELECT cluster, network, subnet FROM member ORDER BY 1, 2, 3").fetchall()

    def awaited(self, name: SubnetName | None = None) -> list[Member]:
        """List whose lists are missing."""
        if name is None:
            return self._sql.execute("SELECT cluster, network, subnet FROM awaited ORDER BY 2, 3, 1").fetchall()
        return self._sql.execute(
            "SELECT cluster, network, subnet FROM awaited WHERE network = ? AND subnet = ? ORDER BY 1",
            (name.network, name.name),
        ).fetchall()

    def await_lists(self, members: Iterable[Member]) -> None:
        """Wait for lists."""
        for cluster, network, subnet in members:
            self._do("INSERT OR IGNORE INTO awaited VALUES (?, ?, ?)", network, subnet, cluster)

    def stop_awaiting(self, cluster: str) -> None:
        """Wait for a cluster's list no longer."""
        self._do("DELETE FROM awaited WHERE cluster = ?", cluster)

    def alarms(self) -> list[AlarmRow]:
        """List the addresses with two owners."""
        found = self._sql.execute(
            'SELECT subnet, address, holder, claimant, "grant" FROM alarm ORDER BY subnet, address, claimant'
        )
        return [
            AlarmRow(subnet=subnet, address=int(address), holder=holder, claimant=claimant, grant=grant)
            for subnet, address, holder, claimant, grant in found
        ]

    def add_alarm(self, row: AlarmRow) -> None:
        """Write down a second owner."""
        address = str(row.address)
        self._do(
            "INSERT OR REPLACE INTO alarm VALUES (?, ?, ?, ?, ?)",
            row.subnet,
            address,
            row.holder,
            row.claimant,
            row.grant,
        )

    def drop_alarms(self, *, subnet: int | None = None, address: int | None = None) -> int:
        """Forget alarms."""
        self.dirty = True
        return self._sql.execute(
            "DELETE FROM alarm WHERE ?1 IS NULL OR (subnet = ?1 AND address = ?2)", (subnet, str(address))
        ).rowcount

    def _containers(self, condition: str, *values: object) -> list[ContainerRow]:
        found = self._sql.execute(f"SELECT row FROM container WHERE {condition}", values)  # noqa: S608  ours alone
        return [_container.decode(row) for (row,) in found]
