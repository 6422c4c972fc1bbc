"""What can happen to a cluster with node slices, beside all that happens to machines and processes."""

import ipaddress
from typing import Any

from podpool.api.whereabouts import IP_POOLS, NODE_ANNOTATION, NODE_SLICE_POOLS
from podpool.lab.sim import nads
from podpool.lab.sim.faults import Acts
from podpool.lab.sim.nads import Attached
from podpool.lab.sim.oracle import Use
from podpool.lab.sim.scenario import Event

FOREIGN = "foreign"
REFUSED = 0.7
"""The share of patches that a server in a bad mood refuses."""


class SliceActs(Acts):
    """Acts of people and of foreign plugins; what is deleted or changed comes back after a while."""

    # People

    def delete_attachment(self, event: Event) -> None:
        """Somebody deletes the definition of a network, and writes it again later."""
        network = self._dice.choice(nads.networks(self._world.shape))
        if nads.is_defined(self._world.store, network):
            nads.delete(self._world.store, network)
            self._after(event.amount, lambda: self._attach(network))

    def resize(self, event: Event) -> None:
        """Somebody changes the size of a slice, and changes it back."""
        network = self._dice.choice(nads.sliced(self._world.shape))
        if nads.is_defined(self._world.store, network):
            self._attach(network, nads.SIZES[1])
            self._after(event.amount, lambda: self._attach(network))

    def change_range(self, event: Event) -> None:
        """Somebody makes a range larger or smaller, perhaps the slices too, and changes it back."""
        network = self._dice.choice(nads.sliced(self._world.shape))
        if nads.is_defined(self._world.store, network):
            changed = self._dice.choice((network.larger, network.smaller))
            self._attach(changed, self._dice.choice(nads.SIZES))
            self._after(event.amount, lambda: self._attach(network))

    def share(self, event: Event) -> None:
        """Somebody takes the size of slices out of a definition, so that all nodes share its range, for a while."""
        network = self._dice.choice(nads.sliced(self._world.shape))
        if nads.is_defined(self._world.store, network):
            self._attach(network, "")
            self._after(event.amount, lambda: self._attach(network))

    def _attach(self, network: Attached, size: str = nads.SIZES[0]) -> None:
        nads.write(self._world.store, network, size)

    def restore_api(self, event: Event) -> None:
        """The API server goes back to its copy, and people write again what is missing in it."""
        super().restore_api(event)
        for network in nads.networks(self._world.shape):
            store = self._world.store
            whole = nads.is_defined(store, network) and (network.shared or nads.size(store, network))
            if not whole:
                self._after(event.amount, lambda network=network: self._attach(network))  # type: ignore[misc]  # its default is an Attached

    def delete_pool(self, event: Event) -> None:
        """Somebody deletes a node's IPPools."""
        for key in self._pools(event.node):
            self._world.store.delete(self._served(IP_POOLS), key)

    def delete_table(self, _: Event) -> None:
        """Somebody deletes the NodeSlicePools."""
        for key in list(self._world.store.objects(NODE_SLICE_POOLS.group, NODE_SLICE_POOLS.plural)):
            self._world.store.delete(self._served(NODE_SLICE_POOLS), key)

    # Foreign plugins

    def foreign_entry(self, event: Event) -> None:
        """A foreign plugin writes an entry into a node's pools."""
        entry = {"id": FOREIGN, "podref": "default/foreign", "ifname": "net9"}
        self._allocate(self._pools(event.node), lambda held: {str(1 + int(event.amount) % 6): entry} | held)

    def foreign_removal(self, event: Event) -> None:
        """Somebody takes the entries out of a node's pools."""
        self._allocate(self._pools(event.node), lambda _: {})

    def foreign_pod(self, event: Event) -> None:
        """A foreign plugin gives a Pod of its own the lowest free address of the range that all share, for a while."""
        shared = next((each for each in nads.networks(self._world.shape) if each.shared), None)
        key = f"kube-system/{shared.pool}" if shared else ""
        pool = self._world.store.objects(IP_POOLS.group, IP_POOLS.plural).get(key)
        if shared is None or pool is None:
            return
        range_ = ipaddress.ip_network(shared.range)
        free = (
            offset for offset in range(1, range_.num_addresses - 1) if str(offset) not in pool["spec"]["allocations"]
        )
        offset, sandbox = next(free, None), f"{FOREIGN}-{event.at}"
        if offset is None:
            return
        entry = {"id": sandbox, "podref": f"default/{sandbox}", "ifname": "net9"}
        self._allocate([key], lambda held: {**held, str(offset): entry})
        now = self._world.loop.time()
        self._world.truth.begin(Use(str(range_[offset]), FOREIGN, sandbox, f"default/{sandbox}", now))
        self._after(event.amount, lambda: self._foreign_gone(key, sandbox))

    def _foreign_gone(self, key: str, sandbox: str) -> None:
        self._world.truth.end(FOREIGN, sandbox)
        if key in self._world.store.objects(IP_POOLS.group, IP_POOLS.plural):
            self._allocate([key], lambda held: {at: each for at, each in held.items() if each["id"] != sandbox})

    def _allocate(self, keys: list[str], change: Any) -> None:  # noqa: ANN401  from JSON to JSON
        for key in keys:
            self._world.store.update(
                self._served(IP_POOLS),
                key,
                lambda pool: {**pool, "spec": {**pool["spec"], "allocations": change(pool["spec"]["allocations"])}},
            )

    def _pools(self, node: str) -> list[str]:
        found = self._world.store.objects(IP_POOLS.group, IP_POOLS.plural).items()
        return [key for key, pool in found if pool["metadata"].get("annotations", {}).get(NODE_ANNOTATION) == node]

    def _served(self, kind: Any) -> Any:  # noqa: ANN401  a kind of ours, as the store has it
        return self._world.store.registry.find(kind.group, kind.version, kind.plural)

    # Servers

    def refuse_writes(self, event: Event) -> None:
        """The API server refuses patches of IPPools and Leases, with whichever status, for a while."""
        self._world.refusing.share = REFUSED
        self._after(event.amount, self._refuse_no_more)

    def _refuse_no_more(self) -> None:
        self._world.refusing.share = 0.0
