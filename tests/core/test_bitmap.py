"""Bitmap that finds its lowest absent number."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from podpool.core.bitmap import Bitmap

# around the width of a word, and of a word of words, where a child becomes full or is opened again
SIZES = st.sampled_from([1, 2, 255, 256, 257, 600, 65536, 65537, 66000])
RUNS = st.lists(st.tuples(st.integers(0, 66000), st.sampled_from([0, 1, 254, 255, 256, 511, 65535])), max_size=5)


def lowest_absent(numbers: set[int], size: int) -> int | None:
    return next((number for number in range(size) if number not in numbers), None)


class BitmapMachine(RuleBasedStateMachine):
    """After any additions and removals the bitmap equals a plain set."""

    @initialize(size=SIZES, runs=RUNS)
    def begin(self, size: int, runs: list[tuple[int, int]]) -> None:
        inside = [(first, min(first + length, size - 1)) for first, length in runs if first < size]
        self.plain = {number for first, last in inside for number in range(first, last + 1)}
        self.bitmap = Bitmap(size, full=inside)

    @rule(data=st.data())
    def toggle(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, self.bitmap.size - 1))
        assert (number in self.plain) == (number in self.bitmap)
        if number in self.plain:
            self.bitmap.discard(number)
        else:
            self.bitmap.add(number)
        self.plain ^= {number}

    @rule(times=st.sampled_from([1, 2, 255, 256, 257]))
    def add_the_lowest(self, times: int) -> None:
        for _ in range(times):
            number = self.bitmap.first_absent()
            if number is not None:
                self.bitmap.add(number)
                self.plain.add(number)

    @precondition(lambda self: self.plain)
    @rule(data=st.data())
    def discard_one(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.plain)))
        self.bitmap.discard(number)
        self.plain.discard(number)

    @invariant()
    def same_as_a_plain_set(self) -> None:
        assert lowest_absent(self.plain, self.bitmap.size) == self.bitmap.first_absent()
        assert len(self.plain) == self.bitmap.count

    def teardown(self) -> None:
        if hasattr(self, "plain"):
            assert self.plain == {number for number in range(self.bitmap.size) if number in self.bitmap}


TestBitmap = BitmapMachine.TestCase
TestBitmap.settings = settings(max_examples=min(40, settings().max_examples), stateful_step_count=20)


@given(st.integers(0, (1 << 128) - 1))
def test_one_absent_number_in_all_of_ipv6_is_found(number: int) -> None:
    bitmap = Bitmap(1 << 128, full=[(0, (1 << 128) - 1)])
    assert bitmap.first_absent() is None
    bitmap.discard(number)
    assert number == bitmap.first_absent()
    assert number not in bitmap
    bitmap.add(number)
    assert bitmap.first_absent() is None


def test_an_empty_bitmap_has_no_absent_number() -> None:
    assert Bitmap(0).first_absent() is None
