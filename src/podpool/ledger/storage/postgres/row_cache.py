"""Cache of the database's rows in a replica: rows are read once, changed here and written back together.

A table records which rows were changed, and their values before the current transaction, so that a transaction that
raises leaves no change. An ordered index returns the first rows by a key without a query each time: every row that is
not cached lies beyond the index's `complete_to`. The user of a `RowCache` must ensure that no other replica has written
since it was read (`store`).
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from podpool.ledger.domain.address_block import Block
from podpool.ledger.domain.rows import ClusterRow, LedgerTimeRow, NcRow, OwnershipConflictRow, SubnetRow, TokenRow

if TYPE_CHECKING:
    from podpool.ledger.domain.repository import Membership

K = TypeVar("K")
V = TypeVar("V")

NodeKey = tuple[str, str, str, int]
"""Cluster, node, node UID and subnet: has at most one open network container."""
IndexKey = tuple[float, int]
"""A time, then a number."""

_FIRST: IndexKey = (float("-inf"), 0)
_LAST: IndexKey = (float("inf"), 0)


class CachedBlock(msgspec.Struct, frozen=True):
    """A block, which must not be modified, and its key in the index."""

    ready: int | None
    block: Block


_NO_BLOCK = CachedBlock(None, Block.new(()))
_NO_NC = NcRow(number=0, id="", cluster="", subnet=0, node="", node_uid="", closed=True)


class CachedTable(Generic[K, V]):
    """The cached rows of one table; None means that the row does not exist."""

    def __init__(self, on_change: Callable[[K, V | None, V | None], None] = lambda *_: None) -> None:
        self.rows: dict[K, V | None] = {}
        self.dirty: dict[K, None] = {}
        self.previous: dict[K, tuple[V | None, bool]] = {}
        """The rows that the current transaction has changed: their values before, and whether they were cached."""
        self._on_change = on_change

    def load(self, key: K, row: V | None) -> V | None:
        """Add a row read from the database, unless it is cached; returns the cached row."""
        if key not in self.rows:
            self.rows[key] = row
            self._on_change(key, None, row)
        return self.rows[key]

    def put(self, key: K, row: V | None) -> None:
        """Change a row."""
        before = self.rows.get(key)
        self.previous.setdefault(key, (before, key in self.rows))
        self.rows[key] = row
        self._on_change(key, before, row)

    def refresh(self, key: K, row: V | None) -> None:
        """Replace a row by what another replica has written."""
        self._on_change(key, self.rows.get(key), row)
        self.rows[key] = row

    def existing(self) -> list[V]:
        """Return the cached rows that exist."""
        return [row for row in self.rows.values() if row is not None]

    def accept(self) -> None:
        """End a transaction: its changes become dirty."""
        self.dirty.update(dict.fromkeys(self.previous))
        self.previous.clear()

    def rollback(self) -> None:
        """End a transaction and undo its changes."""
        for key, (before, cached) in self.previous.items():
            self._on_change(key, self.rows[key], before)
            if cached:
                self.rows[key] = before
            else:
                del self.rows[key]
        self.previous.clear()

    def take_dirty(self) -> list[tuple[K, V | None]]:
        """Return the rows to be written, and mark them as clean."""
        taken = [(key, self.rows[key]) for key in self.dirty]
        self.dirty.clear()
        return taken


class OrderedIndex:
    """The keys of cached rows in order, and the key up to which all rows are cached."""

    def __init__(self) -> None:
        self.complete_to = _FIRST
        self._keys: list[IndexKey] = []

    def move(self, before: IndexKey | None, after: IndexKey | None) -> None:
        """Replace a key."""
        if before == after:
            return
        if before is not None:
            del self._keys[bisect_left(self._keys, before)]
        if after is not None:
            insort(self._keys, after)

    def first(self, count: int) -> list[IndexKey] | None:
        """Return the first keys; None if more rows must be read to know them."""
        keys = self._keys[:count]
        complete = self.complete_to == _LAST or (len(keys) == count and (not keys or keys[-1] <= self.complete_to))
        return keys if complete else None

    def extend(self, read: Iterable[IndexKey], *, limit: int) -> None:
        """Advance `complete_to` over the keys that a query with this limit returned."""
        keys = list(read)
        self.complete_to = keys[-1] if len(keys) == limit else _LAST


class ShardRow(msgspec.Struct, frozen=True, kw_only=True):
    """The row of a network in table `shard`, which each of its commits writes; its fields are the columns."""

    network: str
    revision: int
    epoch: int
    commit_token: int
    commits: int
    last_nc: int
    reserved_nc: int
    system_identifier: int | None
    timeline: int | None


class CachedTime:
    """The row of table `ledger_time`, which all networks share."""

    def __init__(self) -> None:
        self.row: LedgerTimeRow | None = None


class RowCache:
    """All cached rows of a network, as of one commit."""

    def __init__(self, shard: ShardRow, time: CachedTime) -> None:
        self.shard = shard
        self.time = time
        self.clusters: CachedTable[tuple[str, str], ClusterRow] = CachedTable()
        self.tokens: CachedTable[str, TokenRow] = CachedTable()
        self.subnets: CachedTable[int, SubnetRow] = CachedTable(self._index_subnet)
        self.ncs: CachedTable[int, NcRow] = CachedTable(self._index_nc)
        self.blocks: CachedTable[tuple[int, int], CachedBlock] = CachedTable(self._index_block)
        self.members: CachedTable[Membership, bool] = CachedTable()
        self.pending_inventories: CachedTable[Membership, bool] = CachedTable()
        self.conflicts: CachedTable[tuple[int, str, int], OwnershipConflictRow] = CachedTable()
        self.tables: tuple[CachedTable[Any, Any], ...] = (
            *(self.clusters, self.tokens, self.subnets, self.ncs, self.blocks),
            *(self.members, self.pending_inventories, self.conflicts),
        )
        self.loaded: set[str] = set()
        """Tables, or parts of them, whose rows are all cached."""
        self.nc_lookups: Counter[str] = Counter()
        """Number of lookups of single network containers, by cluster."""
        self.subnet_by_name: dict[tuple[str, str], int | None] = {}
        self.nc_by_id: dict[str, int | None] = {}
        self.nc_by_node: dict[NodeKey, int | None] = {}
        self.last_block: dict[int, int] = {}
        """The last block of each subnet when it was read."""
        self.reusable_blocks: defaultdict[int, OrderedIndex] = defaultdict(OrderedIndex)
        self.waiting_for_pods: defaultdict[int, OrderedIndex] = defaultdict(OrderedIndex)
        self.waiting_for_buffer: defaultdict[int, OrderedIndex] = defaultdict(OrderedIndex)

    @property
    def size(self) -> int:
        """The number of cached rows, and of names that were looked up and do not exist: callers choose these."""
        ncs, subnets = len(self.ncs.rows), len(self.subnets.rows)
        unknown = ((self.nc_by_id, ncs), (self.nc_by_node, ncs), (self.subnet_by_name, subnets), (self.nc_lookups, 0))
        return sum(len(table.rows) for table in self.tables) + sum(max(0, len(names) - rows) for names, rows in unknown)

    def _index_subnet(self, number: int, before: SubnetRow | None, after: SubnetRow | None) -> None:
        row = after or before
        if row is not None:
            self.subnet_by_name[row.spec.network, row.spec.name] = number if after else None

    def _index_nc(self, number: int, before: NcRow | None, after: NcRow | None) -> None:
        row = after or before
        if row is None:
            return
        self.nc_by_id[row.id] = number if after else None
        left, taken = _node_key(before), _node_key(after)
        if left is not None and left != taken and self.nc_by_node.get(left) == number:
            self.nc_by_node[left] = None
        if taken is not None:
            self.nc_by_node[taken] = number
        old, new = before or _NO_NC, after or _NO_NC
        pods, buffer = self.waiting_for_pods[row.subnet], self.waiting_for_buffer[row.subnet]
        pods.move(_index_key(old.pod_short_since, number), _index_key(new.pod_short_since, number))
        buffer.move(_index_key(old.buffer_short_since, number), _index_key(new.buffer_short_since, number))

    def _index_block(self, key: tuple[int, int], before: CachedBlock | None, after: CachedBlock | None) -> None:
        subnet, number = key
        old, new = before or _NO_BLOCK, after or _NO_BLOCK
        self.reusable_blocks[subnet].move(_index_key(old.ready, number), _index_key(new.ready, number))


def _index_key(time: float | None, number: int) -> IndexKey | None:
    return None if time is None else (time, number)


def _node_key(row: NcRow | None) -> NodeKey | None:
    return None if row is None or row.closed else (row.cluster, row.node, row.node_uid, row.subnet)
