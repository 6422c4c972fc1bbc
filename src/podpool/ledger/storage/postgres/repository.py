"""The repository in PostgreSQL: all statements about subnets, network containers and blocks.

Rows are read into the row cache when they are first needed, and changed there. One statement writes the changes of a
group of transactions, if the commit token is still that of the cache (`commit`). Tables: `migrations/postgres`.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import msgspec
from msgspec.structs import replace

from podpool.ledger.domain.address_block import Block
from podpool.ledger.domain.rows import AllocationEvent, ClusterRow, LedgerTimeRow, NcRow, SubnetRow, encode_row
from podpool.ledger.messages import SubnetName
from podpool.ledger.storage.postgres.greenlet_bridge import await_only
from podpool.ledger.storage.postgres.recovery_tables import PostgresRecovery
from podpool.ledger.storage.postgres.row_cache import CachedBlock, OrderedIndex, RowCache

if TYPE_CHECKING:
    from asyncpg import Connection, Record

T = TypeVar("T")

_time_decoder = msgspec.json.Decoder(LedgerTimeRow)
_cluster_decoder = msgspec.json.Decoder(ClusterRow)
_subnet_decoder = msgspec.json.Decoder(SubnetRow)
_nc_decoder = msgspec.json.Decoder(NcRow)

_MIN_READ_AHEAD = 16
"""Rows that are read at once for an ordered index, at least."""
_MAX_NC_LOOKUPS = 16
"""Lookups of single network containers of a cluster before all of them are read."""
_ALL = 1 << 31
"""In place of a limit."""
_RESERVED_NCS = 256
"""Numbers that a network reserves for its network containers at once: none is used in two networks."""
_MIN_BIGINT = -(1 << 63)


class PostgresRepository(PostgresRecovery):
    """The rows, for a group of transactions that run one after the other."""

    def __init__(self, connection: "Connection", cache: RowCache, *, locked: bool) -> None:
        super().__init__(connection, cache, locked=locked)
        self.events: list[tuple[int, float, str, str, str]] = []
        self.changed: dict[int, None] = {}
        self._revision_advanced = False

    @property
    def revision(self) -> int:
        return self.cache.shard.revision

    @property
    def epoch(self) -> int:
        return self.cache.shard.epoch

    def networks(self) -> list[str]:
        found = self._fetch_all("SELECT network FROM shard WHERE network <> '' AND revision > 0 ORDER BY network")
        return [network for (network,) in found]

    def run_atomically(self, transaction: Callable[["PostgresRepository"], T]) -> T:
        """Run one transaction; one that raises leaves no change."""
        shard, events, changed, dirty = self.cache.shard, len(self.events), dict(self.changed), self.dirty
        self._revision_advanced = self.has_savepoint = False
        try:
            result = transaction(self)
            self.flush_buffer()
        except BaseException as error:
            self.discard_buffer()
            for table in self.cache.tables:
                table.rollback()
            self.cache.shard, self.changed, self.dirty = shard, changed, dirty
            self.cache.time.row = None
            del self.events[events:]
            if isinstance(error, Exception):  # otherwise the whole database transaction is rolled back
                self._end_savepoint("ROLLBACK TO one; RELEASE one")
            raise
        for table in self.cache.tables:
            if table.previous:
                table.accept()
        self._end_savepoint("RELEASE one")
        return result

    def advance_revision(self, *, floor: int = 0) -> int:
        if floor or not self._revision_advanced:
            self._update_shard(revision=max(self.revision + 1, floor))
            self._revision_advanced = True
        return self.revision

    def start_epoch(self) -> int:
        self._update_shard(epoch=self.epoch + 1)
        return self.epoch

    def log(self, *, at: float, cluster: str, kind: str, events: Sequence[AllocationEvent]) -> None:
        self.dirty = True
        self.events.append((self.revision, at, cluster, kind, encode_row(events)))

    def time_row(self) -> LedgerTimeRow:
        if self.cache.time.row is None:
            found = self._fetch_one("SELECT row FROM ledger_time")
            self.cache.time.row = _time_decoder.decode(found["row"]) if found else LedgerTimeRow()
        return self.cache.time.row

    def put_time_row(self, row: LedgerTimeRow) -> None:
        self._execute(
            "INSERT INTO ledger_time VALUES (1, $1) ON CONFLICT (one) DO UPDATE SET row = $1", encode_row(row)
        )
        self.cache.time.row = row

    def cluster(self, id_: str, *, network: str | None = None) -> ClusterRow | None:
        rows, key = self.cache.clusters, (self.network if network is None else network, id_)
        if key not in rows.rows:
            found = self._fetch_one("SELECT row FROM cluster WHERE network = $1 AND id = $2", *key)
            rows.load(key, _cluster_decoder.decode(found["row"]) if found else None)
        return rows.rows[key]

    def clusters(self) -> list[ClusterRow]:
        for found in self._fetch_all(f"SELECT network, id, row FROM cluster WHERE {self._own}", self.network):  # noqa: S608  our own names
            self.cache.clusters.load((found["network"], found["id"]), _cluster_decoder.decode(found["row"]))
        return sorted(self.cache.clusters.existing(), key=lambda row: (row.id, row.network))

    def put_cluster(self, row: ClusterRow) -> None:
        self.dirty = True
        self.cache.clusters.put((self.network, row.id), replace(row, network=self.network))

    def subnet(self, name: SubnetName) -> SubnetRow | None:
        if self.network not in ("", name.network):
            return None
        key = (name.network, name.name)
        if key not in self.cache.subnet_by_name:
            self.cache.subnet_by_name[key] = None
            self._load_subnets("network = $1 AND name = $2", *key)
        number = self.cache.subnet_by_name[key]
        return None if number is None else self.cache.subnets.rows[number]

    def subnet_by_number(self, number: int) -> SubnetRow:
        if number not in self.cache.subnets.rows:
            self._load_subnets("number = $1", number)
        return _require(self.cache.subnets.rows.get(number), "subnet", number)

    def subnets(self) -> list[SubnetRow]:
        self._load_subnets(self._own, self.network)
        return sorted(self.cache.subnets.existing(), key=lambda row: (row.spec.network, row.spec.name))

    def due(self, time: float) -> list[tuple[str, int]]:
        self._load_subnets(f"{self._own} AND due <= $2", self.network, time)
        due = [row for row in self.cache.subnets.existing() if row.due is not None and row.due <= time]
        return [(row.spec.network, row.number) for row in sorted(due, key=lambda row: row.number)]

    def add_subnet(self, row: SubnetRow) -> SubnetRow:
        found = self._fetch_one("SELECT nextval('subnet_number')")
        numbered = replace(row, number=found[0] if found else 0)
        self.put_subnet(numbered)
        return numbered

    def put_subnet(self, row: SubnetRow) -> None:
        self.dirty = True
        self.cache.subnets.put(row.number, row)
        self.changed[row.number] = None

    def delete_subnet_row(self, row: SubnetRow) -> None:
        self.invalidate_all = True
        for table, column in (("block", "subnet"), ("network_container", "subnet"), ("subnet", "number")):
            self._execute(f"DELETE FROM {table} WHERE {column} = $1", row.number)  # noqa: S608  our own names
        for number, nc in list(self.cache.ncs.rows.items()):
            if nc is not None and nc.subnet == row.number:
                self.cache.ncs.put(number, None)
        for key in list(self.cache.blocks.rows):
            if key[0] == row.number:
                self.cache.blocks.put(key, None)
        self.cache.subnets.put(row.number, None)
        self.changed[row.number] = None

    def nc(self, id_: str) -> NcRow | None:
        if id_ not in self.cache.nc_by_id:
            self.cache.nc_by_id[id_] = None
            self._load_ncs(f"{self._own_subnet} AND id = $2", self.network, id_)
        number = self.cache.nc_by_id[id_]
        return None if number is None else self.cache.ncs.rows[number]

    def nc_by_number(self, number: int) -> NcRow:
        if number not in self.cache.ncs.rows:
            self._load_ncs("number = $1", number)
        return _require(self.cache.ncs.rows.get(number), "network container", number)

    def nc_of_node(self, *, cluster: str, node: str, node_uid: str, subnet: int) -> NcRow | None:
        node_key = (cluster, node, node_uid, subnet)
        if node_key not in self.cache.nc_by_node:
            self.cache.nc_by_node[node_key] = None
            self._load_node_nc(*node_key)
        number = self.cache.nc_by_node[node_key]
        return None if number is None else self.cache.ncs.rows[number]

    def ncs(self, cluster: str) -> list[NcRow]:
        self._load_cluster_ncs(cluster)
        return self._open_ncs(lambda row: row.cluster == cluster)

    def nc_count(self, cluster: str) -> int:
        return len(self.ncs(cluster))

    def ncs_in_subnet(self, subnet: int) -> list[NcRow]:
        self._load_ncs("subnet = $1 AND closed = 0", subnet)
        return self._open_ncs(lambda row: row.subnet == subnet)

    def third_party(self, subnet: int) -> list[NcRow]:
        self._load_ncs("subnet = $1 AND third_party = 1", subnet)
        return self._open_ncs(lambda row: row.subnet == subnet and row.inferred is not None)

    def waiting_for_pods(self, subnet: int, limit: int, *, of_each: bool = False) -> list[NcRow]:
        read = partial(self._first_waiting, self.cache.waiting_for_pods[subnet], subnet, "pod_short_since")
        return _first_of_each(read(_ALL), limit) if of_each else read(limit)

    def waiting_for_buffer(self, subnet: int, limit: int, *, of_each: bool = False) -> list[NcRow]:
        read = partial(self._first_waiting, self.cache.waiting_for_buffer[subnet], subnet, "buffer_short_since")
        return _first_of_each(read(_ALL), limit) if of_each else read(limit)

    def add_nc(self, row: NcRow) -> NcRow:
        shard = self.cache.shard
        if shard.last_nc == shard.reserved_nc:
            found = self._fetch_one("SELECT nextval('nc_range')")
            first = found[0] * _RESERVED_NCS if found else 0
            self._update_shard(last_nc=first - 1, reserved_nc=first + _RESERVED_NCS - 1)
        self._update_shard(last_nc=self.cache.shard.last_nc + 1)
        return replace(row, number=self.cache.shard.last_nc)

    def put_nc(self, row: NcRow) -> None:
        self.dirty = True
        self.cache.ncs.put(row.number, row)

    def block(self, subnet: int, number: int) -> Block | None:
        key = (subnet, number)
        blocks = self.cache.blocks
        if key not in blocks.rows and number <= self._last_block(subnet):
            found = self._fetch_one("SELECT ready, slots FROM block WHERE subnet = $1 AND number = $2", *key)
            blocks.load(key, _cached_block(found) if found else None)
        cached = blocks.rows.get(key)
        return None if cached is None else cached.block.copy()

    def reusable_block(self, subnet: int, reusable_stamp: int) -> int | None:
        index = self.cache.reusable_blocks[subnet]
        while (first := index.first(1)) is None:
            found = self._fetch_all(
                "SELECT number, ready, slots FROM block"
                " WHERE subnet = $1 AND ready IS NOT NULL AND (ready, number) > ($2, $3)"
                " ORDER BY ready, number LIMIT $4",
                *(subnet, int(max(index.complete_to[0], _MIN_BIGINT)), index.complete_to[1], _MIN_READ_AHEAD),
            )
            for row in found:
                self.cache.blocks.load((subnet, row["number"]), _cached_block(row))
            index.extend(((row["ready"], row["number"]) for row in found), limit=_MIN_READ_AHEAD)
        return first[0][1] if first and first[0][0] <= reusable_stamp else None

    def put_block(self, subnet: int, number: int, block: Block) -> None:
        self.dirty = True
        self.cache.blocks.put((subnet, number), CachedBlock(block.ready, block.copy()))

    def _update_shard(self, **columns: int) -> None:
        self.dirty = True
        self.cache.shard = replace(self.cache.shard, **columns)

    def _end_savepoint(self, statement: str) -> None:
        if self.has_savepoint:
            await_only(self._sql.execute(statement))

    def _load_subnets(self, condition: str, *values: object) -> None:
        for found in self._fetch_all(f"SELECT number, row FROM subnet WHERE {condition}", *values):  # noqa: S608  our own names
            self.cache.subnets.load(found["number"], _subnet_decoder.decode(found["row"]))

    def _load_ncs(self, condition: str, *values: object) -> None:
        for found in self._fetch_all(f"SELECT number, row FROM network_container WHERE {condition}", *values):  # noqa: S608  our own names
            if found["number"] not in self.cache.ncs.rows:
                self.cache.ncs.load(found["number"], _nc_decoder.decode(found["row"]))

    def _load_cluster_ncs(self, cluster: str) -> None:
        if self._mark_loaded(_ncs_of(cluster)):
            self._load_ncs(f"{self._own_subnet} AND cluster = $2 AND closed = 0", self.network, cluster)

    def _load_node_nc(self, cluster: str, node: str, node_uid: str, subnet: int) -> None:
        """Load the network container of a node; after some lookups, all of its cluster, since most nodes are new."""
        if _ncs_of(cluster) in self.cache.loaded:
            return
        self.cache.nc_lookups[cluster] += 1
        if self.cache.nc_lookups[cluster] > _MAX_NC_LOOKUPS:
            self._load_cluster_ncs(cluster)
        else:
            condition = "cluster = $1 AND node = $2 AND node_uid = $3 AND subnet = $4 AND closed = 0"
            self._load_ncs(condition, cluster, node, node_uid, subnet)

    def _last_block(self, subnet: int) -> int:
        """Return the last block in the database; those beyond it were created since, and are cached."""
        if subnet not in self.cache.last_block:
            found = self._fetch_one("SELECT max(number) FROM block WHERE subnet = $1", subnet)
            self.cache.last_block[subnet] = -1 if found is None or found[0] is None else found[0]
        return self.cache.last_block[subnet]

    def _open_ncs(self, condition: Callable[[NcRow], bool]) -> list[NcRow]:
        rows = [row for row in self.cache.ncs.existing() if not row.closed and condition(row)]
        return sorted(rows, key=lambda row: row.number)

    def _first_waiting(self, index: OrderedIndex, subnet: int, column: str, limit: int) -> list[NcRow]:
        while (first := index.first(limit)) is None:
            read_ahead = max(limit, _MIN_READ_AHEAD)
            found = self._fetch_all(
                f"SELECT number, {column} AS since, row FROM network_container"  # noqa: S608  our own names
                f" WHERE subnet = $1 AND ({column}, number) > ($2, $3) ORDER BY {column}, number LIMIT $4",
                *(subnet, *index.complete_to, read_ahead),
            )
            for row in found:
                self.cache.ncs.load(row["number"], _nc_decoder.decode(row["row"]))
            index.extend(((row["since"], row["number"]) for row in found), limit=read_ahead)
        return [_require(self.cache.ncs.rows[number], "network container", number) for _, number in first]


def _first_of_each(rows: Iterable[NcRow], limit: int) -> list[NcRow]:
    """Return the first rows of each cluster."""
    counts: Counter[str] = Counter()
    first = []
    for row in rows:
        counts[row.cluster] += 1
        if counts[row.cluster] <= limit:
            first.append(row)
    return first


async def refresh_clusters(connection: "Connection", cache: RowCache, ids: Sequence[str]) -> None:
    """Refresh clusters."""
    network = cache.shard.network
    statement = "SELECT id, row FROM cluster WHERE network = $1 AND id = ANY($2::text[])"
    for row in await connection.fetch(statement, network, ids):
        cache.clusters.refresh((network, row["id"]), _cluster_decoder.decode(row["row"]))


async def refresh_subnets(connection: "Connection", cache: RowCache, numbers: Sequence[int]) -> None:
    """Refresh subnets."""
    for row in await connection.fetch("SELECT number, row FROM subnet WHERE number = ANY($1::bigint[])", numbers):
        cache.subnets.refresh(row["number"], _subnet_decoder.decode(row["row"]))


async def refresh_ncs(connection: "Connection", cache: RowCache, numbers: Sequence[int]) -> None:
    """Refresh network containers."""
    statement = "SELECT number, row FROM network_container WHERE number = ANY($1::bigint[])"
    for row in await connection.fetch(statement, numbers):
        cache.ncs.refresh(row["number"], _nc_decoder.decode(row["row"]))


async def refresh_blocks(connection: "Connection", cache: RowCache, keys: Sequence[tuple[int, int]]) -> None:
    """Refresh blocks."""
    found = await connection.fetch(
        "SELECT block.* FROM unnest($1::bigint[], $2::bigint[]) AS wanted (subnet, number)"
        " JOIN block USING (subnet, number)",
        [subnet for subnet, _ in keys],
        [number for _, number in keys],
    )
    for row in found:
        cache.blocks.refresh((row["subnet"], row["number"]), _cached_block(row))


def _require(row: T | None, what: str, number: int) -> T:
    if row is None:
        raise LookupError(f"{what} {number} does not exist")
    return row


def _cached_block(row: "Record") -> CachedBlock:
    return CachedBlock(row["ready"], Block.decode(row["slots"]))


def _ncs_of(cluster: str) -> str:
    return f"network containers of {cluster}"
