"""Merge of an inline IPAM configuration with the flat file, and the keys of both as users write them.

A key of the flat file applies where the inline configuration is empty (absent, empty or 0). Lists are not joined. The
flat file never sets `enable_overlapping_ranges`. Whereabouts behaves like this, and running clusters depend on it. The
obsolete keys `datastore` and `etcd_*` are skipped. Other unknown keys are skipped too, and reported: a fork of
Whereabouts may give them a meaning.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from podpool.whereabouts.cni_json import field_names, read_struct

FLAT_FILE_DIRECTORIES = (
    "/etc/kubernetes/cni/net.d/whereabouts.d",
    "/etc/cni/net.d/whereabouts.d",
    "/host/etc/cni/net.d/whereabouts.d",
)
"""Where flat files are. Without `configuration_path` the first whereabouts.conf that exists is used."""
FLAT_FILE_NAME = "whereabouts.conf"
OBSOLETE_KEYS = ("datastore", "etcd_host", "etcd_username", "etcd_password", "etcd_key_file", "etcd_cert_file")
MAX_UNKNOWN_KEYS, MAX_KEY_LENGTH = 10, 40
"""Unknown keys that are reported, and characters of each."""
T = TypeVar("T", bound=msgspec.Struct)


class RawRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range and its bounds."""

    range: str = ""
    range_start: str = ""
    range_end: str = ""
    exclude: tuple[str, ...] = ()
    node_slice_size: str = ""
    """An extension of podpool: the size for this range, where the one beside `ipRanges` does not fit."""


class RawAddress(msgspec.Struct, frozen=True, kw_only=True):
    """A static address that every Pod gets in addition to those of the ranges."""

    address: str = ""
    gateway: str = ""


class RawKubernetes(msgspec.Struct, frozen=True, kw_only=True):
    """How Whereabouts' plugin reaches the API server. The agent has its own connection."""

    kubeconfig: str = ""
    k8s_api_root: str = ""


class DnsConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The `dns` object of CNI."""

    nameservers: tuple[str, ...] = ()
    domain: str = ""
    search: tuple[str, ...] = ()
    options: tuple[str, ...] = ()


class RawIpamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of `ipam`."""

    type: str = ""
    range: str = ""
    range_start: str = ""
    range_end: str = ""
    exclude: tuple[str, ...] = ()
    ip_ranges: tuple[dict[str, Any], ...] = msgspec.field(name="ipRanges", default=())
    gateway: str = ""
    exclude_gateway: Any = False
    """Of a fork: the gateway is excluded from all ranges. Released Whereabouts skips it, whatever its type."""
    routes: tuple[dict[str, Any], ...] = ()
    dns: dict[str, Any] = {}
    addresses: tuple[dict[str, Any], ...] = ()
    network_name: str = ""
    node_slice_size: str = ""
    fast_ipam: Any = False
    """Of the node slice proposal. Released Whereabouts skips it, whatever its type."""
    enable_overlapping_ranges: bool | None = None
    leader_lease_duration: int = 0
    leader_renew_deadline: int = 0
    leader_retry_period: int = 0
    sleep_for_race: int = 0
    kubernetes: dict[str, Any] = {}
    configuration_path: str = ""
    log_file: str = ""
    log_level: str = ""
    reconciler_cron_expression: str = ""

    def read_kubernetes(self) -> RawKubernetes:
        """Decode `kubernetes`."""
        return read_struct(self.kubernetes, RawKubernetes, at="ipam.kubernetes")

    def read_dns(self) -> DnsConfig:
        """Decode `dns`."""
        return read_struct(self.dns, DnsConfig, at="ipam.dns")

    def read_ranges(self) -> tuple[RawRange, ...]:
        """Decode the ranges in the order of a Pod's addresses: `range` comes before `ipRanges`."""
        ranges = tuple(read_struct(each, RawRange, at=f"ipam.ipRanges[{at}]") for at, each in enumerate(self.ip_ranges))
        if not self.range:
            return ranges
        first = RawRange(range=self.range, range_start=self.range_start, range_end=self.range_end, exclude=self.exclude)
        return (first, *ranges)

    def read_addresses(self) -> tuple[RawAddress, ...]:
        """Decode the static addresses."""
        found = enumerate(self.addresses)
        return tuple(read_struct(each, RawAddress, at=f"ipam.addresses[{index}]") for index, each in found)


def uses_node_pool(inline: RawIpamConfig) -> bool:
    """Return whether addresses come from the node's pool: the type is `podpool`, and there is no range.

    A range in the flat file does not count: that file configures Whereabouts networks.
    """
    return inline.type == "podpool" and not inline.read_ranges()


def unknown_keys(ipam: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the keys of an `ipam` section, and of its ranges, that have no meaning here; some of them if many."""
    known = {*field_names(RawIpamConfig), *OBSOLETE_KEYS}
    found = [key[:MAX_KEY_LENGTH] for key in ipam if key.lower() not in known]
    ranges = next((each for key, each in ipam.items() if key.lower() == "ipranges"), None)
    for each in ranges if isinstance(ranges, list) else ():
        if isinstance(each, dict):
            found += [f"ipRanges.{key[:MAX_KEY_LENGTH]}" for key in each if key.lower() not in field_names(RawRange)]
    return tuple(sorted(dict.fromkeys(found))[:MAX_UNKNOWN_KEYS])


def merge_flat_file(inline: RawIpamConfig, flat: RawIpamConfig) -> RawIpamConfig:
    """Fill the empty keys of the inline configuration from the flat file."""
    dns = msgspec.to_builtins(_filled(inline.read_dns(), flat.read_dns()))
    overlapping = inline.enable_overlapping_ranges
    return msgspec.structs.replace(_filled(inline, flat), dns=dns, enable_overlapping_ranges=overlapping)


def _filled(struct: T, defaults: T) -> T:
    empty = [name for name in struct.__struct_fields__ if not getattr(struct, name)]
    return msgspec.structs.replace(struct, **{name: getattr(defaults, name) for name in empty})
