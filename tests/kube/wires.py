"""A TCP connection to a server that a test can break in the middle, or let stand still."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Wire:
    """Listens on a port of its own, and passes on what it hears."""

    def __init__(self, to: int) -> None:
        self._to = to
        self.port = 0
        self._ends: list[asyncio.StreamWriter] = []
        self._flows: list[asyncio.Event] = []
        self.connections: set[asyncio.Task[None] | None] = set()

    def cut(self) -> None:
        """Reset every connection that there is; new ones are served."""
        for end in self._ends:
            end.transport.abort()
        self._ends.clear()

    def stall(self) -> None:
        """Pass on nothing more on the connections that there are, and close none; new ones are served."""
        for flow in self._flows:
            flow.clear()
        self._flows.clear()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(asyncio.current_task())
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        flow = asyncio.Event()
        flow.set()
        self._flows.append(flow)
        self._ends += [writer, far_writer]
        try:
            await asyncio.gather(_pass(reader, far_writer, flow), _pass(far_reader, writer, flow))
        except (OSError, asyncio.CancelledError):
            return  # the one is gone, and with it the other
        finally:
            writer.transport.abort()
            far_writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: asyncio.Event) -> None:
    while piece := await reader.read(65536):
        await flow.wait()
        writer.write(piece)
        await writer.drain()
    raise ConnectionResetError


@asynccontextmanager
async def wire(to: int) -> AsyncIterator[Wire]:
    """Open a wire to a port of this machine."""
    laid = Wire(to)
    server = await asyncio.start_server(laid.connect, "127.0.0.1", 0)
    laid.port = server.sockets[0].getsockname()[1]
    try:
        yield laid
    finally:
        server.close()
        laid.cut()
        for each in laid.connections:
            if each:
                each.cancel()  # one that stands still would wait for ever
        await asyncio.gather(*(each for each in laid.connections if each))
        await asyncio.sleep(0)  # the last sockets close
