"""Bugs to plant in the controller and the ledger: each omits one rule. They use private names, as a bug would."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from podpool.api.azure import NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.api.builtin import FINISHED, NODES, PODS
from podpool.controller import convert, nnc_inventory, nnc_reconciler
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.controller import Controller
from podpool.controller.convert import subnet_of
from podpool.controller.deps import ControllerDeps
from podpool.controller.ledger_session import LeaderTerm, LedgerSession
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
from podpool.ledger.domain.recovery import apply_inventory
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
)
from tests.lab.sim.planted_agent import every_nc_is_adopted


async def _nothing(*_: object) -> None:
    return


def inventories_always_count(patch: pytest.MonkeyPatch) -> None:
    """Every new leader sends an inventory of its cache, and the ledger applies it."""
    opened = Controller._open_term

    async def eager(controller: Controller, deps: ControllerDeps) -> LeaderTerm:
        term = await opened(controller, deps)
        listed = [
            each
            for nnc in controller._informers.nncs.values()
            for each in nnc_inventory._items(nnc, term.term, controller._settings)
        ]
        listing = Inventory(
            cluster=controller._cluster, term=term.term, known_revision=controller._seen, network_containers=tuple(listed)
        )
        await layout.ledger.send_listing(listing)
        return term

    async def take_any(ledger: LedgerService, listing: Inventory) -> InventoryResponse:
        wall = ledger._clock.wall()

        def work(repo: Repository) -> InventoryResponse:
            cluster = repo.cluster(listing.cluster)
            assert cluster
            apply_inventory(repo, listing, cluster, wall=wall)
            return service._listing_answer(repo, listing, wall=wall)

        return await ledger._store.write(work)

    patch.setattr(Controller, "_open_term", eager)
    patch.setattr(LedgerService, "apply_inventory", take_any)


def a_restore_goes_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """The ledger continues from any database; the rollback detector and the callers' knowledge are ignored."""
    patch.setattr(LedgerService, "start", _nothing)
    patch.setattr(fencing, "_heed", lambda *_, **__: None)


def recovery_waits_for_no_cluster(patch: pytest.MonkeyPatch) -> None:
    """A restore ends every term, and the ledger continues from its database at once."""
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
    """A status that was written at a version is not written again, whatever the NNC shows."""
    told, written = convert.status_is_current, set[tuple[str, int]]()

    def once(config: NodeNetworkConfig, state: NetworkContainerState, *others: Any) -> bool:  # noqa: ANN401  passed on
        known = (state.nc_id, state.version) in written
        written.add((state.nc_id, state.version))
        return known or told(config, state, *others)

    patch.setattr(nnc_reconciler, "status_is_current", once)


def buffers_ignore_waiting_pods(patch: pytest.MonkeyPatch) -> None:
    """The batch does not depend on waiting Pods: nodes keep their buffers."""
    grade = batch_policy.grade_batch

    def deaf(before: BatchGrade, view: SubnetDemand, **others: Any) -> BatchGrade:  # noqa: ANN401  passed on
        return grade(before, replace(view, waiting=False), **others)

    patch.setattr(scaling_policy, "grade_batch", deaf)


def the_inventory_is_read_without_a_write(patch: pytest.MonkeyPatch) -> None:
    """NNCs are listed without the write that orders late statuses before it."""

    async def as_they_are(request: nnc_inventory._InventoryRequest) -> list[NodeNetworkConfig]:
        found = await request._kube.list(NODE_NETWORK_CONFIGS, namespace=request._settings.namespace)
        return list(found.items)

    patch.setattr(nnc_inventory._InventoryRequest, "replies", as_they_are)


def the_restored_ledger_ignores_inventories(patch: pytest.MonkeyPatch) -> None:
    """A cluster's inventory ends its recovery, and its content is dropped."""

    def thrown_away(repo: Repository, listing: Inventory, cluster: ClusterRow, *, wall: float) -> None:
        apply_inventory(repo, replace(listing, containers=()), cluster, wall=wall)
        for row in repo.ncs(cluster.id):
            repo.put_nc(replace(row, epoch=repo.epoch))

    patch.setattr(service, "apply_inventory", thrown_away)


def an_idle_controller_does_not_call(patch: pytest.MonkeyPatch) -> None:
    """A controller without a request makes no call."""
    patch.setattr(LedgerSession, "reload", lambda _: None)


def grant_ids_are_counters(patch: pytest.MonkeyPatch) -> None:
    """A grant's ID is its address and the number of its grants in the database."""
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
                given.append(allocations.allocated(address, PRIMARY if grants[0] == PRIMARY else grant))
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
    """A release frees whatever grant its address has now."""
    addresses: dict[str, int] = {}
    take, let_go = Allocations.take, Allocator._let_go

    def noted(
        allocations: Allocations, container: NetworkContainerRow, grants: Sequence[bytes]
    ) -> tuple[NetworkContainerRow, list[AllocatedAddress]]:
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
    """Every caller is the leader."""

    def anybody(repo: Repository, call: str, *, term: int, **_: Any) -> ClusterRow:  # noqa: ANN401, ARG001  not looked at
        cluster = repo.cluster(call)
        assert cluster
        return cluster

    patch.setattr(reconcile, "admit_listed", anybody)


def call_numbers_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Of two calls in one term the last to arrive counts."""
    newest = 1 << 40
    do = reconcile.reconcile

    def renumbered(repo: Repository, calls: Sequence[ReconcileRequest], **others: Any) -> Any:  # noqa: ANN401  passed on
        nonlocal newest
        newest += len(calls)
        numbered = [replace(call, number=newest - back) for back, call in enumerate(reversed(calls))]
        return do(repo, numbered[::-1], **others)

    patch.setattr(service, "reconcile", renumbered)


def node_gc_trusts_the_cache(patch: pytest.MonkeyPatch) -> None:
    """An NC is closed when its Node is absent from the cache for long; nothing is read."""

    async def gone(*_: object) -> bool:
        return True

    patch.setattr(NodeGC, "_is_deleted", gone)


def node_gc_ignores_the_delay(patch: pytest.MonkeyPatch) -> None:
    """An NC is closed after a tenth of the node GC delay, while the Node is absent."""
    scan = NodeGC.scan

    async def hasty(gc: NodeGC) -> None:
        gc._missing._interval = 0.1 * gc._settings.common.node_gc_delay
        await scan(gc)

    patch.setattr(NodeGC, "scan", hasty)


def node_gc_ignores_bound_pods(patch: pytest.MonkeyPatch) -> None:
    """Pods that are bound to an absent Node do not count."""
    listed = KubeClient.list

    async def none(kube: KubeClient, kind: Any, **others: Any) -> Any:  # noqa: ANN401  passed on
        found = await listed(kube, kind, **others)
        controller = kind is PODS and not others.get("cached")
        return replace(found, items=[]) if controller else found

    patch.setattr(KubeClient, "list", none)


def bound_pods_keep_any_nc_of_the_name(patch: pytest.MonkeyPatch) -> None:
    """An NC is kept while Pods are bound to any Node of its name."""
    is_gone = NodeGC._is_deleted

    async def unless_bound(gone: NodeGC, record: NetworkContainerRecord) -> bool:
        bound = await gone._kube.list(PODS, fields=f"spec.nodeName={record.node}")
        running = any(pod.status.phase not in FINISHED for pod in bound.items)
        return not running and await is_gone(gone, record)

    patch.setattr(NodeGC, "_is_deleted", unless_bound)


def a_terminating_nnc_is_not_read(patch: pytest.MonkeyPatch) -> None:
    """Only the boot ID that the controller knows decides whether a Node is the same machine."""
    patch.setattr(NodeReconciler, "_save_last_report", _nothing)
    every_nc_is_adopted(patch)


def the_boot_id_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A Node that was registered again counts as another machine."""

    async def gone(gone: NodeGC, record: NetworkContainerRecord) -> bool:
        try:
            node = await gone._kube.get(NODES, record.node)
        except ApiNotFound:
            return False
        return node.metadata.uid != record.node_uid

    patch.setattr(AllocationCache, "for_node", lambda cache, node, _: cache.by_node_uid(node.metadata.uid))
    patch.setattr(NodeReconciler, "_save_last_report", _nothing)
    patch.setattr(NodeGC, "_is_deleted", gone)


def an_nc_is_opened_before_its_nnc(patch: pytest.MonkeyPatch) -> None:
    """An NC is opened for a Node whose NNC is not in the cache, whether it exists or not."""
    make = NodeReconciler._create_nnc

    async def hasty(nodes: NodeReconciler, name: str) -> None:
        node = await nodes._kube.get(NODES, name)
        if nodes._allocations.for_node(node, None) is None:
            subnet = subnet_of(node, nodes._settings)
            await nodes._nnc_reconciler.send(
                ReconcileItem(subnet=subnet, node=name, node_uid=node.metadata.uid, maximum=250)
            )
        await make(nodes, name)

    patch.setattr(NodeReconciler, "_create_nnc", hasty)


def nnc_ownership_is_read_from_the_cache(patch: pytest.MonkeyPatch) -> None:
    """An NNC that does not belong to the Node in the cache is deleted."""

    async def deleted(nodes: NodeReconciler, config: NodeNetworkConfig) -> None:
        meta = config.metadata
        await nodes._kube.delete(NODE_NETWORK_CONFIGS, meta.name, namespace=meta.namespace, uid=meta.uid)

    patch.setattr(NodeReconciler, "_replace_owner", deleted)
