"""Bugs to plant in the controller and the ledger: each leaves out one rule. They know private names, as a bug would."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from podpool.api.azure import NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.api.builtin import FINISHED, NODES, PODS
from podpool.controller import convert, nnc_reconciler
from podpool.controller import nnc_inventory
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.controller import Controller
from podpool.controller.convert import subnet_of
from podpool.controller.deps import ControllerDeps
from podpool.controller.ledger_session import LedgerSession
from podpool.controller.node_gc import NodeGC
from podpool.controller.node_reconciler import NodeReconciler
from podpool.core import batch_policy
from podpool.core.batch_policy import BatchGrade, SubnetDemand
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound
from podpool.ledger.domain import fencing, reconcile, scaling_policy, service
from podpool.ledger.domain.allocations import AllocatedAddress, Allocations
from podpool.ledger.domain.allocator import Allocator, AllocatorItem
from podpool.ledger.domain.block import PRIMARY, Block
from podpool.ledger.domain.recovery import take_listing
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.rows import ClusterRow, NetworkContainerRow
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.messages import (
    Inventory,
    InventoryResponse,
    NetworkContainerRecord,
    NetworkContainerState,
    ReconcileItem,
    ReconcileRequest,
    Term,
)
from tests.lab.sim.planted_agent import every_container_is_ours


async def _nothing(*_: object) -> None:
    return


def listed_grants_always_count(patch: pytest.MonkeyPatch) -> None:
    """Every new leader lists what its cache shows, and the ledger takes it for the books."""
    opened = Controller._open

    async def eager(controller: Controller, layout: ControllerDeps) -> Term:
        term = await opened(controller, layout)
        listed = [
            each
            for config in controller._mirrors.configs.values()
            for each in nnc_inventory._listed(config, term.term, controller._settings)
        ]
        listing = Inventory(cluster=controller._cluster, term=term.term, seen=controller._seen, containers=tuple(listed))
        await layout.ledger.send_listing(listing)
        return term

    async def take_any(ledger: LedgerService, listing: Inventory) -> InventoryResponse:
        wall = ledger._clock.wall()

        def work(repo: Repository) -> InventoryResponse:
            cluster = repo.cluster(listing.cluster)
            assert cluster
            take_listing(repo, listing, cluster, wall=wall)
            return service._listing_answer(repo, listing, wall=wall)

        return await ledger._store.write(work)

    patch.setattr(Controller, "_open", eager)
    patch.setattr(LedgerService, "take_listing", take_any)


def a_restore_goes_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """The ledger goes on from whatever books it finds, neither its witness nor its callers are heard."""
    patch.setattr(LedgerService, "start", _nothing)
    patch.setattr(fencing, "_heed", lambda *_, **__: None)


def nobody_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """A restore ends every term, and the ledger goes on from its books at once."""
    begin = fencing.begin_recovery

    def at_once(repo: Repository, **others: Any) -> None:  # noqa: ANN401  passed on
        begin(repo, **others)
        for cluster in repo.clusters():
            repo.put_cluster(replace(cluster, epoch=repo.epoch))
            repo.clear_pending_inventories(cluster.id)
        for subnet in repo.subnets():
            repo.put_subnet(replace(subnet, paused_until=0.0))

    for module in (service, fencing):
        patch.setattr(module, "begin_recovery", at_once)


def a_status_is_written_once(patch: pytest.MonkeyPatch) -> None:
    """What was written at some version is not written again, whatever the NNC shows."""
    told, written = convert.told_already, set[tuple[str, int]]()

    def once(config: NodeNetworkConfig, state: NetworkContainerState, *others: Any) -> bool:  # noqa: ANN401  passed on
        known = (state.container, state.version) in written
        written.add((state.container, state.version))
        return known or told(config, state, *others)

    patch.setattr(nnc_reconciler, "told_already", once)


def buffers_come_before_pods(patch: pytest.MonkeyPatch) -> None:
    """That a Pod waits does not matter to the batch: nodes keep their buffers."""
    grade = batch_policy.grade_batch

    def deaf(before: BatchGrade, view: SubnetDemand, **others: Any) -> BatchGrade:  # noqa: ANN401  passed on
        return grade(before, replace(view, waiting=False), **others)

    patch.setattr(scaling_policy, "grade_batch", deaf)


def the_listing_is_read_without_a_write(patch: pytest.MonkeyPatch) -> None:
    """NNCs are listed as they are."""

    async def as_they_are(question: nnc_inventory._Question) -> list[NodeNetworkConfig]:
        found = await question._kube.list(NODE_NETWORK_CONFIGS, namespace=question._settings.namespace)
        return list(found.items)

    patch.setattr(nnc_inventory._Question, "answers", as_they_are)


def restored_books_count_more_than_lists(patch: pytest.MonkeyPatch) -> None:
    """A cluster's list ends its recovery, and is thrown away."""

    def thrown_away(repo: Repository, listing: Inventory, cluster: ClusterRow, *, wall: float) -> None:
        take_listing(repo, replace(listing, containers=()), cluster, wall=wall)
        for row in repo.ncs(cluster.id):
            repo.put_nc(replace(row, epoch=repo.epoch))

    patch.setattr(service, "take_listing", thrown_away)


def only_who_asks_is_told(patch: pytest.MonkeyPatch) -> None:
    """A controller that has nothing to ask makes no call."""
    patch.setattr(LedgerSession, "doubt", lambda _: None)


def grants_are_counted(patch: pytest.MonkeyPatch) -> None:
    """A grant's identity is its address and how often that was given, as the books remember it."""
    free = Block.free

    def counted(
        allocations: Allocations, container: NetworkContainerRow, grants: Sequence[bytes]
    ) -> tuple[NetworkContainerRow, list[AllocatedAddress]]:
        given: list[AllocatedAddress] = []
        while len(given) < len(grants):
            number, slots = allocations._find(len(grants) - len(given))
            block = allocations._block(number)
            for slot in slots:
                address = allocations.layout.address(number, slot)
                count = int.from_bytes(block.grant(slot)[8:], "big") + 1
                grant = address.to_bytes(8, "big") + count.to_bytes(8, "big")
                given.append(allocations.hold(address, PRIMARY if grants[0] == PRIMARY else grant))
                block.assign([slot], owner=container.number, grants=[given[-1].grant])
            container = allocations._count(container, number, len(slots))
        return container, given

    def remembering(block: Block, slot: int, *, since: int) -> None:
        before = block.grant(slot)
        free(block, slot, since=since)
        block._grants[slot] = before

    patch.setattr(Allocations, "take", counted)
    patch.setattr(Block, "free", remembering)


def released_by_address(patch: pytest.MonkeyPatch) -> None:
    """A name frees whatever grant its address has now."""
    addresses: dict[str, int] = {}
    take, let_go = Allocations.take, Allocator._let_go

    def noted(allocations: Allocations, container: NetworkContainerRow, grants: Sequence[bytes]) -> tuple[NetworkContainerRow, list[AllocatedAddress]]:
        row, given = take(allocations, container, grants)
        addresses.update({held.id: held.address for held in given})
        return row, given

    def by_address(seating: Allocator, seat: AllocatorItem) -> None:
        freed = {addresses.get(name) for name in seat.item.released}
        names = tuple(held.id for held in seat.held if not held.primary and held.address in freed)
        seat.item = replace(seat.item, released=names)
        let_go(seating, seat)

    patch.setattr(Allocations, "take", noted)
    patch.setattr(Allocator, "_let_go", by_address)


def terms_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Whoever calls is the leader."""

    def anybody(repo: Repository, call: str, *, term: int, **_: Any) -> ClusterRow:  # noqa: ANN401, ARG001  not looked at
        cluster = repo.cluster(call)
        assert cluster
        return cluster

    patch.setattr(reconcile, "admit_listed", anybody)


def numbers_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Of two calls in one term the one that arrives last counts."""
    newest = 1 << 40
    do = reconcile.reconcile

    def renumbered(repo: Repository, calls: Sequence[ReconcileRequest], **others: Any) -> Any:  # noqa: ANN401  passed on
        nonlocal newest
        newest += len(calls)
        numbered = [replace(call, number=newest - back) for back, call in enumerate(reversed(calls))]
        return do(repo, numbered[::-1], **others)

    patch.setattr(service, "reconcile", renumbered)


def gone_is_told_from_a_cache(patch: pytest.MonkeyPatch) -> None:
    """A container is given up when its Node has not been seen for long; nothing is read."""

    async def gone(*_: object) -> bool:
        return True

    patch.setattr(NodeGC, "_is_gone", gone)


def given_up_too_soon(patch: pytest.MonkeyPatch) -> None:
    """A container is given up after a tenth of the gone time, while the Node is away."""
    look = NodeGC.look

    async def hasty(gone: NodeGC) -> None:
        known = {*gone._missed}
        await look(gone)
        early = 0.9 * gone._settings.common.node_gc_delay
        gone._missed |= {each: at - early for each, at in gone._missed.items() if each not in known}

    patch.setattr(NodeGC, "look", hasty)


def gone_while_pods_are_bound(patch: pytest.MonkeyPatch) -> None:
    """That Pods are bound to a Node that does not exist says nothing."""
    listed = KubeClient.list

    async def none(kube: KubeClient, kind: Any, **others: Any) -> Any:  # noqa: ANN401  passed on
        found = await listed(kube, kind, **others)
        controller = kind is PODS and not others.get("cached")
        return replace(found, items=[]) if controller else found

    patch.setattr(KubeClient, "list", none)


def pods_keep_any_container_of_the_name(patch: pytest.MonkeyPatch) -> None:
    """A container is kept while Pods are bound to a Node of its name, whichever Node that is."""
    is_gone = NodeGC._is_gone

    async def unless_bound(gone: NodeGC, record: NetworkContainerRecord) -> bool:
        bound = await gone._kube.list(PODS, fields=f"spec.nodeName={record.node}")
        running = any(pod.status.phase not in FINISHED for pod in bound.items)
        return not running and await is_gone(gone, record)

    patch.setattr(NodeGC, "_is_gone", unless_bound)


def the_dying_config_is_not_read(patch: pytest.MonkeyPatch) -> None:
    """Whether a Node is the machine that it was is decided by the boot id that the controller knows, not by claims."""
    patch.setattr(NodeReconciler, "_read_once_more", _nothing)
    every_container_is_ours(patch)


def the_boot_id_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A Node that was deleted and registered again counts as another machine, wherever that is asked."""

    async def gone(gone: NodeGC, record: NetworkContainerRecord) -> bool:
        try:
            node = await gone._kube.get(NODES, record.node)
        except ApiNotFound:
            return False
        return node.metadata.uid != record.node_uid

    patch.setattr(AllocationCache, "of_node", lambda repo, node, _: repo.of_uid(node.metadata.uid))
    patch.setattr(NodeReconciler, "_read_once_more", _nothing)
    patch.setattr(NodeGC, "_is_gone", gone)


def a_container_is_opened_before_its_config(patch: pytest.MonkeyPatch) -> None:
    """A container is opened for a Node whose NNC the cache does not show, whether there is one or not."""
    make = NodeReconciler._make

    async def hasty(nodes: NodeReconciler, name: str) -> None:
        node = await nodes._kube.get(NODES, name)
        if nodes._books.of_node(node, None) is None:
            subnet = subnet_of(node, nodes._settings)
            await nodes._ask(ReconcileItem(subnet=subnet, node=name, node_uid=node.metadata.uid, maximum=250))
        await make(nodes, name)

    patch.setattr(NodeReconciler, "_make", hasty)


def a_cache_tells_whose_a_config_is(patch: pytest.MonkeyPatch) -> None:
    """An NNC that does not belong to the Node in the cache is deleted."""

    async def deleted(nodes: NodeReconciler, config: NodeNetworkConfig) -> None:
        meta = config.metadata
        await nodes._kube.delete(NODE_NETWORK_CONFIGS, meta.name, namespace=meta.namespace, uid=meta.uid)

    patch.setattr(NodeReconciler, "_belongs", deleted)
