"""Static addresses, gateways and CNI_ARGS. Numbers in test names are cases of Whereabouts, as in `test_config`."""

import pytest

from podpool.core.addresses import Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.whereabouts.cni_args import parse_cni_args
from tests.whereabouts.builders import config, network, read_config


class TestStaticAddresses:
    def test_static_addresses_follow_those_of_ranges(self) -> None:
        listed = [{"address": "10.1.1.1/24", "gateway": "10.1.1.254"}, {"address": "010.1.2.5/16"}]
        read = config(range="10.0.0.0/24", gateway="10.0.0.1", addresses=listed)
        given = read.interface_addresses([parse_address("10.0.0.7")])
        assert ["10.0.0.7/24", "10.1.1.1/24", "10.1.2.5/16"] == [str(each) for each in given]
        assert ["10.0.0.1", "10.1.1.254", "None"] == [str(each.gateway) for each in given]

    def test_a_gateway_applies_to_its_own_family(self) -> None:
        """Whereabouts sets the same gateway on every address, also an IPv4 gateway on an IPv6 address."""
        read = config(range="10.0.0.0/24", ipRanges=[{"range": "fd00::/64"}], gateway="010.0.0.1")
        four, six = read.interface_addresses([parse_address("10.0.0.7"), parse_address("fd00::7")])
        assert ("10.0.0.1", None) == (str(four.gateway), six.gateway)
        assert (Family.V4, Family.V6) == (four.prefix.family, six.prefix.family)

    def test_25_an_invalid_gateway_is_rejected(self) -> None:
        with pytest.raises(InvalidInput, match="^gateway 'zz': not an IPv4 or IPv6 address"):
            config(gateway="zz")

    def test_26_an_address_without_prefix_length_is_rejected(self) -> None:
        with pytest.raises(InvalidInput, match="^addresses '10.1.1.1': not in CIDR notation"):
            config(addresses=[{"address": "10.1.1.1"}])

    @pytest.mark.parametrize("version", ["0.1.0", "0.2.0", ""])
    def test_26_the_oldest_result_versions_have_one_address_per_family(self, version: str) -> None:
        two = [{"address": "10.1.1.1/24"}, {"address": "10.1.1.2/24"}]
        with pytest.raises(InvalidInput, match="^addresses '10.1.1.1, 10.1.1.2': a result of CNI 0.[12].0 has"):
            read_config(network(version, addresses=two))
        one_each = [{"address": "10.1.1.1/24"}, {"address": "fd00::1/64"}]
        assert 2 == len(read_config(network(version, addresses=one_each)).addresses)
        assert 2 == len(read_config(network("0.3.0", addresses=two)).addresses)


class TestCniArgs:
    def test_the_pod_is_read(self) -> None:
        text = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-0;K8S_POD_INFRA_CONTAINER_ID=x;K8S_POD_UID=y"
        interface = parse_cni_args(text).pod_interface(container_id="cid", ifname="net1")
        assert ("shop/web-0", "cid", "net1") == (interface.podref, interface.container_id, interface.ifname)

    def test_a_missing_pod_is_rejected(self) -> None:
        """Whereabouts allocates an address to a Pod without a namespace, and then cannot find that Pod."""
        for args in ("K8S_POD_NAMESPACE=shop", "K8S_POD_NAME=web-0", ""):
            with pytest.raises(InvalidInput, match="names no Pod: K8S_POD_NAMESPACE and K8S_POD_NAME must be set"):
                parse_cni_args(args).pod_interface(container_id="cid", ifname="net1")

    def test_addresses_and_gateways_are_added(self) -> None:
        read = config(
            range="10.0.0.0/24",
            addresses=[{"address": "10.1.1.1/24", "gateway": "10.1.1.9"}],
            args="IP=10.2.0.5/16, fd00::5/64 ,;GATEWAY=10.2.0.1 , 10.1.1.254",
        )
        assert ["10.1.1.1/24", "10.2.0.5/16", "fd00::5/64"] == [str(each) for each in read.addresses]
        assert ["10.1.1.254", "10.2.0.1", "None"] == [str(each.gateway) for each in read.addresses]

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("FOO=1", "CNI_ARGS 'FOO': is unknown"),
            ("FOO", "CNI_ARGS 'FOO': is not a pair: write NAME=VALUE"),
            ("IgnoreUnknown=1;FOO", "CNI_ARGS 'FOO': is not a pair"),
            ("IP=1=2", "CNI_ARGS 'IP=1=2': is not a pair"),
            ("IgnoreUnknown=maybe", "IgnoreUnknown 'maybe': is neither true nor false"),
            ("IgnoreUnknown=0;FOO=1", "CNI_ARGS 'FOO': is unknown: remove it, or add IgnoreUnknown=1"),
            ("IP=10.0.0.5", "CNI_ARGS IP '10.0.0.5': not in CIDR notation"),
            ("GATEWAY=x", "CNI_ARGS GATEWAY 'x': not an IPv4 or IPv6 address"),
        ],
    )
    def test_28_invalid_arguments_are_rejected(self, text: str, message: str) -> None:
        with pytest.raises(InvalidInput, match=f"^{message}"):
            config(args=text)

    @pytest.mark.parametrize("text", ["IgnoreUnknown=1;FOO=1", "IgnoreUnknown=true;FOO=1;", "", ";"])
    def test_unknown_arguments_are_ignored_with_ignore_unknown(self, text: str) -> None:
        assert config() == config(args=text)
