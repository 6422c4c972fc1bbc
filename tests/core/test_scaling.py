"""How many addresses a node should have."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from podpool.core.scaling import NodeHoldings, Scaler, demand_bound, surplus, target, thresholds

NO_MAXIMUM = 1 << 30
batches = st.integers(1, 256)
buffers = st.integers(0, 400)
demands = st.integers(0, 2000)
primary_counts = st.integers(0, 8)
scalers = st.builds(Scaler, batches, buffers)


@pytest.mark.parametrize(
    ("demand", "batch", "buffer", "wanted"),
    [
        (0, 16, 50, 16),
        (8, 16, 50, 16),
        (16, 16, 50, 32),
        (32, 16, 50, 48),
        (48, 16, 50, 64),
        (10, 1, 50, 11),
        (10, 16, 0, 16),
        (13, 1, 0, 13),
        (25, 16, 50, 48),
        (42, 16, 50, 64),
    ],
)
def test_known_targets_without_primaries(demand: int, batch: int, buffer: int, wanted: int) -> None:
    scaler = Scaler(batch, buffer)
    assert wanted == target(demand=demand, scaler=scaler, primaries=0, maximum=NO_MAXIMUM)


def test_a_primary_counts_towards_the_batch() -> None:
    """Azure's second monitor does not deduct it and holds 17 where people expect 16; here 47 + 1 are three batches."""
    assert 47 == target(demand=25, scaler=Scaler(16, 50), primaries=1, maximum=250)


@pytest.mark.parametrize(("demand", "maximum", "wanted"), [(0, 100, 16), (500, 250, 250)])
def test_the_node_maximum_limits_the_target(demand: int, maximum: int, wanted: int) -> None:
    assert wanted == target(demand=demand, scaler=Scaler(16, 50), primaries=0, maximum=maximum)


@given(demands, batches, st.integers(4, 400), st.just(1))
def test_the_plain_formula_applies_where_the_buffer_is_large_enough(
    demand: int, batch: int, buffer: int, primaries: int
) -> None:
    """B * ceil(mf + U/B) - P, wherever the buffer holds the primary and one free address."""
    assume(buffer * batch >= 100 * (primaries + 1))
    expected = batch * ceil(Fraction(buffer, 100) + Fraction(demand, batch)) - primaries
    assert expected == target(demand=demand, scaler=Scaler(batch, buffer), primaries=primaries, maximum=NO_MAXIMUM)


@given(demands, scalers)
def test_free_addresses_lie_within_one_batch_above_the_buffer(demand: int, scaler: Scaler) -> None:
    """For P = 0, unclamped: mf*B <= free < (mf+1)*B."""
    free = target(demand=demand, scaler=scaler, primaries=0, maximum=NO_MAXIMUM) - demand
    assert scaler.buffer * scaler.batch <= 100 * free < (scaler.buffer + 100) * scaler.batch


@given(st.lists(demands, min_size=1), scalers)
def test_the_free_addresses_of_a_cluster_are_bounded(demand_of: list[int], scaler: Scaler) -> None:
    """m*N <= wasted < M*N, with m = mf*B and M = (mf+1)*B."""
    wasted = sum(target(demand=each, scaler=scaler, primaries=0, maximum=NO_MAXIMUM) - each for each in demand_of)
    least = scaler.buffer * scaler.batch * len(demand_of)
    most = (scaler.buffer + 100) * scaler.batch * len(demand_of)
    assert least <= 100 * wasted < most


@given(demands, batches, st.integers(1, 400), primary_counts)
def test_one_address_is_always_free(demand: int, batch: int, buffer: int, primaries: int) -> None:
    wanted = target(demand=demand, scaler=Scaler(batch, buffer), primaries=primaries, maximum=NO_MAXIMUM)
    assert wanted - demand >= 1


@given(demands, batches, primary_counts)
def test_without_a_buffer_the_target_is_the_demand(demand: int, batch: int, primaries: int) -> None:
    wanted = target(demand=demand, scaler=Scaler(batch, 0), primaries=primaries, maximum=NO_MAXIMUM)
    assert 0 <= wanted - demand < batch


@given(demands, scalers, primary_counts)
def test_the_total_is_the_smallest_sufficient_multiple_of_the_batch(
    demand: int, scaler: Scaler, primaries: int
) -> None:
    total = target(demand=demand, scaler=scaler, primaries=primaries, maximum=NO_MAXIMUM) + primaries
    least_free = 1 if scaler.buffer else 0
    needed = max(scaler.buffer * scaler.batch, 100 * (primaries + least_free)) + 100 * demand
    assert 0 == total % scaler.batch
    assert 100 * (total - scaler.batch) < needed <= 100 * total


@given(demands, scalers, primary_counts, st.integers(1, 300))
def test_the_target_is_monotonic_in_demand(demand: int, scaler: Scaler, primaries: int, maximum: int) -> None:
    less, more = (
        target(demand=each, scaler=scaler, primaries=primaries, maximum=maximum) for each in (demand, demand + 1)
    )
    assert less <= more <= maximum


@given(demands, scalers)
def test_exhausted_keeps_one_free_address(demand: int, scaler: Scaler) -> None:
    free = target(demand=demand, scaler=scaler.exhausted(), primaries=1, maximum=NO_MAXIMUM) - demand
    assert (1 if scaler.buffer else 0) == free


@given(demands, scalers, primary_counts)
def test_a_request_bounds_the_demand_behind_it(demand: int, scaler: Scaler, primaries: int) -> None:
    """Tightly: the bound asks for the same again, so nothing that is decided from it can creep."""
    wanted = target(demand=demand, scaler=scaler, primaries=primaries, maximum=NO_MAXIMUM)
    bound = demand_bound(requested=wanted, scaler=scaler, primaries=primaries)
    assert demand <= bound
    assert wanted == target(demand=bound, scaler=scaler, primaries=primaries, maximum=NO_MAXIMUM)


def test_exhausted_no_buffer_is_larger_than_one_address() -> None:
    assert Scaler(1, 100) == Scaler(16, 400).exhausted()
    assert Scaler(1, 50) == Scaler(16, 50).exhausted()


def test_exhausted_a_small_buffer_stays_small() -> None:
    """Azure's second monitor scales with a buffer of 1 then; one free address is the same either way."""
    for buffer in (1, 50, 100, 400):
        assert 11 == target(demand=10, scaler=Scaler(16, buffer).exhausted(), primaries=0, maximum=250)


def test_a_bound_is_a_whole_number_of_pods() -> None:
    assert 1 == demand_bound(requested=3, scaler=Scaler(3, 50), primaries=0)


def test_an_empty_request_has_no_demand_behind_it() -> None:
    assert 0 == demand_bound(requested=0, scaler=Scaler(16, 50), primaries=1)


def test_surplus_counts_what_is_held_not_what_was_requested() -> None:
    """Azure's second monitor would release 16 addresses in use here, because it requested 32."""
    on_its_way = NodeHoldings(requested=32, held=16, assigned=5)
    assert 0 == surplus(on_its_way, wanted=16)
    arrived_late = NodeHoldings(requested=16, held=32, assigned=5)
    assert 16 == surplus(arrived_late, wanted=16)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_pending_releases_are_not_surplus(held: int, pending: int, wanted: int) -> None:
    extra = surplus(NodeHoldings(requested=wanted, held=held, pending_release=pending), wanted=wanted)
    assert 0 == surplus(NodeHoldings(requested=wanted, held=held, pending_release=pending + extra), wanted=wanted)


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_without_its_surplus_a_node_has_at_most_its_target(held: int, pending: int, wanted: int) -> None:
    extra = surplus(NodeHoldings(requested=0, held=held, pending_release=pending), wanted=wanted)
    assert extra >= 0
    assert held - pending - extra <= max(wanted, held - pending if not extra else wanted)


@pytest.mark.parametrize(
    ("batch", "buffer", "max_buffer", "grow", "shrink"),
    [(16, 50, 150, 8, 24), (16, 100, 200, 16, 32), (3, 50, 150, 2, 5), (1, 50, 150, 1, 2), (1, 49, 149, 0, 1)],
)
def test_thresholds_round_halves_up(batch: int, buffer: int, max_buffer: int, grow: int, shrink: int) -> None:
    free = thresholds(batch=batch, buffer=buffer, max_buffer=max_buffer)
    assert (grow, shrink) == (free.grow, free.shrink)
