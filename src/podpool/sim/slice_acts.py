"""What can happen to a cluster with node slices, beside all that happens to machines and processes."""

from typing import Any

from podpool.resources.whereabouts import IP_POOLS, NODE_ANNOTATION, SLICE_POOLS
from podpool.sim import attachments
from podpool.sim.acts import Acts
from podpool.sim.plan import Event

FOREIGN = "foreign"


class SliceActs(Acts):
    """Acts of people and of foreign plugins; what is deleted or changed comes back after a while."""

    def delete_attachment(self, event: Event) -> None:
        """Somebody deletes the definition of the network, and writes it again later."""
        before = attachments.size(self._world.store)
        if before:
            attachments.delete(self._world.store)
            self._after(event.amount, lambda: self._attach(before))

    def resize(self, event: Event) -> None:
        """Somebody changes the size of a slice, and changes it back."""
        if attachments.size(self._world.store):
            self._attach(attachments.SIZES[1])
            self._after(event.amount, lambda: self._attach(attachments.SIZES[0]))

    def _attach(self, size: str) -> None:
        attachments.write(self._world.store, self._world.shape.cidr, size)

    def foreign_entry(self, event: Event) -> None:
        """A foreign plugin writes an entry into a node's pool."""
        entry = {"id": FOREIGN, "podref": "default/foreign", "ifname": "net9"}
        self._allocate(event.node, lambda held: {str(1 + int(event.amount) % 6): entry} | held)

    def foreign_removal(self, event: Event) -> None:
        """Somebody takes the entries out of a node's pool."""
        self._allocate(event.node, lambda _: {})

    def delete_pool(self, event: Event) -> None:
        """Somebody deletes a node's IPPool."""
        for key in self._pools(event.node):
            self._world.store.delete(self._served(IP_POOLS), key)

    def delete_table(self, _: Event) -> None:
        """Somebody deletes the NodeSlicePool."""
        for key in list(self._world.store.objects(SLICE_POOLS.group, SLICE_POOLS.plural)):
            self._world.store.delete(self._served(SLICE_POOLS), key)

    def _allocate(self, node: str, change: Any) -> None:  # noqa: ANN401  from JSON to JSON
        for key in self._pools(node):
            self._world.store.update(
                self._served(IP_POOLS),
                key,
                lambda pool: {**pool, "spec": {**pool["spec"], "allocations": change(pool["spec"]["allocations"])}},
            )

    def _pools(self, node: str) -> list[str]:
        found = self._world.store.objects(IP_POOLS.group, IP_POOLS.plural).items()
        return [key for key, pool in found if pool["metadata"].get("annotations", {}).get(NODE_ANNOTATION) == node]

    def _served(self, kind: Any) -> Any:  # noqa: ANN401  a kind of ours, as the store has it
        return self._world.store.kinds.find(kind.group, kind.version, kind.plural)
