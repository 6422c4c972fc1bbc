"""Asks for more addresses, or gives some back: looks when something changed, and when it was time to look again.

One patch at a time, with a precondition: what it says was decided on what it changes. A name is on the platter before
it is on the wire, with the boot id and the highest version: a patch that was sent may land at any later time.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from podpool.agent.deps import Ground
from podpool.agent.nnc_patch import Decision, View, Wish, decide, report
from podpool.agent.nnc_status import OwnConfig
from podpool.agent.records import Named
from podpool.agent.state import Book
from podpool.agent.subnets import NAMESPACE
from podpool.api.azure import AGENT_ANNOTATION, NETWORK_CONFIGS, AgentReport
from podpool.core.debounce import Pace
from podpool.kube.backoff import backoff
from podpool.kube.errors import ApiError, Conflict, NotFound
from podpool.runtime.transport import Unreachable

TICK = 0.001
"""Seconds to wait at least: two clocks may differ in the last digit, and then it would be time, again and again."""

See = Callable[[], View | None]
"""Put together what a decision depends on; None while something is not known."""
Testify = Callable[[], AgentReport | None]
"""Put together what must be told even then; None when there is nothing."""


class Monitor:
    """Keeps the node's request in line with its demand."""

    def __init__(
        self,
        ground: Ground,
        *,
        book: Book,
        config: OwnConfig,
        see: See,
        testify: Testify,
        nodes: int,
        asked: Callable[[], None],
    ) -> None:
        self._ground = ground
        self._book = book
        self._config = config
        self._see = see
        self._testify = testify
        self._nodes = nodes
        self._asked = asked
        self._place = ground.rng.random()
        self._pace = Pace()
        self._changed = asyncio.Event()
        self._failures = 0

    def changed(self) -> None:
        """Look again: something is different."""
        self._changed.set()

    async def run(self) -> None:
        """Look for ever."""
        while True:
            self._changed.clear()
            again_at = await self._turn()
            try:
                async with asyncio.timeout_at(again_at):
                    await self._changed.wait()
            except TimeoutError:
                continue

    async def _turn(self) -> float | None:
        """Look once, and ask if there is something to ask; tells when to look again, by the loop's time."""
        view, version = self._see(), self._config.version
        if view is None:
            told = self._testify()
            return None if told is None else await self._try(self._write({}, told, version=version))
        now = asyncio.get_running_loop().time()
        exhausted = view.terms.exhausted
        rhythm = self._ground.settings.rhythm(exhausted=exhausted, nodes=self._nodes, place=self._place)
        decision = decide(view, self._pace, now=now, rhythm=rhythm)
        if decision.wish is None:
            self._pace = decision.pace
            return self._earliest(decision, now=now, rest=self._ground.settings.cooldown_in_force(exhausted=exhausted))
        return await self._try(self._ask(view, decision.wish, pace=decision.pace, version=version))

    async def _try(self, patch: Awaitable[None]) -> float:
        """Send a patch; when it was refused, know better, and when it failed, wait. Then it is time to look again."""
        try:
            await patch
        except (Conflict, NotFound):
            await self._read_again()
        except (ApiError, Unreachable) as error:
            await self._fail(error)
        else:
            self._failures = 0
        return asyncio.get_running_loop().time()

    def _earliest(self, decision: Decision, *, now: float, rest: float) -> float | None:
        boot = self._ground.clock.boot()
        rested = self._book.pool.rested_next(now=boot, rest=rest)
        times = (
            decision.again_at,
            self._config.answer_due(),
            None if rested is None else now + max(rested - boot, TICK),
        )
        return min((each for each in times if each is not None), default=None)

    async def _ask(self, view: View, wish: Wish, *, pace: Pace, version: str) -> None:
        pool = self._book.pool
        if wish.release:
            self._book.write(Named(grants=wish.release, version=pool.version, boot_id=pool.boot_id))
        names = tuple(pool.named)
        rested = pool.named_for(now=self._ground.clock.boot())
        await self._book.sync()
        # grants that no Pod ever used have rested for as long as anybody asks
        named_for = (self._ground.settings.cooldown if rested is None else rested) if names else 0.0
        patch = {"spec": {"requestedIPCount": wish.request, "ipsNotInUse": list(names)}}
        await self._write(patch, report(view, wish, named_for=named_for), version=version)
        if wish.request != view.spec.requested:
            self._config.asked()
        self._pace = pace
        self._asked()

    async def _write(self, patch: dict[str, Any], told: AgentReport, *, version: str) -> None:
        before = self._config.newest
        words = {AGENT_ANNOTATION: msgspec.json.encode(told).decode()}
        answer = await self._ground.kube.merge(
            NETWORK_CONFIGS,
            self._ground.node,
            {**patch, "metadata": {"annotations": words}},
            namespace=NAMESPACE,
            precondition=version,
        )
        self._config.wrote(before)
        self._config.see_unless_moved(answer, since=before)

    async def _read_again(self) -> None:
        """The object moved on under the patch: decide anew on what it is now."""
        before = self._config.newest
        try:
            config = await self._ground.kube.get(NETWORK_CONFIGS, self._ground.node, namespace=NAMESPACE)
            self._config.see_unless_moved(config, since=before)
        except NotFound:
            self._config.see(None)
        except (ApiError, Unreachable) as error:
            await self._fail(error)

    async def _fail(self, error: Exception) -> None:
        self._failures += 1
        if self._failures == 1:
            self._ground.tell(f"the request cannot be brought up to date, and is tried again: {error}")
        await asyncio.sleep(backoff(self._failures, rng=self._ground.rng, base=0.2, most=15.0))
