"""A node's NNC: made, served, and made again when its Node comes back.

What must hold: whether a Node that comes back under its name keeps its container is decided on a fresh read, by the
boot id that the agent wrote: the same machine, its Pods still running, keeps it; another inherits nothing.

A Node's deletion marks its NNC for deletion within seconds, which cannot be undone; our finalizer keeps it readable. It
is read into the ledger once more before it goes, so that whatever crashes in between is finished from the ledger.
"""

import logging

import msgspec

from podpool.api.azure import CLOSED_ANNOTATION, FINALIZER, NODE_NETWORK_CONFIGS, NodeNetworkConfig, agent_report
from podpool.api.builtin import NODES, Node
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.convert import (
    claim_of,
    config_for,
    item_of,
    item_of_record,
    mislabelled,
    owner_of,
    speaks_of,
    subnet_of,
)
from podpool.controller.deps import ControllerDeps
from podpool.controller.nnc_reconciler import NNCReconciler
from podpool.controller.subnet_reconciler import SubnetReconciler
from podpool.kube.errors import ApiAlreadyExists, ApiNotFound
from podpool.kube.informer import quorum_get
from podpool.kube.workqueue import Requeue
from podpool.ledger.messages import NetworkContainerState, ReconcileItem, SubnetName

STALE = 1.0
"""Seconds after which a cache should show what a fresh read has shown."""

_log = logging.getLogger(__name__)


class NodeReconciler:
    """Brings one node's NNC in step, by the node's name."""

    def __init__(
        self, ground: ControllerDeps, books: AllocationCache, subnets: SubnetReconciler, served: NNCReconciler
    ) -> None:
        self._ground = ground
        self._kube = ground.kube
        self._books = books
        self._subnets = subnets
        self._served = served
        self._nodes = ground.mirrors.nodes
        self._configs = ground.mirrors.configs
        self._settings = ground.settings

    async def reconcile(self, name: str) -> Requeue | None:
        """Look at a node as it is now, and do what is missing."""
        node = self._nodes.get(name)
        config = self._configs.get(f"{self._settings.namespace}/{name}")
        unseen = self._served.echoes.due(name, seen=config.metadata.resource_version if config else "")
        if unseen:
            return Requeue(after=unseen)
        if config is not None and config.metadata.deletion_timestamp is not None:
            await self._bury(config)
        elif node is None:
            self._served.rests(name)  # its container waits for the gone time; the garbage collector marks its NNC
        elif config is None:
            await self._make(name)
        elif owner_of(config) != node.metadata.uid:
            return await self._belongs(config)
        else:
            return await self._decide(node, config)
        return None

    async def _decide(self, node: Node, config: NodeNetworkConfig) -> Requeue | None:
        """Serve an NNC; that its Node has another container than it shows or claims is decided on a fresh read."""
        if self._doubtful(node, config):
            name = node.metadata.name
            node = await quorum_get(self._kube, NODES, name, cache=self._nodes)
            config = await self._fresh_config(name)
            if owner_of(config) != node.metadata.uid or config.metadata.deletion_timestamp is not None:
                return Requeue(after=STALE)  # the mirrors will show it
            if self._unanswered(node, config):
                config = await self._refuse(config, claim_of(node, config))
        await self._serve(node, config)
        return None

    def _doubtful(self, node: Node, config: NodeNetworkConfig) -> bool:
        unknown = bool(config.status.network_containers) and self._books.of_node(node, config) is None
        return unknown or self._unanswered(node, config)

    def _unanswered(self, node: Node, config: NodeNetworkConfig) -> bool:
        """Tell whether a machine claims a container that is closed, and has not been told so."""
        claim = claim_of(node, config)
        refused = config.metadata.annotations.get(CLOSED_ANNOTATION)
        return claim not in {"", refused} and not self._books.knows(claim, node.metadata.name)

    async def _refuse(self, config: NodeNetworkConfig, container: str) -> NodeNetworkConfig:
        refused = await self._kube.merge(
            NODE_NETWORK_CONFIGS,
            config.metadata.name,
            {"metadata": {"annotations": {CLOSED_ANNOTATION: container}}},
            namespace=self._settings.namespace,
            precondition=config.metadata.resource_version,
        )
        self._served.echoes.wrote(config.metadata.name, over=config.metadata.resource_version)
        return refused

    async def _belongs(self, config: NodeNetworkConfig) -> Requeue | None:
        """Delete an NNC of another Node than there is, by a fresh read: a cache may show the Node of before."""
        name = config.metadata.name
        try:
            node = await quorum_get(self._kube, NODES, name, cache=self._nodes)
        except ApiNotFound:
            return None
        if owner_of(config) == node.metadata.uid:
            return await self._decide(node, config)
        await self._kube.delete(NODE_NETWORK_CONFIGS, name, namespace=self._settings.namespace, uid=config.metadata.uid)
        return None

    async def _serve(self, node: Node, config: NodeNetworkConfig) -> None:
        record = self._books.of_node(node, config)
        subnet = record.state.subnet if record else subnet_of(node, self._settings)
        if self._is_published(node, subnet):
            await self._served.serve(node, config, subnet)

    def _is_published(self, node: Node, subnet: SubnetName) -> bool:
        """Tell whether agents know what a subnet asks of them; if not, the node waits for it."""
        if self._subnets.use(subnet) is not None:
            return True
        self._served.waits(node.metadata.name, subnet.name)
        trouble = self._subnets.trouble(subnet)
        if trouble:
            self._ground.herald.refused(node, trouble)
        return False

    async def _make(self, name: str) -> None:
        """Make an NNC for a Node that has none."""
        node = await self._new_or_fresh(name)
        if node is None:
            return
        kept = self._books.of_node(node, None)
        subnet = kept.state.subnet if kept else subnet_of(node, self._settings)
        if not self._is_published(node, subnet):
            return
        settings = self._settings.common
        if kept:
            _log.info("node %s is the machine that it was, and keeps container %s", name, kept.state.container)
            item = item_of_record(kept, node=node, settings=settings)
        else:
            self._say_mislabelled(node)
            item = ReconcileItem(subnet=subnet, node=name, node_uid=node.metadata.uid, maximum=settings.node_maximum)
            self._served.waits(name, subnet.name)
        try:
            config = await self._kube.create(
                NODE_NETWORK_CONFIGS, config_for(node, namespace=self._settings.namespace, record=kept)
            )
        except ApiAlreadyExists:
            return  # the watch will show it, and whose it is; a second container would stand in the way of the first
        self._served.echoes.wrote(name, over="")
        item = msgspec.structs.replace(item, pinned=self._subnets.pinned(subnet.name))
        await self._served.tell(node, config, await self._served.ask_for(node, config, item))

    async def _new_or_fresh(self, name: str) -> Node | None:
        """Find a Node as it is now; as the cache has it, when there is nothing that it could keep."""
        node = self._nodes.get(name)
        if node and not self._books.remembers(name) and self._books.of_uid(node.metadata.uid) is None:
            return node
        try:
            return await quorum_get(self._kube, NODES, name, cache=self._nodes)
        except ApiNotFound:
            return None

    def _say_mislabelled(self, node: Node) -> None:
        wrong = mislabelled(node)
        if wrong:
            self._ground.herald.mislabelled(node, f"{wrong}; it is on {self._settings.subnet}, as if it had none")

    async def _bury(self, config: NodeNetworkConfig) -> None:
        """Let an NNC that is marked for deletion go, when it is not needed any more to decide who its Node was."""
        name = config.metadata.name
        if FINALIZER not in config.metadata.finalizers:
            return
        try:
            node = await quorum_get(self._kube, NODES, name, cache=self._nodes)
        except ApiNotFound:
            if self._books.of_uid(owner_of(config)) is None:
                await self.release(config)
            return  # the container is still there: the gone time decides
        dying = await self._fresh_config(name)
        if dying.metadata.uid != config.metadata.uid:
            return
        await self._read_once_more(node, dying)
        await self.release(dying)

    async def _read_once_more(self, node: Node, dying: NodeNetworkConfig) -> None:
        """Bring what the agent last wrote into the ledger, for the Node that the container belongs to from now on."""
        record = self._books.of_uid(owner_of(dying))
        if record is None or not speaks_of(dying, record.state.container):
            return
        report = agent_report(dying)
        boots = {record.boot_id, report.boot_id if report else None}
        same = owner_of(dying) == node.metadata.uid or (node.boot_id != "" and node.boot_id in boots)
        item = item_of(
            dying,
            node_uid=node.metadata.uid if same else owner_of(dying),
            container=record.state.container,
            subnet=record.state.subnet,
            settings=self._settings.common,
            pinned=record.pinned,
        )
        if record.boot_id == node.boot_id:
            item = msgspec.structs.replace(item, boot_id=None)  # what is known is the machine's own
        await self._ask(item)

    async def release(self, config: NodeNetworkConfig) -> None:
        """Take our finalizer off."""
        left = [each for each in config.metadata.finalizers if each != FINALIZER]
        try:
            await self._kube.merge(
                NODE_NETWORK_CONFIGS,
                config.metadata.name,
                {"metadata": {"finalizers": left}},
                namespace=self._settings.namespace,
                precondition=config.metadata.resource_version,
            )
        except ApiNotFound:
            return
        self._served.echoes.wrote(config.metadata.name, over=config.metadata.resource_version)

    async def _fresh_config(self, name: str) -> NodeNetworkConfig:
        return await quorum_get(self._kube, NODE_NETWORK_CONFIGS, name, cache=self._configs, namespace=self._settings.namespace)

    async def _ask(self, item: ReconcileItem) -> NetworkContainerState:
        return await self._served.ask(item)
