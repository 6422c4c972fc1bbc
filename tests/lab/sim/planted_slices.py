"""Bugs to plant in the assignment and return of slices: each omits one rule. They use private names, as a bug would."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from podpool.agent import records
from podpool.agent.secondary.ippool_batcher import IPPoolBatcher
from podpool.agent.secondary.node_slices_reconciler import SliceReconciler
from podpool.agent.secondary.shared_range_ipam import SharedRangeIPAM
from podpool.agent.secondary.slices import Slice, Slices
from podpool.agent.state import AgentState
from podpool.api.builtin import Node
from podpool.api.node_slices import NODE_SLICES, Assignment, NodeSlices, NodeSlicesSpec, NodeSlicesStatus
from podpool.controller.slices import (
    node_slices_reconciler,
    node_slices_spec,
    nodeslicepool_reconciler,
    slice_ownership,
)
from podpool.controller.slices.inventory_barrier import SliceInventory
from podpool.controller.slices.mass_loss_breaker import SliceMassLoss
from podpool.controller.slices.node_gc import SliceNodeGC
from podpool.controller.slices.read_your_writes_cache import ReadYourWritesCache
from podpool.controller.slices.shared_to_sliced_cutover import SharedPoolSeal
from podpool.controller.slices.slice_ownership import OwnedSlice, SliceState
from podpool.controller.subnet_ranges import SubnetRanges
from podpool.kube.client import KubeClient

StateOf = Callable[[Assignment, NodeSlicesSpec, NodeSlicesStatus], SliceState | None]


async def _nothing(*_args: Any, **_kwargs: Any) -> None:  # noqa: ANN401  any arguments
    return


def _plant_state(patch: pytest.MonkeyPatch, state_of: StateOf) -> None:
    for module in (slice_ownership, node_slices_spec):
        patch.setattr(module, "assignment_state", state_of)


# the controller


def held_slices_are_removed(patch: pytest.MonkeyPatch) -> None:
    """An unwanted slice is withdrawn, whoever holds it."""
    _plant_state(patch, lambda _assignment, _spec, _status: SliceState.ASSIGNED)


def specs_are_written_without_a_precondition(patch: pytest.MonkeyPatch) -> None:
    """A spec is written over whatever there is."""
    guarded = KubeClient.merge_patch

    async def unguarded(kube: KubeClient, kind: Any, *args: Any, **options: Any) -> Any:  # noqa: ANN401  any arguments
        if kind is NODE_SLICES and "subresource" not in options:
            options["precondition"] = None
        return await guarded(kube, kind, *args, **options)

    patch.setattr(KubeClient, "merge_patch", unguarded)


def node_gc_trusts_the_cache(patch: pytest.MonkeyPatch) -> None:
    """Whether a Node is gone is decided by the cache."""

    async def by_cache(node_gc: SliceNodeGC, owned: OwnedSlice) -> bool:
        return not owned.belongs_to(node_gc._deps.nodes.get(owned.node))

    patch.setattr(SliceNodeGC, "_is_gone", by_cache)


def a_leader_starts_with_its_cache(patch: pytest.MonkeyPatch) -> None:
    """A new leader assigns slices by its cache, and awaits no agent."""
    patch.setattr(ReadYourWritesCache, "read_all", _nothing)
    no_answer_is_awaited(patch)


def lost_assignments_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """What agents hold and spec does not list counts as free."""
    for module in (slice_ownership, node_slices_spec):
        patch.setattr(module, "lost_assignments", lambda _spec, _status: ())


def no_answer_is_awaited(patch: pytest.MonkeyPatch) -> None:
    """Slices are assigned before all agents have answered."""
    patch.setattr(SliceInventory, "complete", property(lambda _: True))


def each_leader_starts_afresh(patch: pytest.MonkeyPatch) -> None:
    """A new leader does not know what the one before it was waiting for."""
    patch.setattr(SliceInventory, "start", _nothing)


def confirmations_await_no_inventory(patch: pytest.MonkeyPatch) -> None:
    """Acknowledgements are confirmed before all agents have answered."""
    confirmed = node_slices_spec._Decision._confirmed

    def at_once(decision: Any, *args: Any) -> Assignment:  # noqa: ANN401  a private class
        before = decision._inputs
        decision._inputs = msgspec.structs.replace(before, inventory_complete=True)
        try:
            return confirmed(decision, *args)
        finally:
            decision._inputs = before

    patch.setattr(node_slices_spec._Decision, "_confirmed", at_once)


def former_nodes_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A machine that is replaced has no slices any more."""

    def forget(spec: NodeSlicesSpec, _status: NodeSlicesStatus, node: Node) -> NodeSlicesSpec:
        return spec if spec.node_uid == node.metadata.uid else NodeSlicesSpec(node_uid=node.metadata.uid)

    patch.setattr(node_slices_reconciler, "identify_node", forget)


def the_boot_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """A Node with another UID is another machine."""

    def by_uid(uid: str, _boot_id: str, node: Node) -> bool:
        return uid in ("", node.metadata.uid)

    for module in (slice_ownership, node_slices_spec):
        patch.setattr(module, "is_same_node", by_uid)
    patch.setattr("podpool.controller.slices.node_gc.is_same_node", by_uid)


def the_protocol_is_ignored(patch: pytest.MonkeyPatch) -> None:
    """What a status does not show is not in use, whichever agent wrote it."""
    present = slice_ownership.assignment_state

    def state_of(assignment: Assignment, spec: NodeSlicesSpec, status: NodeSlicesStatus) -> SliceState | None:
        return present(assignment, spec, msgspec.structs.replace(status, protocol=1))

    _plant_state(patch, state_of)
    silent_nodes_hold_nothing(patch)


def rollbacks_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """What an agent reports of a restore has no effect."""
    patch.setattr(SliceInventory, "on_rollback", lambda *_args, **_options: None)
    patch.setattr(SliceInventory, "on_restore_sign", lambda *_args, **_options: None)


def silent_nodes_hold_nothing(patch: pytest.MonkeyPatch) -> None:
    """What looks unheld is withdrawn when the inventory is complete, also from nodes that did not answer."""
    answered = node_slices_spec._Decision._may_withdraw

    def complete(decision: Any) -> bool:  # noqa: ANN401  a private class
        return answered(decision) or bool(decision._inputs.inventory_complete)

    patch.setattr(node_slices_spec._Decision, "_may_withdraw", complete)


def mass_losses_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Node GC releases everything, however much it is."""

    async def check(_: SliceMassLoss) -> bool:
        return True

    patch.setattr(SliceMassLoss, "check", check)


def subnets_of_the_ledger_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Slices are assigned of addresses that the ledger grants."""
    patch.setattr(SubnetRanges, "all", lambda _: {})


def shared_entries_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Slices are assigned whatever Pods have from the range while it was shared."""
    patch.setattr(nodeslicepool_reconciler, "allocated_in_shared_pools", lambda _: ())


def shared_pools_are_not_sealed(patch: pytest.MonkeyPatch) -> None:
    """Ranges are sliced while agents may write the shared pools."""
    patch.setattr(SharedPoolSeal, "seal", _nothing)


# the agent


def a_slice_keeps_its_first_range(patch: pytest.MonkeyPatch) -> None:
    """An agent ignores a changed range of its slice's network."""
    patch.setattr(SliceReconciler, "_follow_range", lambda *_: None)


def confirmations_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """An agent uses an assigned slice without the controller's confirmation."""
    step = SliceReconciler._step

    async def confirmed(reconciler: SliceReconciler, shown: NodeSlices) -> bool:
        acknowledged = reconciler._valid_acknowledgements()
        assignments = tuple(
            msgspec.structs.replace(each, confirmed=acknowledged.get(each.id, each.confirmed))
            for each in shown.spec.assignments
        )
        spec = msgspec.structs.replace(shown.spec, assignments=assignments)
        return await step(reconciler, msgspec.structs.replace(shown, spec=spec))

    patch.setattr(SliceReconciler, "_step", confirmed)
    patch.setattr(SliceReconciler, "is_usable", lambda *_: True)


def returns_are_not_journalled(patch: pytest.MonkeyPatch) -> None:
    """An agent reports a return that its journal does not have."""
    write = AgentState.write

    def forget_returns(state: AgentState, record: records.AnyRecord) -> None:
        if isinstance(record, records.SliceRemoved):
            state._apply(record)
        else:
            write(state, record)

    patch.setattr(AgentState, "write", forget_returns)


def slices_outlast_the_fence(patch: pytest.MonkeyPatch) -> None:
    """When the fence opens again, an agent uses its slices on."""
    apply = Slices.apply

    def stay_confirmed(slices: Slices, record: records.AnyRecord) -> None:
        if isinstance(record, records.NodeConfirmed):
            record = msgspec.structs.replace(record, reopened=False)
        apply(slices, record)

    patch.setattr(Slices, "apply", stay_confirmed)


def slices_outlast_a_boot(patch: pytest.MonkeyPatch) -> None:
    """An agent uses its slices on after a reboot, before they are confirmed."""
    reboot = Slice.reboot

    def stay_confirmed(slice_: Slice, *, at: float) -> None:
        reboot(slice_, at=at)
        slice_.confirmed = True

    patch.setattr(Slice, "reboot", stay_confirmed)
    slices_outlast_the_fence(patch)


def entries_of_earlier_boots_stay(patch: pytest.MonkeyPatch) -> None:
    """An agent releases nothing of earlier boots in shared pools."""
    patch.setattr(SharedRangeIPAM, "_release_earlier_boots", _nothing)


def seals_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """An agent assigns addresses of a shared pool that is sealed."""
    patch.setattr(IPPoolBatcher, "_reject_if_sealed", lambda _batcher, requests, _pools: list(requests))
