"""Whether the ledger answers. While it is away, what is stays as it is, and people are told so.

Nodes go on from what they hold, so nothing is urgent. A blip is not worth a write: only after a while each
ClusterSubnet says so in a condition, and again when the ledger is back. Where it was never away there is no condition.
"""

import asyncio
import logging
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
from podpool.runtime.transport import Unreachable

CONDITION = "LedgerReachable"
DEADLINE = 15.0
"""Seconds for an answer."""
BLIP = 10.0
"""Seconds for which the ledger may be away unsaid."""
LOOK = 2.0
"""Seconds between two looks while there is something to say."""

_log = logging.getLogger(__name__)

T = TypeVar("T")


class LedgerHealth:
    """Knows how calls to the ledger ended."""

    def __init__(self) -> None:
        self.lost = asyncio.Event()
        """Set whenever the ledger has become silent."""
        self.why = ""
        self._since: float | None = None

    @property
    def away(self) -> float:
        """For how many seconds the ledger has not answered; 0 while it does."""
        return 0.0 if self._since is None else max(asyncio.get_running_loop().time() - self._since, 0.001)

    async def ask(self, call: Awaitable[T]) -> T:
        """Wait for an answer, not for ever; to refuse is one too, unless its books are away."""
        try:
            async with asyncio.timeout(DEADLINE):
                answer = await call
        except TimeoutError:
            late = Unreachable("the ledger", f"no answer within {DEADLINE:g} s")
            self._miss(late)
            raise late from None
        except (Unreachable, Unavailable) as error:
            self._miss(error)
            raise
        except LedgerError:
            self._meet()
            raise
        self._meet()
        return answer

    def _miss(self, error: Exception) -> None:
        self.why = str(error)
        if self._since is None:
            self._since = asyncio.get_running_loop().time()
            self.lost.set()

    def _meet(self) -> None:
        if self._since is not None:
            _log.info("the ledger answers again, after %.0f s", self.away)
        self._since = None


class LedgerConditionWriter:
    """Says it in every ClusterSubnet, as long as this controller leads."""

    def __init__(
        self, kube: KubeClient, presence: LedgerHealth, subnets: ObjectCache[ClusterSubnet], *, clock: Clock
    ) -> None:
        self._kube = kube
        self._presence = presence
        self._subnets = subnets
        self._clock = clock

    async def run(self) -> None:
        """Keep the condition in step."""
        while True:
            self._presence.lost.clear()
            behind = [subnet for subnet in self._subnets.values() if self._differs(subnet)]
            for subnet in behind:
                await self._say(subnet)
            if not behind and not self._presence.away:
                await self._presence.lost.wait()
            await asyncio.sleep(LOOK)

    def _differs(self, subnet: ClusterSubnet) -> bool:
        """Tell whether a condition is wrong; that there is none is right until the ledger is away."""
        shown = next((each for each in subnet.status.conditions if each.type == CONDITION), None)
        return self._away if shown is None else shown.status != str(not self._away)

    @property
    def _away(self) -> bool:
        return self._presence.away >= BLIP

    async def _say(self, subnet: ClusterSubnet) -> None:
        why = f"nodes keep what they hold, and are given nothing more: {self._presence.why}"
        told = Condition(
            type=CONDITION,
            status=str(not self._away),
            reason="NoAnswer" if self._away else "Answers",
            message=why if self._away else "",
            last_transition_time=rfc3339(self._clock.wall()),
        )
        others = [each for each in subnet.status.conditions if each.type != CONDITION]
        try:
            await self._kube.merge(
                CLUSTER_SUBNETS,
                subnet.metadata.name,
                {"status": {"conditions": msgspec.to_builtins([*others, told])}},
                namespace=subnet.metadata.namespace,
                sub="status",
                precondition=subnet.metadata.resource_version,
            )
        except PodpoolError as error:
            _log.info("subnet %s: its condition is written later: %s", subnet.metadata.name, error)
