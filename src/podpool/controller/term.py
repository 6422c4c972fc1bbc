"""All that writes, for one term of the ledger: it ends with the term, and leaves nothing behind."""

import asyncio
import random

from podpool.controller.books import Books
from podpool.controller.gone import Gone
from podpool.controller.mirrors import Mirrors
from podpool.controller.nodes import Nodes
from podpool.controller.session import Lead, Session
from podpool.controller.settings import Settings
from podpool.controller.subnets import Subnets
from podpool.kube.client import KubeClient
from podpool.kube.queue import WorkQueue, work
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import Change, ContainerRecord, ReconcileAnswer
from podpool.resources.meta import Object

RESYNC = 300.0
"""Seconds after which every node is compared with the ledger again, whatever happened."""


class TermWork:
    """Reconcilers on keys, and the session that they share."""

    def __init__(
        self,
        kube: KubeClient,
        ledger: LedgerClient,
        mirrors: Mirrors,
        books: Books,
        lead: Lead,
        *,
        settings: Settings,
        rng: random.Random,
    ) -> None:
        self._ledger = ledger
        self._mirrors = mirrors
        self._books = books
        self._lead = lead
        self._node_queue = WorkQueue(rng=rng)
        self._subnet_queue = WorkQueue(rng=rng)
        self.session = Session(ledger, lead, hear=self._hear, load=self._load)
        self._subnets = Subnets(
            kube,
            subnets=mirrors.subnets,
            states=mirrors.states,
            settings=settings,
            changed=self._subnet_queue.add,
        )
        self._nodes = Nodes(
            kube,
            self.session,
            books,
            nodes=mirrors.nodes,
            configs=mirrors.configs,
            settings=settings,
            pinned=self._subnets.pinned,
        )
        self._gone = Gone(
            kube,
            self.session,
            books,
            nodes=mirrors.nodes,
            configs=mirrors.configs,
            reconciler=self._nodes,
            settings=settings,
        )

    async def run(self) -> None:
        """Work until the term ends: raises why, in a group."""
        endings = [
            self._mirrors.nodes.subscribe(self._node_changed),
            self._mirrors.configs.subscribe(self._node_changed),
            self._mirrors.subnets.subscribe(self._subnet_changed),
        ]
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self.session.run())
                group.create_task(work(self._node_queue, self._nodes.reconcile, workers=16))
                group.create_task(work(self._subnet_queue, self._subnets.reconcile, workers=1))
                group.create_task(self._subnets.follow(self._ledger, self._lead.cluster, self._serve))
                group.create_task(self._gone.run())
                group.create_task(self._resync())
        finally:
            for end in endings:
                end()

    async def _resync(self) -> None:
        while True:
            for name in (*self._mirrors.nodes, *(record.node for record in self._books.values())):
                self._node_queue.add(name)
            for config in self._mirrors.configs.values():
                self._node_queue.add(config.metadata.name)
            await asyncio.sleep(RESYNC)

    def _load(self, records: tuple[ContainerRecord, ...]) -> None:
        self._books.load(records)
        for record in records:
            self._node_queue.add(record.node)

    def _hear(self, answer: ReconcileAnswer) -> None:
        for state in answer.subnets:
            self._subnets.hear(state)
        self._serve_containers(answer.servable)

    def _serve(self, change: Change) -> None:
        if change.state.frozen:
            self.session.doubt()  # the ledger may have been restored, and wait for our list
        self._serve_containers(change.servable)

    def _serve_containers(self, containers: tuple[str, ...]) -> None:
        """Look again at nodes that were answered short and can be given something now."""
        for container in containers:
            record = self._books.get(container)
            if record is not None:
                self._node_queue.add(record.node)

    def _node_changed(self, old: Object | None, new: Object | None) -> None:
        changed = new or old
        if changed is not None:
            self._node_queue.add(changed.metadata.name)

    def _subnet_changed(self, old: Object | None, new: Object | None) -> None:
        changed = new or old
        if changed is not None:
            self._subnet_queue.add(changed.metadata.name)
