"""Event recorder: writes an Event for the first occurrence, and a series count for later ones.

Invariant: `record` neither waits nor fails. Occurrences with the same object, type, reason and action are one Event
while they continue; its count is updated every few minutes. Its note is that of the first, because an Event is
immutable. A token bucket limits the writes of a process; what it holds back is in the counts. While the API server is
unreachable, Events wait in memory, the newest of them.
"""

import asyncio
import random
from datetime import UTC, datetime
from typing import Any

import msgspec

from podpool.api.builtin import EVENTS, ObjectReference
from podpool.api.meta import Kind, T
from podpool.kube.backoff import backoff_delay
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiAlreadyExists, ApiError, ApiForbidden, ApiInvalid, ApiNotFound
from podpool.runtime.clock import Clock
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Unreachable

UPDATE_INTERVAL = 300.0
"""Seconds between two updates of the same Event."""
SERIES_TIMEOUT = 600.0
"""Seconds without an occurrence that end a series; the next one is a new Event."""
BURST, REFILL = 25, 1.0
"""Token bucket: its size, and the seconds in which one token is added."""
MAX_SERIES = 256
"""Series in memory; beyond that the oldest is dropped."""
MAX_NOTE_BYTES = 1024
"""The API server's limit."""
NORMAL, WARNING = "Normal", "Warning"

log = get_logger(__name__)

SeriesKey = tuple[ObjectReference, str, str, str]


class _Series(msgspec.Struct, kw_only=True):
    """Occurrences of one Event: how many there were, and how many are written."""

    note: str
    began: float
    last: float
    name: str
    due: float
    count: int = 1
    written: int = 0
    failures: int = 0


class EventRecorder:
    """Writes recorded Events while `run` runs. `instance` is the name of the node or of the process."""

    def __init__(self, client: KubeClient, *, component: str, instance: str, clock: Clock, rng: random.Random) -> None:
        self._client = client
        self._component = component
        self._instance = instance
        self._clock = clock
        self._rng = rng
        self._series: dict[SeriesKey, _Series] = {}
        self._wake = asyncio.Event()
        self._last_name = 0
        self._tokens = float(BURST)
        self._filled = 0.0

    def record(self, regarding: ObjectReference, *, reason: str, action: str, note: str, warning: bool = False) -> None:
        """Record an occurrence: `reason` and `action` are CamelCase words, `note` is a sentence."""
        key = (regarding, WARNING if warning else NORMAL, reason, action)
        now = self._clock.wall()
        series = self._series.pop(key, None)
        if series is None or now - series.last > SERIES_TIMEOUT:
            began = asyncio.get_running_loop().time()
            series = _Series(note=note, began=now, last=now, name=self._name(regarding), due=began)
        else:
            series.count += 1
            series.last = now
        self._series[key] = series  # the newest at the end
        if len(self._series) > MAX_SERIES:
            del self._series[next(iter(self._series))]
        self._wake.set()

    async def run(self) -> None:
        """Write Events until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            self._wake.clear()
            waiting = [(each.due, key) for key, each in self._series.items() if each.written < each.count]
            if not waiting:
                await self._wake.wait()
                continue
            due, key = min(waiting, key=lambda each: each[0])
            pause = max(due - loop.time(), self._throttle())
            if pause <= 0:
                self._tokens -= 1
                await self._write(key, self._series[key])
            else:
                await self._pause(pause)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            return

    def _throttle(self) -> float:
        """Return the seconds until the token bucket admits a write."""
        now = asyncio.get_running_loop().time()
        self._tokens = min(BURST, self._tokens + (now - self._filled) / REFILL)
        self._filled = now
        return max(0.0, (1.0 - self._tokens) * REFILL)

    async def _write(self, key: SeriesKey, series: _Series) -> None:
        now, count = asyncio.get_running_loop().time(), series.count
        namespace = key[0].namespace or "default"
        try:
            if series.written:
                counted = {"series": self._counted(series)}
                await self._client.merge_patch(EVENTS, series.name, counted, namespace=namespace)
            else:
                await self._client.create(EVENTS, self._event(key, series), namespace=namespace)
        except ApiAlreadyExists:
            series.name = self._name(key[0])
        except ApiNotFound as error:
            if series.written:  # the server deletes Events after an hour
                series.written, series.name = 0, self._name(key[0])
            else:
                self._drop(key, series, error)
        except (ApiForbidden, ApiInvalid) as error:
            self._drop(key, series, error)
        except (ApiError, Unreachable) as error:
            series.failures += 1
            series.due = now + backoff_delay(series.failures, rng=self._rng, base=REFILL, maximum=UPDATE_INTERVAL)
            log.info("cannot write an Event, retrying", reason=key[2], error=error)
        else:
            series.written, series.due, series.failures = count, now + UPDATE_INTERVAL, 0

    def _drop(self, key: SeriesKey, series: _Series, error: ApiError) -> None:
        log.warning("Event rejected, not written", regarding=key[0].name, reason=key[2], error=error)
        series.written, series.due = series.count, asyncio.get_running_loop().time() + UPDATE_INTERVAL

    def _event(self, key: SeriesKey, series: _Series) -> dict[str, Any]:
        regarding, kind, reason, action = key
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
        """Return a unique name, as client-go makes it: the object's name and the time."""
        self._last_name = max(self._last_name + 1, int(self._clock.wall() * 1_000_000))
        return f"{regarding.name[:200].rstrip('.-')}.{self._last_name:x}"


def object_reference(kind: Kind[T], obj: T) -> ObjectReference:
    """Return a reference to an object."""
    meta, version = obj.metadata, kind.api_version
    return ObjectReference(api_version=version, kind=kind.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid)


def _time(wall: float) -> str:
    return datetime.fromtimestamp(wall, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
