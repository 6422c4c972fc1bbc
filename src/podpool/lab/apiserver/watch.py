"""An open watch: lines that wait to be read, bookmarks in between, and an end at the time agreed."""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping

import msgspec

from podpool.lab.apiserver.content_negotiation import Form
from podpool.lab.apiserver.registry import Served
from podpool.lab.apiserver.selectors import Selects
from podpool.lab.apiserver.status_errors import Refused
from podpool.lab.apiserver.strategy import with_meta
from podpool.lab.apiserver.watch_cache import KEPT, Event, Object

BOOKMARK_EVERY = 60.0
"""Seconds, as the API server has it."""
START_ENDS = "k8s.io/initial-events-end"
"""The annotation of the bookmark after what was there already."""

MOST_UNREAD = KEPT
"""Writes; a watch whose reader leaves more lie ends, and the client goes on from the last version that it read."""


class Terms(msgspec.Struct, frozen=True, kw_only=True):
    """What was agreed on: for how many seconds, and whether versions are told in between."""

    lasting: float = 1800.0
    bookmarks: bool = False
    marks_the_start: bool = False
    """Whether to say where what was there already ends."""


USUAL = Terms()


class Watch:
    """What one client is told of one kind, from when it is made until it is closed."""

    def __init__(
        self,
        served: Served,
        selects: Selects,
        form: Form,
        *,
        after: int,
        revision: Callable[[], int],
        closed: Callable[["Watch"], None],
        terms: Terms,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._until = self._loop.time() + terms.lasting
        self._bookmarks = terms.bookmarks
        self._timer = self._loop.call_later(min(terms.lasting, BOOKMARK_EVERY), self._time_passed)
        self.served = served
        self._selects = selects
        self._form = form
        self._marks_the_start = terms.marks_the_start
        self._after = after
        self._revision = revision
        self._closed = closed
        self._lines: deque[bytes] = deque()
        self._unread = 0
        self._news = asyncio.Event()
        self._ended = False

    def show(self, objects: Iterable[Object]) -> None:
        """Tell of objects that are there already."""
        for obj in objects:
            if self._selects(obj):
                self._tell("ADDED", self._form.one(obj))
        if self._marks_the_start:
            self._bookmark({START_ENDS: "true"})

    def offer(self, event: Event) -> None:
        """Tell of a write, as it looks through the selector, unless it is older than what was asked for."""
        if self._ended or event.revision <= self._after:
            return
        was = event.old is not None and self._selects(event.old)
        fits = self._selects(event.new) and not event.gone
        if not (was or fits):
            return
        if self._unread == MOST_UNREAD:
            self.end()
            return
        self._unread += 1
        kind = ("MODIFIED" if was else "ADDED") if fits else "DELETED"
        self._send(_line(event, kind, self._form))

    def refuse(self, refused: Refused) -> None:
        """Tell why there is nothing to tell, and end."""
        self._tell("ERROR", refused.status)
        self.end()

    def end(self) -> None:
        """Listen no more, and end the stream after what was told."""
        self._timer.cancel()
        self._closed(self)
        self._ended = True
        self._news.set()

    async def close(self) -> None:
        """Be left by the client."""
        self.end()

    def __aiter__(self) -> "Watch":
        return self

    async def __anext__(self) -> bytes:
        """Send what was told; wait when there is nothing."""
        while not self._lines:
            if self._ended:
                raise StopAsyncIteration
            await self._news.wait()
        return self._taken()

    def _time_passed(self) -> None:
        if self._bookmarks and self._revision() >= self._after:
            self._bookmark()
        left = self._until - self._loop.time()
        if left <= 0:
            self.end()
        else:
            self._timer = self._loop.call_later(min(left, BOOKMARK_EVERY), self._time_passed)

    def _taken(self) -> bytes:
        lines = b"".join(self._lines)
        self._lines.clear()
        self._unread = 0
        self._news.clear()
        return lines

    def _bookmark(self, annotations: Mapping[str, str] | None = None) -> None:
        meta = {"resourceVersion": str(self._revision()), "creationTimestamp": None}
        mark = {"kind": self.served.kind, "apiVersion": self.served.api_version}
        self._tell("BOOKMARK", {**mark, "metadata": {**meta, "annotations": annotations} if annotations else meta})

    def _tell(self, kind: str, obj: Object) -> None:
        self._send(_encoded(kind, obj))

    def _send(self, line: bytes) -> None:
        self._lines.append(line)
        self._news.set()


def _line(event: Event, kind: str, form: Form) -> bytes:
    written = f"{kind} {form.name}"
    if form.name and written in event.lines:
        return event.lines[written]
    obj = event.new
    if kind == "DELETED" and not event.gone and event.old is not None:
        # what left the selection is shown as it was in it
        obj = with_meta(event.old, resourceVersion=str(event.revision))
    line = _encoded(kind, form.one(obj))
    if form.name:
        event.lines[written] = line
    return line


def _encoded(kind: str, obj: Object) -> bytes:
    return msgspec.json.encode({"type": kind, "object": obj}) + b"\n"
