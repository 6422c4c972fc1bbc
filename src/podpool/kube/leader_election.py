"""Leader election by a Lease, as client-go does it.

Invariant: two candidates never lead at once while no clock runs 1.5 times as fast as another. A leader counts from when
it sent the renewal and stops after `renew_deadline`; a candidate counts from when it saw the last renewal and waits for
the whole `duration`. Both use their loop's clock, never the times in the Lease. One hung request does not lose the
leadership: each is cancelled after half of the renew deadline.

A paused task resumes before any timer can cancel it, and the loop's clock stops while the machine sleeps. So
`is_leader` also compares the boot clock; callers check it before each action. A machine whose clocks all stop wakes up
as a stale leader: the receivers of its writes must check fencing tokens (terms).
"""

import asyncio
import math
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from podpool.api.builtin import LEASES, Lease
from podpool.core.errors import PodpoolError
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiError
from podpool.runtime.clock import Clock
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Unreachable

log = get_logger(__name__)


class LeadershipLost(PodpoolError):
    """The Lease was not renewed in time, or another candidate holds it."""

    def __init__(self, lease: str) -> None:
        super().__init__(f"leadership of Lease {lease} was lost")
        self.lease = lease


class LeaseTiming(msgspec.Struct, frozen=True, kw_only=True):
    """Durations in seconds, with client-go's defaults."""

    duration: float = 15.0
    """Other candidates wait for this long after the last renewal that they saw."""
    renew_deadline: float = 10.0
    """The leader stops this long after it sent its last renewal."""
    retry: float = 2.0


DEFAULT_TIMING = LeaseTiming()


class LeaderElector:
    """One candidate. Each process needs a new identity."""

    def __init__(
        self,
        client: KubeClient,
        *,
        name: str,
        namespace: str,
        identity: str,
        clock: Clock,
        rng: random.Random,
        timing: LeaseTiming = DEFAULT_TIMING,
    ) -> None:
        self._client = client
        self._name = name
        self._namespace = namespace
        self._identity = identity
        self._clock = clock
        self._rng = rng
        self._timing = timing
        self._held: Lease | None = None
        """The Lease as this candidate last wrote it."""
        self._observed_version = ""
        """The version of the Lease at the last read, empty if it did not exist."""
        self._observed_since = -math.inf
        """Loop time since when the Lease has that version."""
        self._holder = ""
        """Who held the Lease at the last read, if it was another candidate."""
        self._leads_until = 0.0
        self._leads_until_boot = 0.0
        self._last_time = datetime.fromtimestamp(0, UTC)

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads now."""
        return asyncio.get_running_loop().time() < self._leads_until and self._clock.boot() < self._leads_until_boot

    async def run(
        self, lead: Callable[[], Awaitable[None]], *, on_standby: Callable[[str], None] = lambda _leader: None
    ) -> None:
        """Acquire the Lease, then run `lead` while it is held.

        While another candidate holds it, `on_standby` is called with its identity, once for each holder.

        Returns when `lead` does. Raises `LeadershipLost` after it has cancelled `lead`. If the leadership was not lost,
        the Lease is released at the end, also on cancellation, so that the next candidate need not wait.
        """
        await self._win(on_standby)
        try:
            await self._lead(lead)
        finally:
            if self.is_leader:
                await self._release()
            self._leads_until = 0.0
            self._held = None

    async def _win(self, on_standby: Callable[[str], None]) -> None:
        known = ""
        while True:
            if await self._attempt():
                log.info("became leader", lease=self._lease_name, identity=self._identity)
                return
            if self._holder not in {known, ""}:
                known = self._holder
                on_standby(known)
            await asyncio.sleep(self._timing.retry * self._rng.uniform(1.0, 1.2))

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        renewing = asyncio.ensure_future(self._renew())
        leading = asyncio.ensure_future(lead())
        try:
            await asyncio.wait([leading, renewing], return_when=asyncio.FIRST_COMPLETED)
            lost = not leading.done()
        finally:
            leading.cancel()
            await asyncio.wait([leading])  # its cleanup still runs as the leader
            renewing.cancel()
            await asyncio.wait([renewing])
        if not renewing.cancelled():
            renewing.result()
        if lost:
            raise LeadershipLost(self._lease_name) from (None if leading.cancelled() else leading.exception())
        await leading

    async def _renew(self) -> None:
        """Renew until the deadline has passed without success, or another candidate holds the Lease."""
        try:
            async with asyncio.timeout_at(self._leads_until) as limit:
                while True:
                    await asyncio.sleep(self._timing.retry)
                    if await self._attempt():
                        limit.reschedule(self._leads_until)
                    elif not self.is_leader:
                        return
        except TimeoutError:
            log.warning("leadership lost, Lease not renewed in time", lease=self._lease_name, identity=self._identity)

    async def _attempt(self) -> bool:
        """Acquire or renew the Lease; the leadership counts from when the request was sent."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._timing.renew_deadline / 2):
                found = self._held or await self._read()
                if not self._free(found):
                    self._leads_until = 0.0
                    return False
                began, began_boot = loop.time(), self._clock.boot()
                self._held = await self._write(found)
            if found is not None and self._held.metadata.resource_version == found.metadata.resource_version:
                return False  # no change, so others see no renewal
        except (ApiError, Unreachable, TimeoutError) as error:
            self._held = None  # unknown whether it was written: read it next time
            log.info("cannot acquire or renew the Lease", lease=self._lease_name, identity=self._identity, error=error)
            return False
        self._leads_until = began + self._timing.renew_deadline
        self._leads_until_boot = began_boot + self._timing.renew_deadline
        return True

    async def _read(self) -> Lease | None:
        return await self._client.find(LEASES, self._name, namespace=self._namespace)

    def _free(self, found: Lease | None) -> bool:
        """Return whether the Lease is ours, has no holder, or was not renewed for its whole duration.

        A deleted Lease counts as a change like any other: its holder may not know yet.
        """
        now = asyncio.get_running_loop().time()
        version = found.metadata.resource_version if found else ""
        if version != self._observed_version:
            self._observed_version, self._observed_since = version, now
        self._holder = ""
        if found is None:
            return self.is_leader or now >= self._observed_since + self._timing.duration
        holder = found.spec.holder_identity or ""
        if holder in {self._identity, ""}:
            return True
        self._holder = holder
        return now >= self._observed_since + (found.spec.lease_duration_seconds or self._timing.duration)

    async def _write(self, found: Lease | None) -> Lease:
        spec = self._spec(found)
        if found is None:
            lease = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": spec}
            return await self._client.create(LEASES, lease, namespace=self._namespace)
        return await self._patch(found, spec)

    async def _patch(self, lease: Lease, spec: dict[str, Any]) -> Lease:
        at = {"namespace": self._namespace, "precondition": lease.metadata.resource_version}
        return await self._client.merge_patch(LEASES, self._name, {"spec": spec}, **at)

    def _spec(self, found: Lease | None) -> dict[str, Any]:
        now = self._now()
        duration = int(self._timing.duration)
        spec: dict[str, Any] = {"holderIdentity": self._identity, "leaseDurationSeconds": duration, "renewTime": now}
        if found is None or found.spec.holder_identity != self._identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (found.spec.lease_transitions or 0) + 1 if found else 0
        return spec

    async def _release(self) -> None:
        if self._held is None:
            return
        try:
            async with asyncio.timeout(self._timing.renew_deadline / 2):
                released = {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}
                await self._patch(self._held, released)
        except (ApiError, Unreachable, TimeoutError) as error:
            event = "cannot release the Lease, it expires"
            log.info(event, lease=self._lease_name, identity=self._identity, error=error)

    @property
    def _lease_name(self) -> str:
        return f"{self._namespace}/{self._name}"

    def _now(self) -> str:
        """Return the wall clock's time, never the same twice: renewals differ even if the clock stands still."""
        now = datetime.fromtimestamp(self._clock.wall(), UTC)
        self._last_time = max(now, self._last_time + timedelta(microseconds=1))
        return self._last_time.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
