"""A pool never yields an address that is not free."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from podpool.core.addresses import Family
from podpool.core.errors import InvalidInput, PoolExhausted, WrongState
from podpool.core.pool import Order, Pool, PoolSnapshot, State
from podpool.core.range_spec import parse_range_spec
from podpool.core.ranges import Range, RangeSet, parse_prefix

SPAN = Range(Family.V4, 1000, 1299)


class PoolMachine(RuleBasedStateMachine):
    """No sequence of operations yields an address twice, or before its rest is over."""

    @initialize(order=st.sampled_from(Order), gaps=st.lists(st.integers(1000, 1299), max_size=280, unique=True))
    def begin(self, order: Order, gaps: list[int]) -> None:
        members = set(range(1000, 1300)) - set(gaps)
        self.pool = Pool(SPAN, members=RangeSet.of(Range(Family.V4, each, each) for each in members), order=order)
        self.fresh = members
        self.taken: set[int] = set()
        self.resting: dict[int, float] = {}
        self.rested: list[int] = []
        self.now = 0.0

    @rule(times=st.sampled_from([1, 1, 1, 40, 300]))
    def take(self, times: int) -> None:
        for _ in range(times):
            lowest = self.fresh | (set(self.rested) if self.pool.order is Order.LOWEST else set())
            expected = min(lowest) if lowest else self.rested[0] if self.rested else None
            if expected is None:
                with pytest.raises(PoolExhausted):
                    self.pool.take()
                return
            assert expected == self.pool.take()
            self.become_taken(expected)

    @rule(address=st.integers(999, 1300))
    def take_this(self, address: int) -> None:
        if address in self.fresh or address in self.rested:
            self.pool.take_this(address)
            self.become_taken(address)
        else:
            with pytest.raises(WrongState):
                self.pool.take_this(address)

    @precondition(lambda self: self.taken)
    @rule(data=st.data())
    def give_back(self, data: st.DataObject) -> None:
        address = data.draw(st.sampled_from(sorted(self.taken)))
        self.pool.give_back(address)
        self.taken.discard(address)
        self.fresh.add(address)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), late=st.floats(0, 10))
    def rest(self, data: st.DataObject, late: float) -> None:
        """An address whose rest is reported late rests longer than it had to, never shorter."""
        address = data.draw(st.sampled_from(sorted(self.taken)))
        self.pool.rest(address, since=self.now - late)
        self.taken.discard(address)
        self.resting[address] = max(self.now - late, *self.resting.values(), self.now - late)

    @rule(passed=st.floats(0, 60), cooldown=st.floats(0, 60))
    def wake(self, passed: float, cooldown: float) -> None:
        self.now += passed
        due = [address for address, since in self.resting.items() if since <= self.now - cooldown]
        assert len(due) == self.pool.wake(before=self.now - cooldown)
        self.rested += due
        for address in due:
            del self.resting[address]

    @rule(address=st.integers(999, 1300))
    def add_or_forget(self, address: int) -> None:
        known = self.known()
        if address in known:
            self.pool.forget(address)
            self.become_taken(address)
            self.taken.discard(address)
            self.resting.pop(address, None)
        elif address in SPAN:
            self.pool.add(address)
            self.fresh.add(address)

    @rule()
    def through_a_snapshot(self) -> None:
        """A snapshot in JSON makes the same pool again."""
        text = msgspec.json.encode(self.pool.snapshot())
        self.pool = Pool.restore(msgspec.json.decode(text, type=PoolSnapshot))
        assert text == msgspec.json.encode(self.pool.snapshot())
        if self.pool.order is Order.LOWEST:
            self.fresh |= set(self.rested)
            self.rested = []

    @invariant()
    def counted(self) -> None:
        assert len(self.taken) == self.pool.taken
        assert len(self.resting) == self.pool.resting
        assert len(self.fresh | set(self.rested)) == self.pool.free

    @invariant()
    def each_in_one_state(self) -> None:
        states = {
            State.FREE: self.fresh | set(self.rested),
            State.TAKEN: self.taken,
            State.RESTING: set(self.resting),
            State.ABSENT: set(range(999, 1301)) - self.known(),
        }
        for state, addresses in states.items():
            assert {state} >= {self.pool.state(address) for address in addresses}

    def known(self) -> set[int]:
        return self.fresh | set(self.rested) | self.taken | set(self.resting)

    def become_taken(self, address: int) -> None:
        self.fresh.discard(address)
        if address in self.rested:
            self.rested.remove(address)
        self.taken.add(address)


TestPool = PoolMachine.TestCase
TestPool.settings = settings(max_examples=50, stateful_step_count=30)


def test_lowest_reuses_at_once_what_has_rested() -> None:
    """Add, delete, add gives the same address, as secondary networks always have."""
    pool = Pool(parse_prefix("192.168.1.0/24").usable)
    first = pool.take()
    pool.rest(first, since=0.0)
    pool.wake(before=0.0)
    assert first == pool.take()


def test_longest_rested_goes_through_all_addresses_first() -> None:
    pool = Pool(Range(Family.V4, 0, 3), order=Order.LONGEST_RESTED)
    order = []
    for moment in range(8):
        order.append(pool.take())
        pool.rest(order[-1], since=float(moment))
        pool.wake(before=float(moment))
    assert [0, 1, 2, 3, 0, 1, 2, 3] == order


def test_a_resting_address_is_not_given() -> None:
    pool = Pool(Range(Family.V4, 7, 7))
    pool.rest(pool.take(), since=10.0)
    pool.wake(before=9.9)
    with pytest.raises(PoolExhausted, match="0 taken, 1 resting"):
        pool.take()
    pool.wake(before=10.0)
    assert 7 == pool.take()


@given(st.integers(0, (1 << 64) - 1))
def test_all_of_a_64_is_there(offset: int) -> None:
    """The upper half too, which others write but never read again."""
    span = parse_prefix("fd00::/64").range
    pool = Pool(span)
    pool.take_this(span.first + offset)
    assert (1, (1 << 64) - 1) == (pool.taken, pool.free)
    assert pool.take() == span.first + (1 if offset == 0 else 0)


def test_exclusions_are_holes() -> None:
    allocation = parse_range_spec("192.168.0.0/28", exclude=["192.168.0.0/30", "192.168.0.6/31"])
    pool = Pool(allocation.bounds, members=allocation.members)
    given_out = [allocation.prefix.family.text(pool.take()) for _ in range(3)]
    assert ["192.168.0.4", "192.168.0.5", "192.168.0.8"] == given_out


def test_an_error_names_the_address_and_both_states() -> None:
    pool = Pool(parse_prefix("10.0.0.0/30").usable)
    with pytest.raises(WrongState, match=r"10\.0\.0\.1 is free, not taken"):
        pool.give_back(0x0A000001)
    with pytest.raises(WrongState, match=r"10\.0\.0\.9 is not in the pool, not one of 10\.0\.0\.1-10\.0\.0\.2"):
        pool.forget(0x0A000009)
    with pytest.raises(WrongState, match="-1 is not in the pool"):
        pool.add(-1)


SPAN_TEXT = "10.0.0.0-10.0.0.9"


@pytest.mark.parametrize(
    ("snapshot", "message"),
    [
        (PoolSnapshot("x", Order.LOWEST), "span 'x': 'x' is not an IPv4 or IPv6 address"),
        (
            PoolSnapshot(SPAN_TEXT, Order.LOWEST, taken=("10.0.0.9-10.0.0.10",)),
            f"taken '10.0.0.9-10.0.0.10': is not in the span {SPAN_TEXT}",
        ),
        (PoolSnapshot(SPAN_TEXT, Order.LOWEST, taken=("::1",)), f"taken '::1-::1': is not in the span {SPAN_TEXT}"),
        (
            PoolSnapshot(SPAN_TEXT, Order.LOWEST, absent=("9.0.0.1",)),
            f"absent '9.0.0.1-9.0.0.1': is not in the span {SPAN_TEXT}",
        ),
        (
            PoolSnapshot(SPAN_TEXT, Order.LOWEST, absent=("x",)),
            "absent 'x': 'x' is not an IPv4 or IPv6 address",
        ),
        (
            PoolSnapshot(SPAN_TEXT, Order.LONGEST_RESTED, taken=("10.0.0.1",), rested=("10.0.0.1",)),
            f"snapshot '{SPAN_TEXT}': an address is listed twice",
        ),
        (
            PoolSnapshot(SPAN_TEXT, Order.LONGEST_RESTED, rested=("10.0.0.1-10.0.0.2",)),
            "rested '10.0.0.1-10.0.0.2': must be single addresses",
        ),
        (
            PoolSnapshot(SPAN_TEXT, Order.LOWEST, resting=(("10.0.0.1-10.0.0.2", 1.0),)),
            "resting '10.0.0.1-10.0.0.2': must be single addresses",
        ),
        (
            PoolSnapshot(SPAN_TEXT, Order.LOWEST, rested=("10.0.0.1",)),
            "rested '10.0.0.1': a pool that gives the lowest keeps no such order",
        ),
        (
            PoolSnapshot(SPAN_TEXT, Order.LOWEST, resting=(("10.0.0.1", 2.0), ("10.0.0.2", 1.0))),
            "resting [2.0, 1.0]: must be in the order in which the rests began",
        ),
        (
            PoolSnapshot(SPAN_TEXT, Order.LOWEST, resting=(("10.0.0.1", float("nan")),)),
            "resting [nan]: must be in the order in which the rests began",
        ),
    ],
)
def test_a_snapshot_that_contradicts_itself_is_refused(snapshot: PoolSnapshot, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Pool.restore(snapshot)
    assert message == str(caught.value)


@pytest.mark.parametrize("woken", [False, True])
def test_a_forgotten_address_comes_back_as_if_never_used(woken: bool) -> None:
    """Whether it was resting or had rested."""
    pool = Pool(Range(Family.V4, 5, 6), order=Order.LONGEST_RESTED)
    pool.rest(pool.take(), since=1.0)
    pool.wake(before=2.0 if woken else 0.0)
    pool.forget(5)
    assert (State.ABSENT, 0, 0, 1) == (pool.state(5), pool.taken, pool.resting, pool.free)
    pool.add(5)
    assert [5, 6] == [pool.take(), pool.take()]


@pytest.mark.parametrize(
    ("address", "text"), [(0, "0.0.0.0"), (0xFFFFFFFF, "255.255.255.255"), (1 << 32, "4294967296")]
)
def test_an_address_that_is_none_is_told_as_a_number(address: int, text: str) -> None:
    with pytest.raises(WrongState) as caught:
        Pool(Range(Family.V4, 5, 6)).take_this(address)
    assert f"{text} is not in the pool, not free" == str(caught.value)
