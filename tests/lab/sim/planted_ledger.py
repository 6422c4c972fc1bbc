"""Bugs to plant in the controller and the ledger: each omits one rule. They use private names, as a bug would."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from podpool.api.azure import NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.api.builtin import FINISHED, NODES, PODS
from podpool.controller import nnc_conversion, nnc_reconciler, recovery_inventory
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.controller import Controller
from podpool.controller.deps import ControllerDeps
from podpool.controller.nnc_conversion import subnet_of
from podpool.controller.node_gc import NodeGC
from podpool.controller.node_reconciler import NodeReconciler
from podpool.controller.reconcile_batcher import LeaderTerm, ReconcileBatcher
from podpool.core import batch_ladder
from podpool.core.batch_ladder import BatchGrade, SubnetDemand
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiNotFound
from podpool.ledger.domain import (
    controller_terms,
    reconcile,
    request_allocator,
    scaling_policy,
    service,
    subnet_reevaluation,
)
from podpool.ledger.domain.address_block import PRIMARY, Block
from podpool.ledger.domain.allocations import AllocatedAddress, Allocations
from podpool.ledger.domain.fair_shares import Waiter
from podpool.ledger.domain.ledger_time import LedgerClock
from podpool.ledger.domain.recovery import apply_inventory, inventory_response
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.request_allocator import Allocator, AllocatorItem
from podpool.ledger.domain.rows import ClusterRow, NcRow
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.messages import (
    Inventory,
    InventoryResponse,
    NetworkContainerRecord,
    NetworkContainerState,
    ReconcileItem,
    ReconcileRequest,
)
from podpool.runtime.transport import Unreachable
from tests.lab.sim.planted_agent import every_nc_is_adopted


async def _nothing(*_: object) -> None:
    return


def the_ledger_uses_its_wall_clock(patch: pytest.MonkeyPatch) -> None:
    """Cooldowns are measured by a clock that may be set."""
    patch.setattr(LedgerClock, "now", lambda clock, _: clock._source.wall())


def inventories_always_count(patch: pytest.MonkeyPatch) -> None:
    """Every new leader sends an inventory of its cache, and the ledger applies it."""
    open_term = Controller._open_term

    async def open_and_send(controller: Controller, deps: ControllerDeps, network: str) -> LeaderTerm:
        term = await open_term(controller, deps, network)
        listed = [
            each
            for nnc in controller._informers.nncs.values()
            for each in recovery_inventory._items(nnc, term.term, controller._settings)
        ]
        inventory = Inventory(
            cluster=controller._cluster,
            network=network,
            term=term.term,
            known_revision=term.seen,
            network_containers=tuple(listed),
        )
        await deps.ledger.send_inventory(inventory)
        return term

    async def apply_any(ledger: LedgerService, inventory: Inventory) -> InventoryResponse:
        def transaction(repo: Repository) -> InventoryResponse:
            now = ledger._clock.now(repo)
            cluster = repo.cluster(inventory.cluster)
            assert cluster
            apply_inventory(repo, inventory, cluster, time=now)
            return inventory_response(repo, inventory, time=now)

        return await ledger._store.write(transaction, network=inventory.network)

    patch.setattr(Controller, "_open_term", open_and_send)
    patch.setattr(LedgerService, "apply_inventory", apply_any)


def a_restore_goes_unnoticed(patch: pytest.MonkeyPatch) -> None:
    """The ledger continues from any database; the rollback detector and the callers' knowledge are ignored."""
    patch.setattr(LedgerService, "start", _nothing)
    patch.setattr(controller_terms, "_detect_restore", lambda *_, **__: None)


def recovery_waits_for_no_cluster(patch: pytest.MonkeyPatch) -> None:
    """A restore ends every term, and the ledger continues from its database at once."""
    begin = controller_terms.begin_recovery

    def recover_at_once(repo: Repository, **kwargs: Any) -> None:  # noqa: ANN401  passed on
        begin(repo, **kwargs)
        for cluster in repo.clusters():
            repo.put_cluster(replace(cluster, epoch=repo.epoch))
            repo.clear_pending_inventories(cluster.id)
        for subnet in repo.subnets():
            repo.put_subnet(replace(subnet, paused_until=0.0))

    for module in (service, controller_terms):
        patch.setattr(module, "begin_recovery", recover_at_once)


def a_status_is_written_once(patch: pytest.MonkeyPatch) -> None:
    """A status that was written at a version is not written again, whatever the NNC shows."""
    is_current, written = nnc_conversion.status_is_current, set[tuple[str, int]]()

    def written_once(nnc: NodeNetworkConfig, state: NetworkContainerState, *args: Any) -> bool:  # noqa: ANN401  passed on
        known = (state.nc_id, state.version) in written
        written.add((state.nc_id, state.version))
        return known or is_current(nnc, state, *args)

    patch.setattr(nnc_reconciler, "status_is_current", written_once)


def buffers_ignore_waiting_pods(patch: pytest.MonkeyPatch) -> None:
    """The batch does not depend on waiting Pods: nodes keep their buffers."""
    grade = batch_ladder.grade_batch

    def grade_without_waiting(before: BatchGrade, demand: SubnetDemand, **kwargs: Any) -> BatchGrade:  # noqa: ANN401  passed on
        return grade(before, replace(demand, waiting=False), **kwargs)

    patch.setattr(scaling_policy, "grade_batch", grade_without_waiting)


def the_inventory_is_read_without_a_write(patch: pytest.MonkeyPatch) -> None:
    """NNCs are listed without the write that orders late statuses before it."""

    async def list_only(request: recovery_inventory._InventoryRequest) -> list[NodeNetworkConfig]:
        found = await request._kube.list(NODE_NETWORK_CONFIGS, namespace=request._settings.namespace)
        return list(found.items)

    patch.setattr(recovery_inventory._InventoryRequest, "replies", list_only)


def a_failed_request_restarts_the_inventory(patch: pytest.MonkeyPatch) -> None:
    """The wait for replies, and for machines that register again, starts anew."""
    replies = recovery_inventory._InventoryRequest.replies

    async def replies_or_restart(request: recovery_inventory._InventoryRequest) -> list[NodeNetworkConfig] | None:
        try:
            return await replies(request)
        except Unreachable:
            request._begun = asyncio.get_running_loop().time()
            raise

    patch.setattr(recovery_inventory._InventoryRequest, "replies", replies_or_restart)


def the_restored_ledger_ignores_inventories(patch: pytest.MonkeyPatch) -> None:
    """A cluster's inventory ends its recovery, and its content is dropped."""

    def apply_empty(repo: Repository, inventory: Inventory, cluster: ClusterRow, *, time: float) -> None:
        apply_inventory(repo, replace(inventory, network_containers=()), cluster, time=time)
        for row in repo.ncs(cluster.id):
            repo.put_nc(replace(row, epoch=repo.epoch))

    patch.setattr(service, "apply_inventory", apply_empty)


def an_idle_controller_does_not_call(patch: pytest.MonkeyPatch) -> None:
    """A controller without a request makes no call."""
    patch.setattr(ReconcileBatcher, "reload", lambda _: None)


def grant_ids_are_counters(patch: pytest.MonkeyPatch) -> None:
    """A grant's ID is its address and the number of its grants in the database."""
    free = Block.free

    def allocate_counted(
        allocations: Allocations, nc: NcRow, grants: Sequence[bytes]
    ) -> tuple[NcRow, list[AllocatedAddress]]:
        allocated: list[AllocatedAddress] = []
        while len(allocated) < len(grants):
            number, slots = allocations._find_free(nc, len(grants) - len(allocated))
            block = allocations._block(number)
            for slot in slots:
                address = allocations.layout.address(number, slot)
                count = int.from_bytes(block.grant(slot)[8:], "big") + 1
                grant = address.to_bytes(8, "big") + count.to_bytes(8, "big")
                allocated.append(allocations.allocated(address, PRIMARY if grants[0] == PRIMARY else grant))
                block.assign([slot], owner=nc.number, grants=[allocated[-1].grant])
            nc = allocations._count_granted(nc, number, len(slots))
        return nc, allocated

    def free_and_keep(block: Block, slot: int, *, since: int) -> None:
        before = block.grant(slot)
        free(block, slot, since=since)
        block._grants[slot] = before

    patch.setattr(Allocations, "allocate", allocate_counted)
    patch.setattr(Block, "free", free_and_keep)


def released_by_address(patch: pytest.MonkeyPatch) -> None:
    """A release frees whatever grant its address has now."""
    addresses: dict[str, int] = {}
    allocate, release = Allocations.allocate, Allocator._release

    def allocate_and_record(
        allocations: Allocations, nc: NcRow, grants: Sequence[bytes]
    ) -> tuple[NcRow, list[AllocatedAddress]]:
        row, allocated = allocate(allocations, nc, grants)
        addresses.update({held.id: held.address for held in allocated})
        return row, allocated

    def release_by_address(allocator: Allocator, each: AllocatorItem) -> None:
        freed = {addresses.get(grant) for grant in each.item.released}
        grants = tuple(held.id for held in each.held if not held.primary and held.address in freed)
        each.item = replace(each.item, released=grants)
        release(allocator, each)

    patch.setattr(Allocations, "allocate", allocate_and_record)
    patch.setattr(Allocator, "_release", release_by_address)


def terms_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Every caller is the leader."""

    def admit_any(repo: Repository, id_: str, **_: Any) -> ClusterRow:  # noqa: ANN401  ignored
        cluster = repo.cluster(id_)
        assert cluster
        return cluster

    patch.setattr(reconcile, "check_recovered", admit_any)


def call_numbers_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Of two calls in one term the last to arrive counts."""
    newest = 1 << 40
    run = reconcile.reconcile

    def reconcile_renumbered(repo: Repository, calls: Sequence[ReconcileRequest], **kwargs: Any) -> Any:  # noqa: ANN401  passed on
        nonlocal newest
        newest += len(calls)
        numbered = [replace(call, number=newest - back) for back, call in enumerate(reversed(calls))]
        return run(repo, numbered[::-1], **kwargs)

    patch.setattr(service, "reconcile", reconcile_renumbered)


def node_gc_trusts_the_cache(patch: pytest.MonkeyPatch) -> None:
    """An NC is closed when its Node is absent from the cache for long; nothing is read."""

    async def always(*_: object) -> bool:
        return True

    patch.setattr(NodeGC, "_is_deleted", always)


def node_gc_ignores_the_delay(patch: pytest.MonkeyPatch) -> None:
    """An NC is closed after a tenth of the node GC delay, while the Node is absent."""
    scan = NodeGC.scan

    async def scan_early(gc: NodeGC) -> None:
        gc._missing._interval = 0.1 * gc._settings.common.node_gc_delay
        await scan(gc)

    patch.setattr(NodeGC, "scan", scan_early)


def node_gc_ignores_bound_pods(patch: pytest.MonkeyPatch) -> None:
    """Pods that are bound to an absent Node do not count."""
    listed = KubeClient.list

    async def list_no_pods(kube: KubeClient, kind: Any, **kwargs: Any) -> Any:  # noqa: ANN401  passed on
        found = await listed(kube, kind, **kwargs)
        controller = kind is PODS and not kwargs.get("cached")
        return replace(found, items=[]) if controller else found

    patch.setattr(KubeClient, "list", list_no_pods)


def superseded_ncs_are_kept(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(NodeGC, "_is_superseded", lambda _self, _record: False)


def bound_pods_keep_any_nc_of_the_name(patch: pytest.MonkeyPatch) -> None:
    """An NC is kept while Pods are bound to any Node of its name."""
    is_deleted = NodeGC._is_deleted

    async def unless_bound(gc: NodeGC, record: NetworkContainerRecord) -> bool:
        bound = await gc._kube.list(PODS, fields=f"spec.nodeName={record.node}")
        running = any(pod.status.phase not in FINISHED for pod in bound.items)
        return not running and await is_deleted(gc, record)

    patch.setattr(NodeGC, "_is_deleted", unless_bound)


def a_terminating_nnc_is_not_read(patch: pytest.MonkeyPatch) -> None:
    """Only the boot ID that the controller knows decides whether a Node is the same machine."""
    patch.setattr(NodeReconciler, "_save_last_report", _nothing)
    every_nc_is_adopted(patch)


def the_boot_id_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A Node that was registered again counts as another machine."""

    async def is_other_uid(gc: NodeGC, record: NetworkContainerRecord) -> bool:
        try:
            node = await gc._kube.get(NODES, record.node)
        except ApiNotFound:
            return False
        return node.metadata.uid != record.node_uid

    patch.setattr(AllocationCache, "for_node", lambda cache, node, _: cache.by_node_uid(node.metadata.uid))
    patch.setattr(NodeReconciler, "_save_last_report", _nothing)
    patch.setattr(NodeGC, "_is_deleted", is_other_uid)


def an_nc_is_opened_before_its_nnc(patch: pytest.MonkeyPatch) -> None:
    """An NC is opened for a Node whose NNC is not in the cache, whether it exists or not; and node GC keeps it."""
    superseded_ncs_are_kept(patch)
    create = NodeReconciler._create_nnc

    async def open_and_create(nodes: NodeReconciler, name: str) -> None:
        node = await nodes._kube.get(NODES, name)
        if nodes._allocations.for_node(node, None) is None:
            subnet = subnet_of(node, nodes._settings)
            await nodes._nnc_reconciler.send(
                ReconcileItem(subnet=subnet, node=name, node_uid=node.metadata.uid, maximum=250)
            )
        await create(nodes, name)

    patch.setattr(NodeReconciler, "_create_nnc", open_and_create)


def nnc_ownership_is_read_from_the_cache(patch: pytest.MonkeyPatch) -> None:
    """An NNC that does not belong to the Node in the cache is deleted."""

    async def delete(nodes: NodeReconciler, nnc: NodeNetworkConfig) -> None:
        meta = nnc.metadata
        await nodes._kube.delete(NODE_NETWORK_CONFIGS, meta.name, namespace=meta.namespace, uid=meta.uid)

    patch.setattr(NodeReconciler, "_replace_owner", delete)


def the_longest_waiting_cluster_is_served_first(patch: pytest.MonkeyPatch) -> None:
    """All clusters are one in the fair queue of a subnet."""
    waiter_of = subnet_reevaluation.waiter_of

    def of_no_cluster(nc: NcRow, *, requesting: bool = False) -> Waiter:
        return replace(waiter_of(nc, requesting=requesting), cluster="")

    for module in (subnet_reevaluation, request_allocator):
        patch.setattr(module, "waiter_of", of_no_cluster)
