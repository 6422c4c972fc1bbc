"""Node slices in the simulator: every planted bug is found. `make sim` runs random scenarios."""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from podpool.lab.sim.address_use_oracle import Violation
from podpool.lab.sim.invariants import InvariantChecker
from podpool.lab.sim.profiles import SimConfig
from podpool.lab.sim.slice_invariants import SliceInvariantChecker
from tests.lab.sim import planted_slices, scenarios_slices
from tests.lab.sim.driver import SETTINGS, WIDE, Scenario, run_scenario

pytestmark = pytest.mark.simulation

SLICED = SimConfig(cidr="10.0.0.0/27", settings=SETTINGS, slices=True)
EIGHT_SLICES = msgspec.structs.replace(SLICED, cidr="10.0.0.0/26")
SEEDS = (1, 2, 3)


class Bug(msgspec.Struct, frozen=True):
    """An omitted rule, and the scenario that shows it."""

    rule: str
    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario
    reported: tuple[str, ...]
    config: SimConfig = SLICED


BUGS = (
    Bug(
        "a slice that its node holds is removed only after its return",
        planted_slices.held_slices_are_removed,
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
        "an assignment is removed with the version that was read as precondition",
        planted_slices.specs_are_written_without_a_precondition,
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
        "what the status of a node shows is its own, listed or not",
        planted_slices.lost_assignments_are_ignored,
        scenarios_slices.a_restored_api_server_lacks_slices,
        ("one owner",),
    ),
    Bug(
        "after a restore nothing is assigned before every agent has answered",
        planted_slices.no_answer_is_awaited,
        scenarios_slices.an_agent_is_partitioned_after_a_restore,
        ("one owner",),
    ),
    Bug(
        "a new leader continues the inventory of all nodes",
        planted_slices.each_leader_starts_afresh,
        scenarios_slices.the_leader_changes_during_an_inventory,
        ("one owner",),
    ),
    Bug(
        "an agent uses a slice after the controller has confirmed its acknowledgement",
        planted_slices.confirmations_are_ignored,
        scenarios_slices.a_restored_assignment_is_not_confirmed,
        ("containment", "one owner"),
    ),
    Bug(
        "nothing is confirmed before the inventory is complete",
        planted_slices.confirmations_await_no_inventory,
        scenarios_slices.a_slice_is_acknowledged_before_the_inventory,
        ("one owner",),
    ),
    Bug(
        "a return is journalled before it is sent",
        planted_slices.returns_are_not_journalled,
        scenarios_slices.a_return_lands_after_its_agent_was_killed,
        ("consent", "containment"),
    ),
    Bug(
        "the slices of a replaced machine stay its own until node GC",
        planted_slices.former_nodes_are_forgotten,
        scenarios_slices.a_node_is_replaced_while_its_machine_is_cut_off,
        ("consent", "one owner"),
    ),
    Bug(
        "after the fence was closed a slice is confirmed anew",
        planted_slices.slices_outlast_the_fence,
        scenarios_slices.a_collected_machine_returns_with_a_copy,
        ("containment", "one owner"),
    ),
    Bug(
        "after a reboot a slice is confirmed anew",
        planted_slices.slices_outlast_a_boot,
        scenarios_slices.a_machine_reboots_while_no_controller_runs,
        ("containment",),
    ),
    Bug(
        "a Node that is registered again in the same boot keeps its slices",
        planted_slices.the_boot_is_ignored,
        scenarios_slices.a_node_is_reregistered,
        ("consent", "containment"),
    ),
    Bug(
        "a status without a protocol version holds everything that is assigned",
        planted_slices.the_protocol_is_ignored,
        scenarios_slices.an_agent_without_a_status_uses_a_slice,
        ("consent",),
    ),
    Bug(
        "a rollback that one agent reports is one for all",
        planted_slices.rollbacks_are_ignored,
        scenarios_slices.a_restore_is_seen_by_an_agent_alone,
        ("one owner",),
    ),
    Bug(
        "a slice that looks unheld is withdrawn only after its node has answered",
        planted_slices.silent_nodes_hold_nothing,
        scenarios_slices.a_silent_node_has_a_slice_that_looks_unheld,
        ("consent",),
    ),
    Bug(
        "node GC pauses while too many nodes are missing",
        planted_slices.mass_losses_are_ignored,
        scenarios_slices.all_nodes_are_deleted,
        ("mass loss",),
        EIGHT_SLICES,
    ),
    Bug(
        "a range inside a subnet of the ledger gets no slices without a name of its own",
        planted_slices.subnets_of_the_ledger_are_ignored,
        scenarios_slices.a_nad_is_inside_a_subnet_of_the_ledger,
        ("one owner",),
        WIDE,
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

OTHERS = (
    scenarios_slices.a_machine_returns_after_node_gc,
    scenarios_slices.the_answer_to_held_is_lost,
    scenarios_slices.two_nads_share_a_range,
    scenarios_slices.nothing_happens,
)
"""Traces that no single rule protects against, or that must only do no harm."""


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging: faults log thousands of lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def run(scenario: Scenario, *, seed: int, config: SimConfig = SLICED) -> None:
    """Run a scenario on a cluster with slices; raises violations."""
    checker = SliceInvariantChecker if config.slices else InvariantChecker
    run_scenario(scenario, seed=seed, config=config, checker=checker)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_an_omitted_rule_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS:
        run(bug.scenario, seed=seed, config=bug.config)
    bug.plant(monkeypatch)
    for seed in SEEDS:
        with pytest.raises(Violation) as found:
            run(bug.scenario, seed=seed, config=bug.config)
        assert found.value.invariant in bug.reported


def test_the_documentation_lists_every_bug() -> None:
    documentation = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text()
    rows = [f"| {bug.rule} | {bug.scenario.__name__.replace('_', ' ')} | {' or '.join(bug.reported)} |" for bug in BUGS]
    assert [] == [row for row in rows if row not in documentation]


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("scenario", OTHERS, ids=lambda scenario: scenario.__name__)
def test_no_invariant_is_violated(scenario: Scenario, seed: int) -> None:
    run(scenario, seed=seed)
