"""Rows at hand: whatever was read, changed and undone, they answer as the database would after the same changes."""

from hypothesis import given
from hypothesis import strategies as st

from podpool.ledger.storage.postgres.row_cache import Lane, Table

AHEAD = 3
numbers = st.integers(0, 11)
moments = st.none() | st.integers(0, 5)
moves = st.lists(
    st.tuples(st.sampled_from(["put", "read", "first", "undo", "keep"]), numbers, moments, st.integers(1, 6)),
    max_size=40,
)


class Line:
    """A table with one lane over it, and the database behind both."""

    def __init__(self, rows: dict[int, int | None]) -> None:
        self.database = rows
        self.now = dict(rows)
        self.kept = dict(rows)
        self.lane = Lane()
        self.table: Table[int, int] = Table(self.moved)

    def moved(self, number: int, before: int | None, after: int | None) -> None:
        self.lane.move(
            None if before is None else (before, number),
            None if after is None else (after, number),
        )

    def first(self, count: int) -> list[int]:
        while (known := self.lane.known(count)) is None:
            beyond = [key for key in keys(self.database) if key > self.lane.edge][:AHEAD]
            for moment, number in beyond:
                self.table.see(number, int(moment))
            self.lane.extend(beyond, wanted=AHEAD)
        return [number for _, number in known]


def keys(rows: dict[int, int | None]) -> list[tuple[float, int]]:
    return sorted((moment, number) for number, moment in rows.items() if moment is not None)


@given(st.dictionaries(numbers, moments), moves)
def test_a_lane_knows_who_comes_first(
    rows: dict[int, int | None], steps: list[tuple[str, int, int | None, int]]
) -> None:
    line = Line(rows)
    for what, number, moment, count in steps:
        if what == "put":
            line.table.see(number, rows.get(number))
            line.table.put(number, moment)
            line.now[number] = moment
        elif what == "read":
            assert line.now.get(number) == line.table.see(number, rows.get(number))
        elif what == "first":
            assert [each for _, each in keys(line.now)[:count]] == line.first(count)
        elif what == "keep":
            line.table.keep()
            line.kept = dict(line.now)
        else:
            line.table.undo()
            line.now = dict(line.kept)
    line.table.keep()
    written = {**rows, **dict(line.table.take())}
    assert keys(line.now) == keys(written)


def test_what_a_work_undid_is_not_written() -> None:
    table: Table[str, int] = Table()
    table.put("a", 1)
    table.keep()
    table.put("b", 2)
    table.put("a", 3)
    table.undo()
    assert {"a": 1} == table.rows
    assert [("a", 1)] == table.take()
    assert [] == table.take()


def test_what_somebody_else_wrote_takes_the_place_of_what_was_read() -> None:
    line = Line({1: 4, 2: 5, 3: 6, 4: 7})
    assert [1, 2] == line.first(2)
    line.table.renew(2, 1)
    line.table.renew(9, 3)
    assert [2, 9, 1, 3] == line.first(4)
