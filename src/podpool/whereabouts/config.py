"""What an IPAM configuration means: the ranges a Pod gets addresses from, and all that goes with them.

What Whereabouts accepts is accepted, with its meaning. So what it looks at only when an address is given is looked at
only then: an exclusion that cannot be read, a range without usable addresses, a slice size that does not fit. A DEL
needs none of these, and must not fail for them.
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
from podpool.whereabouts.raw_config import DnsConfig, RawAddress, RawIpamConfig, RawRange, merge_flat_file

_ONE_PER_FAMILY = ("", "0.1.0", "0.2.0")
"""CNI versions whose result has room for one address of each family; no version means the first."""


class RangeConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A range that every Pod gets an address from."""

    prefix: Prefix
    start: Address | None = None
    end: Address | None = None
    exclude: tuple[str, ...] = ()
    slice_size: str = ""
    """Empty without slices."""

    @property
    def allocation(self) -> RangeSpec:
        """What may be given; refused when an exclusion cannot be read."""
        return RangeSpec(self.prefix, self.start, self.end, tuple(map(parse_exclusion, self.exclude)))

    @property
    def cut(self) -> SliceLayout:
        """How it is divided among the nodes; refused when the size does not fit or leaves nothing to give."""
        cut = parse_slice_size(self.slice_size, of=self.prefix)
        longest = self.prefix.family.bits - 2
        if cut.length > longest:
            raise InvalidInput("node_slice_size", self.slice_size, f"leaves no usable address: use /{longest} or less")
        return cut


class InterfaceAddress(msgspec.Struct, frozen=True, kw_only=True):
    """An address as a Pod's interface needs it."""

    address: Address
    prefix: Prefix
    """The network it is in: the whole range, also when it comes from a slice."""
    gateway: Address | None = None

    def __str__(self) -> str:
        return f"{self.address}/{self.prefix.length}"


class LeaderElectionConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How the `whereabouts` Lease is held, in milliseconds."""

    duration: int = 1500
    renew: int = 1000
    retry: int = 500

    def checked(self) -> "LeaderElectionConfig":
        """Refuse times with which nobody could hold it; Whereabouts crashes on them."""
        if self.duration > self.renew and self.renew * 5 > self.retry * 6:
            return self
        told = f"{self.duration}, {self.renew}, {self.retry}"
        rule = "leader_lease_duration must exceed leader_renew_deadline, and that 1.2 times leader_retry_period"
        raise InvalidInput("leader times", told, rule)


class IpamConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One network, as its IPAM configuration has it."""

    name: str
    """The network's name in CNI."""
    network_name: str = ""
    """Networks with the same addresses are kept apart by this; unnamed ones are one."""
    ranges: tuple[RangeConfig, ...] = ()
    addresses: tuple[InterfaceAddress, ...] = ()
    """Handed on as they are: nobody stores them, nobody else is kept from them."""
    gateway: Address | None = None
    routes: tuple[dict[str, Any], ...] = ()
    dns: DnsConfig = DnsConfig()
    sliced: bool = False
    fast_ipam: bool = False
    overlap_checked: bool = True
    """An address is taken in every range of the network that has it;"""
    overlap_insisted: bool = False
    """and this was written, not left at its default."""
    leader: LeaderElectionConfig = LeaderElectionConfig()
    sleep_for_race: int = 0

    def given(self, chosen: Sequence[Address]) -> tuple[InterfaceAddress, ...]:
        """Tell what a Pod gets: an address from each range, in order, and then those that are handed on.

        A gateway goes with its own family. Whereabouts gives an IPv6 address an IPv4 gateway, which no kernel takes.
        """
        families = {self.gateway.family: self.gateway} if self.gateway else {}
        return (
            *(
                InterfaceAddress(address=address, prefix=wanted.prefix, gateway=families.get(address.family))
                for wanted, address in zip(self.ranges, chosen, strict=True)
            ),
            *self.addresses,
        )

    def check_sizes(self) -> None:
        """Refuse ranges with slices beside ranges without: a network is of the one kind or of the other."""
        bare = [str(each.prefix) for each in self.ranges if not each.slice_size]
        if self.sliced and bare:
            reason = f"is missing for {', '.join(bare)}, and other ranges have one: set it beside ipRanges, for all"
            raise InvalidInput("node_slice_size", "", reason)


def parse_ipam_config(
    network: NetworkConfig, *, flat: str | bytes | None = None, arguments: CniArgs | None = None
) -> IpamConfig:
    """Find out what a network's configuration means."""
    written = read_struct(ipam_section(network), RawIpamConfig, at="ipam")
    if flat is not None:
        written = merge_flat_file(
            written, read_struct(read_object(flat, what="flat file"), RawIpamConfig, at="flat file")
        )
    written.read_kubernetes()  # nobody uses it, and a wrong type is refused all the same
    addresses = _statics(written.read_addresses(), arguments or CniArgs())
    _check_room(addresses, network.cni_version)
    ranges = _ranges(written)
    return IpamConfig(
        name=network.name,
        network_name=written.network_name,
        ranges=ranges,
        addresses=addresses,
        gateway=parse_address(written.gateway, what="gateway", leading_zeros=True) if written.gateway else None,
        routes=tuple(_route(each, at=at) for at, each in enumerate(written.routes)),
        dns=written.read_dns(),
        sliced=any(each.slice_size for each in ranges),
        fast_ipam=written.fast_ipam is True,
        overlap_checked=written.enable_overlapping_ranges is not False,
        overlap_insisted=written.enable_overlapping_ranges is True,
        leader=LeaderElectionConfig(
            duration=written.leader_lease_duration or LeaderElectionConfig().duration,
            renew=written.leader_renew_deadline or LeaderElectionConfig().renew,
            retry=written.leader_retry_period or LeaderElectionConfig().retry,
        ),
        sleep_for_race=written.sleep_for_race,
    )


def _ranges(written: RawIpamConfig) -> tuple[RangeConfig, ...]:
    """Read the ranges. A bound beside `range` that is no address is as if not written; in `ipRanges` it is refused."""
    ranges: list[RangeConfig] = []
    for at, each in enumerate(written.read_ranges()):
        bound = _forgiven if written.range and at == 0 else _strict
        allocation = parse_range_spec(
            each.range, start=bound(each.range_start, "range_start"), end=bound(each.range_end, "range_end")
        )
        first = ranges[0].prefix if ranges else allocation.prefix
        ranges.append(
            RangeConfig(
                prefix=allocation.prefix,
                start=allocation.start,
                end=allocation.end,
                exclude=each.exclude,
                slice_size=_slice_size(each, written.node_slice_size, of=allocation.prefix, first=first),
            )
        )
    return tuple(ranges)


def _slice_size(written: RawRange, common: str, *, of: Prefix, first: Prefix) -> str:
    """Choose a range's own size, else the common one: in the other family than the first's, as many addresses."""
    size = written.node_slice_size or common
    digits = size.removeprefix("/")
    if written.node_slice_size or of.family is first.family or not (digits.isascii() and digits.isdigit()):
        return size
    length = of.family.bits - first.family.bits + int(digits[:3])
    return f"/{length}" if length > 0 else size


def _forgiven(text: str, what: str) -> str | None:
    try:
        parse_address(text, what=what, leading_zeros=True)
    except InvalidInput:
        return None
    return text


def _strict(text: str, what: str) -> str | None:
    return str(parse_address(text, what=f"ipRanges {what}")) if text else None


def _route(written: dict[str, Any], *, at: int) -> dict[str, Any]:
    """Hand a route on as it is, once its addresses are some."""
    route = {key.lower(): value for key, value in written.items() if value is not None}
    parse_prefix(str(route.get("dst", "")), what=f"routes[{at}].dst")
    if route.get("gw"):
        parse_address(str(route["gw"]), what=f"routes[{at}].gw")
    return route


def _statics(written: Sequence[RawAddress], arguments: CniArgs) -> tuple[InterfaceAddress, ...]:
    own = [_static(each.address, each.gateway, what="addresses") for each in written]
    asked = [_static(each, "", what="CNI_ARGS IP") for each in arguments.addresses]
    gateways = [parse_address(each, what="CNI_ARGS GATEWAY", leading_zeros=True) for each in arguments.gateways]
    return tuple(_with_gateway(each, gateways) for each in (*own, *asked))


def _static(text: str, gateway: str, *, what: str) -> InterfaceAddress:
    prefix = parse_prefix(text, what=what, leading_zeros=True)
    return InterfaceAddress(
        address=parse_address(text.partition("/")[0], what=what, leading_zeros=True),
        prefix=prefix,
        gateway=parse_address(gateway, what=f"{what} gateway") if gateway else None,
    )


def _with_gateway(static: InterfaceAddress, gateways: Sequence[Address]) -> InterfaceAddress:
    """Take the last gateway that lies in the address' network."""
    fitting = [each for each in gateways if each in static.prefix]
    return msgspec.structs.replace(static, gateway=fitting[-1]) if fitting else static


def _check_room(addresses: Sequence[InterfaceAddress], version: str) -> None:
    for family in Family:
        found = [str(each.address) for each in addresses if each.address.family is family]
        if len(found) > 1 and version in _ONE_PER_FAMILY:
            reason = f"CNI {version or '0.1.0'} has room for one IPv{family} address: use cniVersion 0.3.1 or later"
            raise InvalidInput("addresses", ", ".join(found), reason)
