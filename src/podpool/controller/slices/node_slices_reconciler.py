"""Reconciles the NodeSlices object of one node, by its name: one write for all networks.

Invariants:
- A new assignment counts as owned from before it is written until the outcome is known.
- An object is written at the resourceVersion that was decided on; a conflict is decided again.
- That a Node is another than the one before is decided on a quorum read.
"""

from collections.abc import Callable, Collection
from contextlib import suppress

import msgspec
from msgspec.structs import replace

from podpool.api.builtin import NODES, Node
from podpool.api.meta import ObjectMeta
from podpool.api.node_slices import FINALIZER, NODE_SLICES, NodeSlices, NodeSlicesSpec
from podpool.controller.deps import SliceDeps
from podpool.controller.slices.desired_slice_store import DesiredSlices
from podpool.controller.slices.inventory_barrier import SliceInventory
from podpool.controller.slices.node_slices_spec import (
    NodeInputs,
    identify_node,
    is_identified,
    next_spec,
    release_node,
)
from podpool.controller.slices.slice_index import SliceIndex
from podpool.kube.errors import ApiAlreadyExists, ApiConflict, ApiDecodeError, ApiError, ApiNotFound, ApiServerError
from podpool.kube.informer import quorum_find
from podpool.kube.workqueue import Requeue
from podpool.runtime.entropy import new_uuid

CACHE_DELAY = 1.0
"""Seconds after which a cache should show what a quorum read returned."""


class NodeSlicesReconciler:
    """Writes NodeSlices objects."""

    def __init__(
        self,
        deps: SliceDeps,
        index: SliceIndex,
        desired: DesiredSlices,
        inventory: SliceInventory,
        *,
        networks: Callable[[], Collection[str]],
    ) -> None:
        self._deps = deps
        self._kube = deps.kube
        self._index = index
        self._desired = desired
        self._inventory = inventory
        self._networks = networks
        """The networks that a new node waits for."""

    async def reconcile(self, name: str) -> Requeue | None:
        """Bring the object of a node to the desired state."""
        await self._resolve_pending(name)
        node, obj = self._deps.nodes.get(name), self._index.get(name)
        if node is None:
            await self._reconcile_deleted(name, obj)
            return None
        if self._index.has_claims(name):
            self._inventory.require()  # its agent alone can end them
        if obj is not None and obj.metadata.deletion_timestamp and not self._index.of_node(name):
            await self._delete(obj)
            return None
        before = obj.spec if obj else NodeSlicesSpec()
        spec: NodeSlicesSpec | None = replace(before, node_uid=node.metadata.uid)
        identified = obj is None or is_identified(before, node)
        if obj is not None and not identified:
            spec = await self._identify(obj, node)
        if spec is None:
            return Requeue(after=CACHE_DELAY)
        current, inputs = obj or NodeSlices(metadata=ObjectMeta(name=name)), self._inputs(node)
        if not identified:  # what it should have was decided before
            inputs = replace(inputs, joined=False)
        spec = self._decide(current, spec, inputs)
        waits = inputs.joined and bool(self._networks())  # its agent may have something to report
        if obj is not None or spec.assignments or waits or self._inventory.collecting:
            await self._write(current, spec)
        return None

    async def _identify(self, obj: NodeSlices, node: Node) -> NodeSlicesSpec | None:
        """Return the spec with the Node that a quorum read shows; None if that is not the cached one."""
        found = await quorum_find(self._kube, NODES, node.metadata.name, cache=self._deps.nodes)
        same = found and (found.metadata.uid, found.boot_id) == (node.metadata.uid, node.boot_id)
        return identify_node(obj.spec, obj.status, found) if found and same else None

    def _inputs(self, node: Node) -> NodeInputs:
        name, uid, settled = node.metadata.name, node.metadata.uid, self._desired.settled()
        return NodeInputs(
            desired=self._desired.of_node(name, uid),
            settled={each for each in settled if self._desired.has_joined(name, uid, (each,))},
            joined=self._desired.has_joined(name, uid, self._networks()),
            sliced=self._networks(),
            blocked=self._desired.blocked(settled),
            inventory_complete=self._inventory.complete,
            answered=self._index.has_answered(name),
        )

    def _decide(self, obj: NodeSlices, spec: NodeSlicesSpec, inputs: NodeInputs) -> NodeSlicesSpec:
        decision = next_spec(spec, obj.status, inputs, new_id=lambda: new_uuid(self._deps.rng))
        if decision.needs_inventory:
            self._inventory.require()
        return decision.spec

    async def _reconcile_deleted(self, name: str, obj: NodeSlices | None) -> None:
        """Withdraw what a deleted Node never used, and delete the object when it has nothing left."""
        if obj is None:
            return
        inputs = NodeInputs(
            exists=False,
            settled=self._desired.settled(),
            inventory_complete=self._inventory.complete,
            answered=self._index.has_answered(name),
        )
        await self._write(obj, self._decide(obj, obj.spec, inputs))
        current = self._index.objects.get(name)
        if current is not None and not self._index.of_node(name):
            await self._delete(current)

    async def release(self, name: str, uid: str) -> int:
        """Remove the slices of a Node that is gone, and return how many they were."""
        await self._resolve_pending(name)
        obj = self._index.get(name)
        slices = [each for each in self._index.of_node(name) if each.node_uid == uid]
        ids = {each.id for each in slices} - self._index.released
        self._index.released |= ids
        try:
            if obj is not None:
                await self._write(obj, release_node(obj.spec, obj.status, uid))
        except ApiError:
            self._index.released -= ids
            raise
        self._index.drop_claims(name, uid)
        return len(slices)

    # Writes

    async def _delete(self, obj: NodeSlices) -> None:
        """Delete an object without slices. One that is being deleted disappears with its finalizer."""
        if FINALIZER in obj.metadata.finalizers:
            name, version = obj.metadata.name, obj.metadata.resource_version
            patch = {"metadata": {"finalizers": None}}
            obj = await self._kube.merge_patch(NODE_SLICES, name, patch, precondition=version)
            self._index.objects.put(obj)
        await self._index.objects.delete(self._kube, obj)

    async def _write(self, obj: NodeSlices, spec: NodeSlicesSpec) -> None:
        """Create the object, or patch its spec if that differs."""
        if obj.metadata.uid and spec == obj.spec and FINALIZER in obj.metadata.finalizers:
            return
        pending = replace(obj, spec=spec)
        self._index.set_pending(pending)
        await self._send(pending)

    async def _resolve_pending(self, name: str) -> None:
        """Repeat a write whose outcome is not known: with its precondition it succeeds at most once."""
        pending = self._index.pending(name)
        if pending is not None:
            with suppress(ApiConflict):
                await self._send(pending)

    async def _send(self, obj: NodeSlices) -> None:
        name, version = obj.metadata.name, obj.metadata.resource_version
        empty = {"nodeUID": "", "assignments": [], "former": []}  # a merge patch keeps what is omitted
        patch = {"metadata": {"finalizers": [FINALIZER]}, "spec": empty | msgspec.to_builtins(obj.spec)}
        try:
            if obj.metadata.uid:
                written = await self._kube.merge_patch(NODE_SLICES, name, patch, precondition=version)
            else:
                patch["metadata"]["name"] = name
                written = await self._kube.create(NODE_SLICES, patch)
        except ApiNotFound:
            self._index.settle(name)
        except (ApiAlreadyExists, ApiConflict):
            self._index.settle(name, await self._kube.find(NODE_SLICES, name))
            raise
        except ApiError as error:
            if not isinstance(error, ApiServerError | ApiDecodeError):  # then it may have been written
                self._index.settle(name)
            raise
        else:
            self._index.settle(name, written)
