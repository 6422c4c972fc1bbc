"""What happened to an object, told to people: an Event for the first time, and a count for every time after.

What must hold: to tell costs the teller nothing, it neither waits nor fails. The same thing (object, type, reason,
action) is one Event for as long as it goes on happening, written again every few minutes with its count. Its note is
the first one's, because an Event cannot be changed. All Events of a process together keep to a rate; what is told
meanwhile is in the counts. While the API server is away they wait, the newest of them.
"""

import asyncio
import logging
import random
from datetime import UTC, datetime
from typing import Any

import msgspec

from podpool.api.builtin import EVENTS, ObjectReference
from podpool.api.meta import Kind, T
from podpool.kube.backoff import backoff
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiAlreadyExists, ApiError, ApiForbidden, ApiInvalid, ApiNotFound
from podpool.runtime.clock import Clock
from podpool.runtime.transport import Unreachable

UPDATE_INTERVAL = 300.0
"""Seconds between two writes of the same Event."""
SERIES_TIMEOUT = 600.0
"""Seconds after which a thing that has not happened again is over; the next time it is a new Event."""
BURST, REFILL = 25, 1.0
"""So many may be written at once, and then one every so many seconds."""
MAX_SERIES = 256
"""Things that are remembered; of more than that the oldest is forgotten."""
MAX_NOTE_BYTES = 1024
"""Bytes, as the API server has it."""
NORMAL, WARNING = "Normal", "Warning"

_log = logging.getLogger(__name__)

SeriesKey = tuple[ObjectReference, str, str, str]


class _Series(msgspec.Struct, kw_only=True):
    """One thing that happens: how often it did, and how much of that is written."""

    note: str
    began: float
    last: float
    name: str
    due: float
    count: int = 1
    written: int = 0
    failures: int = 0


class EventRecorder:
    """Writes what is told while `run` runs. `instance` is the node's name, or the process' own."""

    def __init__(self, client: KubeClient, *, component: str, instance: str, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._clock = clock
        self._rng = rng
        self._told: dict[SeriesKey, _Series] = {}
        self._news = asyncio.Event()
        self._number = 0
        self._tokens = float(BURST)
        self._filled = 0.0

    def record(self, regarding: ObjectReference, *, reason: str, action: str, note: str, warning: bool = False) -> None:
        """Tell that something happened: why and what was done, in one word each, and a sentence for people."""
        thing = (regarding, WARNING if warning else NORMAL, reason, action)
        now = self._clock.wall()
        series = self._told.pop(thing, None)
        if series is None or now - series.last > SERIES_TIMEOUT:
            began = asyncio.get_running_loop().time()
            series = _Series(note=note, began=now, last=now, name=self._name(regarding), due=began)
        else:
            series.count += 1
            series.last = now
        self._told[thing] = series  # the newest at the end
        if len(self._told) > MAX_SERIES:
            del self._told[next(iter(self._told))]
        self._news.set()

    async def run(self) -> None:
        """Write for ever."""
        loop = asyncio.get_running_loop()
        while True:
            self._news.clear()
            waiting = [(each.due, thing) for thing, each in self._told.items() if each.written < each.count]
            if not waiting:
                await self._news.wait()
                continue
            due, thing = min(waiting, key=lambda each: each[0])
            pause = max(due - loop.time(), self._short())
            if pause <= 0:
                self._tokens -= 1
                await self._write(thing, self._told[thing])
            else:
                await self._rest(pause)

    async def _rest(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._news.wait()
        except TimeoutError:
            return

    def _short(self) -> float:
        """Tell for how many seconds nothing may be written."""
        now = asyncio.get_running_loop().time()
        self._tokens = min(BURST, self._tokens + (now - self._filled) / REFILL)
        self._filled = now
        return max(0.0, (1.0 - self._tokens) * REFILL)

    async def _write(self, thing: SeriesKey, series: _Series) -> None:
        now, count = asyncio.get_running_loop().time(), series.count
        namespace = thing[0].namespace or "default"
        try:
            if series.written:
                counted = {"series": self._counted(series)}
                await self._client.merge_patch(EVENTS, series.name, counted, namespace=namespace)
            else:
                await self._client.create(EVENTS, self._event(thing, series), namespace=namespace)
        except ApiAlreadyExists:
            series.name = self._name(thing[0])
        except ApiNotFound as error:
            if series.written:  # the server forgets an Event after an hour
                series.written, series.name = 0, self._name(thing[0])
            else:
                self._give_up(series, error)
        except (ApiForbidden, ApiInvalid) as error:
            self._give_up(series, error)
        except (ApiError, Unreachable) as error:
            series.failures += 1
            series.due = now + backoff(series.failures, rng=self._rng, base=REFILL, most=UPDATE_INTERVAL)
            _log.info("an Event waits: %s", error)
        else:
            series.written, series.due, series.failures = count, now + UPDATE_INTERVAL, 0

    def _give_up(self, series: _Series, error: ApiError) -> None:
        _log.warning("an Event is not written: %s", error)
        series.written, series.due = series.count, asyncio.get_running_loop().time() + UPDATE_INTERVAL

    def _event(self, thing: SeriesKey, series: _Series) -> dict[str, Any]:
        regarding, kind, reason, action = thing
        event = {
            "metadata": {"name": series.name},
            "eventTime": _time(series.began),
            "reportingController": self._component,
            "reportingInstance": self._instance,
            "action": action,
            "reason": reason,
            "regarding": regarding,
            "note": series.note.encode()[:MAX_NOTE_BYTES].decode(errors="ignore"),
            "type": kind,
        }
        return event | ({"series": self._counted(series)} if series.count > 1 else {})

    def _counted(self, series: _Series) -> dict[str, Any]:
        return {"count": series.count, "lastObservedTime": _time(series.last)}

    def _name(self, regarding: ObjectReference) -> str:
        """Name an Event as others do: after its object, with the time, and never the same twice."""
        self._number = max(self._number + 1, int(self._clock.wall() * 1_000_000))
        return f"{regarding.name[:200].rstrip('.-')}.{self._number:x}"


def object_reference(kind: Kind[T], obj: T) -> ObjectReference:
    """Point to an object."""
    meta = obj.metadata
    return ObjectReference(
        api_version=kind.api_version, kind=kind.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


def _time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
