"""One leader among many, by a Lease.

What must hold: two never lead at once, as long as no clock runs half again as fast as another. A leader counts its lead
from when the renewing request was sent, and stops `renew_deadline` after that; another counts from when it saw the last
renewal, and waits for the whole `duration`. Both count on their loop's clock, never on the times written in the Lease,
which are for people. One hung request cannot cost the lead: each is given up after half of the renew deadline.

Work that was paused goes on before any timer can end it, and the loop's clock stands still while a machine sleeps. So
`leading` looks at the boot clock too, at the moment of asking: who acts asks it first. A machine whose clocks all stand
still wakes up as a leader that is none any more: whoever is written to must know terms.
"""

import asyncio
import logging
import math
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from podpool.api.builtin import LEASES, Lease
from podpool.core.errors import PodpoolError
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiError, ApiNotFound
from podpool.runtime.clock import Clock
from podpool.runtime.transport import Unreachable

_log = logging.getLogger(__name__)


class LeadershipLost(PodpoolError):
    """The lead could not be renewed in time, or another has it."""

    def __init__(self, lease: str) -> None:
        super().__init__(f"the lead of {lease} was lost")
        self.lease = lease


class LeaseTiming(msgspec.Struct, frozen=True, kw_only=True):
    """How long a lead lasts, in seconds; client-go's numbers."""

    duration: float = 15.0
    """Others wait for this long after the last renewal that they saw."""
    renew_deadline: float = 10.0
    """The leader stops this long after it sent its last renewal."""
    retry: float = 2.0


DEFAULT_TIMING = LeaseTiming()


class LeaderElector:
    """One candidate. Its identity is new with each process."""

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
        self._rival = ""
        """The version of the Lease at the last look, empty when there was none,"""
        self._rival_since = -math.inf
        """and since when it is that."""
        self._leads_until = 0.0
        self._leads_until_boot = 0.0
        self._told = datetime.fromtimestamp(0, UTC)

    @property
    def is_leader(self) -> bool:
        """Whether this candidate leads at this moment."""
        return asyncio.get_running_loop().time() < self._leads_until and self._clock.boot() < self._leads_until_boot

    async def run(self, lead: Callable[[], Awaitable[None]]) -> None:
        """Wait for the lead, and call `lead` while it lasts.

        Ends when `lead` does. Raises `LeadershipLost` after `lead` was cancelled and has ended. The Lease is given back when
        `lead` has ended and the lead was not lost, also on cancellation: the next need not wait.
        """
        await self._win()
        try:
            await self._lead(lead)
        finally:
            if self.is_leader:
                await self._release()
            self._leads_until = 0.0
            self._held = None

    async def _win(self) -> None:
        while True:
            if await self._attempt():
                _log.info("%s leads %s", self._identity, self._where)
                return
            await asyncio.sleep(self._timing.retry * self._rng.uniform(1.0, 1.2))

    async def _lead(self, lead: Callable[[], Awaitable[None]]) -> None:
        renewing = asyncio.ensure_future(self._renew())
        leading = asyncio.ensure_future(lead())
        try:
            await asyncio.wait([leading, renewing], return_when=asyncio.FIRST_COMPLETED)
            lost = not leading.done()
        finally:
            leading.cancel()
            await asyncio.wait([leading])  # what it does last, it still does as the leader
            renewing.cancel()
            await asyncio.wait([renewing])
        if not renewing.cancelled():
            renewing.result()
        if lost:
            raise LeadershipLost(self._where) from (None if leading.cancelled() else leading.exception())
        await leading

    async def _renew(self) -> None:
        """Renew until the deadline has passed without it, or another has the lead."""
        try:
            async with asyncio.timeout_at(self._leads_until) as limit:
                while True:
                    await asyncio.sleep(self._timing.retry)
                    if await self._attempt():
                        limit.reschedule(self._leads_until)
                    elif not self.is_leader:
                        return
        except TimeoutError:
            _log.warning("%s could not renew %s in time", self._identity, self._where)

    async def _attempt(self) -> bool:
        """Take or renew the lead; the moment of sending counts."""
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
                return False  # nothing was changed, so the others see no renewal; the next one tells another time
        except (ApiError, Unreachable, TimeoutError) as error:
            self._held = None  # whether it was written is not known: read it next time
            _log.info("%s did not get %s: %s", self._identity, self._where, error)
            return False
        self._leads_until = began + self._timing.renew_deadline
        self._leads_until_boot = began_boot + self._timing.renew_deadline
        return True

    async def _read(self) -> Lease | None:
        try:
            return await self._client.get(LEASES, self._name, namespace=self._namespace)
        except ApiNotFound:
            return None

    def _free(self, found: Lease | None) -> bool:
        """Whether a Lease is ours, nobody's, or of one who has not renewed it for as long as we have watched.

        One that was there and is not any more is like any other change: who held it may not know yet.
        """
        now = asyncio.get_running_loop().time()
        version = found.metadata.resource_version if found else ""
        if version != self._rival:
            self._rival, self._rival_since = version, now
        if found is None:
            return self.is_leader or now >= self._rival_since + self._timing.duration
        if found.spec.holder_identity in {self._identity, "", None}:
            return True
        return now >= self._rival_since + (found.spec.lease_duration_seconds or self._timing.duration)

    async def _write(self, found: Lease | None) -> Lease:
        spec = self._spec(found)
        if found is None:
            lease = {"metadata": {"name": self._name, "namespace": self._namespace}, "spec": spec}
            return await self._client.create(LEASES, lease, namespace=self._namespace)
        return await self._client.merge_patch(
            LEASES,
            self._name,
            {"spec": spec},
            namespace=self._namespace,
            precondition=found.metadata.resource_version,
        )

    def _spec(self, found: Lease | None) -> dict[str, Any]:
        now = self._now()
        spec: dict[str, Any] = {
            "holderIdentity": self._identity,
            "leaseDurationSeconds": int(self._timing.duration),
            "renewTime": now,
        }
        if found is None or found.spec.holder_identity != self._identity:
            spec["acquireTime"] = now
            spec["leaseTransitions"] = (found.spec.lease_transitions or 0) + 1 if found else 0
        return spec

    async def _release(self) -> None:
        if self._held is None:
            return
        try:
            async with asyncio.timeout(self._timing.renew_deadline / 2):
                await self._client.merge_patch(
                    LEASES,
                    self._name,
                    {"spec": {"holderIdentity": "", "leaseDurationSeconds": 1, "renewTime": self._now()}},
                    namespace=self._namespace,
                    precondition=self._held.metadata.resource_version,
                )
        except (ApiError, Unreachable, TimeoutError) as error:
            _log.info(
                "%s could not give back %s, which the others will outwait: %s", self._identity, self._where, error
            )

    @property
    def _where(self) -> str:
        return f"Lease {self._namespace}/{self._name}"

    def _now(self) -> str:
        """Tell the wall clock's time, but never the same twice: on a clock that stands still renewals still differ."""
        self._told = max(datetime.fromtimestamp(self._clock.wall(), UTC), self._told + timedelta(microseconds=1))
        return self._told.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
