"""The books in PostgreSQL: every statement about subnets, containers and blocks is here, the tables in `migrations`.

Rows are read onto the shelf when they are first asked for, and changed there. One statement writes what a
group of works has changed, if the turn is still the one that the shelf was read in (`postgres_commit`).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from podpool.ledger.messages import SubnetName
from podpool.ledger.storage.block import Block
from podpool.ledger.storage.postgres.greenlet_bridge import wait
from podpool.ledger.storage.postgres.recovery import PostgresRecovery
from podpool.ledger.storage.postgres.row_cache import Laid, Lane, Shelf
from podpool.ledger.storage.rows import ClusterRow, ContainerRow, Event, SubnetRow, text_of

if TYPE_CHECKING:
    from asyncpg import Connection, Record

T = TypeVar("T")

_cluster = msgspec.json.Decoder(ClusterRow)
_subnet = msgspec.json.Decoder(SubnetRow)
_container = msgspec.json.Decoder(ContainerRow)

_AHEAD = 16
"""How many rows of a lane are read at once, at least."""
_ASKS = 16
"""For single containers of one cluster, before all of them are read."""
_LOWEST = -(1 << 63)


class PostgresBooks(PostgresRecovery):
    """The rows, for a group of works that are done one after the other."""

    def __init__(self, connection: "Connection", shelf: Shelf, *, in_turn: bool) -> None:
        super().__init__(connection, shelf, in_turn=in_turn)
        self.events: list[tuple[int, float, str, str, str]] = []
        self.changed: dict[int, None] = {}
        self._advanced = False

    @property
    def revision(self) -> int:
        """The revision of the books."""
        return self.shelf.counters.revision

    @property
    def epoch(self) -> int:
        """How often the books were found to be restored."""
        return self.shelf.counters.epoch

    def attempt(self, work: Callable[["PostgresBooks"], T]) -> T:
        """Do one work; one that raises leaves no trace."""
        before, told, changed, dirty = self.shelf.counters, len(self.events), dict(self.changed), self.dirty
        self._advanced = self.saved = False
        try:
            result = work(self)
            self.write_slate()
        except BaseException as error:
            self.drop_slate()
            for table in self.shelf.tables:
                table.undo()
            self.shelf.counters, self.changed, self.dirty = before, changed, dirty
            del self.events[told:]
            if isinstance(error, Exception):  # else the transaction ends with it
                self._leave("ROLLBACK TO work; RELEASE work")
            raise
        for table in self.shelf.tables:
            if table.before:
                table.keep()
        self._leave("RELEASE work")
        return result

    def advance(self, *, floor: int = 0) -> int:
        """Raise the revision."""
        if floor or not self._advanced:
            self._count(revision=max(self.revision + 1, floor))
            self._advanced = True
        return self.revision

    def begin_epoch(self) -> int:
        """Raise the epoch."""
        self._count(epoch=self.epoch + 1)
        return self.epoch

    def log(self, *, at: float, cluster: str, kind: str, events: Sequence[Event]) -> None:
        """Write what happened."""
        self.dirty = True
        self.events.append((self.revision, at, cluster, kind, text_of(events)))

    def cluster(self, id_: str) -> ClusterRow | None:
        """Find a cluster."""
        rows = self.shelf.clusters
        if id_ not in rows.rows:
            found = self._one("SELECT row FROM cluster WHERE id = $1", id_)
            rows.see(id_, _cluster.decode(found["row"]) if found else None)
        return rows.rows[id_]

    def clusters(self) -> list[ClusterRow]:
        """List all clusters."""
        for found in self._all("SELECT id, row FROM cluster"):
            self.shelf.clusters.see(found["id"], _cluster.decode(found["row"]))
        return sorted(self.shelf.clusters.there(), key=lambda row: row.id)

    def put_cluster(self, row: ClusterRow) -> None:
        """Write a cluster."""
        self.dirty = True
        self.shelf.clusters.put(row.id, row)

    def subnet(self, name: SubnetName) -> SubnetRow | None:
        """Find a subnet by its name."""
        key = (name.network, name.name)
        if key not in self.shelf.subnet_names:
            self.shelf.subnet_names[key] = None
            self._see_subnets("network = $1 AND name = $2", *key)
        number = self.shelf.subnet_names[key]
        return None if number is None else self.shelf.subnets.rows[number]

    def subnet_at(self, number: int) -> SubnetRow:
        """Find a subnet by its number."""
        if number not in self.shelf.subnets.rows:
            self._see_subnets("number = $1", number)
        return _there(self.shelf.subnets.rows.get(number), "subnet", number)

    def subnets(self, *, network: str | None = None) -> list[SubnetRow]:
        """List subnets by network and name."""
        self._see_subnets("$1::text IS NULL OR network = $1", network)
        rows = [row for row in self.shelf.subnets.there() if network in (None, row.made.network)]
        return sorted(rows, key=lambda row: (row.made.network, row.made.name))

    def due(self, wall: float) -> list[int]:
        """List the subnets in which something changes by itself at this time or before."""
        self._see_subnets("due <= $1", wall)
        return sorted(row.number for row in self.shelf.subnets.there() if row.due is not None and row.due <= wall)

    def add_subnet(self, row: SubnetRow) -> SubnetRow:
        """Write a new subnet, and number it."""
        self._count(subnets=self.shelf.counters.subnets + 1)
        numbered = replace(row, number=self.shelf.counters.subnets)
        self.put_subnet(numbered)
        return numbered

    def put_subnet(self, row: SubnetRow) -> None:
        """Write a subnet."""
        self.dirty = True
        self.shelf.subnets.put(row.number, row)
        self.changed[row.number] = None

    def remove_subnet(self, row: SubnetRow) -> None:
        """Forget a subnet."""
        self.rare = True
        for table, column in (("block", "subnet"), ("container", "subnet"), ("subnet", "number")):
            self._do(f"DELETE FROM {table} WHERE {column} = $1", row.number)  # noqa: S608  ours alone
        for number, container in list(self.shelf.containers.rows.items()):
            if container is not None and container.subnet == row.number:
                self.shelf.containers.put(number, None)
        for key in list(self.shelf.blocks.rows):
            if key[0] == row.number:
                self.shelf.blocks.put(key, None)
        self.shelf.subnets.put(row.number, None)
        self.changed[row.number] = None

    def container(self, id_: str) -> ContainerRow | None:
        """Find a container."""
        if id_ not in self.shelf.container_ids:
            self.shelf.container_ids[id_] = None
            self._see_containers("id = $1", id_)
        number = self.shelf.container_ids[id_]
        return None if number is None else self.shelf.containers.rows[number]

    def container_at(self, number: int) -> ContainerRow:
        """Find a container by its number."""
        if number not in self.shelf.containers.rows:
            self._see_containers("number = $1", number)
        return _there(self.shelf.containers.rows.get(number), "container", number)

    def container_of(self, *, cluster: str, node: str, node_uid: str, subnet: int) -> ContainerRow | None:
        """Find the container that is open for a node in a subnet."""
        place = (cluster, node, node_uid, subnet)
        if place not in self.shelf.places:
            self.shelf.places[place] = None
            self._see_place(*place)
        number = self.shelf.places[place]
        return None if number is None else self.shelf.containers.rows[number]

    def containers(self, cluster: str) -> list[ContainerRow]:
        """List the open containers of a cluster."""
        self._see_cluster(cluster)
        return self._open(lambda row: row.cluster == cluster)

    def container_count(self, cluster: str) -> int:
        """Count the open containers of a cluster."""
        return len(self.containers(cluster))

    def containers_in(self, subnet: int) -> list[ContainerRow]:
        """List the open containers in a subnet."""
        self._see_containers("subnet = $1 AND closed = 0", subnet)
        return self._open(lambda row: row.subnet == subnet)

    def foreign(self, subnet: int) -> list[ContainerRow]:
        """List the open containers of foreign agents."""
        self._see_containers("subnet = $1 AND foreign_agent = 1", subnet)
        return self._open(lambda row: row.subnet == subnet and row.reading is not None)

    def needing(self, subnet: int, limit: int) -> list[ContainerRow]:
        """List containers with waiting Pods."""
        return self._waiting(self.shelf.needing[subnet], subnet, "need_since", limit)

    def wishing(self, subnet: int, limit: int) -> list[ContainerRow]:
        """List containers that are short of buffer."""
        return self._waiting(self.shelf.wishing[subnet], subnet, "wish_since", limit)

    def add_container(self, row: ContainerRow) -> ContainerRow:
        """Number a new container."""
        self._count(containers=self.shelf.counters.containers + 1)
        return replace(row, number=self.shelf.counters.containers)

    def put_container(self, row: ContainerRow) -> None:
        """Write a container."""
        self.dirty = True
        self.shelf.containers.put(row.number, row)

    def block(self, subnet: int, number: int) -> Block | None:
        """Read a block."""
        key = (subnet, number)
        blocks = self.shelf.blocks
        if key not in blocks.rows and number <= self._highest_block(subnet):
            found = self._one("SELECT ready, slots FROM block WHERE subnet = $1 AND number = $2", *key)
            blocks.see(key, _laid(found) if found else None)
        laid = blocks.rows.get(key)
        return None if laid is None else laid.block.copy()

    def ready_block(self, subnet: int, awake: int) -> int | None:
        """Find the block that has had room for longest."""
        lane = self.shelf.ready[subnet]
        while (first := lane.known(1)) is None:
            found = self._all(
                "SELECT number, ready, slots FROM block"
                " WHERE subnet = $1 AND ready IS NOT NULL AND (ready, number) > ($2, $3)"
                " ORDER BY ready, number LIMIT $4",
                subnet,
                int(max(lane.edge[0], _LOWEST)),
                lane.edge[1],
                _AHEAD,
            )
            for row in found:
                self.shelf.blocks.see((subnet, row["number"]), _laid(row))
            lane.extend(((row["ready"], row["number"]) for row in found), wanted=_AHEAD)
        return first[0][1] if first and first[0][0] <= awake else None

    def put_block(self, subnet: int, number: int, block: Block) -> None:
        """Write a block."""
        self.dirty = True
        self.shelf.blocks.put((subnet, number), Laid(block.ready, block.copy()))

    def _count(self, **counts: int) -> None:
        self.dirty = True
        self.shelf.counters = replace(self.shelf.counters, **counts)

    def _leave(self, statement: str) -> None:
        if self.saved:
            wait(self._sql.execute(statement))

    def _see_subnets(self, condition: str, *values: object) -> None:
        for found in self._all(f"SELECT number, row FROM subnet WHERE {condition}", *values):  # noqa: S608  ours alone
            self.shelf.subnets.see(found["number"], _subnet.decode(found["row"]))

    def _see_containers(self, condition: str, *values: object) -> None:
        for found in self._all(f"SELECT number, row FROM container WHERE {condition}", *values):  # noqa: S608  ours
            if found["number"] not in self.shelf.containers.rows:
                self.shelf.containers.see(found["number"], _container.decode(found["row"]))

    def _see_cluster(self, cluster: str) -> None:
        if self._first_use(_containers_of(cluster)):
            self._see_containers("cluster = $1 AND closed = 0", cluster)

    def _see_place(self, cluster: str, node: str, node_uid: str, subnet: int) -> None:
        """Look who is there; a cluster that asks again and again is read as a whole, as most of its nodes are new."""
        if _containers_of(cluster) in self.shelf.whole:
            return
        self.shelf.asked[cluster] += 1
        if self.shelf.asked[cluster] > _ASKS:
            self._see_cluster(cluster)
        else:
            condition = "cluster = $1 AND node = $2 AND node_uid = $3 AND subnet = $4 AND closed = 0"
            self._see_containers(condition, cluster, node, node_uid, subnet)

    def _highest_block(self, subnet: int) -> int:
        """Tell the last block that the database has; those beyond it were made since, and are at hand."""
        if subnet not in self.shelf.highest:
            found = self._one("SELECT max(number) FROM block WHERE subnet = $1", subnet)
            self.shelf.highest[subnet] = -1 if found is None or found[0] is None else found[0]
        return self.shelf.highest[subnet]

    def _open(self, condition: Callable[[ContainerRow], bool]) -> list[ContainerRow]:
        rows = [row for row in self.shelf.containers.there() if not row.closed and condition(row)]
        return sorted(rows, key=lambda row: row.number)

    def _waiting(self, lane: Lane, subnet: int, column: str, limit: int) -> list[ContainerRow]:
        while (first := lane.known(limit)) is None:
            wanted = max(limit, _AHEAD)
            found = self._all(
                f"SELECT number, {column} AS since, row FROM container"  # noqa: S608  ours alone
                f" WHERE subnet = $1 AND ({column}, number) > ($2, $3) ORDER BY {column}, number LIMIT $4",
                subnet,
                *lane.edge,
                wanted,
            )
            for row in found:
                self.shelf.containers.see(row["number"], _container.decode(row["row"]))
            lane.extend(((row["since"], row["number"]) for row in found), wanted=wanted)
        return [_there(self.shelf.containers.rows[number], "container", number) for _, number in first]


async def renew_clusters(connection: "Connection", shelf: Shelf, ids: Sequence[str]) -> None:
    """Read clusters again."""
    for row in await connection.fetch("SELECT id, row FROM cluster WHERE id = ANY($1::text[])", ids):
        shelf.clusters.renew(row["id"], _cluster.decode(row["row"]))


async def renew_subnets(connection: "Connection", shelf: Shelf, numbers: Sequence[int]) -> None:
    """Read subnets again."""
    for row in await connection.fetch("SELECT number, row FROM subnet WHERE number = ANY($1::bigint[])", numbers):
        shelf.subnets.renew(row["number"], _subnet.decode(row["row"]))


async def renew_containers(connection: "Connection", shelf: Shelf, numbers: Sequence[int]) -> None:
    """Read containers again."""
    for row in await connection.fetch("SELECT number, row FROM container WHERE number = ANY($1::bigint[])", numbers):
        shelf.containers.renew(row["number"], _container.decode(row["row"]))


async def renew_blocks(connection: "Connection", shelf: Shelf, keys: Sequence[tuple[int, int]]) -> None:
    """Read blocks again."""
    found = await connection.fetch(
        "SELECT block.* FROM unnest($1::bigint[], $2::bigint[]) AS wanted (subnet, number)"
        " JOIN block USING (subnet, number)",
        [subnet for subnet, _ in keys],
        [number for _, number in keys],
    )
    for row in found:
        shelf.blocks.renew((row["subnet"], row["number"]), _laid(row))


def _there(row: T | None, what: str, number: int) -> T:
    if row is None:
        raise LookupError(f"there is no {what} {number}")
    return row


def _laid(row: "Record") -> Laid:
    return Laid(row["ready"], Block.decode(row["slots"]))


def _containers_of(cluster: str) -> str:
    return f"containers of {cluster}"
