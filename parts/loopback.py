"""Ports on loopback for servers that cannot be handed a socket.

A server that is stopped must find its port free when it starts again: so ports come from below the range that the
kernel hands to outgoing connections (from 32768 on, by default), and each process begins elsewhere.
"""

from __future__ import annotations

import http.client
import os
import socket
from itertools import count

LOWEST, HIGHEST = 20_000, 32_000
APART = 16
_tried = count()


def free_port() -> int:
    """A port that nobody listens on, and that this process hands out once."""
    begin = os.getpid() * APART
    while True:
        port = LOWEST + (begin + next(_tried)) % (HIGHEST - LOWEST)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port


def listens(port: int) -> bool:
    """Whether anybody takes connections on a port."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
    except OSError:
        return False
    return True


def answers(port: int, path: str) -> bool:
    """Whether a server answers a plain GET with 200."""
    try:
        read(port, path)
    except (OSError, http.client.HTTPException):
        return False
    return True


def read(port: int, path: str, *, token: str = "") -> bytes:
    """What a server answers to a plain GET; anything but a 200 is an error."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        if answer.status != http.HTTPStatus.OK:
            raise ConnectionError(f"{path} is answered with {answer.status}")
        return answer.read()
    finally:
        connection.close()
