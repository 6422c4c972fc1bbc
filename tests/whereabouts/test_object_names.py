"""Names of objects as Whereabouts builds them, and parsing of pool names."""

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


def identifier(range_: str, *, network: str = "", node: str = "") -> PoolIdentifier:
    return PoolIdentifier(range=parse_prefix(range_), network=network, node=node)


@pytest.mark.parametrize(
    ("pool", "name", "lease"),
    [
        (identifier("10.0.0.0/8"), "10.0.0.0-8", "whereabouts"),
        (identifier("10.0.0.0/8", network="test"), "test-10.0.0.0-8", "whereabouts"),
        (identifier("10.0.0.0/8", node="testnode"), "testnode-10.0.0.0-8", "testnode-10.0.0.0-8"),
        (
            identifier("10.0.0.0/8", network="testnetwork", node="testnode"),
            "testnetwork-testnode-10.0.0.0-8",
            "testnetwork-testnode-10.0.0.0-8",
        ),
        (identifier("2001::/116"), "2001---116", "whereabouts"),
        (identifier("caa5::/64"), "caa5---64", "whereabouts"),
        (identifier("fd00:0:0:10::/64"), "fd00-0-0-10---64", "whereabouts"),
        (identifier("::/126", network="net"), "net----126", "whereabouts"),
    ],
)
def test_69_70_pool_and_lease_names(pool: PoolIdentifier, name: str, lease: str) -> None:
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
def test_70_reservation_names(address: str, network: str, name: str) -> None:
    assert name == reservation_name(parse_address(address), network=network)


@pytest.mark.parametrize("range_", ["::/126", "::/64"])
def test_an_invalid_object_name_is_rejected_with_the_remedy(range_: str) -> None:
    """Whereabouts sends it to the API server, which rejects each ADD."""
    with pytest.raises(InvalidInput, match=r"^name '---\d+': is not a valid object name: set network_name"):
        _ = identifier(range_).name
    with pytest.raises(InvalidInput, match="^name '--1'"):
        reservation_name(parse_address("::1"))


@pytest.mark.parametrize("network", ["Blue", "blue_1", "-blue", "b/lue"])
def test_an_invalid_network_name_is_rejected_by_its_key(network: str) -> None:
    with pytest.raises(InvalidInput, match=f"^network_name '{network}': cannot be part of an object's name"):
        _ = identifier("10.0.0.0/8", network=network).name


def test_a_name_has_at_most_253_characters() -> None:
    assert 253 == len(identifier("10.0.0.0/8", network="n" * 242).name)
    with pytest.raises(InvalidInput, match="at most 253 characters"):
        _ = identifier("10.0.0.0/8", network="n" * 243).name


class TestSlicePools:
    def test_the_name_is_the_network_name_else_the_cni_name(self) -> None:
        assert "blue" == slice_pool_name(network="blue", name="mynet")
        assert "mynet" == slice_pool_name(network="", name="mynet")

    def test_without_either_name_it_is_rejected(self) -> None:
        """Whereabouts requests an object without a name."""
        with pytest.raises(InvalidInput, match="^name '': is missing, and so is network_name: set one of them"):
            slice_pool_name(network="", name="")

    def test_an_invalid_cni_name_is_rejected(self) -> None:
        with pytest.raises(InvalidInput, match="^name 'My_Net': is not a valid object name: set network_name"):
            slice_pool_name(network="", name="My_Net")


class TestParsePoolName:
    @given(labels, labels, st.sampled_from(["10.0.0.0/8", "fd00:0:0:10::/64", "2001::/116"]))
    def test_known_nodes_and_networks_are_recognised(self, network: str, node: str, range_: str) -> None:
        slice_ = parse_prefix(range_)
        built = PoolIdentifier(range=slice_, network=network, node=node)
        parsed = parse_pool_name(built.name, range_=slice_, nodes=[node], networks=[network])
        assert parsed is not None
        assert built.name == parsed.name
        if network != node:
            assert built == parsed

    @pytest.mark.parametrize(
        ("name", "network", "node"),
        [
            ("10.0.0.0-24", "", ""),
            ("blue-10.0.0.0-24", "blue", ""),
            ("node-a-10.0.0.0-24", "", "node-a"),
            ("blue-node-a-10.0.0.0-24", "blue", "node-a"),
            ("dark-blue-node-a-10.0.0.0-24", "dark-blue", "node-a"),
            ("blue-long-gone-10.0.0.0-24", "blue", "long-gone"),
            ("unknown-10.0.0.0-24", "unknown", ""),
            ("a-node-a-10.0.0.0-24", "", "a-node-a"),
        ],
    )
    def test_networks_take_precedence_and_then_the_longest_node_name(self, name: str, network: str, node: str) -> None:
        range_ = parse_prefix("10.0.0.0/24")
        nodes, networks = ["a", "node-a", "a-node-a"], ["blue", "dark-blue"]
        expected = PoolIdentifier(range=range_, network=network, node=node)
        assert expected == parse_pool_name(name, range_=range_, nodes=nodes, networks=networks)

    def test_a_name_of_another_range_is_not_parsed(self) -> None:
        assert parse_pool_name("10.0.0.0-24", range_=parse_prefix("10.0.0.0/25"), nodes=[]) is None


def test_range_text_contains_only_characters_of_names() -> None:
    assert "fd00-0-0-10---64" == range_text(parse_prefix("fd00:0:0:10::/64"))
