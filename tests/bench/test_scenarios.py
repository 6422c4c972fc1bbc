"""Declared scenarios are consistent."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from bench.ledgers import on_sqlite
from bench.scenario import QUICK
from bench.scenarios import ALL
from bench.scenarios.core import SCENARIO, allocate, compute_target, report_demand
from bench.scenarios.ledger import burst, first_batches

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from bench.scenario import Run
    from bench.timing import Loop


def test_no_two_scenarios_share_a_name_or_an_id() -> None:
    names = [scenario.name for scenario in ALL]
    ids = [one for scenario in ALL for one in scenario.ids]
    assert (len(names), len(ids)) == (len(set(names)), len(set(ids)))


def test_core_counts_what_it_declares_at_three_sizes_over_four_decades() -> None:
    with SCENARIO.setup(QUICK) as trials:
        assert SCENARIO.ids == tuple(count.id for trial in trials for count in trial.counts)
        sizes = [[int(side.name) for side in trial.sides] for trial in trials]
    assert all(len(each) == 3 and each[-1] >= 8192 * each[0] for each in sizes)


@pytest.mark.parametrize("loop", [allocate, compute_target, report_demand])
def test_a_core_operation_can_run_any_number_of_times(loop: Callable[[int], Loop]) -> None:
    """A loop restores its state, so that a batch may have any length."""
    operations = loop(128)
    assert all(isinstance(operations(1000), float) for _ in range(3))


@pytest.mark.parametrize(
    "trial",
    [partial(first_batches, callers=2, batches=4), partial(burst, size=4, metric="seconds")],
    ids=["batches", "burst"],
)
def test_a_ledger_is_measured_in_a_new_network_each_time(trial: Callable[..., AbstractContextManager[Run]]) -> None:
    with trial(on_sqlite) as run:
        assert all(run(number) > 0.0 for number in range(2))
