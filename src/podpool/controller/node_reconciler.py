"""Reconciles a Node with its NNC: creates it, reconciles it, and creates it again when a Node is registered again.

Invariant: whether a Node that is registered again under its name keeps its NC is decided on a quorum read, by the boot
ID that the agent wrote. The same machine, whose Pods still run, keeps it; another machine inherits nothing.

Deletion of a Node marks its NNC for deletion within seconds, which cannot be undone; the finalizer keeps it readable.
Its last contents are sent to the ledger before it is removed, so that a crash in between is completed from the ledger.
"""

from contextlib import suppress

import msgspec

from podpool.api.azure import CLOSED_ANNOTATION, FINALIZER, NODE_NETWORK_CONFIGS, NodeNetworkConfig, agent_report
from podpool.api.builtin import NODES, Node
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.deps import ControllerDeps
from podpool.controller.nnc_conversion import (
    build_nnc,
    claimed_nc,
    owner_uid,
    reconcile_item,
    reconcile_item_of_record,
    report_is_about,
    subnet_label_error,
    subnet_of,
)
from podpool.controller.nnc_reconciler import NNCReconciler
from podpool.controller.subnet_reconciler import SubnetReconciler
from podpool.kube.errors import ApiAlreadyExists, ApiNotFound
from podpool.kube.informer import quorum_find, quorum_get
from podpool.kube.workqueue import Requeue
from podpool.ledger.messages import ReconcileItem, SubnetName
from podpool.runtime.logging import get_logger

CACHE_DELAY = 1.0
"""Seconds after which a cache should show what a quorum read returned."""

LIMIT_RETRY = 10.0
"""Seconds after which a node that lacks addresses because of a quota or a scope requests them again."""

log = get_logger(__name__)


class NodeReconciler:
    """Reconciles one node by its name."""

    def __init__(
        self, deps: ControllerDeps, allocations: AllocationCache, subnets: SubnetReconciler, nncs: NNCReconciler
    ) -> None:
        self._deps = deps
        self._kube = deps.kube
        self._allocations = allocations
        self._subnets = subnets
        self._nnc_reconciler = nncs
        self._nodes = deps.informers.nodes
        self._nncs = deps.informers.nncs
        self._settings = deps.settings

    async def reconcile(self, name: str) -> Requeue | None:
        """Bring a node's NNC to the desired state."""
        node = self._nodes.get(name)
        nnc = self._nncs.get(f"{self._settings.namespace}/{name}")
        delay = self._nnc_reconciler.expectations.due(name, seen=nnc.metadata.resource_version if nnc else "")
        if delay:
            return Requeue(after=delay)
        if nnc is not None and nnc.metadata.deletion_timestamp is not None:
            await self._finalize(nnc)
        elif node is None:
            self._nnc_reconciler.forget(name)  # node GC releases its NC, Kubernetes' GC deletes its NNC
        elif nnc is None:
            await self._create_nnc(name)
        elif owner_uid(nnc) != node.metadata.uid:
            return await self._replace_owner(nnc)
        else:
            return await self._reconcile_nnc(node, nnc)
        return None

    async def _reconcile_nnc(self, node: Node, nnc: NodeNetworkConfig) -> Requeue | None:
        """Reconcile an NNC. If its NC is not the one in the status or the claim, both objects are read again first."""
        if self._is_inconsistent(node, nnc):
            name = node.metadata.name
            node = await quorum_get(self._kube, NODES, name, cache=self._nodes)
            nnc = await self._read_nnc(name)
            if owner_uid(nnc) != node.metadata.uid or nnc.metadata.deletion_timestamp is not None:
                return Requeue(after=CACHE_DELAY)
            if self._claims_closed_nc(node, nnc):
                rejection = {CLOSED_ANNOTATION: claimed_nc(node, nnc)}
                nnc = await self._nnc_reconciler.patch(nnc, {"metadata": {"annotations": rejection}})
        record = self._allocations.for_node(node, nnc)
        subnet = record.state.subnet if record else subnet_of(node, self._settings)
        if not self._is_published(node, subnet):
            return None
        await self._nnc_reconciler.reconcile(node, nnc, subnet)
        record = self._allocations.for_node(node, nnc)
        if record is None or not record.state.shortage_reason:
            return None
        self._nnc_reconciler.resync([node.metadata.name])  # the ledger does not notify: it queues for nothing
        return Requeue(after=LIMIT_RETRY)

    def _is_inconsistent(self, node: Node, nnc: NodeNetworkConfig) -> bool:
        unknown = bool(nnc.status.network_containers) and self._allocations.for_node(node, nnc) is None
        return unknown or self._claims_closed_nc(node, nnc)

    def _claims_closed_nc(self, node: Node, nnc: NodeNetworkConfig) -> bool:
        """Return whether the agent claims a closed NC, and the claim was not rejected yet."""
        claim = claimed_nc(node, nnc)
        rejected = nnc.metadata.annotations.get(CLOSED_ANNOTATION)
        return claim not in {"", rejected} and not self._allocations.is_open(claim, node.metadata.name)

    async def _replace_owner(self, nnc: NodeNetworkConfig) -> Requeue | None:
        """Delete an NNC that belongs to a former Node; decided on a quorum read, as the cache may show that Node."""
        name = nnc.metadata.name
        node = await quorum_find(self._kube, NODES, name, cache=self._nodes)
        if node is None:
            return None
        if owner_uid(nnc) == node.metadata.uid:
            return await self._reconcile_nnc(node, nnc)
        await self._kube.delete(NODE_NETWORK_CONFIGS, name, namespace=self._settings.namespace, uid=nnc.metadata.uid)
        return None

    def _is_published(self, node: Node, subnet: SubnetName) -> bool:
        """Return whether the subnet is published to agents; if not, the node waits for it."""
        if self._subnets.track(subnet) is not None:
            return True
        self._nnc_reconciler.mark_waiting(node.metadata.name, subnet.name)
        error = self._subnets.error(subnet)
        if error:
            self._deps.events.allocation_failed(node, error)
        return False

    async def _create_nnc(self, name: str) -> None:
        """Create the NNC of a Node that has none, then its NC."""
        node = await self._read_node(name)
        if node is None:
            return
        kept = self._allocations.for_node(node, None)
        subnet = kept.state.subnet if kept else subnet_of(node, self._settings)
        if not self._is_published(node, subnet):
            return
        common = self._settings.common
        if kept:
            event = "node re-registered with the same boot ID, keeping its network container"
            log.info(event, node=name, nc=kept.state.nc_id)
            item = reconcile_item_of_record(kept, node=node, settings=common)
        else:
            self._warn_invalid_label(node)
            item = ReconcileItem(subnet=subnet, node=name, node_uid=node.metadata.uid, maximum=common.node_maximum)
            self._nnc_reconciler.mark_waiting(name, subnet.name)
        try:
            new = build_nnc(node, namespace=self._settings.namespace, record=kept)
            nnc = await self._kube.create(NODE_NETWORK_CONFIGS, new)
        except ApiAlreadyExists:
            return  # the watch will show it and its owner; a second NC would block the first
        self._nnc_reconciler.expectations.wrote(name, over="")
        item = msgspec.structs.replace(item, pinned=self._subnets.pinned(subnet.name))
        state = await self._nnc_reconciler.request(node, nnc, item)
        await self._nnc_reconciler.write_status(node, nnc, state)

    async def _read_node(self, name: str) -> Node | None:
        """Return the Node by a quorum read; from the cache if there is no NC that it could keep."""
        node = self._nodes.get(name)
        if node and not self._allocations.has_node(name) and self._allocations.by_node_uid(node.metadata.uid) is None:
            return node
        return await quorum_find(self._kube, NODES, name, cache=self._nodes)

    def _warn_invalid_label(self, node: Node) -> None:
        error = subnet_label_error(node)
        if error:
            self._deps.events.invalid_subnet_label(node, f"{error}; using the default subnet {self._settings.subnet}")

    async def _finalize(self, nnc: NodeNetworkConfig) -> None:
        """Remove the finalizer of a deleted NNC when it is no longer needed to identify the Node."""
        name = nnc.metadata.name
        if FINALIZER not in nnc.metadata.finalizers:
            return
        node = await quorum_find(self._kube, NODES, name, cache=self._nodes)
        if node is None:
            if self._allocations.by_node_uid(owner_uid(nnc)) is None:
                await self.remove_finalizer(nnc)
            return  # the NC exists: node GC decides
        terminating = await self._read_nnc(name)
        if terminating.metadata.uid != nnc.metadata.uid:
            return
        await self._save_last_report(node, terminating)
        await self.remove_finalizer(terminating)

    async def _save_last_report(self, node: Node, terminating: NodeNetworkConfig) -> None:
        """Send the agent's last request and report to the ledger, for the Node that the NC belongs to from now on."""
        record = self._allocations.by_node_uid(owner_uid(terminating))
        if record is None or not report_is_about(terminating, record.state.nc_id):
            return
        report = agent_report(terminating)
        boots = {record.boot_id, report.boot_id if report else None}
        same = owner_uid(terminating) == node.metadata.uid or (node.boot_id != "" and node.boot_id in boots)
        item = reconcile_item(
            terminating,
            node_uid=node.metadata.uid if same else owner_uid(terminating),
            nc=record.state.nc_id,
            subnet=record.state.subnet,
            settings=self._settings.common,
            pinned=record.pinned,
        )
        if record.boot_id == node.boot_id:
            item = msgspec.structs.replace(item, boot_id=None)  # the recorded boot ID is the current one
        await self._nnc_reconciler.send(item)

    async def remove_finalizer(self, nnc: NodeNetworkConfig) -> None:
        """Remove podpool's finalizer from an NNC."""
        others = [each for each in nnc.metadata.finalizers if each != FINALIZER]
        with suppress(ApiNotFound):
            await self._nnc_reconciler.patch(nnc, {"metadata": {"finalizers": others}})

    async def _read_nnc(self, name: str) -> NodeNetworkConfig:
        namespace = self._settings.namespace
        return await quorum_get(self._kube, NODE_NETWORK_CONFIGS, name, cache=self._nncs, namespace=namespace)
