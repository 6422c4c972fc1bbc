"""An open watch: encoded events that wait to be read, bookmarks, and a timeout."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from podpool.lab.apiserver.content_negotiation import Representation
from podpool.lab.apiserver.registry import ApiResource, Object
from podpool.lab.apiserver.selectors import Selector
from podpool.lab.apiserver.status_errors import StatusError
from podpool.lab.apiserver.strategy import with_meta
from podpool.lab.apiserver.watch_cache import CAPACITY, StoreEvent

BOOKMARK_INTERVAL = 60.0
"""Seconds, as in kube-apiserver."""
INITIAL_EVENTS_END = "k8s.io/initial-events-end"
"""The annotation of the bookmark that follows the initial events."""

MAX_UNREAD = CAPACITY
"""Events; a watch with more unread ends, and its client continues from the last version that it read."""


class WatchOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a watch request; the timeout is in seconds."""

    timeout: float = 1800.0
    bookmarks: bool = False
    initial_events_end: bool = False
    """Whether a bookmark follows the initial events."""


DEFAULT_OPTIONS = WatchOptions()


class Watch:
    """One client's watch of one resource, from the request until it is closed."""

    def __init__(
        self,
        resource: ApiResource,
        selector: Selector,
        representation: Representation,
        *,
        after: int,
        revision: Callable[[], int],
        on_stop: Callable[["Watch"], None],
        options: WatchOptions,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + options.timeout
        self._options = options
        self._timer = self._loop.call_later(min(options.timeout, BOOKMARK_INTERVAL), self._on_timer)
        self.resource = resource
        self._selector = selector
        self._representation = representation
        self._after = after
        self._revision = revision
        self._on_stop = on_stop
        self._lines: deque[bytes] = deque()
        self._unread = 0
        self._readable = asyncio.Event()
        self._stopped = False

    def add_initial(self, objects: Iterable[Object]) -> None:
        """Send ADDED events for objects that exist already."""
        for obj in objects:
            if self._selector(obj):
                self._send_event("ADDED", self._representation.one(obj))
        if self._options.initial_events_end:
            self._send_bookmark({INITIAL_EVENTS_END: "true"})

    def on_event(self, event: StoreEvent) -> None:
        """Send a write as seen through the selector, unless it is older than the requested version."""
        if self._stopped or event.revision <= self._after:
            return
        selected_before = event.old is not None and self._selector(event.old)
        selected = self._selector(event.new) and not event.deleted
        if not (selected_before or selected):
            return
        if self._unread == MAX_UNREAD:
            self.stop()
            return
        self._unread += 1
        type_ = ("MODIFIED" if selected_before else "ADDED") if selected else "DELETED"
        self._send(_line(event, type_, self._representation))

    def fail(self, error: StatusError) -> None:
        """Send an error, and end the stream."""
        self._send_event("ERROR", error.status)
        self.stop()

    def stop(self) -> None:
        """Receive no more events, and end the stream after those already sent."""
        self._timer.cancel()
        self._on_stop(self)
        self._stopped = True
        self._readable.set()

    async def close(self) -> None:
        """Stop because the client disconnected."""
        self.stop()

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> bytes:
        """Return the unread lines; waits while there are none."""
        while not self._lines:
            if self._stopped:
                raise StopAsyncIteration
            await self._readable.wait()
        return self._take_lines()

    def _on_timer(self) -> None:
        if self._options.bookmarks and self._revision() >= self._after:
            self._send_bookmark()
        remaining = self._deadline - self._loop.time()
        if remaining <= 0:
            self.stop()
        else:
            self._timer = self._loop.call_later(min(remaining, BOOKMARK_INTERVAL), self._on_timer)

    def _take_lines(self) -> bytes:
        lines = b"".join(self._lines)
        self._lines.clear()
        self._unread = 0
        self._readable.clear()
        return lines

    def _send_bookmark(self, annotations: Mapping[str, str] | None = None) -> None:
        meta = {"resourceVersion": str(self._revision()), "creationTimestamp": None}
        head = {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
        self._send_event(
            "BOOKMARK", {**head, "metadata": {**meta, "annotations": annotations} if annotations else meta}
        )

    def _send_event(self, type_: str, obj: Object) -> None:
        self._send(_encode(type_, obj))

    def _send(self, line: bytes) -> None:
        self._lines.append(line)
        self._readable.set()


def _line(event: StoreEvent, type_: str, representation: Representation) -> bytes:
    cache_key = f"{type_} {representation.name}"
    if representation.name and cache_key in event.encoded:
        return event.encoded[cache_key]
    obj = event.new
    if type_ == "DELETED" and not event.deleted and event.old is not None:
        # an object that left the selection is sent as it last matched
        obj = with_meta(event.old, resourceVersion=str(event.revision))
    line = _encode(type_, representation.one(obj))
    if representation.name:
        event.encoded[cache_key] = line
    return line


def _encode(type_: str, obj: Object) -> bytes:
    return msgspec.json.encode({"type": type_, "object": obj}) + b"\n"
