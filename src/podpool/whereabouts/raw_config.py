"""Every key of an IPAM configuration as people write it, inline or in the flat file, and how the two become one.

A key of the flat file counts where the inline configuration has nothing (absent, empty, 0); lists are not joined.
`enable_overlapping_ranges` is the exception: the flat file never decides it. So it is with Whereabouts, and running
clusters depend on it. `datastore` and `etcd_*` are keys of the past: they are skipped like everything unknown.
"""

from typing import Any, TypeVar

import msgspec

from podpool.whereabouts.cni_json import read_struct

FLAT_FILES = (
    "/etc/kubernetes/cni/net.d/whereabouts.d/whereabouts.conf",
    "/etc/cni/net.d/whereabouts.d/whereabouts.conf",
    "/host/etc/cni/net.d/whereabouts.d/whereabouts.conf",
)
"""Where a flat file may be; the first that exists is read."""
T = TypeVar("T", bound=msgspec.Struct)


class RawRange(msgspec.Struct, frozen=True, kw_only=True):
    """A range, and which part of it may be given."""

    range: str = ""
    range_start: str = ""
    range_end: str = ""
    exclude: tuple[str, ...] = ()
    node_slice_size: str = ""
    """Ours alone: the size for this range, where the one beside `ipRanges` does not fit."""


class RawAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address that every Pod gets beside the one from the range."""

    address: str = ""
    gateway: str = ""


class RawKubernetes(msgspec.Struct, frozen=True, kw_only=True):
    """The plugin's road to the API server; the agent has its own."""

    kubeconfig: str = ""
    k8s_api_root: str = ""


class DnsConfig(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What CNI knows of name servers."""

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
    """From the proposal of node slices; those who came later skip it, whatever it is."""
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
        """Read the road to the API server."""
        return read_struct(self.kubernetes, RawKubernetes, at="ipam.kubernetes")

    def read_dns(self) -> DnsConfig:
        """Read the name servers."""
        return read_struct(self.dns, DnsConfig, at="ipam.dns")

    def read_ranges(self) -> tuple[RawRange, ...]:
        """Read all ranges in the order in which a Pod gets its addresses: `range` comes before `ipRanges`."""
        listed = tuple(read_struct(each, RawRange, at=f"ipam.ipRanges[{at}]") for at, each in enumerate(self.ip_ranges))
        if not self.range:
            return listed
        alone = RawRange(range=self.range, range_start=self.range_start, range_end=self.range_end, exclude=self.exclude)
        return (alone, *listed)

    def read_addresses(self) -> tuple[RawAddress, ...]:
        """Read the addresses beside those from ranges."""
        return tuple(
            read_struct(each, RawAddress, at=f"ipam.addresses[{at}]") for at, each in enumerate(self.addresses)
        )


def uses_node_pool(inline: RawIpamConfig) -> bool:
    """Tell whether it is for the node's own pool: it calls us by our name, and names no range.

    A range in the flat file does not count: that file is for those who configure Whereabouts' networks.
    """
    return inline.type == "podpool" and not inline.read_ranges()


def flat_file_paths(inline: RawIpamConfig) -> tuple[str, ...]:
    """Name the places of a flat file, in the order in which they are looked at."""
    return (*filter(None, [inline.configuration_path]), *FLAT_FILES)


def merge_flat_file(inline: RawIpamConfig, flat: RawIpamConfig) -> RawIpamConfig:
    """Fill what the inline configuration leaves empty."""
    return msgspec.structs.replace(
        _filled(inline, flat),
        dns=msgspec.to_builtins(_filled(inline.read_dns(), flat.read_dns())),
        enable_overlapping_ranges=inline.enable_overlapping_ranges,
    )


def _filled(struct: T, defaults: T) -> T:
    empty = [name for name in struct.__struct_fields__ if not getattr(struct, name)]
    return msgspec.structs.replace(struct, **{name: getattr(defaults, name) for name in empty})
