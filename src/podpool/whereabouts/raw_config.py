"""The keys of an IPAM configuration as users write them, inline or in the flat file, and how the two are merged.

A key of the flat file applies where the inline configuration is empty (absent, empty or 0). Lists are not joined. The
flat file never sets `enable_overlapping_ranges`. Whereabouts behaves like this, and running clusters depend on it. The
obsolete keys `datastore` and `etcd_*` are skipped like unknown ones.
"""

from typing import Any, TypeVar

import msgspec

from podpool.whereabouts.cni_json import read_struct

FLAT_FILES = (
    "/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf",
    "/etc/cni/net.d/whereabouts.d/whereabouts.conf",
    "/host/etc/cni/net.d/whereabouts.d/whereabouts.conf",
)
"""Default paths of the flat file. The first that exists is used."""
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


def flat_file_paths(inline: RawIpamConfig) -> tuple[str, ...]:
    """Return where the flat file may be. The first that exists is used."""
    return (*filter(None, [inline.configuration_path]), *FLAT_FILES)


def merge_flat_file(inline: RawIpamConfig, flat: RawIpamConfig) -> RawIpamConfig:
    """Fill the empty keys of the inline configuration from the flat file."""
    dns = msgspec.to_builtins(_filled(inline.read_dns(), flat.read_dns()))
    overlapping = inline.enable_overlapping_ranges
    return msgspec.structs.replace(_filled(inline, flat), dns=dns, enable_overlapping_ranges=overlapping)


def _filled(struct: T, defaults: T) -> T:
    empty = [name for name in struct.__struct_fields__ if not getattr(struct, name)]
    return msgspec.structs.replace(struct, **{name: getattr(defaults, name) for name in empty})
