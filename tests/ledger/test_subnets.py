"""Creation of subnets: capacity, members and validation."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.ledger.domain.subnet_layout import BLOCK_SIZE, subnet_layout
from podpool.ledger.errors import Conflict, Invalid, NotFound
from podpool.ledger.messages import SubnetName
from tests.ledger.harness import SUBNET, Leader, LedgerHarness, item, run

pytestmark = pytest.mark.usefixtures("backend")


@pytest.mark.parametrize(
    ("cidr", "gateway", "excluded_ranges", "capacity"),
    [
        ("10.0.0.0/24", None, (), 254),
        ("10.0.0.0/24", "10.0.0.1", (), 253),
        ("10.0.0.0/24", "10.0.0.1", ("10.0.0.0/28",), 239),
        ("10.0.0.0/24", "10.0.0.1", ("10.0.0.1", "10.0.0.4-10.0.0.9"), 247),
        ("10.0.0.0/24", "10.0.0.255", ("10.0.0.0",), 254),
        ("10.0.0.0/30", None, (), 2),
        ("10.0.0.0/16", None, (), 65_534),
        ("fd00::/120", None, (), 256),
        ("fd00::/64", "fd00::1", (), (1 << 64) - 1),
        ("fd00::/60", None, ("fd00::/64",), 15 << 64),
    ],
)
def test_capacity_is_the_cidr_less_excluded_addresses(
    cidr: str, gateway: str | None, excluded_ranges: tuple[str, ...], capacity: int
) -> None:
    harness = LedgerHarness()
    assert capacity == harness.subnet(cidr, gateway=gateway, excluded_ranges=excluded_ranges).capacity
    assert capacity == run(harness.client.utilization(SUBNET))[0].capacity


@given(st.integers(24, 30), st.lists(st.integers(0, 255), max_size=6), st.none() | st.integers(0, 255))
def test_members_are_the_usable_addresses_less_excluded_ranges(
    length: int, kept: list[int], gateway: int | None
) -> None:
    network = ipaddress.ip_network(f"10.0.0.0/{length}")
    inside = sorted({each % network.num_addresses for each in kept})
    at = None if gateway is None else str(network[gateway % network.num_addresses])
    members = {str(each) for each in network.hosts()} - {str(network[each]) for each in inside} - {at}
    if not members:
        return
    layout = subnet_layout(str(network), at, tuple(str(network[each]) for each in inside))
    found = []
    block = layout.next_block(0)
    while block is not None:
        found += [layout.text(layout.address(block, slot)) for slot in layout.slots(block)]
        block = layout.next_block(block + 1)
    assert sorted(members, key=ipaddress.ip_address) == found
    assert len(members) == layout.capacity
    assert all(layout.locate(int(ipaddress.ip_address(each)))[1] < BLOCK_SIZE for each in members)


@pytest.mark.parametrize(
    ("field", "settings"),
    [
        ("cidr", {"cidr": "10.0.0.0"}),
        ("cidr", {"cidr": "10.0.0.5/24"}),
        ("cidr", {"cidr": "10.0.0.0/31"}),
        ("cidr", {"cidr": "fd00::/48"}),
        ("gateway", {"gateway": "10.0.1.1"}),
        ("gateway", {"gateway": "fd00::1"}),
        ("excluded_ranges", {"excluded_ranges": ("10.0.1.0/28",)}),
        ("excluded_ranges", {"excluded_ranges": ("10.0.0.0/24",)}),
        ("excluded_ranges", {"excluded_ranges": ("fd00::/120",)}),
        ("batch", {"batch": 0}),
        ("buffer", {"buffer": 401}),
        ("lower_threshold", {"lower_threshold": 90}),
        ("upper_threshold", {"upper_threshold": 101}),
        ("cooldown_roomy", {"cooldown_roomy": 29.0}),
        ("cooldown_filling", {"cooldown_filling": 4.0}),
        ("cooldown_roomy", {"cooldown_roomy": 86_401.0}),
        ("reserved_for_primaries", {"reserved_for_primaries": -1}),
        ("name", {"name": "Pods"}),
        ("name", {"name": "a.b"}),
        ("name", {"name": ""}),
        ("name", {"name": "-a"}),
    ],
)
def test_invalid_field_is_rejected_by_name(field: str, settings: dict[str, object]) -> None:
    harness = LedgerHarness()
    with pytest.raises(Invalid) as refused:
        harness.subnet(**settings)  # type: ignore[arg-type]  # any value
    assert field == refused.value.field
    assert () == run(harness.client.subnets()).subnets


def test_creating_the_same_subnet_again_returns_it() -> None:
    harness = LedgerHarness()
    assert harness.subnet() == harness.subnet()


def test_other_spec_of_the_same_name_is_rejected() -> None:
    harness = LedgerHarness()
    harness.subnet()
    with pytest.raises(Conflict):
        harness.subnet(batch=8)


@pytest.mark.parametrize("cidr", ["10.0.0.0/24", "10.0.0.0/25", "10.0.0.128/25", "10.0.0.0/16", "10.0.0.64/26"])
def test_overlap_in_a_network_is_rejected(cidr: str) -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", name="first")
    with pytest.raises(Conflict, match="vnet.first"):
        harness.subnet(cidr, name="second")


def test_adjacent_subnets_and_other_networks_do_not_overlap() -> None:
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/24", name="first")
    harness.subnet("10.0.1.0/24", name="second")
    assert ["first", "second"] == [each.subnet.name for each in run(harness.client.subnets()).subnets]


def test_unknown_subnet_is_not_found() -> None:
    harness = LedgerHarness()
    with pytest.raises(NotFound):
        run(harness.client.utilization(SubnetName(network="vnet", name="none")))


def test_ipv6_64_grants_no_excluded_address() -> None:
    harness = LedgerHarness()
    harness.subnet("fd00::/64", gateway="fd00::1", excluded_ranges=("fd00::/65",))
    state = Leader(harness).reconcile_one(item(wanted=70))
    assert "fd00::8000:0:0:0" == state.primary
    assert 70 == len({grant.address for grant in state.grants})
    assert all(grant.address.startswith("fd00::8000:0:0:") for grant in state.grants)
