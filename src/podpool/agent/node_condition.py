"""Tells a cluster that a node's Pods wait for addresses which the subnet does not have.

A condition of the Node, an Event, and where it is wanted a taint that keeps further Pods away. What must hold: all of
it is taken back when it is over, also what an earlier agent left behind; a node that was never short writes nothing. It
is over when no Pod has waited for a hold: a shortage that comes and goes must not write each time.
"""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from podpool.agent.deps import Ground
from podpool.api.builtin import NODES, SHORT_CONDITION, SHORT_TAINT, Node
from podpool.api.meta import moment
from podpool.kube.backoff import backoff
from podpool.kube.errors import ApiError, Forbidden
from podpool.kube.events import Recorder, reference
from podpool.runtime.transport import Unreachable

TAINT = {"key": SHORT_TAINT, "effect": "NoSchedule"}


class Shortage:
    """Keeps the Node in line with whether Pods wait."""

    def __init__(
        self,
        ground: Ground,
        *,
        taint: bool,
        recorder: Recorder | None,
        node: Callable[[], Node | None],
        why: Callable[[], str],
    ) -> None:
        self.waiting = 0
        """Pods that wait for what the subnet does not have."""
        self._ground = ground
        self._taint = taint
        self._recorder = recorder
        self._node = node
        self._why = why
        self._over_at: float | None = None
        self._told: bool | None = None
        self._announced = False
        self._uid = ""
        self._changed = asyncio.Event()

    @property
    def short(self) -> bool:
        """Tell whether Pods wait, or waited a moment ago."""
        if self.waiting:
            return True
        return self._over_at is not None and asyncio.get_running_loop().time() < self._over_at

    def look(self, waiting: int) -> None:
        """Learn how many Pods wait."""
        if self.waiting and not waiting:
            self._over_at = asyncio.get_running_loop().time() + self._ground.settings.shrink_hold
        self.waiting = waiting
        node = self._node()
        if node and node.metadata.uid != self._uid:
            self._uid, self._told = node.metadata.uid, None  # a Node made anew knows nothing of it
        if self._told is not self.short or self._over_at is not None:
            self._changed.set()

    async def run(self) -> None:
        """Tell it for ever."""
        failures = 0
        while True:
            try:
                async with asyncio.timeout_at(None if self.waiting else self._over_at):
                    await self._changed.wait()
            except TimeoutError:
                self._over_at = None
            self._changed.clear()
            short = self.short
            if short is self._told:
                continue
            try:
                await self._tell(short=short)
            except Forbidden as error:
                self._ground.tell(f"whether addresses are short cannot be told on the Node: {error}")
                self._told = short
            except (ApiError, Unreachable):
                failures += 1
                await asyncio.sleep(backoff(failures, rng=self._ground.rng, base=1.0, most=60.0))
                self._changed.set()
            else:
                failures, self._told = 0, short

    async def _tell(self, *, short: bool) -> None:
        why = self._why() if short else "every Pod of this node has an address"
        self._announce(short=short, why=why)
        node = await self._ground.kube.read(NODES, self._ground.node)
        version = str(node["metadata"]["resourceVersion"])
        conditions, known = _without(node.get("status", {}).get("conditions"), "type", SHORT_CONDITION)
        if short != (known.get("status") == "True"):
            status = {"conditions": [*conditions, self._condition(short=short, why=why)]}
            version = await self._write({"status": status}, version=version, sub="status")
        taints, known = _without(node.get("spec", {}).get("taints"), "key", SHORT_TAINT)
        if bool(known) != (short and self._taint):
            await self._write({"spec": {"taints": taints if known else [*taints, TAINT]}}, version=version)

    async def _write(self, patch: Mapping[str, Any], *, version: str, sub: str | None = None) -> str:
        """Write a whole list, as it was read but for our entry; gives the Node's version after it."""
        kube, node = self._ground.kube, self._ground.node
        return (await kube.merge(NODES, node, patch, sub=sub, precondition=version)).metadata.resource_version

    def _condition(self, *, short: bool, why: str) -> dict[str, str]:
        now = moment(self._ground.clock.wall())
        return {
            "type": SHORT_CONDITION,
            "status": "True" if short else "False",
            "reason": "SubnetShort" if short else "Enough",
            "message": why,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }

    def _announce(self, *, short: bool, why: str) -> None:
        node = self._node()
        if self._recorder is None or node is None or short is self._announced:
            return
        self._announced = short
        regarding = reference(NODES, node)
        if short:
            self._recorder.tell(regarding, reason=SHORT_CONDITION, action="Waiting", note=why, warning=True)
        else:
            self._recorder.tell(regarding, reason="PodAddressesEnough", action="Served", note=why)


def _without(entries: list[dict[str, Any]] | None, key: str, name: str) -> tuple[list[Any], dict[str, Any]]:
    """Part a list into what is others' and what is ours."""
    ours = [each for each in entries or [] if each.get(key) == name]
    return [each for each in entries or [] if each.get(key) != name], next(iter(ours), {})
