"""The books in PostgreSQL: every statement about subnets, containers and blocks is here, the tables in `migrations`.

Rows are read onto the cache when they are first asked for, and changed there. One statement writes what a
group of works has changed, if the turn is still the one that the cache was read in (`postgres_commit`).
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from podpool.ledger.messages import SubnetName
from podpool.ledger.domain.block import Block
from podpool.ledger.storage.postgres.greenlet_bridge import await_only
from podpool.ledger.storage.postgres.recovery import PostgresRecovery
from podpool.ledger.storage.postgres.row_cache import CachedBlock, OrderedIndex, RowCache
from podpool.ledger.domain.rows import ClusterRow, NetworkContainerRow, AllocationEvent, SubnetRow, encode_row

if TYPE_CHECKING:
    from asyncpg import Connection, Record

T = TypeVar("T")

_cluster = msgspec.json.Decoder(ClusterRow)
_subnet = msgspec.json.Decoder(SubnetRow)
_container = msgspec.json.Decoder(NetworkContainerRow)

_AHEAD = 16
"""How many rows of a lane are read at once, at least."""
_ASKS = 16
"""For single containers of one cluster, before all of them are read."""
_LOWEST = -(1 << 63)


class PostgresRepository(PostgresRecovery):
    """The rows, for a group of works that are done one after the other."""

    def __init__(self, connection: "Connection", cache: RowCache, *, locked: bool) -> None:
        super().__init__(connection, cache, locked=locked)
        self.events: list[tuple[int, float, str, str, str]] = []
        self.changed: dict[int, None] = {}
        self._advanced = False

    @property
    def revision(self) -> int:
        """The revision of the books."""
        return self.cache.ledger.revision

    @property
    def epoch(self) -> int:
        """How often the books were found to be restored."""
        return self.cache.ledger.epoch

    def attempt(self, work: Callable[["PostgresRepository"], T]) -> T:
        """Do one work; one that raises leaves no trace."""
        before, told, changed, dirty = self.cache.ledger, len(self.events), dict(self.changed), self.dirty
        self._advanced = self.saved = False
        try:
            result = work(self)
            self.write_slate()
        except BaseException as error:
            self.drop_slate()
            for table in self.cache.tables:
                table.rollback()
            self.cache.ledger, self.changed, self.dirty = before, changed, dirty
            del self.events[told:]
            if isinstance(error, Exception):  # else the transaction ends with it
                self._leave("ROLLBACK TO work; RELEASE work")
            raise
        for table in self.cache.tables:
            if table.previous:
                table.accept()
        self._leave("RELEASE work")
        return result

    def advance_revision(self, *, floor: int = 0) -> int:
        """Raise the revision."""
        if floor or not self._advanced:
            self._count(revision=max(self.revision + 1, floor))
            self._advanced = True
        return self.revision

    def start_epoch(self) -> int:
        """Raise the epoch."""
        self._count(epoch=self.epoch + 1)
        return self.epoch

    def log(self, *, at: float, cluster: str, kind: str, events: Sequence[AllocationEvent]) -> None:
        """Write what happened."""
        self.dirty = True
        self.events.append((self.revision, at, cluster, kind, encode_row(events)))

    def cluster(self, id_: str) -> ClusterRow | None:
        """Find a cluster."""
        rows = self.cache.clusters
        if id_ not in rows.rows:
            found = self._fetch_one("SELECT row FROM cluster WHERE id = $1", id_)
            rows.load(id_, _cluster.decode(found["row"]) if found else None)
        return rows.rows[id_]

    def clusters(self) -> list[ClusterRow]:
        """List all clusters."""
        for found in self._fetch_all("SELECT id, row FROM cluster"):
            self.cache.clusters.load(found["id"], _cluster.decode(found["row"]))
        return sorted(self.cache.clusters.existing(), key=lambda row: row.id)

    def put_cluster(self, row: ClusterRow) -> None:
        """Write a cluster."""
        self.dirty = True
        self.cache.clusters.put(row.id, row)

    def subnet(self, name: SubnetName) -> SubnetRow | None:
        """Find a subnet by its name."""
        key = (name.network, name.name)
        if key not in self.cache.subnet_by_name:
            self.cache.subnet_by_name[key] = None
            self._see_subnets("network = $1 AND name = $2", *key)
        number = self.cache.subnet_by_name[key]
        return None if number is None else self.cache.subnets.rows[number]

    def subnet_by_number(self, number: int) -> SubnetRow:
        """Find a subnet by its number."""
        if number not in self.cache.subnets.rows:
            self._see_subnets("number = $1", number)
        return _there(self.cache.subnets.rows.get(number), "subnet", number)

    def subnets(self, *, network: str | None = None) -> list[SubnetRow]:
        """List subnets by network and name."""
        self._see_subnets("$1::text IS NULL OR network = $1", network)
        rows = [row for row in self.cache.subnets.existing() if network in (None, row.spec.network)]
        return sorted(rows, key=lambda row: (row.spec.network, row.spec.name))

    def due(self, wall: float) -> list[int]:
        """List the subnets in which something changes by itself at this time or before."""
        self._see_subnets("due <= $1", wall)
        return sorted(row.number for row in self.cache.subnets.existing() if row.due is not None and row.due <= wall)

    def add_subnet(self, row: SubnetRow) -> SubnetRow:
        """Write a new subnet, and number it."""
        self._count(subnets=self.cache.ledger.last_subnet + 1)
        numbered = replace(row, number=self.cache.ledger.last_subnet)
        self.put_subnet(numbered)
        return numbered

    def put_subnet(self, row: SubnetRow) -> None:
        """Write a subnet."""
        self.dirty = True
        self.cache.subnets.put(row.number, row)
        self.changed[row.number] = None

    def delete_subnet_row(self, row: SubnetRow) -> None:
        """Forget a subnet."""
        self.invalidate_all = True
        for table, column in (("block", "subnet"), ("network_container", "subnet"), ("subnet", "number")):
            self._execute(f"DELETE FROM {table} WHERE {column} = $1", row.number)  # noqa: S608  our own names
        for number, container in list(self.cache.ncs.rows.items()):
            if container is not None and container.subnet == row.number:
                self.cache.ncs.put(number, None)
        for key in list(self.cache.blocks.rows):
            if key[0] == row.number:
                self.cache.blocks.put(key, None)
        self.cache.subnets.put(row.number, None)
        self.changed[row.number] = None

    def nc(self, id_: str) -> NetworkContainerRow | None:
        """Find a container."""
        if id_ not in self.cache.nc_by_id:
            self.cache.nc_by_id[id_] = None
            self._see_containers("id = $1", id_)
        number = self.cache.nc_by_id[id_]
        return None if number is None else self.cache.ncs.rows[number]

    def nc_by_number(self, number: int) -> NetworkContainerRow:
        """Find a container by its number."""
        if number not in self.cache.ncs.rows:
            self._see_containers("number = $1", number)
        return _there(self.cache.ncs.rows.get(number), "network_container", number)

    def nc_of_node(self, *, cluster: str, node: str, node_uid: str, subnet: int) -> NetworkContainerRow | None:
        """Find the container that is open for a node in a subnet."""
        place = (cluster, node, node_uid, subnet)
        if place not in self.cache.nc_by_node:
            self.cache.nc_by_node[place] = None
            self._see_place(*place)
        number = self.cache.nc_by_node[place]
        return None if number is None else self.cache.ncs.rows[number]

    def ncs(self, cluster: str) -> list[NetworkContainerRow]:
        """List the open containers of a cluster."""
        self._see_cluster(cluster)
        return self._open(lambda row: row.cluster == cluster)

    def nc_count(self, cluster: str) -> int:
        """Count the open containers of a cluster."""
        return len(self.ncs(cluster))

    def ncs_in_subnet(self, subnet: int) -> list[NetworkContainerRow]:
        """List the open containers in a subnet."""
        self._see_containers("subnet = $1 AND closed = 0", subnet)
        return self._open(lambda row: row.subnet == subnet)

    def third_party(self, subnet: int) -> list[NetworkContainerRow]:
        """List the open containers of foreign agents."""
        self._see_containers("subnet = $1 AND third_party = 1", subnet)
        return self._open(lambda row: row.subnet == subnet and row.inferred is not None)

    def waiting_for_pods(self, subnet: int, limit: int) -> list[NetworkContainerRow]:
        """List containers with waiting Pods."""
        return self._waiting(self.cache.waiting_for_pods[subnet], subnet, "pod_short_since", limit)

    def waiting_for_buffer(self, subnet: int, limit: int) -> list[NetworkContainerRow]:
        """List containers that are short of buffer."""
        return self._waiting(self.cache.waiting_for_buffer[subnet], subnet, "buffer_short_since", limit)

    def add_nc(self, row: NetworkContainerRow) -> NetworkContainerRow:
        """Number a new container."""
        self._count(containers=self.cache.ledger.last_nc + 1)
        return replace(row, number=self.cache.ledger.last_nc)

    def put_nc(self, row: NetworkContainerRow) -> None:
        """Write a container."""
        self.dirty = True
        self.cache.ncs.put(row.number, row)

    def block(self, subnet: int, number: int) -> Block | None:
        """Read a block."""
        key = (subnet, number)
        blocks = self.cache.blocks
        if key not in blocks.rows and number <= self._highest_block(subnet):
            found = self._fetch_one("SELECT ready, slots FROM block WHERE subnet = $1 AND number = $2", *key)
            blocks.load(key, _laid(found) if found else None)
        laid = blocks.rows.get(key)
        return None if laid is None else laid.block.copy()

    def reusable_block(self, subnet: int, reusable_stamp: int) -> int | None:
        """Find the block that has had room for longest."""
        lane = self.cache.reusable_blocks[subnet]
        while (first := lane.known(1)) is None:
            found = self._fetch_all(
                "SELECT number, ready, slots FROM block"
                " WHERE subnet = $1 AND ready IS NOT NULL AND (ready, number) > ($2, $3)"
                " ORDER BY ready, number LIMIT $4",
                subnet,
                int(max(lane.edge[0], _LOWEST)),
                lane.edge[1],
                _AHEAD,
            )
            for row in found:
                self.cache.blocks.load((subnet, row["number"]), _laid(row))
            lane.extend(((row["ready"], row["number"]) for row in found), wanted=_AHEAD)
        return first[0][1] if first and first[0][0] <= reusable_stamp else None

    def put_block(self, subnet: int, number: int, block: Block) -> None:
        """Write a block."""
        self.dirty = True
        self.cache.blocks.put((subnet, number), CachedBlock(block.ready, block.copy()))

    def _count(self, **counts: int) -> None:
        self.dirty = True
        self.cache.ledger = replace(self.cache.ledger, **counts)

    def _leave(self, statement: str) -> None:
        if self.saved:
            await_only(self._sql.execute(statement))

    def _see_subnets(self, condition: str, *values: object) -> None:
        for found in self._fetch_all(f"SELECT number, row FROM subnet WHERE {condition}", *values):  # noqa: S608  our own names
            self.cache.subnets.load(found["number"], _subnet.decode(found["row"]))

    def _see_containers(self, condition: str, *values: object) -> None:
        for found in self._fetch_all(f"SELECT number, row FROM network_container WHERE {condition}", *values):  # noqa: S608  our own names
            if found["number"] not in self.cache.ncs.rows:
                self.cache.ncs.load(found["number"], _container.decode(found["row"]))

    def _see_cluster(self, cluster: str) -> None:
        if self._first_use(_containers_of(cluster)):
            self._see_containers("cluster = $1 AND closed = 0", cluster)

    def _see_place(self, cluster: str, node: str, node_uid: str, subnet: int) -> None:
        """Look who is there; a cluster that asks again and again is read as a whole, as most of its nodes are new."""
        if _containers_of(cluster) in self.cache.loaded:
            return
        self.cache.nc_lookups[cluster] += 1
        if self.cache.nc_lookups[cluster] > _ASKS:
            self._see_cluster(cluster)
        else:
            condition = "cluster = $1 AND node = $2 AND node_uid = $3 AND subnet = $4 AND closed = 0"
            self._see_containers(condition, cluster, node, node_uid, subnet)

    def _highest_block(self, subnet: int) -> int:
        """Tell the last block that the database has; those beyond it were made since, and are at hand."""
        if subnet not in self.cache.last_block:
            found = self._fetch_one("SELECT max(number) FROM block WHERE subnet = $1", subnet)
            self.cache.last_block[subnet] = -1 if found is None or found[0] is None else found[0]
        return self.cache.last_block[subnet]

    def _open(self, condition: Callable[[NetworkContainerRow], bool]) -> list[NetworkContainerRow]:
        rows = [row for row in self.cache.ncs.existing() if not row.closed and condition(row)]
        return sorted(rows, key=lambda row: row.number)

    def _waiting(self, lane: OrderedIndex, subnet: int, column: str, limit: int) -> list[NetworkContainerRow]:
        while (first := lane.known(limit)) is None:
            wanted = max(limit, _AHEAD)
            found = self._fetch_all(
                f"SELECT number, {column} AS since, row FROM network_container"  # noqa: S608  our own names
                f" WHERE subnet = $1 AND ({column}, number) > ($2, $3) ORDER BY {column}, number LIMIT $4",
                subnet,
                *lane.edge,
                wanted,
            )
            for row in found:
                self.cache.ncs.load(row["number"], _container.decode(row["row"]))
            lane.extend(((row["since"], row["number"]) for row in found), wanted=wanted)
        return [_there(self.cache.ncs.rows[number], "network_container", number) for _, number in first]


async def renew_clusters(connection: "Connection", cache: RowCache, ids: Sequence[str]) -> None:
    """Read clusters again."""
    for row in await connection.fetch("SELECT id, row FROM cluster WHERE id = ANY($1::text[])", ids):
        cache.clusters.refresh(row["id"], _cluster.decode(row["row"]))


async def renew_subnets(connection: "Connection", cache: RowCache, numbers: Sequence[int]) -> None:
    """Read subnets again."""
    for row in await connection.fetch("SELECT number, row FROM subnet WHERE number = ANY($1::bigint[])", numbers):
        cache.subnets.refresh(row["number"], _subnet.decode(row["row"]))


async def renew_containers(connection: "Connection", cache: RowCache, numbers: Sequence[int]) -> None:
    """Read containers again."""
    for row in await connection.fetch("SELECT number, row FROM network_container WHERE number = ANY($1::bigint[])", numbers):
        cache.ncs.refresh(row["number"], _container.decode(row["row"]))


async def renew_blocks(connection: "Connection", cache: RowCache, keys: Sequence[tuple[int, int]]) -> None:
    """Read blocks again."""
    found = await connection.fetch(
        "SELECT block.* FROM unnest($1::bigint[], $2::bigint[]) AS wanted (subnet, number)"
        " JOIN block USING (subnet, number)",
        [subnet for subnet, _ in keys],
        [number for _, number in keys],
    )
    for row in found:
        cache.blocks.refresh((row["subnet"], row["number"]), _laid(row))


def _there(row: T | None, what: str, number: int) -> T:
    if row is None:
        raise LookupError(f"there is no {what} {number}")
    return row


def _laid(row: "Record") -> CachedBlock:
    return CachedBlock(row["ready"], Block.decode(row["slots"]))


def _containers_of(cluster: str) -> str:
    return f"containers of {cluster}"
