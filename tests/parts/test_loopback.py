"""Ports for servers are handed out once, whoever asks."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from parts.loopback import free_port, free_ports

ASKING = "from parts.loopback import free_ports; import sys; print(free_ports(4), flush=True); sys.stdin.read()"


@pytest.mark.integration
def test_a_row_is_handed_to_one_process() -> None:
    """Two that ask at the same time, and this one, get ports of their own."""
    asking = [
        subprocess.Popen([sys.executable, "-c", ASKING], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    rows = [free_ports(4)]
    for process in asking:
        assert process.stdout
        rows.append(int(process.stdout.readline()))
    for process in asking:
        process.communicate("")
    assert 12 == len({first + place for first in rows for place in range(4)})


def test_the_ports_behind_the_first_are_handed_out_too() -> None:
    first = free_ports(4)
    assert free_port() not in range(first, first + 4)


def test_a_row_goes_around_a_port_that_is_taken() -> None:
    taken = free_port()
    with socket.socket() as server:
        server.bind(("127.0.0.1", taken))
        server.listen()
        first = free_ports(4)
        assert taken not in range(first, first + 4)
