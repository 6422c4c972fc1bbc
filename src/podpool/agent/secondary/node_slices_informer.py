"""Informers of this node's NodeSlices and of the inventory request, each by name. Nothing of other nodes is read."""

import asyncio
from collections.abc import Callable

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.api.builtin import CONFIG_MAPS
from podpool.api.meta import is_older
from podpool.api.node_slices import ALL_NODES, INVENTORY_CONFIG_MAP, NODE_SLICES, Assignment, NodeSlices
from podpool.kube.informer import ObjectInformer


class InventoryRequest(msgspec.Struct, frozen=True):
    """An inventory request of the controller."""

    id: str = ""
    restored: bool = False
    """The controller suspects that the API server was restored."""


class SliceInformers:
    """NodeSlices as the watch shows it, or as the last response showed it if the watch is behind."""

    def __init__(self, deps: AgentDeps, namespace: str, *, on_change: Callable[[], None]) -> None:
        self._deps = deps
        self._on_change = on_change
        kube, rng, relist = deps.kube, deps.rng, deps.settings.relist_interval
        self._node_slices = ObjectInformer(
            kube, NODE_SLICES, deps.node, rng=rng, relist_interval=relist, on_change=on_change
        )
        self._inventory = ObjectInformer(
            kube,
            CONFIG_MAPS,
            INVENTORY_CONFIG_MAP,
            rng=rng,
            namespace=namespace,
            relist_interval=relist,
            on_change=on_change,
        )
        self._node_slices.on_restored = self._restored
        self._response: tuple[NodeSlices | None, NodeSlices | None] | None = None
        """The last response, and what the watch showed when the request was sent."""
        self.uid = ""
        """The UID of the Node that reports this boot; empty while there is none."""
        self.on_restored: Callable[[], None] = lambda: None
        """Called when the API server was restored from an older backup."""

    @property
    def synced(self) -> bool:
        """Whether it is known if NodeSlices exists; that its kind is not served does not count."""
        return self._node_slices.listed

    @property
    def request(self) -> InventoryRequest:
        """The last inventory request."""
        data = self._inventory.object.data if self._inventory.object else {}
        return InventoryRequest(data.get("request", ""), data.get("scope") == ALL_NODES)

    def last_contacts(self) -> dict[str, float | None]:
        """Return the loop time of the last message of each watch."""
        return {"nodeslices": self._node_slices.last_contact, "slice-inventory": self._inventory.last_contact}

    @property
    def newest(self) -> NodeSlices | None:
        """NodeSlices, whatever its Node: the last response until the watch shows something newer.

        A response that is older than what the watch has shown means that the API server was restored, unnoticed by the
        watch.
        """
        watched = self._node_slices.object
        if self._response:
            response, seen = self._response
            if watched is seen or (response and watched and _is_older(watched, response)):
                return response
            self._response = None
        return watched

    @property
    def own(self) -> NodeSlices | None:
        """NodeSlices, if it is of this Node."""
        found = self.newest
        return found if found and self.uid and found.spec.node_uid == self.uid else None

    @property
    def node_uid(self) -> str:
        """The UID of the Node, also while it is missing; empty if it is not known."""
        return self.uid or (self.newest.spec.node_uid if self.newest else "")

    def assignment(self, id_: str) -> Assignment | None:
        """Return an assignment of this Node."""
        assignments = self.own.spec.assignments if self.own else ()
        return next((each for each in assignments if each.id == id_), None)

    async def read(self) -> NodeSlices | None:
        """Read NodeSlices from the API server."""
        seen = self._node_slices.object
        found = await self._deps.kube.find(NODE_SLICES, self._deps.node)
        self._response = found, seen
        return found

    async def write_status(self, patch: dict[str, object], *, over: NodeSlices) -> NodeSlices:
        """Write the status over a version."""
        name, version, seen = self._deps.node, over.metadata.resource_version, self._node_slices.object
        written = await self._deps.kube.merge_patch(
            NODE_SLICES, name, patch, subresource="status", precondition=version
        )
        self._response = written, seen
        return written

    async def run(self) -> None:
        """Watch until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node_slices.run())
            group.create_task(self._inventory.run())

    def _restored(self) -> None:
        self._response = None
        self.on_restored()
        self._on_change()


def _is_older(one: NodeSlices, other: NodeSlices) -> bool:
    return is_older(one.metadata.resource_version, other.metadata.resource_version)
