"""Inventory of the cluster's network containers, sent to the ledger after it was restored.

Invariant: the inventory is read after a write to each NNC. A status that a former leader sent and that is still under
way has an older resourceVersion as its precondition, so it cannot arrive after that write.

The API server may have been restored too, and then only the agents know what they hold. So the write is an inventory
request, and the inventory waits for the agents' replies, or until the nodes that would reply are gone. If a reply shows
that the API server was restored, a machine may lack even its Node and NNC: it has `node_gc_delay` to register again. A
node that does not reply within `inventory_timeout` is listed as its NNC shows it, and logged.

A failed request does not restart these waits: until the inventory is sent no NNC is written, and a machine whose Node
was registered again stays fenced. A restore of the API server during them does, because it may lack machines once more.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from podpool.api.azure import (
    INVENTORY_ANNOTATION,
    NODE_NETWORK_CONFIGS,
    AgentReport,
    NetworkContainer,
    NodeNetworkConfig,
    agent_report,
)
from podpool.api.builtin import NODES, Node
from podpool.api.meta import is_older
from podpool.controller.bound_pods import BoundPods
from podpool.controller.ledger_health import LedgerHealth
from podpool.controller.nnc_conversion import build_nnc, owner_uid, reconcile_item, report_is_about, subnet_of
from podpool.controller.reconcile_batcher import LeaderTerm
from podpool.controller.settings import ControllerSettings
from podpool.core.two_observations import TwoObservations
from podpool.kube.backoff import Backoff
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiAlreadyExists, ApiError, ApiNotFound
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import LedgerError, StaleTerm
from podpool.ledger.messages import Grant, Inventory, InventoryItem, InventoryResponse, SubnetName
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Unreachable

POLL_INTERVAL = 2.0
"""Seconds between two reads of the replies."""
SEND_TIMEOUT = 120.0
"""Seconds for the ledger to apply an inventory: twice as long as one of 5,000 nodes may take."""

log = get_logger(__name__)


async def send_inventory(
    kube: KubeClient,
    ledger: LedgerClient,
    term: LeaderTerm,
    settings: ControllerSettings,
    *,
    health: LedgerHealth,
    backoff: Backoff,
    number: int,
) -> InventoryResponse:
    """Request an inventory from each agent through its NNC, and send the result to the ledger, until the term ends.

    The number of the request must be new: terms of two networks may be equal.
    """
    request = _InventoryRequest(kube, number, settings)
    while True:
        try:
            nncs = await request.replies()
            if nncs is not None:
                inventory = _inventory(nncs, request.number, term, settings)
                return await health.call(ledger.send_inventory(inventory), within=SEND_TIMEOUT)
        except StaleTerm:
            raise
        except (ApiError, LedgerError, Unreachable) as error:
            log.warning(
                "cannot send the inventory to the ledger, retrying; recovering subnets grant nothing until it is sent",
                error=error,
            )
            await backoff.wait()
        else:
            backoff.reset()
            await asyncio.sleep(POLL_INTERVAL)


def _inventory(
    nncs: Sequence[NodeNetworkConfig], number: int, term: LeaderTerm, settings: ControllerSettings
) -> Inventory:
    """Return the NCs in the network of the term."""
    items = (item for nnc in nncs for item in _items(nnc, number, settings))
    return Inventory(
        cluster=term.cluster,
        network=term.network,
        term=term.term,
        known_revision=term.seen,
        network_containers=tuple(item for item in items if item.subnet.network == term.network),
    )


class _InventoryRequest:
    """One inventory request to all nodes."""

    def __init__(self, kube: KubeClient, number: int, settings: ControllerSettings) -> None:
        self.number = number
        self._kube = kube
        self._settings = settings
        self._begun = asyncio.get_running_loop().time()
        self._restored = False
        """The API server was restored, as a reply or a read has shown."""
        self._bound_pods = BoundPods(kube)
        self._missing = TwoObservations[str](settings.common.node_gc_delay)
        """NNCs without a Node."""
        self._version = ""
        """The resourceVersion of the last read of the NNCs."""
        self._requested: set[str] = set()
        """The UIDs of the NNCs that had the request then."""

    async def replies(self) -> list[NodeNetworkConfig] | None:
        """Request and read replies once; return the NNCs when no more replies are awaited."""
        common = self._settings.common
        nodes = {node.metadata.name: node for node in (await self._kube.list(NODES)).items}
        listing = await self._kube.list(NODE_NETWORK_CONFIGS, namespace=self._settings.namespace)
        self._restart_if_restored(listing.items, listing.resource_version)
        nncs = listing.items
        await self._request(nodes, nncs)
        gone = await self._gone_nodes(nodes, nncs)
        present = [nnc for nnc in nncs if nnc.metadata.name not in gone]
        silent = [nnc.metadata.name for nnc in present if not self._has_replied(nnc)]
        complete = not silent and nodes.keys() <= {nnc.metadata.name for nnc in present}
        waited = asyncio.get_running_loop().time() - self._begun
        overdue = waited >= common.inventory_timeout and all(map(self._is_requested, present))
        if not (complete or overdue) or (self._was_restored(present) and waited < common.node_gc_delay):
            return None
        if silent:
            log.error(
                "agents did not reply to the inventory request, the ledger gets what NNCs show; check these agents",
                nodes=", ".join(silent),
            )
        return present

    def _restart_if_restored(self, nncs: Sequence[NodeNetworkConfig], version: str) -> None:
        """Start the waits anew if the API server has a lower version than before, or an NNC has lost the request."""
        lost = any(nnc.metadata.uid in self._requested and not self._is_requested(nnc) for nnc in nncs)
        if lost or is_older(version, than=self._version):
            log.warning(
                "API server was restored during the inventory, no grants until nodes had time to register again"
            )
            self._begun, self._restored = asyncio.get_running_loop().time(), True
            self._missing.clear()
        self._version, self._requested = version, {nnc.metadata.uid for nnc in nncs if self._is_requested(nnc)}

    async def _request(self, nodes: dict[str, Node], nncs: Sequence[NodeNetworkConfig]) -> None:
        """Write the request into every NNC, and create an NNC for each Node that has none."""
        for nnc in nncs:
            if not self._is_requested(nnc):
                await self._annotate(nnc)
        for name in nodes.keys() - {nnc.metadata.name for nnc in nncs}:
            try:
                new = build_nnc(nodes[name], namespace=self._settings.namespace, record=None)
                await self._kube.create(NODE_NETWORK_CONFIGS, new)
            except ApiAlreadyExists:
                continue

    async def _annotate(self, nnc: NodeNetworkConfig) -> None:
        name, patch = nnc.metadata.name, {"metadata": {"annotations": {INVENTORY_ANNOTATION: str(self.number)}}}
        with suppress(ApiNotFound):
            await self._kube.merge_patch(NODE_NETWORK_CONFIGS, name, patch, namespace=self._settings.namespace)

    def _is_requested(self, nnc: NodeNetworkConfig) -> bool:
        return nnc.metadata.annotations.get(INVENTORY_ANNOTATION) == str(self.number)

    def _has_replied(self, nnc: NodeNetworkConfig) -> bool:
        third_party = agent_report(nnc) is None and nnc.spec.requested > 0  # it never replies
        return self._is_requested(nnc) and (third_party or _reply(nnc, self.number) is not None)

    def _was_restored(self, nncs: Sequence[NodeNetworkConfig]) -> bool:
        """Return whether an agent has more than the API server shows."""
        replies = (_reply(nnc, self.number) for nnc in nncs)
        self._restored = self._restored or any(reply and reply.known for reply in replies)
        return self._restored

    async def _gone_nodes(self, nodes: dict[str, Node], nncs: Sequence[NodeNetworkConfig]) -> set[str]:
        """Return the nodes that cannot reply: without a Node for `node_gc_delay`, and without Pods."""
        missing = [nnc.metadata.name for nnc in nncs if nnc.metadata.name not in nodes]
        due = set(self._missing.observe(missing, now=asyncio.get_running_loop().time()))
        return due - await self._bound_pods.nodes() if due else due


def _reply(nnc: NodeNetworkConfig, number: int) -> AgentReport | None:
    """Return the agent's report if it replies to this request."""
    report = agent_report(nnc)
    return report if report and report.inventory == number else None


def _items(nnc: NodeNetworkConfig, number: int, settings: ControllerSettings) -> list[InventoryItem]:
    """Return the NC that the agent reports, or those in the NNC's status."""
    reply = _reply(nnc, number)
    ncs = (reply.known,) if reply and reply.known else nnc.status.network_containers
    return [_item(nnc, nc, settings) for nc in ncs]


def _item(nnc: NodeNetworkConfig, nc: NetworkContainer, settings: ControllerSettings) -> InventoryItem:
    default = subnet_of(Node(metadata=nnc.metadata), settings)
    subnet = SubnetName(network=nc.vnet_id or default.network, name=nc.subnet_name or default.name)
    owner = owner_uid(nnc)
    item = reconcile_item(nnc, node_uid=owner, nc=nc.id, subnet=subnet, settings=settings.common)
    if not report_is_about(nnc, nc.id):
        item = msgspec.structs.replace(item, boot_id=None, report=None)
    return InventoryItem(
        nc_id=nc.id,
        subnet=subnet,
        node=item.node,
        node_uid=owner,
        boot_id=item.boot_id,
        version=nc.version,
        primary=nc.primary_ip,
        grants=tuple(Grant(id=each.name, address=each.ip) for each in nc.ip_assignments),
        wanted=item.wanted,
        released=item.released,
        cooled_seconds=item.cooled_seconds,
        report=item.report,
        maximum=item.maximum,
    )
