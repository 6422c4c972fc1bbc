"""The reconcile call, rule by rule."""

import uuid

import pytest

from podpool.core.scaling import Scaler
from podpool.ledger.messages import DemandReport, ReconcileItem, SubnetName
from tests.ledger.harness import Leader, LedgerHarness, addresses, ids, item, run

pytestmark = pytest.mark.usefixtures("backend")


@pytest.fixture
def harness() -> LedgerHarness:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", gateway="10.0.0.1")
    return harness


@pytest.fixture
def leader(harness: LedgerHarness) -> Leader:
    return Leader(harness)


def full(leader: Leader, *, left: int, node: str = "hog") -> None:
    """Take all but so many of the available addresses."""
    state = leader.harness.state()
    free = state.capacity - state.reserved - state.reserved_for_primaries
    leader.reconcile_one(item(node, wanted=free - left - 1))


def test_nc_without_secondaries(leader: Leader, harness: LedgerHarness) -> None:
    state = leader.node()
    assert ("10.0.0.2", (), 0, 1) == (state.primary, state.grants, state.shortage, state.version)
    assert state.nc_id == str(uuid.UUID(state.nc_id))
    assert 1 == harness.reserved()


def test_opening_twice_returns_the_same_nc(leader: Leader) -> None:
    assert leader.node() == leader.node()


def test_another_node_uid_is_another_nc(leader: Leader) -> None:
    old, new = leader.node(), leader.reconcile_one(item(node_uid="uid-new"))
    assert old.nc_id != new.nc_id
    assert old.primary != new.primary


def test_kept_nc_takes_its_new_node_uid(leader: Leader) -> None:
    state = leader.node(wanted=3)
    kept = leader.reconcile_one(item("n1", state, wanted=3, node_uid="uid-new"))
    assert state == kept
    assert kept == leader.reconcile_one(item("n1", wanted=3, node_uid="uid-new"))


def test_nc_cannot_move_to_a_node_that_has_one(leader: Leader) -> None:
    state = leader.node()
    leader.reconcile_one(item(node_uid="uid-new"))
    problem = leader.error(item("n1", state, node_uid="uid-new"))
    assert ("conflict", "node_uid") == (problem.error, problem.field)


def test_nc_is_topped_up_to_wanted(leader: Leader, harness: LedgerHarness) -> None:
    state = leader.node(wanted=16)
    assert 16 == len(set(addresses(state)))
    assert 16 == len(set(ids(state)))
    assert state.primary not in addresses(state)
    assert 17 == harness.reserved()


def test_wanting_less_without_releases_takes_nothing_away(leader: Leader) -> None:
    state = leader.node(wanted=16)
    assert state == leader.reconcile_one(item("n1", state, wanted=2))


def test_released_grant_leaves_and_others_stay(leader: Leader) -> None:
    state = leader.node(wanted=4)
    after = leader.reconcile_one(item("n1", state, wanted=3, released=[state.grants[1].id]))
    assert [state.grants[0], state.grants[2], state.grants[3]] == list(after.grants)
    assert state.version + 1 == after.version


def test_release_of_an_unknown_grant_is_ignored(leader: Leader) -> None:
    state = leader.node(wanted=4)
    other = leader.node("n2", wanted=2)
    names = ["", "no uuid", str(uuid.UUID(int=7)), str(uuid.UUID(int=0)), *ids(other)]
    assert state == leader.reconcile_one(item("n1", state, wanted=4, released=names))
    assert other == leader.reconcile_one(item("n2", other, wanted=2))


def test_late_release_frees_nothing_new(leader: Leader) -> None:
    state = leader.node(wanted=1)
    leader.reconcile_one(item("n1", state, released=ids(state), cooled_seconds=200))
    full(leader, left=0)
    holder = leader.reconcile_one(item("hog", wanted=245))
    again = leader.reconcile_one(item("n1", state, released=ids(state), cooled_seconds=60))
    assert () == again.grants
    assert state.grants[0].address in addresses(holder)
    assert holder == leader.reconcile_one(item("hog", wanted=245))


def test_cooled_addresses_may_return_as_new_grants() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/29", reserved_for_primaries=0)
    leader = Leader(harness)
    state = leader.node(wanted=5)
    after = leader.reconcile_one(item("n1", state, wanted=5, released=ids(state), cooled_seconds=30))
    assert set(addresses(state)) == set(addresses(after))
    assert not set(ids(state)) & set(ids(after))
    assert state.version + 1 == after.version


def test_cooling_address_is_reserved_and_not_granted() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=30.0, cooldown_exhausted=30.0)
    leader = Leader(harness)
    state = leader.node(wanted=13)
    after = leader.reconcile_one(item("n1", state, wanted=13, released=ids(state)[:3], cooled_seconds=10.0))
    assert 3 == after.shortage
    assert 14 == harness.reserved()
    assert 3 == harness.state().cooling_down
    harness.advance(19.0)
    assert 3 == leader.reconcile_one(item("n1", state, wanted=13)).shortage
    harness.advance(1.5)
    assert 11 == harness.reserved()
    assert 0 == leader.reconcile_one(item("n1", state, wanted=13)).shortage


def test_cooldown_while_the_subnet_is_exhausted() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=30.0, cooldown_exhausted=5.0)
    leader = Leader(harness)
    state = leader.node(wanted=13, demand=13)
    assert harness.state().exhausted
    leader.reconcile_one(item("n1", state, wanted=12, released=ids(state)[:1], report=DemandReport(demand=13)))
    assert 14 == harness.reserved()
    harness.advance(5.5)
    assert 13 == harness.reserved()


def test_finished_cooldown_stays_finished() -> None:
    """The end of exhaustion restores the longer cooldown, and no free address cools down again."""
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=30.0, cooldown_exhausted=5.0)
    leader = Leader(harness)
    state = leader.node(wanted=13)
    leader.reconcile_one(item("n1", state, wanted=3, released=ids(state)[:10]))
    harness.advance(6.0)
    assert not harness.state().exhausted
    assert (4, 30.0) == (harness.reserved(), harness.state().cooldown)
    assert 0 == leader.reconcile_one(item("n1", state, wanted=13)).shortage


def test_unused_addresses_are_granted_before_those_that_cool_down() -> None:
    """Also if their block is not created yet; and no address is refused while one has cooled down for the shortest."""
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/25", reserved_for_primaries=0)
    leader = Leader(harness)
    first = leader.node("n1", wanted=60, demand=50)
    leader.reconcile_one(item("n1", first, wanted=1, released=ids(first)[1:], report=DemandReport(demand=1)))
    used = {*addresses(first)}
    harness.advance(6.0)
    assert (130.0, 0) == (harness.state().cooldown, harness.state().cooling_down)
    second = leader.node("n2", wanted=30, demand=20)
    assert not used & {*addresses(second)}
    third = leader.node("n3", wanted=250, demand=90)
    assert used & {*addresses(third)}
    assert 126 == 3 + 1 + 30 + len(third.grants)


def test_the_cooldown_follows_batch_and_exhaustion() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/27", reserved_for_primaries=0)
    leader = Leader(harness)
    levels = [harness.state().cooldown]
    for node in ("n1", "n2"):
        leader.node(node, wanted=10, demand=8)
        levels.append(harness.state().cooldown)
    leader.node("n3", wanted=7, demand=6)
    assert [130.0, 130.0, 30.0, 5.0] == [*levels, harness.state().cooldown]


def test_exhaustion_does_not_depend_on_the_level() -> None:
    """Released addresses make a subnet exhausted for the shortest cooldown at most."""
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/26", reserved_for_primaries=0)
    leader = Leader(harness)
    state = leader.node(wanted=54, demand=40)
    changes = [harness.state().exhausted]
    for _ in range(30):
        state = leader.reconcile_one(
            item("n1", state, wanted=30, released=ids(state)[30:], report=DemandReport(demand=20))
        )
        harness.advance(6.0)
        state = leader.reconcile_one(item("n1", state, wanted=54, report=DemandReport(demand=20)))
        changes.append(harness.state().exhausted)
    assert [False] * 31 == changes


def test_network_containers_are_counted() -> None:
    harness = LedgerHarness()
    harness.subnet()
    leader = Leader(harness)
    states = [leader.node(f"n{number}", wanted=1) for number in range(3)]
    assert 3 == harness.state().network_containers
    leader.reconcile_one(item("n1", states[1], node_gone=True))
    assert 2 == harness.state().network_containers


@pytest.mark.parametrize("fraction", [0.0, 0.001, 0.3, 0.468, 0.9995])
def test_no_cooldown_is_too_short_or_much_longer(fraction: float) -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=30.0, cooldown_exhausted=30.0)
    leader = Leader(harness)
    state = leader.node(wanted=13)
    harness.advance(fraction)
    leader.reconcile_one(item("n1", state, wanted=12, released=ids(state)[:1]))
    harness.advance(29.99)
    assert 14 == harness.reserved()
    harness.advance(0.49)
    assert 13 == harness.reserved()


def test_free_addresses_are_found_among_many_cooling_blocks() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", reserved_for_primaries=0, cooldown=30.0, cooldown_exhausted=30.0)
    leader = Leader(harness)
    states = [leader.node(f"n{number}", wanted=84) for number in range(3)]
    assert [0, 0, 1] == [state.shortage for state in states]
    for reply in range(12):
        at = reply % 3
        going = ids(states[at])[reply::5]
        cooled_seconds = 30.0 if reply % 2 else 0.0
        states[at] = leader.reconcile_one(
            item(f"n{at}", states[at], wanted=250, released=going, cooled_seconds=cooled_seconds)
        )
        harness.advance(11.0)
        state = harness.state()
        taken = sum(len(each.grants) + 1 for each in states)
        assert state.reserved == taken + state.cooling_down
        held = [address for each in states for address in addresses(each)]
        assert len(held) == len(set(held))
    harness.advance(31.0)
    response = leader.reconcile(*(item(f"n{at}", state, wanted=250) for at, state in enumerate(states)))
    states = [result.state for result in response.results if result.state]
    assert 254 == sum(len(each.grants) + 1 for each in states)


def test_clock_set_back_shortens_no_cooldown() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=30.0, cooldown_exhausted=30.0)
    leader = Leader(harness)
    state = leader.node(wanted=13)
    harness.advance(-3_600.0)
    leader.reconcile_one(item("n1", state, wanted=12, released=ids(state)[:1]))
    harness.advance(29.0)
    assert 14 == harness.reserved()
    harness.advance(2.0)
    assert 13 == harness.reserved()


def test_partial_grant_reports_the_shortage(leader: Leader) -> None:
    full(leader, left=5)
    state = leader.node("n2", wanted=16)
    assert (4, 12) == (len(state.grants), state.shortage)


def test_reserved_addresses_are_for_primaries_only(leader: Leader, harness: LedgerHarness) -> None:
    full(leader, left=0)
    states = [leader.node(f"n{number}", wanted=1) for number in range(4)]
    assert {(): 1} == {state.grants: state.shortage for state in states}
    assert harness.state().capacity == harness.reserved()
    problem = leader.error(item("one too many"))
    assert ("subnet-full", "subnet") == (problem.error, problem.field)


def test_nc_of_a_gone_node_is_closed_and_cools_down(leader: Leader, harness: LedgerHarness) -> None:
    state = leader.node(wanted=3)
    gone = leader.reconcile_one(item("n1", state, node_gone=True))
    assert (True, "", ()) == (gone.closed, gone.primary, gone.grants)
    assert gone.version > state.version
    assert 4 == harness.reserved()
    harness.advance(31.0)
    assert 0 == harness.reserved()
    assert gone == leader.reconcile_one(item("n1", state, wanted=3))
    assert state.nc_id != leader.node(wanted=3).nc_id
    assert gone == leader.reconcile_one(item("n1", state, node_gone=True))


def test_bad_item_fails_alone(leader: Leader, harness: LedgerHarness) -> None:
    elsewhere = SubnetName(network="vnet", name="none")
    response = leader.reconcile(
        item("n1", wanted=2), item("n2", wanted=-1), item("n3", subnet=elsewhere), item("n4", wanted=3)
    )
    first, second, third, fourth = response.results
    assert first.state is not None
    assert fourth.state is not None
    assert (2, 3) == (len(first.state.grants), len(fourth.state.grants))
    assert second.error is not None
    assert third.error is not None
    assert [("invalid", "wanted"), ("not-found", "subnet")] == [
        (each.error, each.field) for each in (second.error, third.error)
    ]
    assert 7 == harness.reserved()


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("node", item("")),
        ("node_uid", item(node_uid="")),
        ("wanted", item(wanted=1 << 20)),
        ("cooled_seconds", item(cooled_seconds=-1.0)),
        ("maximum", item(maximum=0)),
        ("report.demand", item(report=DemandReport(demand=-1))),
        ("report.version", item(report=DemandReport(version=1 << 60))),
        ("pinned.batch", item(pinned=Scaler(0, 50))),
        ("nc_id", item(node_gone=True)),
        ("nc_id", ReconcileItem(subnet=SubnetName(network="vnet", name="pods"), node="n1", node_uid="u", nc_id="x")),
    ],
)
def test_error_names_its_field(leader: Leader, field: str, bad: ReconcileItem) -> None:
    assert field == leader.error(bad).field


def test_second_item_of_a_node_is_rejected(leader: Leader) -> None:
    first, second = leader.reconcile(item(wanted=2), item(wanted=3)).results
    assert first.state is not None
    assert 2 == len(first.state.grants)
    assert second.error is not None


def test_nc_of_another_node_or_cluster_is_not_changed(leader: Leader, harness: LedgerHarness) -> None:
    state = leader.node(wanted=3)
    assert "node" == leader.error(item("n2", state)).field
    stranger = Leader(harness, "c2")
    assert "not-found" == stranger.error(item("n1", state, node_gone=True)).error
    assert state == leader.reconcile_one(item("n1", state, wanted=3))


def test_nc_does_not_move_to_another_subnet(leader: Leader, harness: LedgerHarness) -> None:
    harness.subnet("10.0.1.0/24", name="other")
    other = SubnetName(network="vnet", name="other")
    state = leader.node()
    assert "subnet" == leader.error(item("n1", state, subnet=other)).field
    assert state.nc_id != leader.reconcile_one(item("n1", subnet=other)).nc_id


def test_version_exceeds_the_one_that_the_agent_accepted(leader: Leader) -> None:
    state = leader.node(wanted=1)
    after = leader.reconcile_one(item("n1", state, wanted=1, report=DemandReport(version=41)))
    assert 42 == after.version
    assert state.grants == after.grants


def test_record_contains_what_recreates_an_nnc(leader: Leader, harness: LedgerHarness) -> None:
    state = leader.node(wanted=2)
    gone_name = state.grants[0].id
    report = DemandReport(demand=1, batch=16, version=1)
    after = leader.reconcile_one(
        item("n1", state, wanted=1, released=[gone_name], cooled_seconds=31.0, report=report, boot_id="b1")
    )
    leader.reconcile_one(item("n1", state, wanted=1, released=[gone_name], cooled_seconds=31.0, report=report))
    (record,) = run(harness.client.network_containers("c1")).network_containers
    assert after == record.state
    assert ("n1", "uid-n1", "b1", 1, (gone_name,), 31.0, report) == (
        record.node,
        record.node_uid,
        record.boot_id,
        record.wanted,
        record.released,
        record.cooled_seconds,
        record.report,
    )
    assert () == run(harness.client.network_containers("c2")).network_containers


def test_response_contains_the_subnets_of_its_items(leader: Leader, harness: LedgerHarness) -> None:
    response = leader.reconcile(item())
    assert (harness.state(),) == response.subnets
