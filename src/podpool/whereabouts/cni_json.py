"""NetworkConfig configurations as JSON, read as forgivingly as the programs read them that people wrote them for.

Those are in Go: `Range` is `range`, a later spelling wins over an earlier one, null is as if it had not been written,
what is unknown is skipped. Only a value of the wrong type is refused, with the path of its key.
"""

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

import msgspec

from podpool.core.errors import InvalidInput, quoted

IPAM_TYPES = ("whereabouts", "podpool")
"""What `ipam.type` calls us."""

_PLACE = re.compile(r"(?P<reason>.*?)(?: - at `(?P<path>\$[^`]*)`)?", re.DOTALL)
T = TypeVar("T", bound=msgspec.Struct)


class NetworkConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin's configuration: what stands around `ipam`, and that."""

    name: str = ""
    cni_version: str = msgspec.field(name="cniVersion", default="")
    type: str = ""
    ipam: dict[str, Any] | None = None
    plugins: tuple[dict[str, Any], ...] = ()

    @property
    def ours(self) -> bool:
        """Tell whether it asks us for addresses."""
        return self.ipam is not None and read_struct(self.ipam, IpamType, at="ipam").type in IPAM_TYPES


class IpamType(msgspec.Struct, frozen=True):
    """Who is asked for addresses."""

    type: str = ""


def read_network_config(text: str | bytes) -> NetworkConfig:
    """Read a configuration, or of a list the plugin that asks us for addresses; it goes by the list's name."""
    network = read_struct(read_object(text, what="configuration"), NetworkConfig)
    if network.type or not network.plugins:
        return network
    plugins = [read_struct(each, NetworkConfig, at=f"plugins[{at}]") for at, each in enumerate(network.plugins)]
    chosen = next((each for each in plugins if each.ours), plugins[0])
    return msgspec.structs.replace(
        chosen, name=network.name or chosen.name, cni_version=network.cni_version or chosen.cni_version
    )


def read_object(text: str | bytes, *, what: str) -> dict[str, Any]:
    """Read JSON that is an object."""
    try:
        value = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidInput(what, text, f"is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InvalidInput(what, value, "must be an object: write it in braces")
    return value


def read_struct(value: Mapping[str, Any], into: type[T], *, at: str = "") -> T:
    """Read an object into a struct whose fields have the names of its keys."""
    names = _names(into)
    known = {names[key.lower()]: each for key, each in value.items() if each is not None and key.lower() in names}
    try:
        return msgspec.convert(known, into)
    except msgspec.ValidationError as error:
        raise _refused(str(error), known, at=at) from None


@cache
def _names(struct: type[msgspec.Struct]) -> Mapping[str, str]:
    """List the names of a struct's fields, by their lower case; to look them up takes longer than to read an object."""
    return {field.encode_name.lower(): field.encode_name for field in msgspec.structs.fields(struct)}


def _refused(told: str, value: Mapping[str, Any], *, at: str) -> InvalidInput:
    match = _PLACE.fullmatch(told)
    reason, path = (match["reason"], match["path"] or "$") if match else (told, "$")
    place = path.removeprefix("$").removeprefix(".")
    key = re.split(r"[.\[]", place, maxsplit=1)[0]
    what = ".".join(each for each in (at, place) if each) or "configuration"
    return InvalidInput(what, value.get(key, value), f"has the wrong type: {reason.lower()}".replace("`", ""))


def ipam_section(network: NetworkConfig) -> dict[str, Any]:
    """Find the part that is for us; refused when there is none."""
    if network.ipam is None:
        raise InvalidInput("ipam", None, 'is missing: add "ipam": {"type": "podpool", "range": "192.168.2.0/24"}')
    if not network.ours:
        given = read_struct(network.ipam, IpamType, at="ipam").type
        raise InvalidInput("ipam.type", given, f"is not ours: use {' or '.join(map(quoted, IPAM_TYPES))}")
    return network.ipam
