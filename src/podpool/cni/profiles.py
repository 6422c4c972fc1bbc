"""Profiles of the CNI configuration: one interface plugin for each kind of network that carries the Pods.

| profile | interface plugin | Pods are |
|---|---|---|
| routed | ptp | behind the node, which routes to them |
| azure | ptp | the same; the cloud's host agent programs their addresses |
| bridge | bridge | on the segment of a bridge whose port the node's uplink is |
| macvlan | macvlan | on the segment of the interface `master` |
| ipvlan | ipvlan | on the same, with the MAC address of `master` |

No profile translates addresses: a Pod's address is the one that the network sees.
"""

import re
import typing
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from podpool.core.errors import InvalidInput, quoted

OPTIONS_FLAG = "--cni-options"
DEFAULT_PROFILE = "routed"

_INTERFACE = re.compile(r"[^\s/:]{1,15}")
_MIN_MTU, _MAX_MTU, _MAX_VLAN = 576, 65535, 4094


class ProfileOption(msgspec.Struct, frozen=True):
    """An option: how a text becomes the value in the plugin's configuration, and what it is for."""

    key: str
    """The key of the plugin's configuration."""
    parse: Callable[[str], Any]
    """Returns the value; raises `ValueError` with the rule."""
    about: str
    required: bool = False


class CNIProfile(msgspec.Struct, frozen=True):
    """The interface plugin of a profile, its configuration without options, and its options by name."""

    plugin: str
    options: Mapping[str, ProfileOption]
    config: Mapping[str, Any] = {}


def interface_plugin(profile: str, options: str) -> dict[str, Any]:
    """Return the configuration of the interface plugin, without IPAM; raises `InvalidInput`."""
    chosen, values = PROFILES[profile], _parse_pairs(options)
    if unknown := next((each for each in values if each not in chosen.options), None):
        known = ", ".join(chosen.options)
        raise InvalidInput(OPTIONS_FLAG, options, f"profile {profile} has no option {quoted(unknown)}; use {known}")
    for name, option in chosen.options.items():
        if option.required and name not in values:
            raise InvalidInput(OPTIONS_FLAG, options, f"profile {profile} needs {name}=..., {option.about}")
    config = {"type": chosen.plugin, **chosen.config}
    for name, text in values.items():
        try:
            config[chosen.options[name].key] = chosen.options[name].parse(text)
        except ValueError as error:
            raise InvalidInput(OPTIONS_FLAG, options, f"{name} is {quoted(text)}: {error}") from None
    return config


def _parse_pairs(text: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidInput(OPTIONS_FLAG, text, f"{quoted(pair)} has no value: write it as master=eth0,mtu=9000")
        if name in values:
            raise InvalidInput(OPTIONS_FLAG, text, f"{quoted(name)} is given twice")
        values[name] = value
    return values


def _interface(text: str) -> str:
    if not _INTERFACE.fullmatch(text) or text in (".", ".."):
        raise ValueError("write the name of an interface, of at most 15 characters without space, slash and colon")
    return text


def _number(low: int, high: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdigit() and len(text) <= 5 and low <= int(text) <= high):
            raise ValueError(f"write a number from {low} to {high}")
        return int(text)

    return parse


def _boolean(text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("write true or false")
    return text == "true"


_MTU = ProfileOption("mtu", _number(_MIN_MTU, _MAX_MTU), "the MTU of Pod interfaces; default: the kernel's")
_MASTER = ProfileOption("master", _interface, "the node's interface on the segment", required=True)
_BRIDGE = ProfileOption("bridge", _interface, "an existing bridge that has the node's uplink as a port", required=True)

PROFILES: Mapping[str, CNIProfile] = {
    "routed": CNIProfile("ptp", {"mtu": _MTU}),
    "bridge": CNIProfile(
        "bridge",
        {
            "bridge": _BRIDGE,
            "mtu": _MTU,
            "vlan": ProfileOption("vlan", _number(1, _MAX_VLAN), "VLAN of the Pods' bridge ports; default: none"),
            "hairpin": ProfileOption(
                "hairpinMode", _boolean, "true: a Pod reaches itself through a Service; default: false"
            ),
        },
    ),
    "macvlan": CNIProfile("macvlan", {"master": _MASTER, "mtu": _MTU}, {"mode": "bridge"}),
    "ipvlan": CNIProfile("ipvlan", {"master": _MASTER, "mtu": _MTU}, {"mode": "l2"}),
    "azure": CNIProfile("ptp", {"mtu": _MTU}),
}
"""By name."""
PROFILE_NAMES: typing.Final = tuple(PROFILES)
