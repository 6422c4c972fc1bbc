"""A node's NNC: made, served, and made again when its Node comes back.

What must hold: a status is written only after the ledger has committed what it tells. A grant that the agent did not
name is never removed. Whether a Node that comes back under its name keeps its container is decided on a fresh read, by
the boot id that the agent wrote: the same machine, its Pods still running, keeps it; another inherits nothing.

A Node's deletion marks its NNC for deletion within seconds, which cannot be undone; our finalizer keeps it readable. It
is read into the ledger once more before it goes, so that whatever crashes in between is finished from the ledger.
"""

import logging
from collections.abc import Callable

import msgspec

from podpool.controller.books import Books
from podpool.controller.session import Outcome, Session
from podpool.controller.settings import Settings
from podpool.controller.wording import (
    claim_of,
    config_for,
    item_of,
    item_of_record,
    speaks_of,
    status_of,
    subnet_of,
    told_already,
)
from podpool.core.scaling import Scaler
from podpool.kube.client import KubeClient
from podpool.kube.errors import AlreadyExists, NotFound
from podpool.kube.queue import Again
from podpool.kube.reflector import fresh
from podpool.kube.store import Store
from podpool.ledger.messages import Item
from podpool.resources.acn import FINALIZER, NETWORK_CONFIGS, REFUSED_ANNOTATION, NodeNetworkConfig, report_of
from podpool.resources.builtin import NODES, Node

STALE = 1.0
"""Seconds after which a cache should show what a fresh read has shown."""

_log = logging.getLogger(__name__)


class Nodes:
    """Brings one node's NNC in step, by the node's name."""

    def __init__(
        self,
        kube: KubeClient,
        session: Session,
        books: Books,
        *,
        nodes: Store[Node],
        configs: Store[NodeNetworkConfig],
        settings: Settings,
        pinned: Callable[[str], Scaler | None],
    ) -> None:
        self._pinned = pinned
        self._kube = kube
        self._session = session
        self._books = books
        self._nodes = nodes
        self._configs = configs
        self._settings = settings

    async def reconcile(self, name: str) -> Again | None:
        """Look at a node as it is now, and do what is missing."""
        node = self._nodes.get(name)
        config = self._configs.get(f"{self._settings.namespace}/{name}")
        if config is not None and config.metadata.deletion_timestamp is not None:
            await self._bury(config)
        elif node is None:
            return None  # its container waits for the gone time; the garbage collector marks its NNC
        elif config is None:
            await self._make(name)
        elif _owner(config) != node.metadata.uid:
            return await self._belongs(config)
        else:
            return await self._decide(node, config)
        return None

    async def _decide(self, node: Node, config: NodeNetworkConfig) -> Again | None:
        """Serve an NNC; that its Node has another container than it shows or claims is decided on a fresh read."""
        if self._doubtful(node, config):
            name = node.metadata.name
            node = await fresh(self._kube, NODES, name, cache=self._nodes)
            config = await self._fresh_config(name)
            if _owner(config) != node.metadata.uid or config.metadata.deletion_timestamp is not None:
                return Again(after=STALE)  # the mirrors will show it
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
        refused = config.metadata.annotations.get(REFUSED_ANNOTATION)
        return claim not in {"", refused} and not self._books.knows(claim, node.metadata.name)

    async def _refuse(self, config: NodeNetworkConfig, container: str) -> NodeNetworkConfig:
        return await self._kube.merge(
            NETWORK_CONFIGS,
            config.metadata.name,
            {"metadata": {"annotations": {REFUSED_ANNOTATION: container}}},
            namespace=self._settings.namespace,
            precondition=config.metadata.resource_version,
        )

    async def _belongs(self, config: NodeNetworkConfig) -> Again | None:
        """Delete an NNC of another Node than there is, by a fresh read: a cache may show the Node of before."""
        name = config.metadata.name
        try:
            node = await fresh(self._kube, NODES, name, cache=self._nodes)
        except NotFound:
            return None
        if _owner(config) == node.metadata.uid:
            return await self._decide(node, config)
        await self._kube.delete(NETWORK_CONFIGS, name, namespace=self._settings.namespace, uid=config.metadata.uid)
        return None

    async def _serve(self, node: Node, config: NodeNetworkConfig) -> None:
        """Do what a living NNC asks for, and tell it what it has."""
        record = self._books.of_node(node, config)
        item = item_of(
            config,
            node_uid=node.metadata.uid,
            container=record.state.container if record else None,
            subnet=record.state.subnet if record else subnet_of(node, self._settings),
            numbers=self._settings.numbers,
        )
        if record and not speaks_of(config, record.state.container):
            item = msgspec.structs.replace(item, boot_id=None, report=None)  # the words of another machine's agent
        elif record and item.boot_id != record.boot_id == node.boot_id:
            item = msgspec.structs.replace(item, boot_id=None)  # words from before a reboot: the server was restored
        outcome = await self._ask(item)
        if not told_already(config, outcome.state):
            await self._tell(node, config, outcome)

    async def _make(self, name: str) -> None:
        """Make an NNC for a Node that has none."""
        try:
            node = await fresh(self._kube, NODES, name, cache=self._nodes)
        except NotFound:
            return
        numbers = self._settings.numbers
        kept = self._books.of_node(node, None)
        if kept:
            _log.info("node %s is the machine that it was, and keeps container %s", name, kept.state.container)
            item = item_of_record(kept, node=node, numbers=numbers)
        else:
            subnet = subnet_of(node, self._settings)
            item = Item(subnet=subnet, node=name, node_uid=node.metadata.uid, maximum=numbers.node_maximum)
        try:
            config = await self._kube.create(
                NETWORK_CONFIGS, config_for(node, namespace=self._settings.namespace, record=kept)
            )
        except AlreadyExists:
            return  # the watch will show it, and whose it is; a second container would stand in the way of the first
        await self._tell(node, config, await self._ask(item))

    async def _bury(self, config: NodeNetworkConfig) -> None:
        """Let an NNC that is marked for deletion go, when it is not needed any more to decide who its Node was."""
        name = config.metadata.name
        if FINALIZER not in config.metadata.finalizers:
            return
        try:
            node = await fresh(self._kube, NODES, name, cache=self._nodes)
        except NotFound:
            if self._books.of_uid(_owner(config)) is None:
                await self.release(config)
            return  # the container is still there: the gone time decides
        dying = await self._fresh_config(name)
        if dying.metadata.uid != config.metadata.uid:
            return
        await self._read_once_more(node, dying)
        await self.release(dying)

    async def _read_once_more(self, node: Node, dying: NodeNetworkConfig) -> None:
        """Bring what the agent last wrote into the ledger, for the Node that the container belongs to from now on."""
        record = self._books.of_uid(_owner(dying))
        if record is None or not speaks_of(dying, record.state.container):
            return
        report = report_of(dying)
        boots = {record.boot_id, report.boot_id if report else None}
        same = _owner(dying) == node.metadata.uid or (node.boot_id != "" and node.boot_id in boots)
        item = item_of(
            dying,
            node_uid=node.metadata.uid if same else _owner(dying),
            container=record.state.container,
            subnet=record.state.subnet,
            numbers=self._settings.numbers,
        )
        if record.boot_id == node.boot_id:
            item = msgspec.structs.replace(item, boot_id=None)  # what is known is the machine's own
        await self._ask(item)

    async def release(self, config: NodeNetworkConfig) -> None:
        """Take our finalizer off."""
        left = [each for each in config.metadata.finalizers if each != FINALIZER]
        try:
            await self._kube.merge(
                NETWORK_CONFIGS,
                config.metadata.name,
                {"metadata": {"finalizers": left}},
                namespace=self._settings.namespace,
                precondition=config.metadata.resource_version,
            )
        except NotFound:
            return

    async def _fresh_config(self, name: str) -> NodeNetworkConfig:
        return await fresh(self._kube, NETWORK_CONFIGS, name, cache=self._configs, namespace=self._settings.namespace)

    async def _ask(self, item: Item) -> Outcome:
        item = msgspec.structs.replace(item, pinned=self._pinned(item.subnet.name))
        outcome = await self._session.reconcile(item)
        self._books.note(item, outcome.state)
        return outcome

    async def _tell(self, node: Node, config: NodeNetworkConfig, outcome: Outcome) -> None:
        await self._kube.merge(
            NETWORK_CONFIGS,
            config.metadata.name,
            {"status": status_of(outcome.state, outcome.subnet, node, self._settings.numbers)},
            namespace=self._settings.namespace,
            sub="status",
            precondition=config.metadata.resource_version,
        )


def _owner(config: NodeNetworkConfig) -> str:
    """Tell the UID of the Node that an NNC belongs to."""
    return next((each.uid for each in config.metadata.owner_references if each.controller), "")
