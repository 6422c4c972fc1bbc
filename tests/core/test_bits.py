"""A set of numbers that finds its lowest gap."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from podpool.core.bitmap import Bitmap

# around the width of a word, and of a word of words, where a child becomes full or is opened again
SIZES = st.sampled_from([1, 2, 255, 256, 257, 600, 65536, 65537, 66000])
RUNS = st.lists(st.tuples(st.integers(0, 66000), st.sampled_from([0, 1, 254, 255, 256, 511, 65535])), max_size=5)


def lowest_gap(numbers: set[int], size: int) -> int | None:
    return next((number for number in range(size) if number not in numbers), None)


class BitsMachine(RuleBasedStateMachine):
    """Whatever is put in and taken out, the set is what a plain set would be."""

    @initialize(size=SIZES, runs=RUNS)
    def begin(self, size: int, runs: list[tuple[int, int]]) -> None:
        inside = [(first, min(first + length, size - 1)) for first, length in runs if first < size]
        self.plain = {number for first, last in inside for number in range(first, last + 1)}
        self.bits = Bitmap(size, full=inside)

    @rule(data=st.data())
    def toggle(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, self.bits.size - 1))
        assert (number in self.plain) == (number in self.bits)
        if number in self.plain:
            self.bits.discard(number)
        else:
            self.bits.add(number)
        self.plain ^= {number}

    @rule(times=st.sampled_from([1, 2, 255, 256, 257]))
    def add_the_lowest(self, times: int) -> None:
        for _ in range(times):
            number = self.bits.first_absent()
            if number is not None:
                self.bits.add(number)
                self.plain.add(number)

    @precondition(lambda self: self.plain)
    @rule(data=st.data())
    def discard_one(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(sorted(self.plain)))
        self.bits.discard(number)
        self.plain.discard(number)

    @invariant()
    def same_as_a_plain_set(self) -> None:
        assert len(self.plain) == self.bits.count
        assert lowest_gap(self.plain, self.bits.size) == self.bits.first_absent()

    def teardown(self) -> None:
        if hasattr(self, "plain"):
            assert sorted(self.plain) == [n for first, last in self.bits.runs() for n in range(first, last + 1)]


TestBits = BitsMachine.TestCase
TestBits.settings = settings(max_examples=40, stateful_step_count=20)


@given(st.integers(0, (1 << 128) - 1))
def test_one_gap_in_all_of_ipv6_is_found(number: int) -> None:
    bits = Bitmap(1 << 128, full=[(0, (1 << 128) - 1)])
    assert bits.first_absent() is None
    bits.discard(number)
    assert number == bits.first_absent()
    assert number not in bits
    bits.add(number)
    assert bits.first_absent() is None
    assert [(0, (1 << 128) - 1)] == bits.runs()


def test_an_empty_span_has_no_gap() -> None:
    assert Bitmap(0).first_absent() is None
