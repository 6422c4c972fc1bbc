"""The fair queue of a subnet that is short of addresses."""

from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.ledger.domain.fair_shares import SKIPPED, ClusterShare, Waiter, fair_shares
from podpool.ledger.messages import DemandReport, NetworkContainerState
from tests.ledger.harness import Leader, LedgerHarness, ids, item

pytestmark = pytest.mark.usefixtures("backend")


@st.composite
def waiters(draw: st.DrawFn) -> list[Waiter]:
    since = st.integers(0, 5).map(float) | st.just(SKIPPED)
    amounts = st.integers(0, 4)
    return [
        Waiter(
            nc=number,
            pod_shortage=(pod_shortage := draw(amounts)),
            pod_short_since=draw(since) if pod_shortage else None,
            buffer_shortage=(buffer_shortage := draw(amounts)),
            buffer_short_since=draw(since) if buffer_shortage else None,
            requesting=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 6)))
    ]


@given(waiters(), st.integers(0, 20))
def test_shares_do_not_exceed_free_addresses(waiters: list[Waiter], free: int) -> None:
    given_ = fair_shares(waiters, free)
    firm = {
        request.nc
        for request in waiters
        if request.requesting or SKIPPED not in (request.pod_short_since, request.buffer_short_since)
    }
    assert sum(share for container, share in given_.items() if container in firm) <= free
    assert all(
        given_[request.nc] <= request.pod_shortage + request.buffer_shortage
        for request in waiters
        if request.nc in given_
    )


@given(waiters(), st.integers(0, 20))
def test_no_address_is_left_while_a_requesting_nc_is_short(waiters: list[Waiter], free: int) -> None:
    alone = [request for request in waiters if request.requesting]
    wanted = sum(request.pod_shortage + request.buffer_shortage for request in alone)
    assert min(free, wanted) == sum(fair_shares(alone, free).values())


@given(waiters(), st.integers(0, 20))
def test_waiting_pods_come_before_buffers(waiters: list[Waiter], free: int) -> None:
    given_ = fair_shares(waiters, free)
    waiting = [request for request in waiters if request.pod_shortage and request.pod_short_since != SKIPPED]
    if any(given_.get(request.nc, 0) < request.pod_shortage for request in waiting):
        assert all(given_.get(request.nc, 0) <= request.pod_shortage for request in waiters)


@given(waiters(), st.integers(0, 20))
def test_longest_waiting_pods_come_first(waiters: list[Waiter], free: int) -> None:
    given_ = fair_shares(waiters, free)
    line = [
        request
        for request in waiters
        if request.pod_shortage and request.pod_short_since is not None and request.pod_short_since < SKIPPED
    ]
    line.sort(key=lambda request: (request.pod_short_since, request.nc))
    served = [min(given_.get(request.nc, 0), request.pod_shortage) for request in line]
    assert all(
        before == request.pod_shortage or not after
        for request, (before, after) in zip(line, pairwise(served), strict=False)
    )


@st.composite
def clusters_of_waiters(draw: st.DrawFn) -> tuple[list[Waiter], dict[str, ClusterShare]]:
    names = ("a", "b", "c")
    clusters = {name: ClusterShare(draw(st.integers(0, 30)), draw(st.integers(1, 4))) for name in names}
    found = [
        Waiter(nc=number, cluster=draw(st.sampled_from(names)), pod_shortage=amount, pod_short_since=float(since))
        for number, (amount, since) in enumerate(draw(st.lists(st.tuples(st.integers(1, 6), st.integers(0, 5)))))
    ]
    return found, clusters


@given(clusters_of_waiters(), st.integers(0, 40))
def test_no_cluster_gets_an_address_while_another_waits_with_less(
    drawn: tuple[list[Waiter], dict[str, ClusterShare]], free: int
) -> None:
    """For its weight, and counted before the address: however much it requests, and however long it waits."""
    waiting, clusters = drawn
    shares = fair_shares(waiting, free, clusters)
    assert sum(shares.values()) == min(free, sum(each.pod_shortage for each in waiting))
    got = {name: sum(shares.get(each.nc, 0) for each in waiting if each.cluster == name) for name in clusters}
    short = {name: sum(each.pod_shortage for each in waiting if each.cluster == name) for name in clusters}
    for name, share in clusters.items():
        for other, its in clusters.items():
            if got[name] and got[other] < short[other]:
                before = Fraction(share.held + got[name] - 1, share.weight)
                assert before <= Fraction(its.held + got[other], its.weight), (name, other)


@given(clusters_of_waiters(), st.integers(0, 40), st.integers(1, 50))
def test_a_greedy_cluster_takes_nothing_from_one_below_its_share(
    drawn: tuple[list[Waiter], dict[str, ClusterShare]], free: int, greed: int
) -> None:
    """More requests of the cluster that holds most for its weight change no share of another one that is lower."""
    waiting, clusters = drawn
    greedy = max(clusters, key=lambda name: Fraction(clusters[name].held, clusters[name].weight))
    more = [Waiter(nc=100 + number, cluster=greedy, pod_shortage=9, pod_short_since=-1.0) for number in range(greed)]
    before, after = fair_shares(waiting, free, clusters), fair_shares([*more, *waiting], free, clusters)
    level = Fraction(clusters[greedy].held, clusters[greedy].weight)
    for name, share in clusters.items():
        own = [each.nc for each in waiting if each.cluster == name]
        taken = sum(before.get(nc, 0) - after.get(nc, 0) for nc in own)
        if name != greedy and taken > 0:
            assert Fraction(share.held + sum(after.get(nc, 0) for nc in own) + 1, share.weight) > level


@pytest.fixture
def harness() -> LedgerHarness:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    return harness


def full_subnet(leader: Leader, *names: str) -> list[NetworkContainerState]:
    """Open NCs, of which the first takes all free addresses."""
    first, *others = [leader.node(name) for name in names]
    holder = leader.reconcile_one(item(names[0], first, wanted=14 - len(names)))
    assert 0 == holder.shortage
    return [holder, *others]


def release(leader: Leader, holder: NetworkContainerState, count: int) -> None:
    leader.reconcile_one(item("hog", holder, wanted=len(holder.grants) - count, released=ids(holder)[:count]))


def request(leader: Leader, name: str, state: NetworkContainerState, wanted: int, *, waiting: int = 0) -> int:
    """Request addresses for an NC; returns its shortage."""
    return leader.reconcile_one(item(name, state, wanted=wanted, report=DemandReport(waiting=waiting))).shortage


def test_freed_addresses_are_set_aside_for_the_first_waiter_which_is_notified(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    holder, first, second = full_subnet(leader, "hog", "first", "second")
    assert 2 == request(leader, "first", first, 2)
    harness.clock.now += 1
    assert 2 == request(leader, "second", second, 2)
    response = leader.reconcile(item("hog", holder, wanted=8, released=ids(holder)[:3]))
    assert (first.nc_id, second.nc_id) == response.servable
    assert 1 == request(leader, "second", second, 2)
    assert 0 == request(leader, "first", first, 2)


def test_freed_addresses_go_to_the_cluster_that_holds_less(harness: LedgerHarness) -> None:
    """However long the Pods of the other one have waited."""
    leader, other = Leader(harness, "c1"), Leader(harness, "c2")
    second = other.node("second")
    first = leader.node("first")
    holder = leader.node("hog", wanted=11)
    assert 2 == request(leader, "first", first, 2)
    harness.clock.now += 1
    assert 2 == request(other, "second", second, 2)
    response = leader.reconcile(item("hog", holder, wanted=8, released=ids(holder)[:3]))
    assert (first.nc_id,) == response.servable, "one address is left for the larger cluster"
    assert 1 == request(leader, "first", first, 2)
    assert 0 == request(other, "second", second, 2)


@pytest.mark.parametrize("waiting", [0, 1])
def test_many_waiting_nodes_of_one_cluster_hide_none_of_another(waiting: int) -> None:
    """More than there are free addresses, and all have waited longer."""
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/27", reserved_for_primaries=0, cooldown=0.0, cooldown_exhausted=0.0)
    leader, other = Leader(harness, "c1"), Leader(harness, "c2")
    crowd = {f"n{number}": leader.node(f"n{number}") for number in range(12)}
    small = other.node("small")
    holder = leader.node("hog", wanted=30 - 14)
    for name, state in crowd.items():
        assert 3 == request(leader, name, state, 3, waiting=3 * waiting)
        harness.clock.now += 1
    assert 2 == request(other, "small", small, 2, waiting=2 * waiting)
    response = leader.reconcile(item("hog", holder, wanted=14, released=ids(holder)[:2]))
    assert () == response.servable
    assert 3 == request(leader, "n0", crowd["n0"], 3, waiting=3 * waiting)
    assert 0 == request(other, "small", small, 2, waiting=2 * waiting)


def test_waiting_pod_comes_before_an_older_buffer(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    holder, buffer, pod = full_subnet(leader, "hog", "buffer", "pod")
    assert 2 == request(leader, "buffer", buffer, 2)
    harness.clock.now += 1
    assert 2 == request(leader, "pod", pod, 2, waiting=1)
    release(leader, holder, 1)
    assert 2 == request(leader, "buffer", buffer, 2)
    assert 1 == request(leader, "pod", pod, 2, waiting=1)


def test_waiting_pod_comes_before_a_buffer_of_the_same_request(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    holder, buffer, pod = full_subnet(leader, "hog", "buffer", "pod")
    release(leader, holder, 2)
    response = leader.reconcile(
        item("buffer", buffer, wanted=3), item("pod", pod, wanted=3, report=DemandReport(waiting=2))
    )
    assert [3, 1] == [result.state.shortage for result in response.results if result.state]


def test_repeated_requests_keep_their_place_in_the_queue(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    holder, first, second = full_subnet(leader, "hog", "first", "second")
    request(leader, "first", first, 1)
    harness.clock.now += 1
    request(leader, "second", second, 1)
    for _ in range(3):
        harness.clock.now += 1
        request(leader, "first", first, 1)
    release(leader, holder, 1)
    assert 1 == request(leader, "second", second, 1)
    assert 0 == request(leader, "first", first, 1)


def test_notified_nc_that_does_not_request_loses_its_place(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    holder, absent, present = full_subnet(leader, "hog", "absent", "present")
    request(leader, "absent", absent, 1, waiting=1)
    harness.clock.now += 1
    request(leader, "present", present, 1, waiting=1)
    release(leader, holder, 1)
    assert 1 == request(leader, "present", present, 1, waiting=1)
    harness.advance(31.0)
    assert 0 == request(leader, "present", present, 1, waiting=1)
    assert 1 == request(leader, "absent", absent, 1, waiting=1)


def test_nc_that_lost_its_place_queues_from_its_next_request_on(harness: LedgerHarness) -> None:
    """A report that repeats itself keeps its place only while its NC reacts to notices."""
    leader = Leader(harness)
    holder, absent, present = full_subnet(leader, "hog", "absent", "present")
    request(leader, "absent", absent, 3, waiting=3)
    harness.clock.now += 1
    request(leader, "present", present, 3, waiting=3)
    release(leader, holder, 1)
    harness.advance(31.0)
    assert 2 == request(leader, "present", present, 3, waiting=3)
    assert 3 == request(leader, "absent", absent, 3, waiting=3)
    harness.clock.now += 1
    holder = leader.reconcile_one(item("hog", holder, wanted=7))
    release(leader, holder, 2)
    assert 3 == request(leader, "absent", absent, 3, waiting=3)
    assert 0 == request(leader, "present", present, 3, waiting=3)


def test_skipped_nc_is_notified_when_enough_is_free(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    holder, absent, other = full_subnet(leader, "hog", "absent", "other")
    request(leader, "absent", absent, 1)
    release(leader, holder, 1)
    harness.advance(31.0)
    assert (absent.nc_id,) == leader.reconcile(item("other", other)).servable
    assert 0 == request(leader, "absent", absent, 1)


def test_closed_or_satisfied_nc_leaves_the_queue(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    holder, gone, content, last = full_subnet(leader, "hog", "gone", "content", "last")
    for name, state in (("gone", gone), ("content", content), ("last", last)):
        request(leader, name, state, 1)
    leader.reconcile(item("gone", gone, node_gone=True), item("content", content, wanted=0))
    release(leader, holder, 1)
    assert 0 == request(leader, "last", last, 1)
    assert (0, 0) == (harness.state().waiting, harness.state().waiting_for_buffer)


def test_nothing_is_set_aside_for_an_nc_closed_in_the_same_request(harness: LedgerHarness) -> None:
    leader = Leader(harness)
    _, going, staying = full_subnet(leader, "hog", "going", "staying")
    request(leader, "going", going, 3)
    first, second = leader.reconcile(item("going", going, node_gone=True), item("staying", staying, wanted=1)).results
    assert first.state is not None
    assert second.state is not None
    assert (True, 0) == (first.state.closed, second.state.shortage)


def test_repeated_report_counts_served_pods_once(harness: LedgerHarness) -> None:
    """A report counts the Pods that waited when it was written: those served since are not counted again."""
    leader = Leader(harness)
    holder, guest = full_subnet(leader, "hog", "guest")
    release(leader, holder, 2)
    assert 4 == request(leader, "guest", guest, 6, waiting=3)
    state = harness.state()
    assert (1, 3) == (state.waiting, state.waiting_for_buffer)
    assert 4 == request(leader, "guest", guest, 6, waiting=3)
    assert state == harness.state()
    assert 4 == request(leader, "guest", guest, 6, waiting=4)
    assert (4, 0) == (harness.state().waiting, harness.state().waiting_for_buffer), "another report is news"


def test_repeated_report_counts_pods_that_nothing_was_requested_for(harness: LedgerHarness) -> None:
    """Only what was granted serves Pods, not a request that was satisfied because it was small."""
    leader = Leader(harness)
    holder, guest, later = full_subnet(leader, "hog", "guest", "later")
    assert 0 == request(leader, "guest", guest, 0, waiting=2)
    assert 2 == request(leader, "guest", guest, 2, waiting=2)
    assert (2, 0) == (harness.state().waiting, harness.state().waiting_for_buffer)
    harness.clock.now += 1
    assert 2 == request(leader, "later", later, 2, waiting=1)
    release(leader, holder, 2)
    assert 2 == request(leader, "later", later, 2, waiting=1)
    assert 0 == request(leader, "guest", guest, 2, waiting=2)
