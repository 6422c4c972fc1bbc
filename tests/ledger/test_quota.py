"""Quotas: a cluster gets no more than its token permits, and what it lacks because of that concerns nobody else."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.ledger.admin_messages import RotateTokenRequest
from podpool.ledger.errors import Invalid
from podpool.ledger.messages import DemandReport, NetworkContainerState, SubnetName, SubnetSpec, TokenLimits
from tests.ledger.harness import AuthHarness, Leader, ids, item, run

pytestmark = pytest.mark.usefixtures("backend")

OTHER = SubnetName(network="vnet", name="other")
LAB = SubnetName(network="lab", name="pods")


@pytest.fixture
def harness() -> AuthHarness:
    harness = AuthHarness()
    harness.subnet("10.0.0.0/24", cooldown=0.0, cooldown_exhausted=0.0)
    return harness


def limited(harness: AuthHarness, cluster: str = "c1", *, network: str = "vnet", **limits: int) -> Leader:
    """Return the leader of a cluster whose token has these limits."""
    harness.token(f"of-{cluster}", cluster=cluster, limits=TokenLimits(**limits))
    return Leader(harness, cluster, network=network)


def change(harness: AuthHarness, **limits: int) -> None:
    harness.clock.now += 1
    run(harness.client.rotate_token("of-c1", RotateTokenRequest(limits=TokenLimits(**limits))))


def waiting(leader: Leader, name: str, state: NetworkContainerState | None, wanted: int) -> NetworkContainerState:
    """Request addresses for waiting Pods."""
    return leader.reconcile_one(item(name, state, wanted=wanted, report=DemandReport(demand=wanted, waiting=wanted)))


def test_addresses_are_granted_up_to_the_quota_with_a_reason(harness: AuthHarness) -> None:
    leader = limited(harness, max_addresses=8)
    state = leader.node("n1", wanted=10)
    assert (7, 3) == (len(state.grants), state.shortage)
    reason = "cluster c1 has reached its quota of 8 addresses in network vnet"
    assert (state.shortage_reason or "").startswith(reason)
    assert "--max-addresses" in (state.shortage_reason or "")
    (record,) = run(harness.client.network_containers("c1")).network_containers
    assert state == record.state, "also when it is listed"
    assert (8, 0, 0) == (harness.reserved(), harness.state().waiting, harness.state().waiting_for_buffer)


def test_quota_counts_all_subnets_of_a_network_and_no_other(harness: AuthHarness) -> None:
    harness.subnet("10.0.1.0/24", name="other")
    run(harness.client.create_subnet(SubnetSpec(network="lab", name="pods", cidr="10.0.0.0/24")))
    leader = limited(harness, max_addresses=10)
    lab = Leader(harness, network="lab").reconcile_one(item("n0", wanted=6, subnet=LAB))
    wants = [item(f"n{number}", wanted=6, subnet=name) for number, name in enumerate((OTHER, leader_subnet()), 1)]
    other, pods = (result.state for result in leader.reconcile(*wants).results)
    assert other is not None
    assert pods is not None
    assert [6, 6, 2] == [len(each.grants) for each in (lab, other, pods)]
    assert [None, None, True] == [each.shortage_reason and True for each in (lab, other, pods)]


def leader_subnet() -> SubnetName:
    return SubnetName(network="vnet", name="pods")


def test_network_containers_are_opened_up_to_the_quota(harness: AuthHarness) -> None:
    leader = limited(harness, max_network_containers=2)
    results = leader.reconcile(*[item(f"n{number}", wanted=1) for number in range(4)]).results
    assert [None, None, "quota-reached", "quota-reached"] == [each.error and each.error.error for each in results]
    error = results[2].error
    assert error is not None
    assert "cluster c1 has 2 network containers in network vnet, and its quota is 2" in error.message
    first = results[0].state
    leader.reconcile_one(item("n0", first, node_gone=True))
    leader.node("n3", wanted=1)
    assert "quota-reached" == leader.error(item("n4")).error


def test_no_primary_is_granted_beyond_the_quota(harness: AuthHarness) -> None:
    leader = limited(harness, max_addresses=3)
    leader.node("n1", wanted=2)
    assert "quota-reached" == leader.error(item("n2")).error


def test_waiting_pods_come_first_within_the_quota(harness: AuthHarness) -> None:
    leader = limited(harness, max_addresses=6)
    buffer, pods = leader.node("n1"), leader.node("n2")
    report = DemandReport(demand=3, waiting=3)
    results = leader.reconcile(item("n1", buffer, wanted=4), item("n2", pods, wanted=4, report=report)).results
    assert [1, 3] == [len(each.state.grants) for each in results if each.state]


def test_quota_of_one_cluster_affects_no_other(harness: AuthHarness) -> None:
    """Pods that wait because of a quota neither exhaust the subnet nor make its batch smaller."""
    before = harness.state()
    greedy, calm = limited(harness, max_addresses=4), Leader(harness, "c2")
    waiting(greedy, "n1", None, 200)
    state = harness.state()
    assert (before.scaler, False, 0) == (state.scaler, state.exhausted, state.waiting)
    assert state.projected <= 16, "what the quota does not permit is not projected"
    assert 20 == len(calm.node("m1", wanted=20).grants)


def test_raised_quota_is_granted_to_the_next_request(harness: AuthHarness) -> None:
    leader = limited(harness, max_addresses=4)
    state = waiting(leader, "n1", None, 6)
    assert 3 == len(state.grants)
    change(harness, max_addresses=100)
    assert 6 == len(waiting(leader, "n1", state, 6).grants)


def test_lowered_quota_takes_nothing_away(harness: AuthHarness) -> None:
    leader = limited(harness)
    state = leader.node("n1", wanted=6)
    change(harness, max_addresses=2)
    kept = leader.reconcile_one(item("n1", state, wanted=6))
    assert (6, 0) == (len(kept.grants), kept.shortage)
    fewer = leader.reconcile_one(item("n1", kept, wanted=6, released=ids(kept)[:2]))
    assert (4, 2) == (len(fewer.grants), fewer.shortage)


def test_limits_of_a_rotation_are_those_of_the_newest_token(harness: AuthHarness) -> None:
    leader = limited(harness, max_addresses=4)
    change(harness, max_addresses=6)
    newest = run(harness.client.tokens()).tokens
    assert [4, 6] == sorted(each.limits.max_addresses or 0 for each in newest)
    assert 5 == len(leader.node("n1", wanted=9).grants)
    last = max(newest, key=lambda each: each.created_at)
    run(harness.client.revoke_token(last.id))
    assert "quota-reached" == leader.error(item("n2")).error, "the former token counts again"


@pytest.mark.parametrize(
    "limits", [{"max_addresses": -1}, {"max_network_containers": 1 << 40}, {"priority": 0}, {"priority": 101}]
)
def test_invalid_limits_are_rejected(harness: AuthHarness, limits: dict[str, int]) -> None:
    with pytest.raises(Invalid, match=next(iter(limits))):
        harness.token("x", cluster="c1", limits=TokenLimits(**limits))


def test_priority_is_the_weight_among_clusters() -> None:
    harness = AuthHarness()
    harness.subnet("10.0.0.0/27", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    holder = Leader(harness, "c0")
    leaders = [limited(harness, "c1", priority=1), limited(harness, "c2", priority=3)]
    waiters = [leader.node("n1") for leader in leaders]
    held = holder.node("hog", wanted=27)
    states = [waiting(leader, "n1", state, 20) for leader, state in zip(leaders, waiters, strict=True)]
    holder.reconcile_one(item("hog", held, wanted=11, released=ids(held)[:16]))
    states = [waiting(leader, "n1", state, 20) for leader, state in zip(leaders, states, strict=True)]
    assert [4, 12] == [len(state.grants) for state in states], "five and thirteen of eighteen, with the primaries"


def test_quota_holds_for_any_requests() -> None:
    harness = AuthHarness()
    numbers = itertools.count()

    @given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 9), st.integers(0, 4)), max_size=8))
    def check(requests: list[tuple[int, int, int]]) -> None:
        number = next(numbers)
        subnet = SubnetName(network=f"n{number}", name="pods")
        spec = SubnetSpec(network=subnet.network, name="pods", cidr="10.0.0.0/26", cooldown_exhausted=0.0)
        run(harness.client.create_subnet(spec))
        leader = limited(harness, f"c{number}", network=subnet.network, max_addresses=12, max_network_containers=3)
        states: dict[str, NetworkContainerState] = {}
        for node, wanted, released in requests:
            name = f"n{node}"
            former = states.get(name)
            release = ids(former)[:released] if former else []
            wish = item(name, former, wanted=wanted, released=release, subnet=subnet)
            (result,) = leader.reconcile(wish).results
            if result.state is not None:
                states[name] = result.state
            held = sum(len(each.grants) + bool(each.primary) for each in states.values())
            assert held <= 12
            assert held <= run(harness.client.subnet(subnet)).reserved
            assert len(states) <= 3
            assert result.state is None or wanted <= len(result.state.grants) + result.state.shortage

    check()
