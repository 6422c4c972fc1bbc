"""CNI network configurations as JSON, decoded as leniently as Go's encoding/json does.

Existing configurations were written for Go programs: keys are case-insensitive, the last spelling of a key wins, null
means absent, unknown keys are skipped. Only a value of the wrong type is an error, which contains the path of its key.

The author of a configuration need not be an administrator of the cluster: its size bounds the ranges, exclusions and
routes in it, and so the time and memory that they take.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from podpool.core.errors import InvalidInput, quoted

IPAM_TYPES = ("whereabouts", "podpool")
"""Values of `ipam.type` that podpool serves."""

MAX_CONFIG_BYTES = 64 << 10
"""The length of a configuration, or of a flat file. Real ones have one or two KiB."""

_ERROR = re.compile(r"(?P<reason>.*?)(?: - at `(?P<path>\$[^`]*)`)?", re.DOTALL)
T = TypeVar("T", bound=msgspec.Struct)


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of one plugin, with its `ipam` section undecoded."""

    name: str = ""
    cni_version: str = msgspec.field(name="cniVersion", default="")
    type: str = ""
    ipam: dict[str, Any] | None = None
    plugins: tuple[dict[str, Any], ...] = ()

    @property
    def is_served(self) -> bool:
        """Whether its IPAM plugin is podpool, under one of its names."""
        return self.ipam is not None and _ipam_type(self.ipam) in IPAM_TYPES


class _IpamType(msgspec.Struct, frozen=True):
    type: str = ""


def read_network_config(text: str | bytes) -> NetworkConfig:
    """Decode a configuration. Of a list, return the plugin whose IPAM podpool serves, under the name of the list."""
    network = read_struct(read_object(text, what="configuration"), NetworkConfig)
    if network.type or not network.plugins:
        return network
    plugins = [read_struct(each, NetworkConfig, at=f"plugins[{index}]") for index, each in enumerate(network.plugins)]
    plugin = next((each for each in plugins if each.is_served), plugins[0])
    name, version = network.name or plugin.name, network.cni_version or plugin.cni_version
    return msgspec.structs.replace(plugin, name=name, cni_version=version)


def read_object(text: str | bytes, *, what: str) -> dict[str, Any]:
    """Decode JSON that must be an object of at most `MAX_CONFIG_BYTES`."""
    if len(text) > MAX_CONFIG_BYTES:
        raise InvalidInput(what, text[:100], f"has {len(text)} bytes: the limit is {MAX_CONFIG_BYTES}")
    try:
        value = msgspec.json.decode(text)
    except (ValueError, RecursionError) as error:  # msgspec's errors are ValueErrors
        raise InvalidInput(what, text, f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(what, value, "must be an object: write it in braces")
    return value


def read_struct(value: Mapping[str, Any], into: type[T], *, at: str = "") -> T:
    """Convert an object into a struct. `at` is the path of the object, for errors."""
    names = field_names(into)
    known = {names[key.lower()]: each for key, each in value.items() if each is not None and key.lower() in names}
    try:
        return msgspec.convert(known, into)
    except msgspec.ValidationError as error:
        raise _type_error(str(error), known, at=at) from None


@cache
def field_names(struct: type[msgspec.Struct]) -> Mapping[str, str]:
    """Return the encoded field names by lower case. Cached: computing them takes longer than a conversion."""
    return {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(struct)}


def _type_error(message: str, value: Mapping[str, Any], *, at: str) -> InvalidInput:
    match = _ERROR.fullmatch(message)
    reason, path = (match["reason"], match["path"] or "$") if match else (message, "$")
    path = path.removeprefix("$").removeprefix(".")
    key = re.split(r"[.\[]", path, maxsplit=1)[0]
    what = ".".join(each for each in (at, path) if each) or "configuration"
    return InvalidInput(what, value.get(key, value), f"has the wrong type: {reason.lower()}".replace("`", ""))


def _ipam_type(ipam: Mapping[str, Any]) -> str:
    return read_struct(ipam, _IpamType, at="ipam").type


def ipam_section(network: NetworkConfig) -> dict[str, Any]:
    """Return the `ipam` object, or raise `InvalidInput` if there is none or it names another plugin."""
    if network.ipam is None:
        raise InvalidInput("ipam", None, 'is missing: add "ipam": {"type": "podpool", "range": "192.168.2.0/24"}')
    if not network.is_served:
        types = " or ".join(map(quoted, IPAM_TYPES))
        raise InvalidInput("ipam.type", _ipam_type(network.ipam), f"is another plugin: use {types}")
    return network.ipam
