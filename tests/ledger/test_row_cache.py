"""The row cache: after any reads, changes and rollbacks it returns operation the database would return."""

from hypothesis import given
from hypothesis import strategies as st

from podpool.ledger.storage.postgres.row_cache import CachedTable, CachedTime, OrderedIndex, RowCache, ShardRow

READ_AHEAD = 3
numbers = st.integers(0, 11)
times = st.none() | st.integers(0, 5)
operations = st.lists(
    st.tuples(st.sampled_from(["put", "read", "first", "rollback", "accept"]), numbers, times, st.integers(1, 6)),
    max_size=40,
)


class IndexedTable:
    """A cached table with one index, and the database behind it."""

    def __init__(self, rows: dict[int, int | None]) -> None:
        self.database = rows
        self.now = dict(rows)
        self.accepted = dict(rows)
        self.index = OrderedIndex()
        self.table: CachedTable[int, int] = CachedTable(self.on_change)

    def on_change(self, number: int, before: int | None, after: int | None) -> None:
        self.index.move(
            None if before is None else (before, number),
            None if after is None else (after, number),
        )

    def first(self, count: int) -> list[int]:
        while (known := self.index.first(count)) is None:
            rows_read = [key for key in keys(self.database) if key > self.index.complete_to][:READ_AHEAD]
            for time, number in rows_read:
                self.table.load(number, int(time))
            self.index.extend(rows_read, limit=READ_AHEAD)
        return [number for _, number in known]


def keys(rows: dict[int, int | None]) -> list[tuple[float, int]]:
    return sorted((time, number) for number, time in rows.items() if time is not None)


@given(st.dictionaries(numbers, times), operations)
def test_index_returns_the_first_rows(
    rows: dict[int, int | None], steps: list[tuple[str, int, int | None, int]]
) -> None:
    indexed = IndexedTable(rows)
    for operation, number, time, count in steps:
        if operation == "put":
            indexed.table.load(number, rows.get(number))
            indexed.table.put(number, time)
            indexed.now[number] = time
        elif operation == "read":
            assert indexed.now.get(number) == indexed.table.load(number, rows.get(number))
        elif operation == "first":
            assert [each for _, each in keys(indexed.now)[:count]] == indexed.first(count)
        elif operation == "accept":
            indexed.table.accept()
            indexed.accepted = dict(indexed.now)
        else:
            indexed.table.rollback()
            indexed.now = dict(indexed.accepted)
    indexed.table.accept()
    written = {**rows, **dict(indexed.table.take_dirty())}
    assert keys(indexed.now) == keys(written)


def test_rolled_back_change_is_not_written() -> None:
    table: CachedTable[str, int] = CachedTable()
    table.put("a", 1)
    table.accept()
    table.put("b", 2)
    table.put("a", 3)
    table.rollback()
    assert {"a": 1} == table.rows
    assert [("a", 1)] == table.take_dirty()
    assert [] == table.take_dirty()


def test_refresh_replaces_cached_rows() -> None:
    indexed = IndexedTable({1: 4, 2: 5, 3: 6, 4: 7})
    assert [1, 2] == indexed.first(2)
    indexed.table.refresh(2, 1)
    indexed.table.refresh(9, 3)
    assert [2, 9, 1, 3] == indexed.first(4)


def test_names_that_do_not_exist_count_towards_the_limit_of_the_cache() -> None:
    cache = RowCache(
        ShardRow(
            network="vnet",
            revision=0,
            epoch=0,
            commit_token=0,
            commits=0,
            last_nc=0,
            reserved_nc=0,
            system_identifier=None,
            timeline=None,
        ),
        CachedTime(),
    )
    for number in range(10):
        cache.nc_by_id[f"unknown-{number}"] = None
        cache.subnet_by_name["network", f"unknown-{number}"] = None
        cache.nc_by_node["cluster", f"unknown-{number}", "uid", 1] = None
    assert 30 == cache.size
