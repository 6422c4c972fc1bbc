"""Transports of many nodes to one API server: counted, with shared watches.

5,000 nodes have more watches than one machine has sockets. Nodes without own connections share one watch per kind: each
receives the lines that the server would have sent to it, as bytes. Other requests go to the server in the name of the
node.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from contextlib import aclosing
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import msgspec

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import CONFIG_MAPS, NODES, PODS
from podpool.api.node_slices import NODE_SLICES
from podpool.kube.codec import LineSplitter, WatchLine
from podpool.runtime.transport import Request, Response

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable

    from podpool.runtime.transport import Transport

NAMESPACE = "kube-system"
KEPT = 64
"""Lines kept per selector, for watches that start at the version of a list."""
BOOKMARKS = 45.0
"""Seconds between bookmarks; a client's watch fails after 90 without one."""

ADDING: ContextVar[bool] = ContextVar("adding", default=False)
"""Set while an ADD is processed."""


class CountingTransport:
    """A node's transport that adds its token and counts calls and received bytes."""

    def __init__(self, transport: Transport, token: str) -> None:
        self.received = 0
        """Bytes of responses and watches, without headers."""
        self.during_adds = 0
        """Calls during an ADD."""
        self.calls = 0
        self.writes = 0
        self.open = 0
        """Calls without a response yet, except watches."""
        self._transport = transport
        self._headers = {"authorization": f"Bearer {token}"}

    async def send(self, request: Request) -> Response:
        """Send a request and count it with its response."""
        self.during_adds += ADDING.get()
        self.calls += 1
        self.writes += request.method != "GET"
        ends = 0 if request.query.get("watch") else 1
        self.open += ends
        asked = msgspec.structs.replace(request, headers={**request.headers, **self._headers})
        try:
            response = await self._transport.send(asked)
        except BaseException:
            self.open -= ends
            raise
        counted = self._counted(response.stream, ends)
        return Response(response.status, headers=response.headers, stream=counted, close=response.close)

    async def _counted(self, stream: AsyncIterator[bytes], ends: int) -> AsyncIterator[bytes]:
        try:
            async for piece in stream:
                self.received += len(piece)
                yield piece
        finally:
            self.open -= ends


class _Meta(msgspec.Struct, frozen=True, rename="camel"):
    name: str = ""
    namespace: str = ""
    resource_version: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    node_name: str = ""


class _Seen(msgspec.Struct, frozen=True):
    """The fields of an object that selectors need."""

    metadata: _Meta = _Meta()
    spec: _Spec = _Spec()


class _Page(msgspec.Struct, frozen=True):
    metadata: _Meta
    items: list[msgspec.Raw]


_SEEN, _LINE, _PAGE = msgspec.json.Decoder(_Seen), msgspec.json.Decoder(WatchLine), msgspec.json.Decoder(_Page)


def by_name(seen: _Seen) -> str:
    """Return the selector of a watch of one object."""
    return f"metadata.name={seen.metadata.name}"


def by_node(seen: _Seen) -> str:
    """Return the selector of a watch of a node's Pods."""
    return f"spec.nodeName={seen.spec.node_name}"


class SharedWatches:
    """A transport that serves lists and watches of single nodes from one watch per kind."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._kinds = {
            path: Followed(transport, path, selector)
            for path, selector in (
                (NODES.path(), by_name),
                (PODS.path(), by_node),
                (NODE_NETWORK_CONFIGS.path(namespace=NAMESPACE), by_name),
                (NODE_SLICES.path(), by_name),
                (CONFIG_MAPS.path(namespace=NAMESPACE), by_name),
            )
        }

    async def run(self) -> None:
        """Watch all kinds until cancelled."""
        async with asyncio.TaskGroup() as group:
            for each in self._kinds.values():
                group.create_task(each.run())

    async def listed(self) -> None:
        """Wait until all kinds are listed."""
        await asyncio.gather(*(each.listed.wait() for each in self._kinds.values()))

    async def send(self, request: Request) -> Response:
        """Answer lists and watches of the shared kinds; forward other requests."""
        followed, query = self._kinds.get(request.path), request.query
        selector = query.get("fieldSelector")
        if request.method == "GET" and followed and selector:
            if query.get("watch"):
                return followed.watch(selector, since=int(query["resourceVersion"]))
            if query.get("resourceVersion") == "0":
                return followed.list(selector)
        return await self._transport.send(request)


class Followed:
    """One kind: its objects as the server sent them, by selector."""

    def __init__(self, transport: Transport, path: str, selector: Callable[[_Seen], str]) -> None:
        self.listed = asyncio.Event()
        self._transport = transport
        self._path = path
        self._selector = selector
        self._revision = 0
        self._objects: defaultdict[str, dict[str, bytes]] = defaultdict(dict)
        self._lines: defaultdict[str, deque[tuple[int, bytes]]] = defaultdict(lambda: deque(maxlen=KEPT))
        self._watches: defaultdict[str, set[asyncio.Queue[bytes]]] = defaultdict(set)

    def list(self, selector: str) -> Response:
        """Return a list, as from a server's watch cache."""
        found = b",".join(self._objects[selector].values()) if selector in self._objects else b""
        return Response(200, b'{"metadata":{"resourceVersion":"%d"},"items":[%b]}' % (self._revision, found))

    def watch(self, selector: str, *, since: int) -> Response:
        """Return a watch: events since the version, then new ones."""
        queue: asyncio.Queue[bytes] = asyncio.Queue()
        kept = self._lines.get(selector) or deque()
        if len(kept) == KEPT and kept[0][0] > since:
            gone = {"kind": "Status", "status": "Failure", "reason": "Expired", "code": 410}
            return Response(410, msgspec.json.encode(gone))
        for revision, line in kept:
            if revision > since:
                queue.put_nowait(line)
        self._watches[selector].add(queue)

        async def end() -> None:
            self._watches[selector].discard(queue)

        return Response(200, stream=_taken(queue), close=end)

    async def run(self) -> None:
        """Watch the kind until cancelled."""
        await self._list()
        self.listed.set()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._mark())
            while True:
                query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "3600"}
                query["resourceVersion"] = str(self._revision)
                async with aclosing(self._follow(query)) as event:
                    async for line in event:
                        self._dispatch(line)

    async def _list(self) -> None:
        response = await self._transport.send(Request(method="GET", path=self._path))
        page = _PAGE.decode(await response.read())
        for each in page.items:
            seen = _SEEN.decode(each)
            self._objects[self._selector(seen)][_key(seen)] = bytes(each)
        self._revision = int(page.metadata.resource_version)

    async def _follow(self, query: dict[str, str]) -> AsyncGenerator[bytes, None]:
        response, lines = (
            await self._transport.send(Request(method="GET", path=self._path, query=query)),
            LineSplitter(),
        )
        try:
            async for piece in response.stream:
                for line in lines.feed(piece):
                    yield line
        finally:
            await response.close()

    def _dispatch(self, line: bytes) -> None:
        event = _LINE.decode(line)
        if event.type == "ERROR":
            raise ConnectionError(f"the watch of {self._path} was refused: {line.decode()}")
        seen = _SEEN.decode(event.object)
        self._revision = int(seen.metadata.resource_version)
        if event.type == "BOOKMARK":
            return
        selector = self._selector(seen)
        if event.type == "DELETED":
            self._objects[selector].pop(_key(seen), None)
        else:
            self._objects[selector][_key(seen)] = bytes(event.object)
        self._lines[selector].append((self._revision, line + b"\n"))
        for queue in self._watches.get(selector, ()):
            queue.put_nowait(line + b"\n")

    async def _mark(self) -> None:
        """Send bookmarks to every watch."""
        while True:
            await asyncio.sleep(BOOKMARKS)
            mark: dict[str, Any] = {"metadata": {"resourceVersion": str(self._revision)}}
            line = msgspec.json.encode({"type": "BOOKMARK", "object": mark}) + b"\n"
            for queues in self._watches.values():
                for queue in queues:
                    queue.put_nowait(line)


def _key(seen: _Seen) -> str:
    return f"{seen.metadata.namespace}/{seen.metadata.name}"


async def _taken(queue: asyncio.Queue[bytes]) -> AsyncIterator[bytes]:
    while True:
        yield await queue.get()
