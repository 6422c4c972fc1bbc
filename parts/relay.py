"""Relays a loopback port into another network namespace: `python -m parts.relay PID PORT`.

Nodes in namespaces reach the API server under the same address, and no packet leaves either loopback. A socket stays in
the namespace in which it was created.
"""

from __future__ import annotations

import asyncio
import ctypes
import socket
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

CLONE_NEWNET = 0x40000000
LOOPBACK = "127.0.0.1"
READY = "both ends are there"


@contextmanager
def network_of(pid: int) -> Iterator[None]:
    """Move this thread into the network namespace of another process."""
    kernel = ctypes.CDLL(None, use_errno=True)

    def enter(namespace: int) -> None:
        if kernel.setns(namespace, CLONE_NEWNET):
            raise OSError(ctypes.get_errno(), f"the network of process {pid} cannot be entered")

    with Path("/proc/thread-self/ns/net").open() as own, Path(f"/proc/{pid}/ns/net").open() as other:
        enter(other.fileno())
        try:
            yield
        finally:
            enter(own.fileno())


def listen_in(pid: int, port: int) -> socket.socket:
    """Return a listening socket on the loopback of that process."""
    with network_of(pid):
        return socket.create_server((LOOPBACK, port))


async def relay(listening: socket.socket, port: int) -> None:
    """Copy bytes in both directions until cancelled."""

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while some := await reader.read(1 << 16):
                writer.write(some)
                await writer.drain()
        writer.close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(LOOPBACK, port)
        except OSError:
            writer.close()
            return
        await asyncio.gather(carry(reader, far_writer), carry(far_reader, writer))

    server = await asyncio.start_server(accept, sock=listening)
    print(READY, flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(relay(listen_in(int(sys.argv[1]), int(sys.argv[2])), int(sys.argv[2])))
