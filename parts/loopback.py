"""Ports on loopback for servers that cannot inherit a socket.

A restarted server must find its port free, so ports come from below the ephemeral range (32768 by default), and a port
belongs to one process for its lifetime: the process holds an abstract socket of the port's name, which like the port
exists once per network namespace.
"""

from __future__ import annotations

import http.client
import os
import socket
from itertools import cycle, islice

PORTS = range(20_000, 32_000)
_held: dict[int, socket.socket] = {}


def free_port() -> int:
    """Return a free port that no other caller gets."""
    return free_ports(1)


def free_ports(count: int) -> int:
    """Return the first of consecutive free ports that no other caller gets."""
    begin = os.getpid() * 16  # concurrent processes start at different ports
    for first in islice(cycle(PORTS), begin % len(PORTS), begin % len(PORTS) + len(PORTS)):
        row = {port: held for port in range(first, first + count) if (held := _hold(port))}
        if len(row) == count:
            _held.update(row)
            return first
        for held in row.values():
            held.close()
    raise OSError(f"no {count} ports in a row are free on loopback from {PORTS.start} to {PORTS.stop}")


def _hold(port: int) -> socket.socket | None:
    held = socket.socket(socket.AF_UNIX)
    try:
        held.bind(f"\0podpool-port-{port}")
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(("127.0.0.1", port))
    except OSError:
        held.close()
        return None
    return held


def listens(port: int) -> bool:
    """Return whether a port accepts connections."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def answers(port: int, path: str) -> bool:
    """Return whether a server answers a GET with 200."""
    try:
        read(port, path)
    except (OSError, http.client.HTTPException):
        return False
    return True


def read(port: int, path: str, *, token: str = "") -> bytes:
    """Return the response to a GET; a status other than 200 is an error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise ConnectionError(f"{path} is answered with {answer.status}")
        return answer.read()
    finally:
        connection.close()
