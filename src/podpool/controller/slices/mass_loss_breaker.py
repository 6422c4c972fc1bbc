"""The mass-loss breaker of slices: if too many Nodes with slices are missing at once, node GC releases nothing.

A machine that was replaced under its name counts as missing, as in the ledger. The breaker closes for an hour when an
operator confirms the loss, or, if there is any Node, after a day; and when enough Nodes are back. An emptied API server
gives nothing away, and a confirmation does not cover a later loss.

Its state is in the ConfigMap, so that the next leader continues with it. Time is what leaders have watched, not the
difference of two wall clocks: a leader whose clock is a day ahead must not assume the loss. A new leader may count an
hour once more.
"""

import asyncio

from podpool.controller.deps import SliceDeps
from podpool.controller.slices.inventory_configmap import InventoryConfigMap
from podpool.controller.slices.slice_index import SliceIndex
from podpool.core.mass_loss import BreakerSettings
from podpool.runtime.entropy import new_uuid
from podpool.runtime.logging import get_logger

SAVE_INTERVAL = 3_600.0
"""Seconds between two writes of the time that has passed: all agents watch the ConfigMap."""
FIELDS = ("loss", "missing", "lossSeconds", "lossConfirmed")

log = get_logger(__name__)


class SliceMassLoss:
    """Counts missing nodes, and those that were released within the window."""

    def __init__(self, deps: SliceDeps, index: SliceIndex, config_map: InventoryConfigMap) -> None:
        self.paused = False
        """The breaker is open."""
        self._deps = deps
        self._index = index
        self._map = config_map
        self._settings = BreakerSettings(window_seconds=deps.settings.common.node_gc_delay)
        self._released: dict[tuple[str, str], float] = {}
        """When each Node was released, by name and UID."""
        self._saved_at: float | None = None
        """When the time in the ConfigMap was written, or first read by this leader."""

    @property
    def recorded(self) -> bool:
        """Whether a mass loss is recorded: it is over when enough Nodes are back, or their slices released."""
        return "loss" in self._map.data

    def on_release(self, owner: tuple[str, str]) -> None:
        """Count a Node whose slices were released."""
        self._released[owner] = asyncio.get_running_loop().time()

    async def check(self) -> bool:
        """Return whether node GC may release slices; opens or closes the breaker."""
        missing, known = self._count()
        loss = self._map.data.get("loss", "")
        if not self._settings.is_mass_loss(lost=missing, known=known):
            if loss:
                await self._map.write(dict.fromkeys(FIELDS))
            self.paused = False
        elif not loss:
            await self._open(missing, known)
        elif self._map.data.get("lossConfirmed") == loss:
            if await self._seconds() < self._settings.confirmed_seconds:
                self.paused = False
            else:
                await self._open(missing, known)
        elif self._map.is_confirmed(loss) or await self._has_expired():
            await self._save(0.0, lossConfirmed=loss)
            self.paused = False
        else:
            self.paused = True
        return not self.paused

    def _count(self) -> tuple[int, int]:
        """Return the number of missing nodes, and of all, those that were released within the window included."""
        begin = asyncio.get_running_loop().time() - self._settings.window_seconds
        self._released = {owner: at for owner, at in self._released.items() if at > begin}
        slices = [each for name in self._index.nodes() for each in self._index.of_node(name)]
        known = {each.owner for each in slices} | self._released.keys()
        present = {each.owner for each in slices if each.belongs_to(self._deps.nodes.get(each.node))}
        return len(known - present), len(known)

    async def _open(self, missing: int, known: int) -> None:
        await self._save(0.0, loss=new_uuid(self._deps.rng), missing=str(missing), lossConfirmed=None)
        self.paused = True
        why = (
            f"{missing} of {known} nodes with slices are missing at once, so nothing is released: if they really are"
            " gone, run `podpool slices confirm-loss`"
        )
        log.warning(
            "too many nodes with slices gone at once, no slice is released until they return, the loss is confirmed "
            "or a day has passed",
            reason=why,
        )
        self._deps.events.slice_node_gc_paused(namespace=self._deps.namespace, why=why)

    async def _has_expired(self) -> bool:
        return await self._seconds() >= self._settings.hold_seconds and len(self._deps.nodes) > 0

    async def _seconds(self) -> float:
        """Return for how long leaders have watched this state of the breaker; written now and then."""
        now, text = asyncio.get_running_loop().time(), self._map.data.get("lossSeconds", "")
        self._saved_at = now if self._saved_at is None else self._saved_at
        seconds = (int(text) if text.isdecimal() else 0) + now - self._saved_at
        if now - self._saved_at >= SAVE_INTERVAL:
            await self._save(seconds)
        return seconds

    async def _save(self, seconds: float, **fields: str | None) -> None:
        await self._map.write({"lossSeconds": str(int(seconds)), **fields})
        self._saved_at = asyncio.get_running_loop().time()
