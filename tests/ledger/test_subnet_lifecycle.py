"""Growing, draining and deleting subnets: no address moves, and none is granted twice."""

import ipaddress
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.errors import InvalidInput
from podpool.core.scaling import Scaler
from podpool.ledger.domain.subnet_layout import SubnetLayout, subnet_layout
from podpool.ledger.errors import Conflict, Invalid, NotFound
from podpool.ledger.messages import DemandReport, SubnetGrowth, SubnetSpec
from tests.ledger.harness import SUBNET, Leader, LedgerHarness, addresses, ids, item, run

pytestmark = pytest.mark.usefixtures("backend")


def grow(harness: LedgerHarness, cidr: str, *excluded_ranges: str) -> int:
    """Grow the subnet; returns its capacity."""
    return run(harness.client.grow_subnet(SUBNET, SubnetGrowth(cidr=cidr, excluded_ranges=excluded_ranges))).capacity


def usable(*cidrs: str) -> set[str]:
    return {str(each) for cidr in cidrs for each in ipaddress.ip_network(cidr).hosts()}


@pytest.mark.parametrize(
    ("cidr", "growth", "all_of_it"),
    [
        ("10.0.0.0/28", "10.0.0.0/27", usable("10.0.0.0/27")),
        ("10.0.0.16/28", "10.0.0.0/27", usable("10.0.0.0/27")),
        ("10.0.0.0/28", "10.0.0.16/28", usable("10.0.0.0/28", "10.0.0.16/28")),
        ("10.0.1.64/26", "10.0.0.0/23", usable("10.0.0.0/23")),
        ("10.0.0.0/28", "192.168.0.0/29", usable("10.0.0.0/28", "192.168.0.0/29")),
    ],
)
def test_growth_keeps_held_addresses_and_adds_all_others(cidr: str, growth: str, all_of_it: set[str]) -> None:
    harness = LedgerHarness()
    harness.subnet(cidr, reserved_for_primaries=0)
    leader = Leader(harness)
    before = leader.node("n1", wanted=10)
    assert len(all_of_it) == grow(harness, growth)
    after = leader.reconcile_one(item("n1", before, wanted=len(all_of_it)))
    assert set(before.grants) <= set(after.grants)
    assert all_of_it == {after.primary, *addresses(after)}
    assert len(all_of_it) == harness.reserved()


def test_growth_of_a_full_subnet_serves_waiting_ncs() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28", reserved_for_primaries=0)
    leader = Leader(harness)
    short = leader.node("n1", wanted=20, waiting=7)
    assert 7 == short.shortage
    grow(harness, "10.0.0.0/27")
    assert (short.nc_id,) == leader.reconcile(item("n2")).servable
    assert 0 == leader.reconcile_one(item("n1", short, wanted=20)).shortage


def test_repeated_growth_changes_nothing() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28")
    assert [30, 62, 62] == [grow(harness, cidr) for cidr in ("10.0.0.0/27", "10.0.0.0/26", "10.0.0.0/26")]
    assert 62 + 14 == grow(harness, "10.1.0.0/28")
    state = harness.state()
    assert ("10.0.0.0/26", ("10.1.0.0/28",)) == (state.cidr, state.additional_cidrs)
    assert state == harness.subnet("10.0.0.0/28"), "made again as it was made, it is the one that has grown"


def test_ipv6_subnet_gets_an_additional_64() -> None:
    harness = LedgerHarness()
    harness.subnet("fd00::/126", reserved_for_primaries=0)
    assert 4 + (1 << 64) == grow(harness, "fd00:1::/64")
    state = Leader(harness).reconcile_one(item(wanted=6))
    assert {"fd00::", "fd00::1", "fd00::2", "fd00::3", "fd00:1::", "fd00:1::1", "fd00:1::2"} == {
        state.primary,
        *addresses(state),
    }


def test_growth_excludes_only_new_addresses() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28")
    with pytest.raises(Invalid) as refused:
        grow(harness, "10.0.0.0/27", "10.0.0.4")
    assert "excluded_ranges" == refused.value.field
    assert 30 - 4 == grow(harness, "10.0.0.0/27", "10.0.0.16-10.0.0.19")
    assert 4 == harness.state().excluded


@pytest.mark.parametrize("cidr", ["10.0.0.0/28", "10.0.0.0/29", "10.0.0.7/27", "fd00::/64", "10.0.0.0/99", "x"])
def test_invalid_growth_is_rejected(cidr: str) -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28")
    with pytest.raises(Invalid) as refused:
        grow(harness, cidr)
    assert "cidr" == refused.value.field
    assert 14 == harness.state().capacity


def test_growth_over_another_subnet_is_rejected() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/28")
    harness.subnet("10.0.0.16/28", name="other")
    with pytest.raises(Conflict, match="vnet.other"):
        grow(harness, "10.0.0.0/27")
    grow(harness, "10.2.0.0/28")
    with pytest.raises(Conflict, match="10.2.0.0/28 of subnet vnet.pods"):
        harness.subnet("10.2.0.0/24", name="third")


def layouts(cidr: str, cidrs: Sequence[str]) -> list[SubnetLayout]:
    """Return the layout after each growth that is valid."""
    found = [subnet_layout(cidr, None, ())]
    growths: tuple[SubnetGrowth, ...] = ()
    for each in cidrs:
        try:
            found.append(subnet_layout(cidr, None, (), (*growths, SubnetGrowth(cidr=each))))
        except InvalidInput:
            continue
        growths = (*growths, SubnetGrowth(cidr=each))
    return found


networks = st.builds(
    lambda length, at: str(ipaddress.ip_network((0x0A000000 + (at << 4), length), strict=False)),
    st.integers(22, 29),
    st.integers(0, 63),
)


@given(networks, st.lists(networks, max_size=5))
def test_growth_keeps_the_slot_of_each_address(cidr: str, growths: list[str]) -> None:
    before: dict[int, tuple[int, int]] = {}
    for layout in layouts(cidr, growths):
        members = [value for each in layout.members.ranges for value in range(each.first, each.last + 1)]
        places = {value: layout.locate(value) for value in members}
        assert len(members) == layout.capacity == len(set(places.values()))
        assert before.items() <= places.items()
        assert all(layout.address(*place) == value for value, place in places.items())
        found, block = [], layout.next_block(0)
        while block is not None:
            found += [(block, slot) for slot in layout.slots(block)]
            block = layout.next_block(block + 1)
        assert sorted(places.values()) == found
        before = places


def test_draining_subnet_grants_nothing_and_recovers_idle_addresses() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    leader = Leader(harness)
    state = leader.node("n1", wanted=15)
    drained = run(harness.client.drain_subnet(SUBNET))
    assert (True, True, Scaler(1, 0)) == (drained.draining, drained.exhausted, drained.scaler)
    assert 5 == leader.reconcile_one(item("n1", state, wanted=20, report=DemandReport(waiting=5))).shortage
    assert "subnet-draining" == leader.error(item("n2")).error
    assert 10 == len(leader.reconcile_one(item("n1", state, wanted=10, released=ids(state)[:5])).grants)
    reopened = run(harness.client.reopen_subnet(SUBNET))
    assert not reopened.draining
    assert 0 == leader.reconcile_one(item("n1", state, wanted=20)).shortage


def test_only_an_empty_subnet_is_deleted() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    leader = Leader(harness)
    state = leader.node("n1", wanted=3)
    for _ in range(2):
        with pytest.raises(Conflict, match="4 addresses are held or cool down"):
            run(harness.client.delete_subnet(SUBNET))
        leader.reconcile_one(item("n1", state, node_gone=True))
    harness.advance(31.0)
    assert SUBNET == run(harness.client.delete_subnet(SUBNET)).subnet
    with pytest.raises(NotFound):
        run(harness.client.delete_subnet(SUBNET))
    assert 254 == harness.subnet("10.0.0.0/24", name="other").capacity
    assert "not-found" == leader.error(item("n1")).error


def test_recovering_subnet_is_not_deleted() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24")
    leader = Leader(harness)
    image = harness.store.image()
    leader.node("n1")
    harness = harness.restore(image)
    with pytest.raises(Conflict, match="recovers"):
        run(harness.client.delete_subnet(SUBNET))


def test_details_show_usage_per_cluster() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/26", gateway="10.0.0.1", excluded_ranges=("10.0.0.8/29",))
    Leader(harness, "c1").reconcile(item("n1", wanted=4), item("n2", wanted=2))
    other = Leader(harness, "c2")
    other.reconcile_one(item("n1", other.node("n1", wanted=60), wanted=60, report=DemandReport(waiting=3)))
    result = run(harness.client.details(SUBNET))
    assert ("10.0.0.1", 9, 4) == (result.spec.gateway, result.state.excluded, result.state.reserved_for_primaries)
    assert [("c1", 2, 8), ("c2", 1, 41)] == [
        (each.cluster, each.network_containers, each.held) for each in result.clusters
    ]
    assert (3, 17) == (result.clusters[1].waiting, result.clusters[1].waiting_for_buffer)
    assert result.state.reserved == sum(each.held for each in result.clusters)


def test_networks_of_all_subnets() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", name="b")
    harness.subnet("10.0.1.0/24", name="a")
    run(harness.client.create_subnet(SubnetSpec(network="other", name="c", cidr="10.0.0.0/24")))
    shown = run(harness.client.networks()).networks
    assert [("other", ("c",), 254), ("vnet", ("a", "b"), 508)] == [
        (each.name, each.subnets, each.capacity) for each in shown
    ]
