"""A validated IPAM configuration: the ranges that a Pod gets addresses from, and its static addresses.

What Whereabouts accepts is accepted, with the same meaning. So values that Whereabouts reads only when it allocates are
validated only then: exclusions, ranges without usable addresses, slice sizes. A DEL needs none of them and must not
fail because of them.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from podpool.core.addresses import Address, Family, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.range_spec import RangeSpec, parse_range_spec
from podpool.core.ranges import Prefix, parse_exclusion, parse_prefix
from podpool.core.slice_table import SliceLayout, parse_slice_size
from podpool.whereabouts.cni_args import CniArgs
from podpool.whereabouts.cni_json import NetworkConfig, ipam_section, read_object, read_struct
from podpool.whereabouts.config_merge import (
    DnsConfig,
    RawAddress,
    RawIpamConfig,
    RawRange,
    merge_flat_file,
    unknown_keys,
)

FLAT_FILE_CONTENT = "(not shown)"
"""Instead of a value of the flat file in an error."""
_ONE_PER_FAMILY = ("", "0.1.0", "0.2.0")
"""CNI versions whose result has one address per family. No version means 0.1.0."""


class RangeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A range from which every Pod gets an address."""

    prefix: Prefix
    start: Address | None = None
    end: Address | None = None
    exclude: tuple[str, ...] = ()
    slice_size: str = ""
    """Empty for a shared range."""

    @property
    def spec(self) -> RangeSpec:
        """The addresses that may be allocated. Raises `InvalidInput` for an invalid exclusion."""
        return RangeSpec(self.prefix, self.start, self.end, tuple(map(parse_exclusion, self.exclude)))

    @property
    def layout(self) -> SliceLayout:
        """How the range is divided into slices. Raises `InvalidInput` if the size leaves no usable address."""
        layout = parse_slice_size(self.slice_size, of=self.prefix)
        longest = self.prefix.family.bits - 2
        if layout.length > longest:
            raise InvalidInput("node_slice_size", self.slice_size, f"leaves no usable address: use /{longest} or less")
        return layout


class InterfaceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address as a Pod's interface needs it."""

    address: Address
    prefix: Prefix
    """The network of the interface: the whole range, also when the address is from a slice."""
    gateway: Address | None = None

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix.length}"


MIN_LEADER_RETRY, MAX_LEADER_DURATION = 20, 120_000
"""Milliseconds between two attempts at least, and of a Lease at most; the defaults are 500 and 1,500."""


class LeaderElectionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """Timing of the `whereabouts` Lease, in milliseconds."""

    duration: int = 1500
    renew: int = 1000
    retry: int = 500

    def validated(self) -> "LeaderElectionConfig":
        """Return itself, or raise `InvalidInput` for times on which Whereabouts panics, or that burden all nodes."""
        times = f"{self.duration}, {self.renew}, {self.retry}"
        if self.retry < MIN_LEADER_RETRY or self.duration > MAX_LEADER_DURATION:
            limits = f"leader_retry_period must be at least {MIN_LEADER_RETRY}"
            raise InvalidInput("leader times", times, f"{limits}, leader_lease_duration at most {MAX_LEADER_DURATION}")
        if self.duration <= self.renew or self.renew * 5 <= self.retry * 6:
            rule = "leader_lease_duration must exceed leader_renew_deadline, and that 1.2 times leader_retry_period"
            raise InvalidInput("leader times", times, rule)
        return self


class IpamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The IPAM configuration of one network."""

    name: str
    """The name of the network in CNI."""
    network_name: str = ""
    """Keeps networks with the same addresses apart. All unnamed networks are one."""
    ranges: tuple[RangeConfig, ...] = ()
    addresses: tuple[InterfaceAddress, ...] = ()
    """Static addresses. They are passed on, not allocated: no other Pod is kept from them."""
    gateway: Address | None = None
    routes: tuple[dict[str, Any], ...] = ()
    dns: DnsConfig = DnsConfig()
    sliced: bool = False
    fast_ipam: bool = False
    overlap_checked: bool = True
    """An address is taken in every range of the network that contains it."""
    overlap_explicit: bool = False
    """`enable_overlapping_ranges: true` is written, not the default."""
    unknown_keys: tuple[str, ...] = ()
    """Keys that are skipped, and may have a meaning for a fork of Whereabouts."""
    leader: LeaderElectionConfig = LeaderElectionConfig()
    sleep_for_race: int = 0

    def interface_addresses(self, allocated: Sequence[Address]) -> tuple[InterfaceAddress, ...]:
        """Return all addresses of a Pod: those allocated from each range, in order, then the static ones.

        A gateway goes with its own family. Whereabouts gives an IPv6 address an IPv4 gateway, which the kernel rejects.
        """
        gateways = {self.gateway.family: self.gateway} if self.gateway else {}
        dynamic = (
            InterfaceAddress(address=address, prefix=range_.prefix, gateway=gateways.get(address.family))
            for range_, address in zip(self.ranges, allocated, strict=True)
        )
        return (*dynamic, *self.addresses)

    def check_slice_sizes(self) -> None:
        """Raise `InvalidInput` if only some ranges have slices: a network is either sliced or shared."""
        shared = [str(each.prefix) for each in self.ranges if not each.slice_size]
        if self.sliced and shared:
            reason = f"is missing for {', '.join(shared)}, and other ranges have one: set it beside ipRanges, for all"
            raise InvalidInput("node_slice_size", "", reason)


def parse_ipam_config(
    network: NetworkConfig, *, flat: str | bytes | None = None, args: CniArgs | None = None
) -> IpamConfig:
    """Validate a network's configuration, merged with the content of the flat file and with CNI_ARGS.

    Errors do not contain what the flat file contains: they become Events, which the author of the network reads.
    """
    section = ipam_section(network)
    raw, unknown = read_struct(section, RawIpamConfig, at="ipam"), unknown_keys(section)
    if flat is None:
        return _validated(raw, network, args or CniArgs(), unknown)
    defaults = _read_flat_file(flat)
    try:
        return _validated(merge_flat_file(raw, defaults), network, args or CniArgs(), unknown)
    except InvalidInput as error:
        parse_ipam_config(network, args=args)  # raises what is wrong in the configuration itself
        reason = f"is invalid at {error.what}, alone or together with the configuration: check the file"
        raise InvalidInput("flat file", FLAT_FILE_CONTENT, reason) from None


def _read_flat_file(text: str | bytes) -> RawIpamConfig:
    try:
        return read_struct(read_object(text, what="flat file"), RawIpamConfig, at="flat file")
    except InvalidInput as error:
        raise InvalidInput(error.what, FLAT_FILE_CONTENT, error.reason) from None


def _validated(raw: RawIpamConfig, network: NetworkConfig, args: CniArgs, unknown: tuple[str, ...]) -> IpamConfig:
    raw.read_kubernetes()  # unused, but a wrong type is an error, as in Whereabouts
    addresses = _static_addresses(raw.read_addresses(), args)
    _check_cni_version(addresses, network.cni_version)
    gateway = parse_address(raw.gateway, what="gateway", leading_zeros=True) if raw.gateway else None
    ranges = _ranges(raw, gateway if raw.exclude_gateway is True else None)
    defaults = LeaderElectionConfig()
    return IpamConfig(
        name=network.name,
        network_name=raw.network_name,
        ranges=ranges,
        addresses=addresses,
        gateway=gateway,
        routes=parse_routes(raw.routes),
        dns=raw.read_dns(),
        sliced=any(each.slice_size for each in ranges),
        fast_ipam=raw.fast_ipam is True,
        overlap_checked=raw.enable_overlapping_ranges is not False,
        overlap_explicit=raw.enable_overlapping_ranges is True,
        leader=LeaderElectionConfig(
            duration=raw.leader_lease_duration or defaults.duration,
            renew=raw.leader_renew_deadline or defaults.renew,
            retry=raw.leader_retry_period or defaults.retry,
        ),
        sleep_for_race=raw.sleep_for_race,
        unknown_keys=unknown,
    )


def _ranges(raw: RawIpamConfig, excluded: Address | None) -> tuple[RangeConfig, ...]:
    """Return the ranges. As in Whereabouts, an invalid bound beside `range` is ignored, and an error in `ipRanges`."""
    ranges: list[RangeConfig] = []
    for index, each in enumerate(raw.read_ranges()):
        bound = _lenient_bound if raw.range and index == 0 else _strict_bound
        start, end = bound(each.range_start, "range_start"), bound(each.range_end, "range_end")
        spec = parse_range_spec(each.range, start=start, end=end)
        prefix, first = spec.prefix, ranges[0].prefix if ranges else spec.prefix
        size = _slice_size(each, raw.node_slice_size, of=prefix, first=first)
        exclude = (*each.exclude, str(excluded)) if excluded and excluded in prefix else each.exclude
        ranges.append(RangeConfig(prefix=prefix, start=spec.start, end=spec.end, exclude=exclude, slice_size=size))
    return tuple(ranges)


def _slice_size(raw: RawRange, common: str, *, of: Prefix, first: Prefix) -> str:
    """Return the range's own size, else the common one. In the other family than the first's: as many addresses."""
    size = raw.node_slice_size or common
    digits = size.removeprefix("/")
    if raw.node_slice_size or of.family is first.family or not (digits.isascii() and digits.isdigit()):
        return size
    length = of.family.bits - first.family.bits + int(digits[:3])
    return f"/{length}" if length > 0 else size


def _lenient_bound(text: str, what: str) -> str | None:
    try:
        parse_address(text, what=what, leading_zeros=True)
    except InvalidInput:
        return None
    return text


def _strict_bound(text: str, what: str) -> str | None:
    return str(parse_address(text, what=f"ipRanges {what}")) if text else None


def parse_routes(raw: Sequence[dict[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Validate the `routes` of an `ipam` section; raises `InvalidInput`."""
    return tuple(_route(each, index=index) for index, each in enumerate(raw))


def _route(raw: dict[str, Any], *, index: int) -> dict[str, Any]:
    """Return a route unchanged, after its addresses were validated."""
    route = {key.lower(): value for key, value in raw.items() if value is not None}
    parse_prefix(str(route.get("dst", "")), what=f"routes[{index}].dst")
    if route.get("gw"):
        parse_address(str(route["gw"]), what=f"routes[{index}].gw")
    return route


def _static_addresses(raw: Sequence[RawAddress], args: CniArgs) -> tuple[InterfaceAddress, ...]:
    configured = [_static_address(each.address, each.gateway, what="addresses") for each in raw]
    requested = [_static_address(each, "", what="CNI_ARGS IP") for each in args.addresses]
    gateways = [parse_address(each, what="CNI_ARGS GATEWAY", leading_zeros=True) for each in args.gateways]
    return tuple(_with_gateway(each, gateways) for each in (*configured, *requested))


def _static_address(text: str, gateway: str, *, what: str) -> InterfaceAddress:
    prefix = parse_prefix(text, what=what, leading_zeros=True)
    address = parse_address(text.partition("/")[0], what=what, leading_zeros=True)
    via = parse_address(gateway, what=f"{what} gateway") if gateway else None
    return InterfaceAddress(address=address, prefix=prefix, gateway=via)


def _with_gateway(static: InterfaceAddress, gateways: Sequence[Address]) -> InterfaceAddress:
    """Set the last gateway that is in the network of the address."""
    matching = [each for each in gateways if each in static.prefix]
    return msgspec.structs.replace(static, gateway=matching[-1]) if matching else static


def _check_cni_version(addresses: Sequence[InterfaceAddress], version: str) -> None:
    for family in Family:
        found = [str(each.address) for each in addresses if each.address.family is family]
        if len(found) > 1 and version in _ONE_PER_FAMILY:
            reason = f"a result of CNI {version or '0.1.0'} has one IPv{family} address: use cniVersion 0.3.1 or later"
            raise InvalidInput("addresses", ", ".join(found), reason)
