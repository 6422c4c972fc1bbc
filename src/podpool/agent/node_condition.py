"""Node condition, Event and optional taint while Pods of the node wait for addresses that the subnet does not have.

What must hold: all of it is removed when the shortage is over, also what an earlier agent left; a node that was never
short writes nothing. The shortage is over when no Pod has waited for the hold time, so that a
recurring shortage does not write each time. The condition has no numbers, because it is not rewritten when they change;
log line and Event have those of the moment.
"""

import asyncio
from collections.abc import Mapping
from typing import Any

from podpool.agent.deps import AgentDeps, AgentOptions, event_or_timeout
from podpool.agent.informers import AgentInformers
from podpool.agent.scaling_input_collector import InputCollector
from podpool.api.builtin import NODES, SHORT_CONDITION, SHORT_TAINT
from podpool.api.meta import rfc3339
from podpool.kube.backoff import Backoff
from podpool.kube.errors import ApiError, ApiForbidden
from podpool.kube.events import object_reference
from podpool.runtime.transport import Unreachable

TAINT = {"key": SHORT_TAINT, "effect": "NoSchedule"}
SUFFICIENT = "every Pod of this node has an address"


class NodeConditionReporter:
    """Reports on the Node whether Pods wait."""

    def __init__(
        self, deps: AgentDeps, options: AgentOptions, informers: AgentInformers, inputs: InputCollector
    ) -> None:
        self.waiting = 0
        """Pods that wait for addresses which the subnet does not have."""
        self._deps = deps
        self._taint = options.taint
        self._node = informers.node
        self._inputs = inputs
        self._over_at: float | None = None
        self._written: bool | None = None
        self._announced = False
        self._uid = ""
        self._changed = asyncio.Event()

    @property
    def short(self) -> bool:
        """Whether Pods wait, or waited within the hold time."""
        if self.waiting:
            return True
        return self._over_at is not None and asyncio.get_running_loop().time() < self._over_at

    def update(self, waiting: int) -> None:
        """Set how many Pods wait."""
        if self.waiting and not waiting:
            self._over_at = asyncio.get_running_loop().time() + self._deps.settings.shrink_hold
        self.waiting = waiting
        node = self._node.object
        if node and node.metadata.uid != self._uid:
            self._uid, self._written = node.metadata.uid, None  # a new Node object has no condition
        if self._written is not self.short or self._over_at is not None:
            self._changed.set()

    async def run(self) -> None:
        """Write changes until cancelled."""
        backoff = Backoff(rng=self._deps.rng, base=1.0, maximum=60.0)
        while True:
            if not await event_or_timeout(self._changed, asyncio.timeout_at(None if self.waiting else self._over_at)):
                self._over_at = None
            self._changed.clear()
            short = self.short
            if short is self._written:
                continue
            try:
                await self._report(short=short)
            except ApiForbidden as error:
                self._deps.log.warning(
                    "not allowed to write the shortage to the Node (condition, taint): apply podpool rbac", error=error
                )
                self._written = short
            except (ApiError, Unreachable):
                await backoff.wait()
                self._changed.set()
            else:
                self._written = short
                backoff.reset()

    async def _report(self, *, short: bool) -> None:
        self._announce(short=short)
        message = self._inputs.shortage_message() if short else SUFFICIENT
        node = await self._deps.kube.get_raw(NODES, self._deps.node)
        version = str(node["metadata"]["resourceVersion"])
        conditions, own = _partition(node.get("status", {}).get("conditions"), "type", SHORT_CONDITION)
        if short != (own.get("status") == "True"):
            status = {"conditions": [*conditions, self._condition(short=short, message=message)]}
            version = await self._write({"status": status}, version=version, subresource="status")
        taints, own = _partition(node.get("spec", {}).get("taints"), "key", SHORT_TAINT)
        if bool(own) != (short and self._taint):
            await self._write({"spec": {"taints": taints if own else [*taints, TAINT]}}, version=version)

    async def _write(self, patch: Mapping[str, Any], *, version: str, subresource: str | None = None) -> str:
        """Write a whole list as it was read, except our entry; return the Node's new resourceVersion."""
        patching = self._deps.kube.merge_patch(
            NODES, self._deps.node, patch, subresource=subresource, precondition=version
        )
        return (await patching).metadata.resource_version

    def _condition(self, *, short: bool, message: str) -> dict[str, str]:
        now = rfc3339(self._deps.clock.wall())
        return {
            "type": SHORT_CONDITION,
            "status": "True" if short else "False",
            "reason": "InsufficientAddresses" if short else "Sufficient",
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        }

    def _announce(self, *, short: bool) -> None:
        """Log the change, and write an Event."""
        node, recorder = self._node.object, self._deps.recorder
        if node is None or short is self._announced:
            return
        self._announced = short
        message = self._inputs.no_address_reason() if short else SUFFICIENT
        if short:
            self._deps.log.warning("Pods wait for addresses", count=self.waiting, reason=message)
        else:
            self._deps.log.info("no Pod waits for an address")
        if recorder is None:
            return
        regarding = object_reference(NODES, node)
        if short:
            recorder.record(regarding, reason=SHORT_CONDITION, action="Waiting", note=message, warning=True)
        else:
            recorder.record(regarding, reason="PodAddressesSufficient", action="Served", note=message)


def _partition(entries: list[dict[str, Any]] | None, key: str, name: str) -> tuple[list[Any], dict[str, Any]]:
    """Return the entries of others, and ours."""
    ours = [each for each in entries or [] if each.get(key) == name]
    return [each for each in entries or [] if each.get(key) != name], next(iter(ours), {})
