"""Index of all owned slices, by node and network; follows the caches of NodeSlices and IPPools.

Beside what the objects show, these count: a write whose outcome is not known; and claims, which are slices in use that
disappeared without the controller's doing, and rows of NodeSlicePools that no object has. A claim ends when the agent
of its node has answered an inventory, or by node GC.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from podpool.api.node_slices import Assignment, NodeSlices
from podpool.api.whereabouts import NODE_ANNOTATION, IPPool
from podpool.controller.slices.informers import SliceControllerInformers
from podpool.controller.slices.nad_planner import NADPlanner
from podpool.controller.slices.read_your_writes_cache import ReadYourWritesCache
from podpool.controller.slices.slice_ownership import (
    OwnedSlice,
    merge_slices,
    read_slices,
    status_is_current,
    without_implausible_claims,
)


class SliceObserver(Protocol):
    """Receives what changes in the index."""

    def on_slices_change(self, node: str, old: tuple[OwnedSlice, ...], new: tuple[OwnedSlice, ...]) -> None:
        """A node has other slices than before."""

    def on_unowned_change(self, old: IPPool | None, new: IPPool | None) -> None:
        """An IPPool changed that is of no agent's slice."""

    def on_vanished(self, node: str) -> None:
        """An assignment in use disappeared without the controller's doing."""

    def on_unlisted(self, node: str) -> None:
        """An agent reports a slice that is not assigned to it."""

    def on_claims_ignored(self, node: str, claims: Sequence[Assignment]) -> None:
        """An agent reports slices that it cannot have been assigned."""


class SliceIndex:
    """All owned slices."""

    def __init__(self, informers: SliceControllerInformers, planner: NADPlanner, observer: SliceObserver) -> None:
        self.objects = ReadYourWritesCache(informers.node_slices, on_change=self.refresh)
        self.pools = ReadYourWritesCache(informers.pools, on_change=self._refresh_pool)
        self.unowned_pools: dict[str, IPPool] = {}
        """IPPools by name that all nodes share, or that Whereabouts' plugins created."""
        self.request = ""
        """The inventory request that agents answer."""
        self.released: set[str] = set()
        """IDs of assignments that node GC has removed."""
        self._observer = observer
        self._layouts = planner.layouts
        self._ignored: dict[str, tuple[Assignment, ...]] = {}
        """Claims of agents that are not counted, by node."""
        self._pending: dict[str, NodeSlices] = {}
        self._claims: dict[str, tuple[OwnedSlice, ...]] = {}
        self._by_node: dict[str, tuple[OwnedSlice, ...]] = {}
        self._by_network: dict[str, dict[str, list[OwnedSlice]]] = {}

    def of_node(self, node: str) -> tuple[OwnedSlice, ...]:
        """Return the slices of all Nodes of a name."""
        return self._by_node.get(node, ())

    def of_network(self, network: str) -> list[OwnedSlice]:
        """Return the slices of a network."""
        return [each for slices in self._by_network.get(network, {}).values() for each in slices]

    def networks(self) -> tuple[str, ...]:
        """Return the networks with slices."""
        return tuple(self._by_network)

    def nodes(self) -> tuple[str, ...]:
        """Return the names of nodes with slices."""
        return tuple(self._by_node)

    def get(self, node: str) -> NodeSlices | None:
        """Return the object of a node, without claims that its agent cannot have."""
        obj = self.objects.get(node)
        return without_implausible_claims(obj, self._layouts)[0] if obj else None

    def has_claims(self, node: str) -> bool:
        """Return whether slices of a node count that its object does not show."""
        return bool(self._claims.get(node))

    def recheck_claims(self) -> None:
        """Check what agents claim again: the slice tables have changed."""
        unlisted = [node for node, slices in self._by_node.items() if not all(each.listed for each in slices)]
        for node in dict.fromkeys((*self._ignored, *unlisted)):
            self.refresh(node)

    def has_answered(self, node: str) -> bool:
        """Return whether the agent of a node has answered the present inventory request."""
        obj = self.objects.get(node)
        return obj is not None and obj.status.inventory == self.request and status_is_current(obj.spec, obj.status)

    # Writes and claims

    def pending(self, node: str) -> NodeSlices | None:
        """Return an object that was written with an unknown outcome."""
        return self._pending.get(node)

    def set_pending(self, obj: NodeSlices) -> None:
        """Count what an object would show, before it is written."""
        self._pending[obj.metadata.name] = obj
        self.refresh(obj.metadata.name)

    def settle(self, node: str, obj: NodeSlices | None = None) -> None:
        """End a pending write, with the object that the API server has since."""
        self._pending.pop(node, None)
        if obj is not None:
            self.objects.put(obj)
        self.refresh(node)

    def claim(self, node: str, slices: Iterable[OwnedSlice]) -> None:
        """Count slices that no object shows, until the agent of their node answers."""
        self._claims[node] = (*self._claims.get(node, ()), *slices)
        self.refresh(node)

    def drop_claims(self, node: str, uid: str) -> None:
        """Drop the claims of a Node that is gone."""
        self._claims[node] = tuple(each for each in self._claims.get(node, ()) if each.node_uid != uid)
        self.refresh(node)

    # Following the caches

    def refresh(self, node: str) -> None:
        """Update the index for one node, and call `on_change` if its slices differ."""
        obj, pending = self._read(node), self._pending.get(node)
        shown = merge_slices(read_slices(obj) if obj else (), read_slices(pending) if pending else ())
        old = self._by_node.get(node, ())
        vanished = self._vanished(node, old, shown)
        slices = (*shown, *self._remaining_claims(node, shown, vanished))
        known = {each.id for each in old if not each.listed} | self.released
        if old != slices:
            self._set(node, old, slices)
            self._observer.on_slices_change(node, old, slices)
        if vanished:
            self._observer.on_vanished(node)
        elif any(not each.listed and each.id not in known for each in shown):
            self._observer.on_unlisted(node)

    def _read(self, node: str) -> NodeSlices | None:
        found, before = self.objects.get(node), self._ignored.pop(node, ())
        if found is None:
            return None
        obj, ignored = without_implausible_claims(found, self._layouts)
        if ignored:
            self._ignored[node] = ignored
        new = [each for each in ignored if each not in before]
        if new:
            self._observer.on_claims_ignored(node, new)
        return obj

    def _vanished(self, node: str, old: Iterable[OwnedSlice], shown: Iterable[OwnedSlice]) -> list[OwnedSlice]:
        """Return slices in use that were listed and are not shown any more, though the controller did not remove them.

        A slice that was returned is not among the old ones: that was shown before it was removed.
        """
        ids, claimed = {each.id for each in shown}, {each.id for each in self._claims.get(node, ())}
        in_use = [each for each in old if each.in_use and each.listed and each.id not in claimed]
        return [each for each in in_use if each.id not in ids | self.released and not self._is_returned(node, each)]

    def _is_returned(self, node: str, owned: OwnedSlice) -> bool:
        obj = self.objects.get(node)
        return obj is not None and any(each.id == owned.id and each.returned for each in obj.status.slices)

    def _remaining_claims(
        self, node: str, shown: Iterable[OwnedSlice], vanished: Iterable[OwnedSlice]
    ) -> tuple[OwnedSlice, ...]:
        before = () if self.has_answered(node) else self._claims.get(node, ())
        ids, slices = {each.id for each in shown}, {each.key for each in shown}
        unknown = (each for each in before if (each.id not in ids if each.id else each.key not in slices))
        self._claims[node] = (*unknown, *vanished)
        return self._claims[node] or self._claims.pop(node)

    def _set(self, node: str, old: Iterable[OwnedSlice], new: tuple[OwnedSlice, ...]) -> None:
        for network in dict.fromkeys(each.network for each in old):
            self._by_network[network].pop(node, None)
            if not self._by_network[network]:
                del self._by_network[network]
        for each in new:
            self._by_network.setdefault(each.network, {}).setdefault(node, []).append(each)
        if new:
            self._by_node[node] = new
        else:
            self._by_node.pop(node, None)

    def _refresh_pool(self, name: str) -> None:
        pool, before = self.pools.get(name), self.unowned_pools.pop(name, None)
        if pool is not None and not is_derived(pool):
            self.unowned_pools[name] = pool
        if before != self.unowned_pools.get(name):
            self._observer.on_unowned_change(before, self.unowned_pools.get(name))


def is_derived(pool: IPPool) -> bool:
    """Return whether the agent of a node wrote an IPPool from its own knowledge."""
    return NODE_ANNOTATION in pool.metadata.annotations  # the UID may not have been known yet
