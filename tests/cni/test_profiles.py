"""A profile of the CNI configuration is complete, or refused with the flag and the fix."""

import json

import pytest

from podpool.cni import conflist
from podpool.cni.profiles import DEFAULT_PROFILE, PROFILES
from podpool.core.errors import InvalidInput

IPAM = {"ipam": {"type": "podpool"}}


def plugin(profile: str, options: str = "") -> dict[str, object]:
    config = json.loads(conflist.load(profile=profile, options=options))
    assert "podpool" == config["name"]
    (found,) = config["plugins"]
    return dict(found)


@pytest.mark.parametrize(
    ("profile", "options", "expected"),
    [
        ("routed", "", {"type": "ptp"}),
        ("routed", "mtu=9000", {"type": "ptp", "mtu": 9000}),
        ("azure", "", {"type": "ptp"}),
        ("bridge", "bridge=br0", {"type": "bridge", "bridge": "br0"}),
        (
            "bridge",
            "bridge=br0, mtu=1400, vlan=7, hairpin=true",
            {"type": "bridge", "bridge": "br0", "mtu": 1400, "vlan": 7, "hairpinMode": True},
        ),
        ("macvlan", "master=eth0.7", {"type": "macvlan", "mode": "bridge", "master": "eth0.7"}),
        ("ipvlan", "master=eth0,mtu=1500", {"type": "ipvlan", "mode": "l2", "master": "eth0", "mtu": 1500}),
    ],
)
def test_a_profile_is_one_interface_plugin_with_podpool(
    profile: str, options: str, expected: dict[str, object]
) -> None:
    assert expected | IPAM == plugin(profile, options)


def test_the_default_is_routed() -> None:
    assert conflist.load() == conflist.load(profile=DEFAULT_PROFILE)
    assert "routed" == DEFAULT_PROFILE


@pytest.mark.parametrize("profile", PROFILES)
def test_no_profile_translates_addresses(profile: str) -> None:
    required = ",".join(f"{name}=x" for name, option in PROFILES[profile].options.items() if option.required)
    assert "ipMasq" not in plugin(profile, required)


@pytest.mark.parametrize(
    ("profile", "options", "error"),
    [
        ("bridge", "", "profile bridge needs bridge=..., an existing bridge that has the node's uplink as a port"),
        ("macvlan", "mtu=1500", "profile macvlan needs master=..., the node's interface on the segment"),
        ("ipvlan", "", "profile ipvlan needs master="),
        ("routed", "master=eth0", "profile routed has no option 'master'; use mtu"),
        ("routed", "mtu", "'mtu' has no value: write it as master=eth0,mtu=9000"),
        ("routed", "mtu=9000,mtu=1500", "'mtu' is given twice"),
        ("routed", "mtu=100", "mtu is '100': write a number from 576 to 65535"),
        ("routed", "mtu=65536", "write a number from 576 to 65535"),
        ("routed", "mtu=٩٠٠٠", "write a number from 576 to 65535"),
        ("bridge", "bridge=br0,vlan=4095", "write a number from 1 to 4094"),
        ("bridge", "bridge=br0,hairpin=yes", "write true or false"),
        ("bridge", "bridge=..", "write the name of an interface"),
        ("macvlan", "master=sixteen-letters-", "write the name of an interface, of at most 15 characters"),
        ("macvlan", "master=eth/0", "write the name of an interface"),
    ],
)
def test_an_invalid_option_is_refused(profile: str, options: str, error: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        conflist.load(profile=profile, options=options)
    assert str(refused.value).startswith("--cni-options")
    assert error in str(refused.value)


def test_options_are_of_a_profile_not_of_a_template() -> None:
    with pytest.raises(InvalidInput, match="has no effect with --cni-template: write it into that file"):
        conflist.load("mine.conflist", options="mtu=9000")
