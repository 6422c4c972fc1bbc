"""Proxy entries of the kernel's neighbor table, by rtnetlink.

The kernel answers ARP and NDP for the address of an entry on the interface of an entry. Entries are marked with a
protocol number, so that only podpool's own are listed and removed. They need no process: they stay until they are
removed, their interface goes down, or the machine reboots. Every call is one or two system calls that the kernel
answers at once. Changes need CAP_NET_ADMIN, listing needs nothing. Linux 5.0 or later.
"""

import errno
import os
import socket
import struct
from collections.abc import Iterator

import msgspec

PROTOCOL = 80
"""Marks podpool's entries; routing daemons have other numbers (`/etc/iproute2/rt_protos`)."""
TIMEOUT = 5.0
"""Seconds for an answer of the kernel."""

_HEADER = struct.Struct("=IHHII")  # nlmsghdr: length, type, flags, sequence number, port
_NEIGHBOR = struct.Struct("=BBHiHBB")  # ndmsg: family, padding, padding, interface, state, flags, type
_ATTRIBUTE = struct.Struct("=HH")  # rtattr: length, type
_ERROR = struct.Struct("=i")
_NLMSG_ERROR, _NLMSG_DONE, _RTM_NEWNEIGH, _RTM_DELNEIGH, _RTM_GETNEIGH = 2, 3, 28, 29, 30
_NLM_F_REQUEST, _NLM_F_ACK, _NLM_F_DUMP, _NLM_F_CREATE, _NLM_F_REPLACE = 0x1, 0x4, 0x300, 0x400, 0x100
_NTF_PROXY, _NUD_PERMANENT = 0x08, 0x80
_NDA_DST, _NDA_PROTOCOL = 1, 12
_RECEIVE_BYTES = 1 << 17
"""More than the kernel puts into one datagram."""


class ProxyEntry(msgspec.Struct, frozen=True, order=True):
    """An address for which the kernel answers on an interface."""

    interface: int
    address: str


def add_proxy_entry(entry: ProxyEntry) -> None:
    """Add an entry, or mark an existing one as podpool's; raises `OSError`."""
    attributes = _attribute(_NDA_DST, _packed(entry.address)) + _attribute(_NDA_PROTOCOL, bytes([PROTOCOL]))
    _change(_RTM_NEWNEIGH, _NLM_F_CREATE | _NLM_F_REPLACE, _neighbor(entry) + attributes)


def remove_proxy_entry(entry: ProxyEntry) -> None:
    """Remove an entry, if there is one; raises `OSError`."""
    try:
        _change(_RTM_DELNEIGH, 0, _neighbor(entry) + _attribute(_NDA_DST, _packed(entry.address)))
    except OSError as error:
        if error.errno not in (errno.ENOENT, errno.ENODEV):
            raise


def proxy_entries() -> frozenset[ProxyEntry]:
    """Return podpool's entries on all interfaces; raises `OSError`."""
    request = _NEIGHBOR.pack(socket.AF_UNSPEC, 0, 0, 0, 0, _NTF_PROXY, 0)
    return frozenset(filter(None, map(_parse, _exchange(_RTM_GETNEIGH, _NLM_F_DUMP, request))))


def remove_all_proxy_entries() -> int:
    """Remove podpool's entries on all interfaces and return how many there were; raises `OSError`."""
    entries = proxy_entries()
    for each in entries:
        remove_proxy_entry(each)
    return len(entries)


def _neighbor(entry: ProxyEntry) -> bytes:
    return _NEIGHBOR.pack(_family(entry.address), 0, 0, entry.interface, _NUD_PERMANENT, _NTF_PROXY, 0)


def _parse(message: bytes) -> ProxyEntry | None:
    """Return the entry of a message; None for one that is not podpool's."""
    family, _, _, interface, _, flags, _ = _NEIGHBOR.unpack_from(message)
    attributes = dict(_attributes(message[_NEIGHBOR.size :]))
    if not flags & _NTF_PROXY or attributes.get(_NDA_PROTOCOL) != bytes([PROTOCOL]) or _NDA_DST not in attributes:
        return None
    return ProxyEntry(interface, socket.inet_ntop(family, attributes[_NDA_DST]))


def _change(kind: int, flags: int, payload: bytes) -> None:
    for _ in _exchange(kind, flags | _NLM_F_ACK, payload):
        pass


def _exchange(kind: int, flags: int, payload: bytes) -> Iterator[bytes]:
    """Send a request; iterate over the payloads of the answer up to its end; raises `OSError`."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, socket.NETLINK_ROUTE) as kernel:
        kernel.settimeout(TIMEOUT)
        kernel.bind((0, 0))
        kernel.send(_HEADER.pack(_HEADER.size + len(payload), kind, flags | _NLM_F_REQUEST, 1, 0) + payload)
        while True:
            for answer, body in _messages(kernel.recv(_RECEIVE_BYTES)):
                if answer in (_NLMSG_ERROR, _NLMSG_DONE):
                    _raise_error(body)
                    return
                yield body


def _messages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    while datagram:
        length, kind, *_ = _HEADER.unpack_from(datagram)
        yield kind, datagram[_HEADER.size : length]
        datagram = datagram[_aligned(length) :]


def _raise_error(body: bytes) -> None:
    """Raise the error of the last message of an answer, if it has one."""
    code = -_ERROR.unpack_from(body)[0] if len(body) >= _ERROR.size else 0
    if code:
        raise OSError(code, os.strerror(code))


def _attribute(kind: int, value: bytes) -> bytes:
    length = _ATTRIBUTE.size + len(value)
    return _ATTRIBUTE.pack(length, kind) + value + bytes(_aligned(length) - length)


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= _ATTRIBUTE.size:
        length, kind = _ATTRIBUTE.unpack_from(data)
        yield kind, data[_ATTRIBUTE.size : length]
        data = data[_aligned(max(length, _ATTRIBUTE.size)) :]


def _aligned(length: int) -> int:
    return (length + 3) & ~3


def _family(address: str) -> int:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def _packed(address: str) -> bytes:
    return socket.inet_pton(_family(address), address)
