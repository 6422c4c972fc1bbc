"""The node's uplink: the interface on which the kernel answers ARP and NDP for Pods behind the node.

For IPv4 the kernel answers only while it also has a route to the address through another interface, which ptp makes;
for IPv6 whenever there is an entry. By default it answers after a random delay of up to 0.8 s, and not at all for IPv6:
two settings of the interface change that. They are lost with the interface, like the entries.

An address that was another node's is in the caches of its neighbors with that node's MAC address, in some routers for
hours. So it is announced: by an ARP announcement (RFC 5227), and by an unsolicited neighbor advertisement with the
override flag, as a home agent sends it for a mobile node (RFC 6275, 10.4.1).
"""

import errno
import os
import socket
import struct
from collections.abc import Iterable, Iterator
from pathlib import Path

from podpool.agent.deps import UplinkFailed
from podpool.core.errors import InvalidInput
from podpool.runtime.netlink import ProxyEntry, add_proxy_entry, proxy_entries, remove_proxy_entry

FLAG = "--proxy-uplink"

_ETH_P_ARP, _ARPHRD_ETHER, _BROADCAST = 0x0806, 1, b"\xff" * 6
_ARP = struct.Struct("!HHBBH6s4s6s4s")
_NA = struct.Struct("!BBHI16sBB6s")
_NA_TYPE, _NA_OVERRIDE, _TARGET_LINK_LAYER_ADDRESS = 136, 1 << 29, 2
_ALL_NODES, _HOP_LIMIT = "ff02::1", 255
_NO_ADDRESS = "0.0.0.0"  # noqa: S104  an entry that never exists, not an address to listen on


class KernelUplink:
    """One interface by its name: it may be replaced while the agent runs."""

    def __init__(self, name: str, *, sysctl_dir: str) -> None:
        self.name = name
        self._sysctl_dir = Path(sysctl_dir)

    def check(self) -> None:
        """Raise `InvalidInput` if this process cannot use the interface as uplink."""
        try:
            self.prepare()
            remove_proxy_entry(ProxyEntry(self._index(), _NO_ADDRESS))
            self._link_address()
        except UplinkFailed as error:
            raise InvalidInput(FLAG, self.name, str(error)) from None
        except OSError as error:
            raise InvalidInput(FLAG, self.name, _reason(error)) from None

    def prepare(self) -> None:
        """Let the kernel answer for proxy entries, and at once; raises `UplinkFailed`."""
        self._index()
        for path, value in self._settings():
            self._set(path, value)

    def entries(self) -> frozenset[str]:
        """Return the addresses with an entry; raises `UplinkFailed`."""
        index = self._index()
        try:
            return frozenset(each.address for each in proxy_entries() if each.interface == index)
        except OSError as error:
            raise self._failed("cannot list proxy entries", error) from error

    def add(self, address: str) -> None:
        """Answer for an address; raises `UplinkFailed`."""
        try:
            add_proxy_entry(ProxyEntry(self._index(), address))
        except OSError as error:
            raise self._failed(f"cannot answer ARP and NDP for {address}", error) from error

    def remove(self, address: str) -> None:
        """Stop answering for an address; raises `UplinkFailed`."""
        try:
            remove_proxy_entry(ProxyEntry(self._index(), address))
        except OSError as error:
            raise self._failed(f"cannot stop answering ARP and NDP for {address}", error) from error

    def announce(self, addresses: Iterable[str]) -> None:
        """Announce addresses to all neighbors; raises `UplinkFailed`."""
        by_family: dict[bool, list[str]] = {False: [], True: []}
        for each in addresses:
            by_family[":" in each].append(each)
        try:
            if by_family[False]:
                self._announce_by_arp(by_family[False])
            if by_family[True]:
                self._announce_by_ndp(by_family[True])
        except OSError as error:
            raise self._failed("cannot announce addresses", error) from error

    def _announce_by_arp(self, addresses: Iterable[str]) -> None:
        mac = self._link_address()
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as packets:
            for each in addresses:
                ip = socket.inet_aton(each)
                packet = _ARP.pack(_ARPHRD_ETHER, 0x0800, 6, 4, 1, mac, ip, bytes(6), ip)
                packets.sendto(packet, (self.name, _ETH_P_ARP, 0, 0, _BROADCAST))

    def _announce_by_ndp(self, addresses: Iterable[str]) -> None:
        mac, index = self._link_address(), self._index()
        with socket.socket(socket.AF_INET6, socket.SOCK_RAW, socket.IPPROTO_ICMPV6) as packets:
            packets.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_HOPS, _HOP_LIMIT)
            packets.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_MULTICAST_IF, index)
            for each in addresses:
                target = socket.inet_pton(socket.AF_INET6, each)
                advertisement = _NA.pack(_NA_TYPE, 0, 0, _NA_OVERRIDE, target, _TARGET_LINK_LAYER_ADDRESS, 1, mac)
                packets.sendto(advertisement, (_ALL_NODES, 0, 0, index))  # the kernel computes the checksum

    def _link_address(self) -> bytes:
        """Return the MAC address; raises `OSError`, also without CAP_NET_RAW."""
        with socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM) as packets:
            packets.bind((self.name, 0))
            *_, kind, mac = packets.getsockname()
        if kind != _ARPHRD_ETHER:
            raise UplinkFailed(f"is not an Ethernet interface: name the node's interface in the Pods' network ({FLAG})")
        return bytes(mac)

    def _index(self) -> int:
        try:
            return socket.if_nametoindex(self.name)
        except OSError:
            raise UplinkFailed(
                f"there is no interface {self.name} in the network namespace of this process: name the node's "
                f"interface in the Pods' network ({FLAG}), and run the agent on the host's network (hostNetwork: true)"
            ) from None

    def _settings(self) -> Iterator[tuple[Path, str]]:
        yield self._sysctl_dir / "ipv4" / "neigh" / self.name / "proxy_delay", "0"
        if (self._sysctl_dir / "ipv6").is_dir():  # without IPv6 there are no such addresses either
            yield self._sysctl_dir / "ipv6" / "neigh" / self.name / "proxy_delay", "0"
            yield self._sysctl_dir / "ipv6" / "conf" / self.name / "proxy_ndp", "1"

    def _set(self, path: Path, value: str) -> None:
        try:
            if path.read_text().strip() != value:
                path.write_text(value)
        except OSError as error:
            raise UplinkFailed(
                f"cannot set {path} to {value}: {error.strerror}: set it on the node, or let the agent do it: "
                f"CAP_NET_ADMIN, and a writable directory of these settings (--sysctl-dir)"
            ) from error

    def _failed(self, what: str, error: OSError) -> UplinkFailed:
        return UplinkFailed(f"{what} on {self.name}: {_reason(error)}")


def _reason(error: OSError) -> str:
    if error.errno in (errno.EPERM, errno.EACCES):
        return f"{os.strerror(error.errno)}: the agent needs the capabilities NET_ADMIN and NET_RAW ({FLAG})"
    return error.strerror or str(error)
