"""What an NNC asks for, asked of the ledger, and what it was given, told in its status.

What must hold: a status is written only after the ledger has committed what it tells, and after agents can read what
their subnet asks of them: the first request follows the exhaustion state. A grant that the agent did not name is never
removed. What was asked and answered already is neither asked nor written again, unless somebody wants to be sure.
"""

import asyncio
from collections.abc import Iterable

import msgspec

from podpool.api.azure import FINALIZER, NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.api.builtin import Node
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.convert import item_of, speaks_of, status_of, told_already
from podpool.controller.deps import ControllerDeps
from podpool.controller.expectations import Expectations
from podpool.controller.ledger_session import LedgerSession
from podpool.controller.subnet_reconciler import SubnetReconciler
from podpool.ledger.errors import Invalid, LedgerError, NotFound, OwnershipDisputed, SubnetDraining, SubnetFull
from podpool.ledger.messages import NetworkContainerState, ReconcileItem, SubnetName

LASTING = (SubnetFull, SubnetDraining, OwnershipDisputed, NotFound, Invalid)
"""What the ledger says when asking again soon will not help: people are told."""


class NNCReconciler:
    """Serves living NNCs, and remembers whom it could not give enough."""

    def __init__(
        self, ground: ControllerDeps, session: LedgerSession, books: AllocationCache, subnets: SubnetReconciler
    ) -> None:
        self.echoes = Expectations()
        self._ground = ground
        self._session = session
        self._books = books
        self._subnets = subnets
        self._doubted: set[str] = set()
        self._waiting: dict[str, tuple[str, float]] = {}

    def doubt(self, names: Iterable[str]) -> None:
        """Ask for these nodes, although nothing of theirs has changed."""
        self._doubted.update(names)

    def waits(self, name: str, subnet: str) -> None:
        """Note that a node has not what it should have, from now on."""
        self._waiting.setdefault(name, (subnet, asyncio.get_running_loop().time()))

    def rests(self, name: str) -> None:
        """Note that a node has what it asked for, or is no more."""
        self._waiting.pop(name, None)

    def waiting(self, subnet: str) -> tuple[int, float]:
        """Count the nodes that wait, and the seconds of the first one."""
        since = [when for name, when in self._waiting.values() if name == subnet]
        return len(since), asyncio.get_running_loop().time() - min(since) if since else 0.0

    async def serve(self, node: Node, config: NodeNetworkConfig, subnet: SubnetName) -> None:
        """Do what a living NNC asks for, and tell it what it has."""
        config = await self._finalized(config)
        record = self._books.of_node(node, config)
        item = item_of(
            config,
            node_uid=node.metadata.uid,
            container=record.state.container if record else None,
            subnet=subnet,
            settings=self._ground.settings.common,
            pinned=self._subnets.pinned(subnet.name),
        )
        if record and not speaks_of(config, record.state.container):
            item = msgspec.structs.replace(item, boot_id=None, report=None)  # the words of another machine's agent
        elif record and item.boot_id != record.boot_id == node.boot_id:
            item = msgspec.structs.replace(item, boot_id=None)  # words from before a reboot: the server was restored
        if record and node.metadata.name not in self._doubted and self._books.answered(item):
            published = self._subnets.published(subnet.name)
            if published and told_already(config, record.state, node, published):
                self._count(node.metadata.name, record.state)
                return
        await self.tell(node, config, await self.ask_for(node, config, item))

    async def ask_for(self, node: Node, config: NodeNetworkConfig, item: ReconcileItem) -> NetworkContainerState:
        """Ask the ledger for a node; what it refuses for long is told to people."""
        try:
            return await self.ask(item)
        except LASTING as error:
            self.waits(node.metadata.name, item.subnet.name)
            await self._refuse(node, config, error)
            raise

    async def ask(self, item: ReconcileItem) -> NetworkContainerState:
        """Ask the ledger."""
        self._doubted.discard(item.node)
        state = await self._session.reconcile(item)
        self._books.note(item, state)
        return state

    async def tell(self, node: Node, config: NodeNetworkConfig, state: NetworkContainerState) -> None:
        """Write what a node has, if its NNC does not show it."""
        published = self._subnets.published(state.subnet.name)
        if published is None:
            return  # whoever publishes it has this node looked at again
        self._count(node.metadata.name, state)
        if told_already(config, state, node, published):
            return
        if state.short:
            self._ground.herald.short(node, state)
        await self._write(config, status_of(state, published, node, self._ground.settings.common))

    def _count(self, name: str, state: NetworkContainerState) -> None:
        if state.short:
            self.waits(name, state.subnet.name)
        else:
            self.rests(name)

    async def _refuse(self, node: Node, config: NodeNetworkConfig, error: LedgerError) -> None:
        self._ground.herald.refused(node, str(error))
        if config.status.status != "Error":
            await self._write(config, {"status": "Error"})

    async def _write(self, config: NodeNetworkConfig, status: dict[str, object]) -> None:
        await self._ground.kube.merge(
            NODE_NETWORK_CONFIGS,
            config.metadata.name,
            {"status": status},
            namespace=self._ground.settings.namespace,
            sub="status",
            precondition=config.metadata.resource_version,
        )
        self.echoes.wrote(config.metadata.name, over=config.metadata.resource_version)

    async def _finalized(self, config: NodeNetworkConfig) -> NodeNetworkConfig:
        """Put our finalizer back: without it a deleted NNC takes its last words along."""
        if FINALIZER in config.metadata.finalizers:
            return config
        mended = await self._ground.kube.merge(
            NODE_NETWORK_CONFIGS,
            config.metadata.name,
            {"metadata": {"finalizers": [*config.metadata.finalizers, FINALIZER]}},
            namespace=self._ground.settings.namespace,
            precondition=config.metadata.resource_version,
        )
        self.echoes.wrote(config.metadata.name, over=config.metadata.resource_version)
        self._ground.herald.mended(config, "the finalizer was missing, and is back")
        return mended
