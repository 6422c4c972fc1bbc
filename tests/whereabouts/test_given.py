"""What a Pod is given beside addresses from ranges, and what its runtime says. Settings as in `test_config`."""

import pytest

from podpool.core.addresses import Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.whereabouts.cni_args import parse_cni_args
from tests.whereabouts.builders import config, network, read_config


class TestAddresses:
    def test_they_follow_those_from_ranges(self) -> None:
        listed = [{"address": "10.1.1.1/24", "gateway": "10.1.1.254"}, {"address": "010.1.2.5/16"}]
        read = config(range="10.0.0.0/24", gateway="10.0.0.1", addresses=listed)
        given = read.given([parse_address("10.0.0.7")])
        assert ["10.0.0.7/24", "10.1.1.1/24", "10.1.2.5/16"] == [str(each) for each in given]
        assert ["10.0.0.1", "10.1.1.254", "None"] == [str(each.gateway) for each in given]

    def test_the_gateway_goes_with_its_own_family(self) -> None:
        """Whereabouts gives every address the same, an IPv6 address an IPv4 gateway too."""
        read = config(range="10.0.0.0/24", ipRanges=[{"range": "fd00::/64"}], gateway="010.0.0.1")
        four, six = read.given([parse_address("10.0.0.7"), parse_address("fd00::7")])
        assert ("10.0.0.1", None) == (str(four.gateway), six.gateway)
        assert (Family.V4, Family.V6) == (four.prefix.family, six.prefix.family)

    def test_25_a_gateway_that_is_no_address_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="^gateway 'zz': not an IPv4 or IPv6 address"):
            config(gateway="zz")

    def test_26_an_address_without_its_network_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="^addresses '10.1.1.1': not in CIDR notation"):
            config(addresses=[{"address": "10.1.1.1"}])

    @pytest.mark.parametrize("version", ["0.1.0", "0.2.0", ""])
    def test_26_the_oldest_results_have_room_for_one_of_each_family(self, version: str) -> None:
        two = [{"address": "10.1.1.1/24"}, {"address": "10.1.1.2/24"}]
        with pytest.raises(InvalidInput, match="^addresses '10.1.1.1, 10.1.1.2': CNI 0.[12].0 has room for one IPv4"):
            read_config(network(version, addresses=two))
        one_each = [{"address": "10.1.1.1/24"}, {"address": "fd00::1/64"}]
        assert 2 == len(read_config(network(version, addresses=one_each)).addresses)
        assert 2 == len(read_config(network("0.3.0", addresses=two)).addresses)


class TestArguments:
    def test_they_name_the_pod(self) -> None:
        text = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=x;K8S_POD_UID=y"
        asking = parse_cni_args(text).owner(container="cid", ifname="net1")
        assert ("shop/web-0", "cid", "net1") == (asking.podref, asking.container, asking.ifname)

    def test_without_a_pod_nobody_can_own(self) -> None:
        """Whereabouts gives an address to a Pod without a namespace, and then finds no such Pod."""
        for told in ("K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=web-0", ""):
            with pytest.raises(InvalidInput, match="names no Pod: K8S_POD_NAMESPACE and K8S_POD_NAME must be set"):
                parse_cni_args(told).owner(container="cid", ifname="net1")

    def test_addresses_and_gateways_are_added(self) -> None:
        read = config(
            range="10.0.0.0/24",
            addresses=[{"address": "10.1.1.1/24", "gateway": "10.1.1.9"}],
            arguments="IP=10.2.0.5/16,fd00::5/64;GATEWAY=10.2.0.1,10.1.1.254",
        )
        assert ["10.1.1.1/24", "10.2.0.5/16", "fd00::5/64"] == [str(each) for each in read.addresses]
        assert ["10.1.1.254", "10.2.0.1", "None"] == [str(each.gateway) for each in read.addresses]

    @pytest.mark.parametrize(
        ("text", "told"),
        [
            ("FOO=1", "CNI_ARGS 'FOO': is not known here"),
            ("FOO", "CNI_ARGS 'FOO': is not a pair: write NAME=VALUE"),
            ("IgnoreUnknown=1;FOO", "CNI_ARGS 'FOO': is not a pair"),
            ("IP=1=2", "CNI_ARGS 'IP=1=2': is not a pair"),
            ("IgnoreUnknown=maybe", "IgnoreUnknown 'maybe': is neither true nor false"),
            ("IgnoreUnknown=0;FOO=1", "CNI_ARGS 'FOO': is not known here: leave it out, or add IgnoreUnknown=1"),
            ("IP=10.0.0.5", "CNI_ARGS IP '10.0.0.5': not in CIDR notation"),
            ("GATEWAY=x", "CNI_ARGS GATEWAY 'x': not an IPv4 or IPv6 address"),
        ],
    )
    def test_28_what_is_wrong_with_them_is_told(self, text: str, told: str) -> None:
        with pytest.raises(InvalidInput, match=f"^{told}"):
            config(arguments=text)

    @pytest.mark.parametrize("text", ["IgnoreUnknown=1;FOO=1", "IgnoreUnknown=true;FOO=1;", "", ";"])
    def test_the_unknown_is_ignored_on_demand(self, text: str) -> None:
        assert config() == config(arguments=text)
