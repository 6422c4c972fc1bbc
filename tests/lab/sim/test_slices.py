"""Node slices in the simulator: every planted bug is found. `make sim` runs random scenarios."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from podpool.lab.sim.oracle import Violation
from podpool.lab.sim.profiles import SimConfig
from podpool.lab.sim.slice_invariants import SliceInvariantChecker
from tests.lab.sim import planted_slices, scenarios_slices
from tests.lab.sim.driver import SETTINGS, Scenario, run_scenario

pytestmark = pytest.mark.simulation

SLICED = SimConfig(cidr="10.0.0.0/27", settings=SETTINGS, slices=True)
SEEDS = (1, 2, 3)


class Bug(msgspec.Struct, frozen=True):
    """An omitted rule, and the scenario that shows it."""

    rule: str
    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario
    reported: tuple[str, ...]


BUGS = (
    Bug(
        "a slice whose Lease has a holder is withdrawn only after its return",
        planted_slices.holders_are_ignored,
        scenarios_slices.a_nad_is_deleted_with_running_pods,
        ("consent",),
    ),
    Bug(
        "a slice follows the range of its network",
        planted_slices.a_slice_keeps_its_first_range,
        scenarios_slices.a_range_is_resized,
        ("all served",),
    ),
    Bug(
        "a delete has the version that was read as precondition",
        planted_slices.deletes_have_no_precondition,
        scenarios_slices.a_slice_is_taken_while_it_is_withdrawn,
        ("consent",),
    ),
    Bug(
        "node GC decides on a quorum read",
        planted_slices.node_gc_trusts_the_cache,
        scenarios_slices.a_node_is_reregistered_unseen,
        ("consent", "containment"),
    ),
    Bug(
        "a new leader starts with a quorum read, not with its cache",
        planted_slices.a_leader_starts_with_its_cache,
        scenarios_slices.a_new_leader_has_a_stale_cache,
        ("one owner",),
    ),
    Bug(
        "a slice that an agent reports is not assigned to another node",
        planted_slices.agent_reports_are_ignored,
        scenarios_slices.a_restored_api_server_lacks_slices,
        ("one owner",),
    ),
    Bug(
        "after a restore nothing is assigned before every agent has reported",
        planted_slices.no_report_is_awaited,
        scenarios_slices.an_agent_is_partitioned_after_a_restore,
        ("one owner",),
    ),
    Bug(
        "an agent uses a slice after the controller has confirmed its acknowledgement",
        planted_slices.confirmations_are_ignored,
        scenarios_slices.a_restored_lease_is_not_acknowledged,
        ("one owner",),
    ),
    Bug(
        "a slice with an address in use since the range was shared is not assigned",
        planted_slices.shared_entries_are_ignored,
        scenarios_slices.a_shared_range_is_sliced_with_running_pods,
        ("one owner",),
    ),
    Bug(
        "after a reboot, what its sandboxes had of a shared range is released",
        planted_slices.entries_of_earlier_boots_stay,
        scenarios_slices.a_machine_reboots_after_its_range_was_sliced,
        ("agreement",),
    ),
    Bug(
        "shared pools are sealed before their range is sliced",
        planted_slices.shared_pools_are_not_sealed,
        scenarios_slices.an_entry_arrives_while_its_range_is_sliced,
        ("one owner",),
    ),
    Bug(
        "an agent assigns nothing from a sealed pool",
        planted_slices.seals_are_ignored,
        scenarios_slices.a_range_is_shared_again_with_running_pods,
        ("one owner",),
    ),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging: faults log thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(scenario: Scenario, *, seed: int) -> None:
    """Run a scenario on a cluster with slices; raises violations."""
    run_scenario(scenario, seed=seed, config=SLICED, checker=SliceInvariantChecker)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_an_omitted_rule_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS:
        run(bug.scenario, seed=seed)
    bug.plant(monkeypatch)
    for seed in SEEDS:
        with pytest.raises(Violation) as found:
            run(bug.scenario, seed=seed)
        assert found.value.invariant in bug.reported


def test_the_documentation_lists_every_bug() -> None:
    documentation = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text()
    rows = [f"| {bug.rule} | {bug.scenario.__name__.replace('_', ' ')} | {' or '.join(bug.reported)} |" for bug in BUGS]
    assert [] == [row for row in rows if row not in documentation]


@pytest.mark.parametrize("seed", SEEDS)
def test_a_machine_that_returns_after_node_gc_does_not_use_its_former_slice(seed: int) -> None:
    run(scenarios_slices.a_machine_returns_after_node_gc, seed=seed)
