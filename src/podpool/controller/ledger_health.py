"""Whether the ledger is reachable, and the condition LedgerReachable of ClusterSubnets.

While it is unreachable nothing changes: nodes continue with the addresses they hold. So a short outage is not worth a
write: the condition is set after a while, and again when the ledger is back. Before the first outage there is none.
"""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

import msgspec

from podpool.api.azure import CLUSTER_SUBNETS, ClusterSubnet
from podpool.api.meta import Condition, rfc3339
from podpool.core.errors import PodpoolError
from podpool.kube.cache import ObjectCache
from podpool.kube.client import KubeClient
from podpool.ledger.errors import LedgerError, Unavailable
from podpool.runtime.clock import Clock
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Unreachable

CONDITION = "LedgerReachable"
CALL_TIMEOUT = 15.0
"""Seconds for one call."""
GRACE_PERIOD = 10.0
"""Seconds of an outage before the condition is set."""
CHECK_INTERVAL = 2.0
"""Seconds between two checks of the condition while the ledger is unreachable."""

log = get_logger(__name__)

T = TypeVar("T")


class LedgerHealth:
    """Tracks the outcome of calls to the ledger."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        """Set when the ledger becomes unreachable."""
        self.error = ""
        """The last error of the present outage."""
        self._since: float | None = None

    @property
    def unreachable_seconds(self) -> float:
        """Seconds since the ledger became unreachable; 0 while it is reachable."""
        return 0.0 if self._since is None else max(asyncio.get_running_loop().time() - self._since, 0.001)

    async def call(self, call: Awaitable[T], *, within: float = CALL_TIMEOUT) -> T:
        """Await a call with a timeout. An error response counts as reachable, unless its database is unavailable."""
        try:
            async with asyncio.timeout(within):
                response = await call
        except TimeoutError:
            error = Unreachable("the ledger", f"no response within {within:g} s")
            self._on_failure(error)
            raise error from None
        except (Unreachable, Unavailable) as error:
            self._on_failure(error)
            raise
        except LedgerError:
            self._on_response()
            raise
        self._on_response()
        return response

    def _on_failure(self, error: Exception) -> None:
        self.error = str(error)
        if self._since is None:
            log.warning("ledger unreachable, nodes keep their addresses", error=error)
            self._since = asyncio.get_running_loop().time()
            self.lost.set()

    def _on_response(self) -> None:
        if self._since is not None:
            log.info("ledger reachable again", seconds=round(self.unreachable_seconds))
        self._since = None


class LedgerConditionWriter:
    """Writes the condition into every ClusterSubnet while this controller is the leader."""

    def __init__(
        self, kube: KubeClient, health: LedgerHealth, subnets: ObjectCache[ClusterSubnet], *, clock: Clock
    ) -> None:
        self._kube = kube
        self._health = health
        self._subnets = subnets
        self._clock = clock

    async def run(self) -> None:
        """Keep the conditions current until cancelled."""
        while True:
            self._health.lost.clear()
            outdated = [subnet for subnet in self._subnets.values() if self._is_outdated(subnet)]
            for subnet in outdated:
                await self._write(subnet)
            if not outdated and not self._health.unreachable_seconds:
                await self._health.lost.wait()
            await asyncio.sleep(CHECK_INTERVAL)

    def _is_outdated(self, subnet: ClusterSubnet) -> bool:
        """Return whether the condition is wrong; a missing one is correct until the first outage."""
        condition = next((each for each in subnet.status.conditions if each.type == CONDITION), None)
        return not self._reachable if condition is None else condition.status != str(self._reachable)

    @property
    def _reachable(self) -> bool:
        return self._health.unreachable_seconds < GRACE_PERIOD

    async def _write(self, subnet: ClusterSubnet) -> None:
        outage = f"nodes keep the addresses they hold and get no more: {self._health.error}"
        condition = Condition(
            type=CONDITION,
            status=str(self._reachable),
            reason="Reachable" if self._reachable else "Unreachable",
            message="" if self._reachable else outage,
            last_transition_time=rfc3339(self._clock.wall()),
        )
        others = [each for each in subnet.status.conditions if each.type != CONDITION]
        try:
            meta, patch = subnet.metadata, {"status": {"conditions": msgspec.to_builtins([*others, condition])}}
            at = {"namespace": meta.namespace, "precondition": meta.resource_version}
            await self._kube.merge_patch(CLUSTER_SUBNETS, meta.name, patch, subresource="status", **at)
        except PodpoolError as error:
            log.info("cannot write condition, retrying", subnet=subnet.metadata.name, condition=CONDITION, error=error)
