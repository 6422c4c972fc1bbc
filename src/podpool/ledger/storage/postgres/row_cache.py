"""Rows of a database in another process, kept at hand: read once, changed here, written back together.

A table knows which rows were changed, and what they were before the work at hand, so that a work that raises leaves no
trace. A lane answers "who comes first" without asking the database each time: every row that is not at hand lies beyond
its edge. `Shelf` is all of it; whoever uses one makes sure that nobody else has written since (`postgres`).
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import msgspec

from podpool.ledger.storage.block import Block
from podpool.ledger.storage.rows import AlarmRow, ClusterRow, ContainerRow, SubnetRow, TokenRow

if TYPE_CHECKING:
    from podpool.ledger.storage.store import Member

K = TypeVar("K")
V = TypeVar("V")

Place = tuple[str, str, str, int]
"""Where one container may be open: cluster, node, its UID, subnet."""
Key = tuple[float, int]
"""What a lane is sorted by: a moment, then a number."""

_FIRST: Key = (float("-inf"), 0)
_LAST: Key = (float("inf"), 0)


class Laid(msgspec.Struct, frozen=True):
    """A block as it lies on the shelf, where nobody changes it; and its place in the lane."""

    ready: int | None
    block: Block


_UNMADE = Laid(None, Block.fresh(()))
_ABSENT = ContainerRow(number=0, id="", cluster="", subnet=0, node="", node_uid="", closed=True)


class Table(Generic[K, V]):
    """The rows at hand of one table; None is a row that is not there."""

    def __init__(self, moved: Callable[[K, V | None, V | None], None] = lambda *_: None) -> None:
        self.rows: dict[K, V | None] = {}
        self.dirty: dict[K, None] = {}
        self.before: dict[K, tuple[V | None, bool]] = {}
        """What the work at hand has changed."""
        self._moved = moved

    def see(self, key: K, row: V | None) -> V | None:
        """Take in what the database has, unless the row is at hand already; tell what it is."""
        if key not in self.rows:
            self.rows[key] = row
            self._moved(key, None, row)
        return self.rows[key]

    def put(self, key: K, row: V | None) -> None:
        """Change a row."""
        before = self.rows.get(key)
        self.before.setdefault(key, (before, key in self.rows))
        self.rows[key] = row
        self._moved(key, before, row)

    def renew(self, key: K, row: V | None) -> None:
        """Take in what somebody else has written."""
        self._moved(key, self.rows.get(key), row)
        self.rows[key] = row

    def there(self) -> list[V]:
        """List the rows at hand that are there."""
        return [row for row in self.rows.values() if row is not None]

    def keep(self) -> None:
        """End a work: what it changed is to be written."""
        self.dirty.update(dict.fromkeys(self.before))
        self.before.clear()

    def undo(self) -> None:
        """End a work that came to nothing."""
        for key, (before, known) in self.before.items():
            self._moved(key, self.rows[key], before)
            if known:
                self.rows[key] = before
            else:
                del self.rows[key]
        self.before.clear()

    def take(self) -> list[tuple[K, V | None]]:
        """Take out what is to be written."""
        taken = [(key, self.rows[key]) for key in self.dirty]
        self.dirty.clear()
        return taken


class Lane:
    """Rows at hand in the order of their keys, and the key up to which all rows are."""

    def __init__(self) -> None:
        self.edge = _FIRST
        self._keys: list[Key] = []

    def move(self, before: Key | None, after: Key | None) -> None:
        """Bring a row from one place to another."""
        if before == after:
            return
        if before is not None:
            del self._keys[bisect_left(self._keys, before)]
        if after is not None:
            insort(self._keys, after)

    def known(self, count: int) -> list[Key] | None:
        """Tell the first so many; None when more must be read to know them."""
        first = self._keys[:count]
        sure = self.edge == _LAST or (len(first) == count and (not first or first[-1] <= self.edge))
        return first if sure else None

    def extend(self, read: Iterable[Key], *, wanted: int) -> None:
        """Move the edge over what was read beyond it: as many rows as were wanted, or all."""
        keys = list(read)
        self.edge = keys[-1] if len(keys) == wanted else _LAST


class Counters(msgspec.Struct, frozen=True, kw_only=True):
    """The one row that every commit writes."""

    revision: int
    epoch: int
    turn: int
    commits: int
    subnets: int
    containers: int
    system: int | None
    timeline: int | None


class Shelf:
    """Everything at hand, as it was at one commit."""

    def __init__(self, counters: Counters) -> None:
        self.counters = counters
        self.clusters: Table[str, ClusterRow] = Table()
        self.tokens: Table[str, TokenRow] = Table()
        self.subnets: Table[int, SubnetRow] = Table(self._move_subnet)
        self.containers: Table[int, ContainerRow] = Table(self._move_container)
        self.blocks: Table[tuple[int, int], Laid] = Table(self._move_block)
        self.members: Table[Member, bool] = Table()
        self.awaited: Table[Member, bool] = Table()
        self.alarms: Table[tuple[int, str, int], AlarmRow] = Table()
        self.tables: tuple[Table[Any, Any], ...] = (
            self.clusters,
            self.tokens,
            self.subnets,
            self.containers,
            self.blocks,
            self.members,
            self.awaited,
            self.alarms,
        )
        self.whole: set[str] = set()
        """Tables, or parts of them, of which every row is at hand."""
        self.asked: Counter[str] = Counter()
        """How often a single container of a cluster was asked for."""
        self.subnet_names: dict[tuple[str, str], int | None] = {}
        self.container_ids: dict[str, int | None] = {}
        self.places: dict[Place, int | None] = {}
        self.highest: dict[int, int] = {}
        """The last block of each subnet, when it was asked for."""
        self.ready: defaultdict[int, Lane] = defaultdict(Lane)
        self.needing: defaultdict[int, Lane] = defaultdict(Lane)
        self.wishing: defaultdict[int, Lane] = defaultdict(Lane)

    @property
    def size(self) -> int:
        """How many rows are at hand."""
        return sum(len(table.rows) for table in self.tables)

    def _move_subnet(self, number: int, before: SubnetRow | None, after: SubnetRow | None) -> None:
        row = after or before
        if row is not None:
            self.subnet_names[row.made.network, row.made.name] = number if after else None

    def _move_container(self, number: int, before: ContainerRow | None, after: ContainerRow | None) -> None:
        row = after or before
        if row is None:
            return
        self.container_ids[row.id] = number if after else None
        left, taken = _place(before), _place(after)
        if left is not None and left != taken and self.places.get(left) == number:
            self.places[left] = None
        if taken is not None:
            self.places[taken] = number
        was, is_ = before or _ABSENT, after or _ABSENT
        self.needing[row.subnet].move(_key(was.need_since, number), _key(is_.need_since, number))
        self.wishing[row.subnet].move(_key(was.wish_since, number), _key(is_.wish_since, number))

    def _move_block(self, key: tuple[int, int], before: Laid | None, after: Laid | None) -> None:
        subnet, number = key
        was, is_ = before or _UNMADE, after or _UNMADE
        self.ready[subnet].move(_key(was.ready, number), _key(is_.ready, number))


def _key(moment: float | None, number: int) -> Key | None:
    return None if moment is None else (moment, number)


def _place(row: ContainerRow | None) -> Place | None:
    return None if row is None or row.closed else (row.cluster, row.node, row.node_uid, row.subnet)
