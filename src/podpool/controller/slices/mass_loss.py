"""The mass-loss breaker of slices: if too many Nodes with slices are missing at once, node GC releases nothing.

A machine that was replaced under its name counts as missing, as in the ledger.

It closes when an operator confirms the loss, when enough Nodes are back, or, if there is any Node, after a day: an
emptied API server gives nothing away. Its state is in the ConfigMap, so that the next leader continues with it.
"""

import asyncio

from podpool.controller.deps import SliceDeps
from podpool.controller.slices.inventory_configmap import InventoryConfigMap
from podpool.controller.slices.slice_index import SliceIndex
from podpool.core.mass_loss import BreakerSettings
from podpool.runtime.entropy import new_uuid
from podpool.runtime.logging import get_logger

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

    def on_release(self, owner: tuple[str, str]) -> None:
        """Count a Node whose slices were released."""
        self._released[owner] = asyncio.get_running_loop().time()

    async def check(self) -> bool:
        """Return whether node GC may release slices; opens or closes the breaker."""
        begin = asyncio.get_running_loop().time() - self._settings.window_seconds
        self._released = {owner: at for owner, at in self._released.items() if at > begin}
        slices = [each for name in self._index.nodes() for each in self._index.of_node(name)]
        known = {each.owner for each in slices} | self._released.keys()
        present = {each.owner for each in slices if each.belongs_to(self._deps.nodes.get(each.node))}
        missing = known - present
        loss = self._map.data.get("loss", "")
        if not self._settings.is_mass_loss(lost=len(missing), known=len(known)):
            if loss:
                await self._map.write(dict.fromkeys(("loss", "missing", "lossSince")))
            self.paused = False
        elif not loss:
            await self._open(len(missing), len(known))
        else:
            self.paused = not (self._map.is_confirmed(loss) or self._has_expired())
        return not self.paused

    async def _open(self, missing: int, known: int) -> None:
        since = str(int(self._deps.clock.wall()))
        await self._map.write({"loss": new_uuid(self._deps.rng), "missing": str(missing), "lossSince": since})
        self.paused = True
        why = (
            f"{missing} of {known} nodes with slices are missing at once, so nothing is released: if they really are"
            " gone, run `podpool slices confirm-loss`"
        )
        log.warning("mass-loss breaker open, node GC of slices paused", reason=why)
        self._deps.events.slice_node_gc_paused(namespace=self._deps.namespace, why=why)

    def _has_expired(self) -> bool:
        since = self._map.data.get("lossSince", "")
        held = self._deps.clock.wall() - int(since) if since.isdecimal() else 0.0
        return len(self._deps.nodes) > 0 and held >= self._settings.hold_seconds
