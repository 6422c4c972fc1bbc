"""A TCP proxy that can reset or stall its connections."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class TcpProxy:
    """Forwards the connections of its port."""

    def __init__(self, to: int) -> None:
        self._to = to
        self.port = 0
        self._writers: list[asyncio.StreamWriter] = []
        self._flows: list[asyncio.Event] = []
        self.connections: set[asyncio.Task[None] | None] = set()

    def reset(self) -> None:
        """Reset all open connections; new ones are served."""
        for writer in self._writers:
            writer.transport.abort()
        self._writers.clear()

    def stall(self) -> None:
        """Forward nothing more on the open connections, without closing them; new ones are served."""
        for flow in self._flows:
            flow.clear()
        self._flows.clear()

    async def connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.add(asyncio.current_task())
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._to)
        flow = asyncio.Event()
        flow.set()
        self._flows.append(flow)
        self._writers += [writer, far_writer]
        try:
            await asyncio.gather(_pass(reader, far_writer, flow), _pass(far_reader, writer, flow))
        except (OSError, asyncio.CancelledError):
            return  # one side closed, so close the other
        finally:
            writer.transport.abort()
            far_writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flow: asyncio.Event) -> None:
    while chunk := await reader.read(65536):
        await flow.wait()
        writer.write(chunk)
        await writer.drain()
    raise ConnectionResetError


@asynccontextmanager
async def tcp_proxy(to: int) -> AsyncIterator[TcpProxy]:
    """Run a proxy to a local port."""
    proxy = TcpProxy(to)
    server = await asyncio.start_server(proxy.connect, "127.0.0.1", 0)
    proxy.port = server.sockets[0].getsockname()[1]
    try:
        yield proxy
    finally:
        server.close()
        proxy.reset()
        for each in proxy.connections:
            if each:
                each.cancel()  # a stalled one would wait for ever
        await asyncio.gather(*(each for each in proxy.connections if each))
        await asyncio.sleep(0)  # the last sockets close
