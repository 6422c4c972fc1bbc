"""Reconciles the NNC of a living Node: sends its request to the ledger and writes the response into its status.

Invariants:
- A status is written only after the ledger has committed it, and after the subnet's ClusterSubnet is published, because
  an agent's first request depends on the exhaustion state.
- A grant that the agent did not release is never removed.
- A request that was answered is neither sent nor written again, unless a resync asks for it.
"""

import asyncio
from collections.abc import Iterable
from typing import Any

import msgspec

from podpool.api.azure import FINALIZER, NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.api.builtin import Node
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.deps import ControllerDeps
from podpool.controller.network_sessions import NetworkSessions
from podpool.controller.nnc_conversion import build_status, reconcile_item, report_is_about, status_is_current
from podpool.controller.subnet_reconciler import SubnetReconciler
from podpool.kube.expectations import Expectations
from podpool.ledger.errors import (
    Forbidden,
    Invalid,
    LedgerError,
    NotFound,
    OwnershipDisputed,
    QuotaReached,
    SubnetDraining,
    SubnetFull,
)
from podpool.ledger.messages import NetworkContainerState, ReconcileItem, SubnetName

PERMANENT = (SubnetFull, SubnetDraining, OwnershipDisputed, NotFound, Invalid, Forbidden, QuotaReached)
"""Ledger errors that a retry does not resolve soon: they are reported as an Event and in the NNC's status."""


class NNCReconciler:
    """Reconciles NNCs with the ledger, and tracks nodes that have fewer addresses than requested."""

    def __init__(
        self, deps: ControllerDeps, session: NetworkSessions, allocations: AllocationCache, subnets: SubnetReconciler
    ) -> None:
        self.expectations = Expectations()
        self._deps = deps
        self._session = session
        self._allocations = allocations
        self._subnets = subnets
        self._resync: set[str] = set()
        """Nodes whose request is sent again although it was answered."""
        self._waiting: dict[str, tuple[str, float]] = {}
        """Nodes with fewer addresses than requested: subnet and start of the wait."""

    def resync(self, nodes: Iterable[str]) -> None:
        """Send the requests of these nodes again, even if unchanged."""
        self._resync.update(nodes)

    def mark_waiting(self, node: str, subnet: str) -> None:
        """Record that a node has fewer addresses than requested."""
        self._waiting.setdefault(node, (subnet, asyncio.get_running_loop().time()))

    def clear_waiting(self, node: str) -> None:
        """Record that a node has what it requested."""
        self._waiting.pop(node, None)

    def forget(self, node: str) -> None:
        """Drop what is kept about a deleted node."""
        self.clear_waiting(node)
        self._resync.discard(node)

    def waiting(self, subnet: str) -> tuple[int, float]:
        """Return how many nodes of a subnet wait, and for how many seconds the longest waiting has."""
        since = [when for name, when in self._waiting.values() if name == subnet]
        return len(since), asyncio.get_running_loop().time() - min(since) if since else 0.0

    async def reconcile(self, node: Node, nnc: NodeNetworkConfig, subnet: SubnetName) -> None:
        """Send what the NNC requests to the ledger, and write the response into its status."""
        nnc = await self._ensure_finalizer(nnc)
        record = self._allocations.for_node(node, nnc)
        item = reconcile_item(
            nnc,
            node_uid=node.metadata.uid,
            nc=record.state.nc_id if record else None,
            subnet=subnet,
            settings=self._deps.settings.common,
            pinned=self._subnets.pinned(subnet.name),
        )
        if record and not report_is_about(nnc, record.state.nc_id):
            item = msgspec.structs.replace(item, boot_id=None, report=None)  # another machine's report
        elif record and item.boot_id != record.boot_id == node.boot_id:
            item = msgspec.structs.replace(item, boot_id=None)  # from before a reboot: the API server was restored
        if record and node.metadata.name not in self._resync and self._allocations.is_answered(item):
            published = self._subnets.published(subnet.name)
            if published and status_is_current(nnc, record.state, node, published, self._deps.settings.common):
                self._track_waiting(node.metadata.name, record.state)
                return
        await self.write_status(node, nnc, await self.request(node, nnc, item))

    async def request(self, node: Node, nnc: NodeNetworkConfig, item: ReconcileItem) -> NetworkContainerState:
        """Send a node's request to the ledger; a permanent error is also reported on Node and NNC."""
        try:
            return await self.send(item)
        except PERMANENT as error:
            self.mark_waiting(node.metadata.name, item.subnet.name)
            await self._report_failure(node, nnc, error)
            raise

    async def send(self, item: ReconcileItem) -> NetworkContainerState:
        """Send a request to the ledger and cache the response."""
        self._resync.discard(item.node)
        state = await self._session.reconcile(item)
        self._allocations.update(item, state)
        return state

    async def write_status(self, node: Node, nnc: NodeNetworkConfig, state: NetworkContainerState) -> None:
        """Write an NC into the NNC's status, unless it is there."""
        published = self._subnets.published(state.subnet.name)
        if published is None:
            return  # publishing the subnet requeues this node
        self._track_waiting(node.metadata.name, state)
        settings = self._deps.settings.common
        if status_is_current(nnc, state, node, published, settings):
            return
        if state.shortage:
            self._deps.events.insufficient_addresses(node, state)
        status = build_status(state, published, node, settings)
        await self.patch(nnc, {"status": status}, subresource="status")

    def _track_waiting(self, node: str, state: NetworkContainerState) -> None:
        if state.shortage:
            self.mark_waiting(node, state.subnet.name)
        else:
            self.clear_waiting(node)

    async def _report_failure(self, node: Node, nnc: NodeNetworkConfig, error: LedgerError) -> None:
        self._deps.events.allocation_failed(node, str(error))
        if nnc.status.status != "Error":
            await self.patch(nnc, {"status": {"status": "Error"}}, subresource="status")

    async def patch(
        self, nnc: NodeNetworkConfig, patch: dict[str, Any], *, subresource: str | None = None
    ) -> NodeNetworkConfig:
        """Patch an NNC at its resourceVersion; its cache is expected to show that."""
        name, version, namespace = nnc.metadata.name, nnc.metadata.resource_version, self._deps.namespace
        patched = await self._deps.kube.merge_patch(
            NODE_NETWORK_CONFIGS, name, patch, namespace=namespace, subresource=subresource, precondition=version
        )
        self.expectations.wrote(name, over=version)
        return patched

    async def _ensure_finalizer(self, nnc: NodeNetworkConfig) -> NodeNetworkConfig:
        """Restore the finalizer: without it a deleted NNC takes the agent's last report with it."""
        if FINALIZER in nnc.metadata.finalizers:
            return nnc
        repaired = await self.patch(nnc, {"metadata": {"finalizers": [*nnc.metadata.finalizers, FINALIZER]}})
        self._deps.events.repaired(nnc, "the finalizer was missing and was restored")
        return repaired
