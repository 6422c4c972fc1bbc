"""Names of objects, as Whereabouts makes them, and back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.whereabouts.object_names import (
    PoolIdentifier,
    parse_pool_name,
    range_text,
    reservation_name,
    slice_pool_name,
)

labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
addresses = st.ip_addresses().map(lambda each: Address(Family(each.version), int(each)))


def place(range_: str, *, network: str = "", node: str = "") -> PoolIdentifier:
    return PoolIdentifier(range=parse_prefix(range_), network=network, node=node)


@pytest.mark.parametrize(
    ("pool", "name", "lease"),
    [
        (place("10.0.0.0/8"), "10.0.0.0-8", "whereabouts"),
        (place("10.0.0.0/8", network="test"), "test-10.0.0.0-8", "whereabouts"),
        (place("10.0.0.0/8", node="testnode"), "testnode-10.0.0.0-8", "testnode-10.0.0.0-8"),
        (
            place("10.0.0.0/8", network="testnetwork", node="testnode"),
            "testnetwork-testnode-10.0.0.0-8",
            "testnetwork-testnode-10.0.0.0-8",
        ),
        (place("2001::/116"), "2001---116", "whereabouts"),
        (place("caa5::/64"), "caa5---64", "whereabouts"),
        (place("fd00:0:0:10::/64"), "fd00-0-0-10---64", "whereabouts"),
        (place("::/126", network="net"), "net----126", "whereabouts"),
    ],
)
def test_69_70_pools_and_leases(pool: PoolIdentifier, name: str, lease: str) -> None:
    assert (name, lease) == (pool.name, pool.lease)


@pytest.mark.parametrize(
    ("address", "network", "name"),
    [
        ("10.0.0.5", "", "10.0.0.5"),
        ("fd00::1", "", "fd00--1"),
        ("2001::", "", "2001--0"),
        ("10.0.0.5", "net1", "net1-10.0.0.5"),
        ("::1", "net1", "net1---1"),
    ],
)
def test_70_reservations(address: str, network: str, name: str) -> None:
    assert name == reservation_name(parse_address(address), network=network)


@pytest.mark.parametrize("range_", ["::/126", "::/64"])
def test_a_name_that_no_object_can_have_is_refused_with_the_cure(range_: str) -> None:
    """Whereabouts asks the API server, which says no to each ADD."""
    with pytest.raises(InvalidInput, match=r"^name '---\d+': is no name that an object can have: set network_name"):
        _ = place(range_).name
    with pytest.raises(InvalidInput, match="^name '--1'"):
        reservation_name(parse_address("::1"))


@pytest.mark.parametrize("network", ["Blue", "blue_1", "-blue", "b/lue"])
def test_a_network_name_that_fits_no_object_is_refused_by_its_key(network: str) -> None:
    with pytest.raises(InvalidInput, match=f"^network_name '{network}': cannot be part of an object's name"):
        _ = place("10.0.0.0/8", network=network).name


def test_a_name_is_not_longer_than_objects_may_have_it() -> None:
    assert 253 == len(place("10.0.0.0/8", network="n" * 242).name)
    with pytest.raises(InvalidInput, match="up to 253 characters"):
        _ = place("10.0.0.0/8", network="n" * 243).name


class TestSlicePools:
    def test_they_go_by_the_network_name_or_else_the_name_in_cni(self) -> None:
        assert "blue" == slice_pool_name(network="blue", name="mynet")
        assert "mynet" == slice_pool_name(network="", name="mynet")

    def test_without_either_they_are_refused(self) -> None:
        """Whereabouts asks for an object without a name."""
        with pytest.raises(InvalidInput, match="^name '': is missing, and so is network_name: set one of them"):
            slice_pool_name(network="", name="")

    def test_a_name_in_cni_that_fits_no_object_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="^name 'My_Net': is no name that an object can have: set network_name"):
            slice_pool_name(network="", name="My_Net")


class TestBack:
    @given(labels, labels, st.sampled_from(["10.0.0.0/8", "fd00:0:0:10::/64", "2001::/116"]))
    def test_a_pool_of_a_known_node_and_network_is_recognised(self, network: str, node: str, range_: str) -> None:
        slice_ = parse_prefix(range_)
        made = PoolIdentifier(range=slice_, network=network, node=node)
        read = parse_pool_name(made.name, range_=slice_, nodes=[node], networks=[network])
        assert read is not None
        assert made.name == read.name
        if network != node:
            assert made == read

    @pytest.mark.parametrize(
        ("name", "network", "node"),
        [
            ("10.0.0.0-24", "", ""),
            ("blue-10.0.0.0-24", "blue", ""),
            ("node-a-10.0.0.0-24", "", "node-a"),
            ("blue-node-a-10.0.0.0-24", "blue", "node-a"),
            ("dark-blue-node-a-10.0.0.0-24", "dark-blue", "node-a"),
            ("blue-long-gone-10.0.0.0-24", "blue", "long-gone"),
            ("unheard-of-10.0.0.0-24", "unheard-of", ""),
            ("a-node-a-10.0.0.0-24", "", "a-node-a"),
        ],
    )
    def test_it_takes_networks_first_and_the_longest_name_of_a_node(self, name: str, network: str, node: str) -> None:
        range_ = parse_prefix("10.0.0.0/24")
        nodes, networks = ["a", "node-a", "a-node-a"], ["blue", "dark-blue"]
        expected = PoolIdentifier(range=range_, network=network, node=node)
        assert expected == parse_pool_name(name, range_=range_, nodes=nodes, networks=networks)

    def test_a_name_of_another_range_says_nothing(self) -> None:
        assert parse_pool_name("10.0.0.0-24", range_=parse_prefix("10.0.0.0/25"), nodes=[]) is None


def test_a_range_is_written_without_what_names_cannot_have() -> None:
    assert "fd00-0-0-10---64" == range_text(parse_prefix("fd00:0:0:10::/64"))
