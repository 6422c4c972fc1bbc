"""The simulator can fail: every planted bug is found, by a scenario that drives its trace.

Rows are those of the table of traces that broke earlier drafts of the protocol.
"""

import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from podpool.lab.sim.oracle import Violation
from podpool.lab.sim.scenario import Shape
from tests.lab.sim import planted, planted_books, scenarios_nodes, scenarios_pods, scenarios_restores
from tests.lab.sim.story import NARROW, SETTINGS, WIDE, Scenario, tell

pytestmark = pytest.mark.histories

ONE_CONTROLLER = msgspec.structs.replace(NARROW, controllers=1)
UNRESERVED = msgspec.structs.replace(NARROW, settings=msgspec.structs.replace(SETTINGS, reserved_for_primaries=0))
SEEDS = (1, 2, 3)


class Bug(msgspec.Struct, frozen=True):
    """A rule that is left out, and the story that shows it."""

    row: str
    """Of the table of traces; none where the rule comes from elsewhere."""
    rule: str
    plant: Callable[[pytest.MonkeyPatch], None]
    scenario: Scenario
    reported: tuple[str, ...]
    """The invariants of which one is told to be broken."""
    shape: Shape = WIDE
    audited: bool = True
    """Whether the books are looked at too; else only who uses what."""


BUGS = (
    Bug(
        "1",
        "names are journalled before the patch is sent",
        planted.named_before_the_journal,
        scenarios_pods.a_patch_lands_after_its_agent_was_killed,
        ("containment",),
    ),
    Bug(
        "2",
        "a reboot voids assignments only",
        planted.a_reboot_voids_everything,
        scenarios_pods.a_patch_lands_after_a_reboot,
        ("containment",),
    ),
    Bug(
        "3",
        "a name is dropped only on a newer status",
        planted.names_are_what_the_list_shows,
        scenarios_pods.a_start_on_a_stale_list,
        ("containment",),
    ),
    Bug(
        "4",
        "voided assignments rest from the reboot on",
        planted.no_rest_after_a_reboot,
        scenarios_pods.a_reboot_under_running_pods,
        ("rest",),
    ),
    Bug(
        "5",
        "a name is never taken back",
        planted.names_are_taken_back,
        scenarios_pods.demand_returns_while_a_release_is_under_way,
        ("containment",),
    ),
    Bug(
        "6",
        "listed grants count only in recovery",
        planted_books.listed_grants_always_count,
        scenarios_restores.a_new_leader_has_an_old_cache,
        ("nothing frozen",),
        ONE_CONTROLLER,
    ),
    Bug(
        "7",
        "terms end with a restore",
        planted_books.a_restore_goes_unnoticed,
        scenarios_restores.a_call_arrives_at_restored_books,
        ("one owner",),
        audited=False,
    ),
    Bug(
        "7",
        "nothing is granted before every cluster has listed",
        planted_books.nobody_is_waited_for,
        scenarios_restores.a_node_asks_restored_books,
        ("containment",),
    ),
    Bug(
        "7b",
        "the listing is read after a write to each NNC",
        planted_books.the_listing_is_read_without_a_write,
        scenarios_restores.a_status_arrives_after_the_listing,
        ("containment",),
    ),
    Bug(
        "7c",
        "in recovery the lists, less the names, are the books",
        planted_books.restored_books_count_more_than_lists,
        scenarios_restores.addresses_in_use_are_not_in_the_restored_books,
        ("containment",),
    ),
    Bug(
        "8",
        "a grant's identity is random",
        planted_books.grants_are_counted,
        scenarios_restores.old_names_are_written_once_more,
        ("containment",),
    ),
    Bug(
        "9",
        "a status is believed by its version, which only rises",
        planted.versions_are_ignored,
        scenarios_restores.an_old_status_shows_what_others_have,
        ("no silent return", "one owner"),
        NARROW,
    ),
    Bug(
        "9",
        "a status whose version differs from the books' is written again",
        planted_books.a_status_is_written_once,
        scenarios_restores.an_old_status_is_shown_again,
        ("agreement",),
    ),
    Bug(
        "9",
        "the highest version is journalled, and known after a reboot",
        planted.a_reboot_forgets_the_version,
        scenarios_pods.a_reboot_out_of_reach,
        ("no silent return",),
    ),
    Bug(
        "11",
        "gone is decided on a quorum read after the gone time",
        planted_books.gone_is_told_from_a_cache,
        scenarios_nodes.a_node_comes_back_unseen,
        ("containment",),
    ),
    Bug(
        "11",
        "nobody is given up before the gone time has passed",
        planted_books.given_up_too_soon,
        scenarios_nodes.a_node_is_away_for_less_than_the_gone_time,
        ("consent",),
    ),
    Bug(
        "12",
        "a confirmation needs boot id, owner and container",
        planted.any_node_of_the_name_confirms,
        scenarios_nodes.a_node_returns_while_it_is_being_given_up,
        ("containment",),
    ),
    Bug(
        "12",
        "a container that was given up is closed",
        planted.a_container_is_never_closed,
        scenarios_restores.a_container_that_was_given_up_is_shown_again,
        ("containment",),
    ),
    Bug(
        "13",
        "only a quorum read confirms",
        planted.a_bookmark_confirms,
        scenarios_nodes.a_bookmark_is_read_late,
        ("fenced", "containment"),
    ),
    Bug(
        "13",
        "a confirmation counts from when its reads were sent",
        planted.a_confirmation_counts_from_its_answer,
        scenarios_nodes.a_confirmation_is_answered_late,
        ("fenced",),
    ),
    Bug(
        "14",
        "the machine's boot id is the one in its NNC, on a fresh read",
        planted_books.the_dying_config_is_not_read,
        scenarios_nodes.a_rebooted_node_is_registered_again,
        ("containment",),
    ),
    Bug(
        "15",
        "Pods keep a container only while no Node of its name exists",
        planted_books.pods_keep_any_container_of_the_name,
        scenarios_nodes.another_machine_takes_over_a_name,
        ("nothing leaked",),
    ),
    Bug(
        "",
        "a container is kept while Pods are bound to its Node",
        planted_books.gone_while_pods_are_bound,
        scenarios_nodes.a_node_is_away_for_longer_than_the_gone_time,
        ("containment",),
    ),
    Bug(
        "",
        "a Node with the machine's boot id keeps its container",
        planted_books.the_boot_id_is_ignored,
        scenarios_nodes.a_node_is_registered_again,
        ("containment",),
    ),
    Bug(
        "",
        "an agent that has not confirmed its Node gives no address",
        planted.the_fence_is_ignored,
        scenarios_nodes.a_node_is_cut_off_and_given_up,
        ("one owner", "fenced"),
        NARROW,
    ),
    Bug(
        "",
        "an agent that is cut off gives no address after the fence time",
        planted.the_fence_is_ignored,
        scenarios_nodes.a_node_is_cut_off,
        ("fenced",),
    ),
    Bug(
        "",
        "the floor is enough only while the subnet is exhausted",
        planted.only_the_floor_is_rested,
        scenarios_pods.pods_follow_each_other,
        ("rest",),
    ),
    Bug(
        "",
        "no address lies idle while a Pod waits",
        planted_books.buffers_come_before_pods,
        scenarios_pods.pods_need_what_lies_idle,
        ("everybody served",),
        NARROW,
    ),
    Bug(
        "",
        "what a sandbox gives back is taken back",
        planted.a_delete_is_answered_and_forgotten,
        scenarios_pods.pods_follow_each_other,
        ("agreement",),
    ),
    Bug(
        "",
        "nobody asks for a change that is none",
        planted.an_agent_writes_what_is_there,
        scenarios_nodes.nothing_happens,
        ("nothing is written",),
    ),
    Bug(
        "",
        "a release names a grant, not an address",
        planted_books.released_by_address,
        scenarios_pods.the_same_addresses_come_back_as_new_grants,
        ("consent", "containment"),
        UNRESERVED,
    ),
    Bug(
        "",
        "an ADD is answered after the journal has it",
        planted.answered_before_the_journal,
        scenarios_pods.an_agent_dies_as_it_answers,
        ("one owner",),
    ),
    Bug(
        "",
        "nothing is asked for before the Pods are listed",
        planted.scaled_before_the_pods_are_listed,
        scenarios_pods.the_list_of_pods_is_slow,
        ("nothing is guessed",),
    ),
    Bug(
        "",
        "nothing is given that the underlay does not know",
        planted.the_underlay_is_not_asked,
        scenarios_pods.pods_are_bound_before_the_underlay_knows,
        ("programmed",),
        msgspec.structs.replace(WIDE, underlay=True),
    ),
    Bug(
        "",
        "a cluster that a restored ledger waits for is told so",
        planted_books.only_who_asks_is_told,
        scenarios_restores.a_cluster_without_nodes_is_waited_for,
        ("nothing frozen",),
    ),
    Bug(
        "",
        "an NNC is made before its container is opened",
        planted_books.a_container_is_opened_before_its_config,
        scenarios_nodes.a_config_that_the_leader_does_not_see,
        ("nothing leaked",),
    ),
    Bug(
        "",
        "whose an NNC is, is decided on a fresh read",
        planted_books.a_cache_tells_whose_a_config_is,
        scenarios_nodes.a_node_that_the_leader_does_not_see,
        ("nothing is written",),
    ),
    Bug(
        "",
        "a call of an older term changes nothing",
        planted_books.terms_are_ignored,
        scenarios_nodes.the_last_word_of_an_old_leader,
        ("containment",),
    ),
    Bug(
        "",
        "a call with an older number changes nothing",
        planted_books.numbers_are_ignored,
        scenarios_nodes.a_word_that_took_too_long,
        ("containment",),
    ),
)


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """What a broken product logs is nobody's concern here."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.plant.__name__)
def test_a_rule_that_is_left_out_is_missed(bug: Bug, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in SEEDS:
        tell(bug.scenario, seed=seed, shape=bug.shape, audited=bug.audited)
    bug.plant(monkeypatch)
    for seed in SEEDS:
        with pytest.raises(Violation) as found:
            tell(bug.scenario, seed=seed, shape=bug.shape, audited=bug.audited)
        assert found.value.invariant in bug.reported


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_deleted_under_running_pods_has_two_owners(seed: int) -> None:
    """Row 10: whoever deletes a Node says that its Pods have stopped. No rule of ours saves who says so wrongly."""
    with pytest.raises(Violation, match="one owner"):
        tell(scenarios_nodes.a_node_is_deleted_while_its_pods_run_on, seed=seed, shape=NARROW, audited=False)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_node_deleted_when_its_pods_have_stopped_has_one_owner_after_the_other(seed: int) -> None:
    """Row 10 the other way round: the same story, and whoever deletes the Node speaks the truth."""
    tell(scenarios_nodes.a_node_is_deleted_when_its_pods_have_stopped, seed=seed, shape=NARROW, audited=True)


def test_the_documentation_has_every_bug() -> None:
    told = (Path(__file__).parents[2] / "docs" / "simulator.md").read_text()
    rows = [
        f"| {bug.rule} | {bug.row} | {bug.scenario.__name__.replace('_', ' ')} | {' or '.join(bug.reported)} |"
        for bug in BUGS
    ]
    assert [] == [row for row in rows if row not in told]
