"""Stub API server with one prepared list and watch: `python -m bench.kube_feed PODS EVENTS`.

A separate process, so that its cost is not measured. Prints its port; ends with its parent.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import msgspec

from bench.kube_pods import line, pod
from parts.daemon import dying_with_us

if TYPE_CHECKING:
    from collections.abc import Iterator

_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@contextmanager
def feeding(*, pods: int, events: int) -> Iterator[str]:
    """Start the stub server and yield its address."""
    words = [*dying_with_us(), sys.executable, "-m", "bench.kube_feed", str(pods), str(events)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            if process.stdout is None:
                raise RuntimeError("the feed did not print its port")
            yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        finally:
            process.kill()


async def feed(pods: int, events: int) -> None:
    """Serve until killed."""
    items = [pod(number) for number in range(pods)]
    listing = {"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "1000000"}, "items": items}
    body = msgspec.json.encode(listing)
    listed = _HEAD + b"content-length: %d\r\n\r\n" % len(body) + body
    lines = [line(number % pods, version=number + 1) for number in range(events)]
    watched = b"".join(b"%x\r\n%s\r\n" % (len(each), each) for each in lines)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while request := await reader.readuntil(b"\r\n\r\n"):
                is_watch = b"watch=" in request.split(b"\r\n", 1)[0]
                writer.write(_HEAD + b"transfer-encoding: chunked\r\n\r\n" + watched if is_watch else listed)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(feed(int(sys.argv[1]), int(sys.argv[2])))
