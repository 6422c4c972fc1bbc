"""The reactive monitor: a batch at a time, as Azure's first one behaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.scaling import NodeHoldings, Scaler, reactive_step, thresholds


class Node:
    """A node on the reactive monitor, and a controller that grants when it is told to."""

    def __init__(self, held: int, *, batch: int = 10, maximum: int = 30, shares: tuple[int, int] = (50, 150)) -> None:
        self.requested = self.held = held
        self.named = 0
        self.batch, self.maximum, self.shares = batch, maximum, shares

    def look(self, assigned: int, *, exhausted: bool = False) -> tuple[int, int]:
        """Look once; give the request and how many addresses are named for release."""
        step = reactive_step(
            NodeHoldings(requested=self.requested, held=self.held, pending_release=self.named, assigned=assigned),
            scaler=Scaler(self.batch, self.shares[0]),
            max_buffer=self.shares[1],
            maximum=self.maximum,
            exhausted=exhausted,
            releasable=self.held - self.named - assigned,
        )
        self.requested, self.named = step.request, self.named + step.release
        return self.requested, self.named

    def settle(self, assigned: int, *, exhausted: bool = False) -> tuple[int, int]:
        """Look until nothing changes."""
        seen = None
        while seen != (now := self.look(assigned, exhausted=exhausted)):
            seen = now
        return now

    def granted(self) -> None:
        """The controller answers: named addresses go, and the rest is topped up to the request."""
        self.held, self.named = max(self.held - self.named, self.requested), 0


@pytest.mark.parametrize(
    ("held", "assigned", "batch", "maximum", "requested"),
    [(10, 8, 10, 30, 20), (10, 10, 3, 30, 12), (16, 9, 16, 30, 30), (16, 16, 50, 30, 30)],
)
def test_it_grows_to_the_next_multiple_of_the_batch(
    held: int, assigned: int, batch: int, maximum: int, requested: int
) -> None:
    assert (requested, 0) == Node(held, batch=batch, maximum=maximum).look(assigned)


def test_it_waits_for_what_it_asked_for() -> None:
    node = Node(10, shares=(30, 150))
    assert (20, 0) == node.look(8)
    assert (20, 0) == node.look(9)
    assert (20, 0) == node.look(9)


def test_exhausted_it_shrinks_by_single_addresses() -> None:
    assert (9, 1) == Node(10).look(8, exhausted=True)
    assert (16, 4) == Node(20).settle(15, exhausted=True)


def test_exhausted_it_keeps_one_free_address_whatever_the_buffer() -> None:
    assert (16, 4) == Node(20, shares=(300, 400)).settle(15, exhausted=True)


def test_it_shrinks_by_one_batch() -> None:
    assert (10, 10) == Node(20).settle(5)
    node = Node(21, batch=3)
    assert (21, 0) == node.look(19)
    assert (18, 3) == node.look(15)
    assert (16, 14) == Node(30, batch=16).settle(5)


def test_what_was_released_is_not_named_for_ever() -> None:
    node = Node(20, shares=(30, 100))
    assert (10, 10) == node.settle(5)
    node.granted()
    assert (10, 0) == node.settle(5)


def test_exhausted_it_goes_down_to_one_free_address_and_back() -> None:
    node = Node(16, batch=16, maximum=250)
    assert (3, 13) == node.settle(2, exhausted=True)
    node.granted()
    assert (16, 0) == node.settle(2)


def test_it_shrinks_again_before_the_first_release_is_answered() -> None:
    node = Node(30, shares=(30, 100))
    assert (30, 0) == node.look(23)
    assert (20, 10) == node.look(3)
    assert (10, 20) == node.look(3)
    node.granted()
    assert (10, 0) == node.settle(3)


def test_it_grows_while_releases_are_under_way() -> None:
    node = Node(10)
    assert (20, 0) == node.look(7)
    node.granted()
    assert (10, 10) == node.look(0)
    assert (20, 10) == node.look(7)
    assert (20, 10) == node.look(7)  # the controller has not taken them yet
    node.granted()
    assert (20, 0) == node.look(7)

    node = Node(16, batch=16, maximum=250)
    node.held, node.named = 32, 16
    assert (32, 16) == node.look(16)
    node.granted()
    assert (32, 0) == node.look(16)

    node = Node(48, batch=16, maximum=250)
    node.held, node.named = 64, 8
    assert (64, 8) == node.look(46)
    assert (64, 8) == node.look(40)
    assert (48, 24) == node.look(30)


def test_a_batch_larger_than_the_node_is_the_node() -> None:
    node = Node(30, batch=31)
    assert (30, 0) == node.look(30)
    assert (30, 0) == node.look(1)


def test_only_what_can_be_released_leaves_the_request() -> None:
    """Azure's counts the same way: the request falls by the number that was really marked."""
    holding = NodeHoldings(requested=20, held=20, assigned=5)
    step = reactive_step(holding, scaler=Scaler(10, 50), max_buffer=150, maximum=30, exhausted=False, releasable=4)
    assert (16, 4) == (step.request, step.release)


@given(st.integers(1, 64), st.integers(0, 400), st.integers(0, 500), st.integers(0, 500))
def test_it_settles_between_its_thresholds(batch: int, buffer: int, held: int, assigned: int) -> None:
    """Batch by batch, with an answer after each, from any size; enough room above the demand."""
    node = Node(held, batch=batch, maximum=10_000, shares=(buffer, buffer + 100))
    assigned = min(assigned, held)
    for _ in range(1 + 2 * (held + assigned + 10 * batch) // batch):
        node.look(assigned)
        node.granted()
    free = thresholds(batch=batch, buffer=buffer, max_buffer=buffer + 100)
    assert node.held == node.requested
    assert node.held - assigned >= free.grow
    assert node.held - assigned < free.shrink or node.held == 0
