"""The simulator finds every planted bug, by a scenario that reproduces its trace.

Rows are those of the table of traces that broke earlier drafts of the protocol.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from podpool.lab.sim.address_use_oracle import Violation
from podpool.lab.sim.invariants import InvariantChecker
from podpool.lab.sim.profiles import SimConfig
from tests.lab.sim import (
    planted_agent,
    planted_disks,
    planted_ledger,
    scenarios_clusters,
    scenarios_disks,
    scenarios_nodes,
    scenarios_pods,
    scenarios_restores,
)
from tests.lab.sim.driver import NARROW, SETTINGS, WIDE, Scenario, run_scenario

pytestmark = pytest.mark.simulation

ONE_CONTROLLER = msgspec.structs.replace(NARROW, controllers=1)
UNRESERVED = msgspec.structs.replace(NARROW, settings=msgspec.structs.replace(SETTINGS, reserved_for_primaries=0))
SLOW_CONFIRMATION = msgspec.structs.replace(
    WIDE,
    settings=msgspec.structs.replace(SETTINGS, fence=120.0, confirmation_interval=100.0, node_gc_delay=160.0),
)
SEEDS = (1, 2, 3)


class Bug(msgspec.Struct, frozen=True):
    """An omitted rule, and the scenario that shows it."""

    row: str
    """In the table of traces; empty for other rules."""
    rule: str
    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario
    reported: tuple[str, ...]
    """The invariants of which one is violated."""
    config: SimConfig = WIDE
    checked: bool = True
    """Whether the ledger is checked too; else only the oracle."""


BUGS = (
    Bug(
        "1",
        "releases are journalled before the patch is sent",
        planted_agent.releases_are_sent_before_the_journal,
        scenarios_pods.a_patch_lands_after_its_agent_was_killed,
        ("containment",),
    ),
    Bug(
        "2",
        "a reboot invalidates assignments only",
        planted_agent.a_reboot_drops_the_journal,
        scenarios_pods.a_patch_lands_after_a_reboot,
        ("containment",),
    ),
    Bug(
        "3",
        "a pending release is dropped only on a newer status",
        planted_agent.releases_are_those_of_the_list,
        scenarios_pods.a_start_on_a_stale_list,
        ("containment",),
    ),
    Bug(
        "4",
        "invalidated assignments cool down from the reboot on",
        planted_agent.no_cooldown_after_a_reboot,
        scenarios_pods.a_reboot_with_running_pods,
        ("cooldown",),
    ),
    Bug(
        "5",
        "a release is never withdrawn",
        planted_agent.releases_are_withdrawn,
        scenarios_pods.demand_returns_during_a_release,
        ("containment",),
    ),
    Bug(
        "6",
        "inventories count only in recovery",
        planted_ledger.inventories_always_count,
        scenarios_restores.a_new_leader_has_a_stale_cache,
        ("not frozen",),
        ONE_CONTROLLER,
    ),
    Bug(
        "7",
        "terms end with a restore",
        planted_ledger.a_restore_goes_unnoticed,
        scenarios_restores.a_call_reaches_a_restored_ledger,
        ("one owner",),
        checked=False,
    ),
    Bug(
        "7",
        "nothing is granted before every cluster's inventory",
        planted_ledger.recovery_waits_for_no_cluster,
        scenarios_restores.a_node_requests_from_a_restored_ledger,
        ("containment",),
    ),
    Bug(
        "7b",
        "the inventory is read after a write to each NNC",
        planted_ledger.the_inventory_is_read_without_a_write,
        scenarios_restores.a_status_arrives_after_the_inventory,
        ("containment",),
    ),
    Bug(
        "7c",
        "in recovery the inventories, less the releases, are applied",
        planted_ledger.the_restored_ledger_ignores_inventories,
        scenarios_restores.the_restored_ledger_lacks_addresses_in_use,
        ("containment",),
    ),
    Bug(
        "8",
        "a grant's ID is random",
        planted_ledger.grant_ids_are_counters,
        scenarios_restores.former_releases_are_written_again,
        ("containment",),
    ),
    Bug(
        "9",
        "a status is accepted by its version, which only rises",
        planted_agent.versions_are_ignored,
        scenarios_restores.a_restored_status_shows_addresses_of_others,
        ("no silent rollback", "one owner"),
        NARROW,
    ),
    Bug(
        "9",
        "a status whose version differs from the ledger's is written again",
        planted_ledger.a_status_is_written_once,
        scenarios_restores.a_restored_status_is_older,
        ("agreement",),
    ),
    Bug(
        "9",
        "the highest version is journalled, and kept over a reboot",
        planted_agent.a_reboot_forgets_the_version,
        scenarios_pods.a_reboot_during_a_partition,
        ("no silent rollback",),
    ),
    Bug(
        "11",
        "node GC decides on a quorum read after its delay",
        planted_ledger.node_gc_trusts_the_cache,
        scenarios_nodes.a_node_is_reregistered_unseen,
        ("containment",),
    ),
    Bug(
        "11",
        "no NC is closed before the node GC delay has passed",
        planted_ledger.node_gc_ignores_the_delay,
        scenarios_nodes.a_node_is_absent_shorter_than_the_gc_delay,
        ("consent",),
    ),
    Bug(
        "12",
        "a confirmation needs boot ID, owner and NC",
        planted_agent.any_node_of_the_name_confirms,
        scenarios_nodes.a_node_returns_during_node_gc,
        ("containment",),
    ),
    Bug(
        "12",
        "an NC that node GC released is closed",
        planted_agent.an_nc_is_never_closed,
        scenarios_restores.a_restored_status_shows_a_closed_nc,
        ("containment",),
    ),
    Bug(
        "13",
        "only a quorum read confirms",
        planted_agent.a_bookmark_confirms,
        scenarios_nodes.a_bookmark_is_read_late,
        ("fenced", "containment"),
    ),
    Bug(
        "13",
        "a confirmation counts from when its reads were sent",
        planted_agent.a_confirmation_counts_from_its_response,
        scenarios_nodes.a_confirmation_is_answered_late,
        ("fenced",),
    ),
    Bug(
        "14",
        "the machine's boot ID is the one in its NNC, on a quorum read",
        planted_ledger.a_terminating_nnc_is_not_read,
        scenarios_nodes.a_rebooted_node_is_reregistered,
        ("containment",),
    ),
    Bug(
        "",
        "an NC without grants does not block the one that the agent claims",
        planted_ledger.superseded_ncs_are_kept,
        scenarios_nodes.an_unreported_node_is_reregistered,
        ("no leaks",),
    ),
    Bug(
        "15",
        "Pods keep an NC only while no Node of its name exists",
        planted_ledger.bound_pods_keep_any_nc_of_the_name,
        scenarios_nodes.a_machine_is_replaced,
        ("no leaks",),
    ),
    Bug(
        "",
        "an NC is kept while Pods are bound to its Node",
        planted_ledger.node_gc_ignores_bound_pods,
        scenarios_nodes.a_node_is_absent_longer_than_the_gc_delay,
        ("containment",),
    ),
    Bug(
        "",
        "a Node with the machine's boot ID keeps its NC",
        planted_ledger.the_boot_id_is_ignored,
        scenarios_nodes.a_node_is_reregistered,
        ("containment",),
    ),
    Bug(
        "",
        "an agent without a confirmation assigns no address",
        planted_agent.the_fence_is_ignored,
        scenarios_nodes.a_partitioned_node_is_collected,
        ("one owner", "fenced"),
        NARROW,
    ),
    Bug(
        "",
        "a partitioned agent assigns no address after the fence time",
        planted_agent.the_fence_is_ignored,
        scenarios_nodes.a_node_is_partitioned,
        ("fenced",),
    ),
    Bug(
        "",
        "an ADD at a closed fence starts a confirmation",
        planted_agent.an_add_starts_no_confirmation,
        scenarios_nodes.a_wall_clock_is_set,
        ("fence reopens",),
        SLOW_CONFIRMATION,
    ),
    Bug(
        "",
        "no ADD gets an address before the shortest cooldown",
        planted_agent.an_add_without_a_choice_ignores_the_cooldown,
        scenarios_pods.pods_are_replaced_during_a_partition,
        ("cooldown",),
    ),
    Bug(
        "",
        "an address is used again only when no other has been free for longer",
        planted_agent.the_last_used_address_is_assigned_first,
        scenarios_pods.pods_replace_each_other,
        ("cooldown",),
    ),
    Bug(
        "",
        "no address is idle while a Pod waits",
        planted_ledger.buffers_ignore_waiting_pods,
        scenarios_pods.pods_need_idle_addresses,
        ("all served",),
        NARROW,
    ),
    Bug(
        "",
        "a DEL releases the address of its sandbox",
        planted_agent.a_delete_releases_nothing,
        scenarios_pods.pods_replace_each_other,
        ("agreement",),
    ),
    Bug(
        "",
        "no write is requested without a change",
        planted_agent.an_agent_patches_without_a_change,
        scenarios_nodes.nothing_happens,
        ("quiescence",),
    ),
    Bug(
        "",
        "a release identifies a grant, not an address",
        planted_ledger.released_by_address,
        scenarios_pods.released_addresses_return_as_new_grants,
        ("consent", "containment"),
        UNRESERVED,
    ),
    Bug(
        "",
        "an ADD is answered after the journal has it",
        planted_agent.adds_are_answered_before_the_journal,
        scenarios_pods.an_agent_is_killed_after_an_add,
        ("one owner",),
    ),
    Bug(
        "",
        "nothing is requested before the Pods are listed",
        planted_agent.the_agent_scales_before_the_pods_are_listed,
        scenarios_pods.the_pod_list_is_slow,
        ("complete input",),
    ),
    Bug(
        "",
        "nothing is assigned before the underlay has programmed it",
        planted_agent.the_underlay_is_ignored,
        scenarios_pods.pods_are_bound_before_the_underlay_is_programmed,
        ("programmed",),
        msgspec.structs.replace(WIDE, underlay=True),
    ),
    Bug(
        "",
        "a cluster that a restored ledger waits for calls it",
        planted_ledger.an_idle_controller_does_not_call,
        scenarios_restores.the_ledger_waits_for_a_cluster_without_nodes,
        ("not frozen",),
    ),
    Bug(
        "",
        "a failed request does not restart the inventory",
        planted_ledger.a_failed_request_restarts_the_inventory,
        scenarios_restores.requests_fail_during_an_inventory,
        ("not frozen",),
    ),
    Bug(
        "",
        "an NNC is created before its NC is opened",
        planted_ledger.an_nc_is_opened_before_its_nnc,
        scenarios_nodes.the_leader_does_not_see_an_nnc,
        ("no leaks",),
    ),
    Bug(
        "",
        "the owner of an NNC is decided on a quorum read",
        planted_ledger.nnc_ownership_is_read_from_the_cache,
        scenarios_nodes.the_leader_does_not_see_a_node,
        ("quiescence",),
    ),
    Bug(
        "",
        "a call of an older term changes nothing",
        planted_ledger.terms_are_ignored,
        scenarios_nodes.a_call_of_a_former_leader_arrives_late,
        ("containment",),
    ),
    Bug(
        "",
        "a call with an older number changes nothing",
        planted_ledger.call_numbers_are_ignored,
        scenarios_nodes.a_call_arrives_after_its_timeout,
        ("containment",),
    ),
    Bug(
        "",
        "one agent at a time uses a state directory",
        planted_disks.two_agents_share_a_disk,
        scenarios_disks.a_second_agent_is_started,
        ("containment",),
    ),
    Bug(
        "",
        "no lost grant is cleared while a sandbox without a Pod may use it",
        planted_disks.sandboxes_without_pods_are_ignored,
        scenarios_disks.a_journal_is_lost_while_a_sandbox_outlives_its_pod,
        ("one owner",),
        msgspec.structs.replace(NARROW, pod_status_ips=True),
    ),
    Bug(
        "",
        "cooldowns do not depend on the wall clock of the ledger's machine",
        planted_ledger.the_ledger_uses_its_wall_clock,
        scenarios_nodes.a_ledger_clock_is_set_after_node_gc,
        ("cooldown",),
        NARROW,
    ),
    Bug(
        "",
        "a cluster below its share of a subnet waits for none above it",
        planted_ledger.the_longest_waiting_cluster_is_served_first,
        scenarios_clusters.a_greedy_cluster_waits_first,
        ("fair share",),
        NARROW,
    ),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Disable logging: a planted bug logs many lines."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_an_omitted_rule_is_found(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    checker = InvariantChecker if bug.checked else None
    for seed in SEEDS:
        run_scenario(bug.scenario, seed=seed, config=bug.config, checker=checker)
    bug.plant(monkeypatch)
    for seed in SEEDS:
        with pytest.raises(Violation) as found:
            run_scenario(bug.scenario, seed=seed, config=bug.config, checker=checker)
        assert found.value.invariant in bug.reported


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_deleted_while_its_pods_run_has_two_owners(seed: int) -> None:
    """Row 10: deleting a Node asserts that its Pods have stopped. No rule protects against a wrong assertion."""
    with pytest.raises(Violation, match="one owner"):
        run_scenario(scenarios_nodes.a_node_is_deleted_while_its_pods_run, seed=seed, config=NARROW, checker=None)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_deleted_after_its_pods_stopped_has_one_owner(seed: int) -> None:
    """Row 10 with a correct assertion."""
    run_scenario(scenarios_nodes.a_node_is_deleted_after_its_pods_stopped, seed=seed, config=NARROW)


def test_the_documentation_lists_every_bug() -> None:
    documentation = (Path(__file__).parents[3] / "docs" / "simulator.md").read_text()
    rows = [
        f"| {bug.rule} | {bug.row} | {bug.scenario.__name__.replace('_', ' ')} | {' or '.join(bug.reported)} |"
        for bug in BUGS
    ]
    assert [] == [row for row in rows if row not in documentation]
