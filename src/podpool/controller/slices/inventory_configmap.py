"""The ConfigMap `podpool-slice-inventory`: the inventory request that agents watch, and what operators confirm.

| field | by | meaning |
|---|---|---|
| data.request | the leader | ID of the inventory request that agents answer in their status |
| data.scope | the leader | `all` if every node is awaited, `ready` if Nodes that are ready, for a short time |
| data.repeats | the leader | how often the request was written |
| data.complete | the leader | the last request of scope `all` that is complete |
| data.loss, missing | the leader | ID and number of nodes of a mass loss that pauses node GC |
| data.lossSeconds | the leader | for how long it was open, or has been confirmed |
| data.lossConfirmed | the leader | the mass loss that is confirmed for an hour |
| annotation inventory-complete | an operator | the request whose silent nodes are not awaited |
| annotation confirm-loss | an operator | the mass loss whose nodes are really gone |
"""

from collections.abc import Mapping

from podpool.api.builtin import CONFIG_MAPS, ConfigMap
from podpool.api.meta import ObjectMeta
from podpool.api.node_slices import (
    ALL_NODES,
    CONFIRM_LOSS_ANNOTATION,
    INVENTORY_COMPLETE_ANNOTATION,
    INVENTORY_CONFIG_MAP,
)
from podpool.controller.deps import SliceDeps
from podpool.kube.errors import ApiNotFound


class InventoryConfigMap:
    """Reads the ConfigMap from the informer's cache, and writes it."""

    def __init__(self, deps: SliceDeps) -> None:
        self._deps = deps
        self._written: dict[str, str | None] = {}
        """What this leader wrote, which the cache may not show yet."""

    @property
    def data(self) -> dict[str, str]:
        """Return the data."""
        merged = {**self._object.data, **self._written}
        return {key: value for key, value in merged.items() if value is not None}

    async def read(self) -> None:
        """Read what the former leader wrote: the cache may lag behind."""
        found = await self._deps.kube.find(CONFIG_MAPS, INVENTORY_CONFIG_MAP, namespace=self._deps.namespace)
        self._written |= found.data if found else {}

    @property
    def is_pending(self) -> bool:
        """Whether all nodes were asked, and the request is not complete."""
        data = self.data
        return data.get("scope") == ALL_NODES and data.get("request") != data.get("complete")

    def is_excused(self, request: str) -> bool:
        """Return whether an operator has excused the silent nodes of a request."""
        return request != "" and self._object.metadata.annotations.get(INVENTORY_COMPLETE_ANNOTATION) == request

    def is_confirmed(self, loss: str) -> bool:
        """Return whether an operator has confirmed a mass loss."""
        return loss != "" and self._object.metadata.annotations.get(CONFIRM_LOSS_ANNOTATION) == loss

    async def write(self, data: Mapping[str, str | None]) -> None:
        """Write some fields; None removes one. The object is created if it does not exist."""
        kube, namespace = self._deps.kube, self._deps.namespace
        try:
            await kube.merge_patch(CONFIG_MAPS, INVENTORY_CONFIG_MAP, {"data": dict(data)}, namespace=namespace)
        except ApiNotFound:
            meta = ObjectMeta(name=INVENTORY_CONFIG_MAP, namespace=namespace)
            present = {key: value for key, value in data.items() if value is not None}
            await kube.create(CONFIG_MAPS, ConfigMap(metadata=meta, data=present))
        self._written |= data

    @property
    def _object(self) -> ConfigMap:
        key = f"{self._deps.namespace}/{INVENTORY_CONFIG_MAP}"
        return self._deps.informers.inventory.cache.get(key) or ConfigMap()
