"""The reactive monitor: a batch at a time, as Azure's first one behaves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.scaling import NodeHoldings, Scaler, reactive_step, thresholds


class Node:
    """A node on the reactive monitor, and a controller that grants on request."""

    def __init__(self, held: int, *, batch: int = 10, maximum: int = 30, shares: tuple[int, int] = (50, 150)) -> None:
        self.requested = self.held = held
        self.pending_release = 0
        self.batch, self.maximum, self.shares = batch, maximum, shares

    def step(self, assigned: int, *, exhausted: bool = False) -> tuple[int, int]:
        """Run the monitor once; return the request and the addresses pending release."""
        step = reactive_step(
            NodeHoldings(
                requested=self.requested, held=self.held, pending_release=self.pending_release, assigned=assigned
            ),
            scaler=Scaler(self.batch, self.shares[0]),
            max_buffer=self.shares[1],
            maximum=self.maximum,
            exhausted=exhausted,
            releasable=self.held - self.pending_release - assigned,
        )
        self.requested, self.pending_release = step.request, self.pending_release + step.release
        return self.requested, self.pending_release

    def settle(self, assigned: int, *, exhausted: bool = False) -> tuple[int, int]:
        """Run the monitor until nothing changes."""
        seen = None
        while seen != (now := self.step(assigned, exhausted=exhausted)):
            seen = now
        return now

    def granted(self) -> None:
        """Act as the controller: remove pending releases, and top up to the request."""
        self.held, self.pending_release = max(self.held - self.pending_release, self.requested), 0


@pytest.mark.parametrize(
    ("held", "assigned", "batch", "maximum", "requested"),
    [(10, 8, 10, 30, 20), (10, 10, 3, 30, 12), (16, 9, 16, 30, 30), (16, 16, 50, 30, 30)],
)
def test_it_grows_to_the_next_multiple_of_the_batch(
    held: int, assigned: int, batch: int, maximum: int, requested: int
) -> None:
    assert (requested, 0) == Node(held, batch=batch, maximum=maximum).step(assigned)


def test_it_waits_for_what_it_requested() -> None:
    node = Node(10, shares=(30, 150))
    assert (20, 0) == node.step(8)
    assert (20, 0) == node.step(9)
    assert (20, 0) == node.step(9)


def test_exhausted_it_shrinks_by_single_addresses() -> None:
    assert (9, 1) == Node(10).step(8, exhausted=True)
    assert (16, 4) == Node(20).settle(15, exhausted=True)


def test_exhausted_it_keeps_one_free_address_whatever_the_buffer() -> None:
    assert (16, 4) == Node(20, shares=(300, 400)).settle(15, exhausted=True)


def test_it_shrinks_by_one_batch() -> None:
    assert (10, 10) == Node(20).settle(5)
    node = Node(21, batch=3)
    assert (21, 0) == node.step(19)
    assert (18, 3) == node.step(15)
    assert (16, 14) == Node(30, batch=16).settle(5)


def test_released_addresses_do_not_stay_pending() -> None:
    node = Node(20, shares=(30, 100))
    assert (10, 10) == node.settle(5)
    node.granted()
    assert (10, 0) == node.settle(5)


def test_exhausted_it_shrinks_to_one_free_address_and_grows_back() -> None:
    node = Node(16, batch=16, maximum=250)
    assert (3, 13) == node.settle(2, exhausted=True)
    node.granted()
    assert (16, 0) == node.settle(2)


def test_it_shrinks_again_before_the_first_release_is_confirmed() -> None:
    node = Node(30, shares=(30, 100))
    assert (30, 0) == node.step(23)
    assert (20, 10) == node.step(3)
    assert (10, 20) == node.step(3)
    node.granted()
    assert (10, 0) == node.settle(3)


def test_it_grows_while_releases_are_pending() -> None:
    node = Node(10)
    assert (20, 0) == node.step(7)
    node.granted()
    assert (10, 10) == node.step(0)
    assert (20, 10) == node.step(7)
    assert (20, 10) == node.step(7)  # the controller has not taken them yet
    node.granted()
    assert (20, 0) == node.step(7)

    node = Node(16, batch=16, maximum=250)
    node.held, node.pending_release = 32, 16
    assert (32, 16) == node.step(16)
    node.granted()
    assert (32, 0) == node.step(16)

    node = Node(48, batch=16, maximum=250)
    node.held, node.pending_release = 64, 8
    assert (64, 8) == node.step(46)
    assert (64, 8) == node.step(40)
    assert (48, 24) == node.step(30)


def test_a_batch_larger_than_the_node_maximum_is_limited() -> None:
    node = Node(30, batch=31)
    assert (30, 0) == node.step(30)
    assert (30, 0) == node.step(1)


def test_the_request_shrinks_only_by_releasable_addresses() -> None:
    """Azure's counts the same way: the request falls by the number that was really marked."""
    holding = NodeHoldings(requested=20, held=20, assigned=5)
    step = reactive_step(holding, scaler=Scaler(10, 50), max_buffer=150, maximum=30, exhausted=False, releasable=4)
    assert (16, 4) == (step.request, step.release)


@given(st.integers(1, 64), st.integers(0, 400), st.integers(0, 500), st.integers(0, 500))
def test_it_settles_between_its_thresholds(batch: int, buffer: int, held: int, assigned: int) -> None:
    """Batch by batch, with an answer after each, from any size; with a maximum above the demand."""
    node = Node(held, batch=batch, maximum=10_000, shares=(buffer, buffer + 100))
    assigned = min(assigned, held)
    for _ in range(1 + 2 * (held + assigned + 10 * batch) // batch):
        node.step(assigned)
        node.granted()
    free = thresholds(batch=batch, buffer=buffer, max_buffer=buffer + 100)
    assert node.held == node.requested
    assert node.held - assigned >= free.grow
    assert node.held - assigned < free.shrink or node.held == 0
