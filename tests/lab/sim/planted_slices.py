"""Bugs to plant in the assignment and return of slices: each omits one rule."""

from typing import Any

import pytest

from podpool.agent.secondary.ippool_batcher import IPPoolBatcher
from podpool.agent.secondary.shared_range_ipam import SharedRangeIPAM
from podpool.agent.secondary.slice_leases import Acknowledgement, SliceLeases
from podpool.agent.secondary.slice_reconciler import SliceReconciler
from podpool.api.builtin import Lease
from podpool.controller.slices import nodeslicepool_reconciler
from podpool.controller.slices.informers import WriteThroughCache
from podpool.controller.slices.inventory import SliceInventory
from podpool.controller.slices.node_gc import SliceNodeGC
from podpool.controller.slices.ownership import OwnedSlice, SliceOwnership
from podpool.controller.slices.shared_pool_seal import SharedPoolSeal
from podpool.kube.client import KubeClient


def holders_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """An unwanted slice is withdrawn, whoever holds it."""
    patch.setattr(OwnedSlice, "is_held", property(lambda _: False))


def a_slice_keeps_its_first_range(patch: pytest.MonkeyPatch) -> None:
    """An agent ignores a changed range of its slice's network."""
    patch.setattr(SliceReconciler, "_update_range", lambda *_: None)


def deletes_have_no_precondition(patch: pytest.MonkeyPatch) -> None:
    """A Lease is deleted by its name."""

    async def by_name(latest: WriteThroughCache[Any], kube: KubeClient, obj: Any) -> None:  # noqa: ANN401  of any kind
        await kube.delete(latest._informer.kind, obj.metadata.name, namespace=obj.metadata.namespace)
        latest.remove(obj)

    patch.setattr(WriteThroughCache, "delete", by_name)


def node_gc_trusts_the_cache(patch: pytest.MonkeyPatch) -> None:
    """Whether a Node is gone is decided by the cache."""

    async def by_cache(node_gc: SliceNodeGC, claim: OwnedSlice) -> bool:
        return not claim.belongs_to(node_gc._deps.nodes.get(claim.node))

    patch.setattr(SliceNodeGC, "_is_deleted", by_cache)


def a_leader_starts_with_its_cache(patch: pytest.MonkeyPatch) -> None:
    """A new leader assigns slices by its cache."""

    async def nothing(*_args: Any, **_kwargs: Any) -> None:  # noqa: ANN401  any arguments
        return

    patch.setattr(WriteThroughCache, "read_all", nothing)


def agent_reports_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Slices that agents report as theirs count as free."""
    patch.setattr(SliceOwnership, "set_reported", lambda *_args, **_kwargs: None)


def no_report_is_awaited(patch: pytest.MonkeyPatch) -> None:
    """Slices are assigned before all agents have reported."""
    patch.setattr(SliceInventory, "complete", property(lambda _: True))


def confirmations_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """An agent uses an offered slice without the controller's confirmation."""

    def pending(leases: SliceLeases, lease: Lease) -> Acknowledgement | None:
        return leases._acknowledged.get(lease.metadata.uid) if leases.is_pending(lease) else None

    patch.setattr(SliceLeases, "confirmed", pending)


def shared_entries_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Slices are assigned whatever Pods have from the range while it was shared."""
    patch.setattr(nodeslicepool_reconciler, "allocated_in_shared_pools", lambda _: ())


def entries_of_earlier_boots_stay(patch: pytest.MonkeyPatch) -> None:
    """An agent releases nothing of earlier boots in shared pools."""

    async def nothing(_ipam: SharedRangeIPAM) -> None:
        return

    patch.setattr(SharedRangeIPAM, "_release_earlier_boots", nothing)


def shared_pools_are_not_sealed(patch: pytest.MonkeyPatch) -> None:
    """Ranges are sliced while agents may write the shared pools."""

    async def nothing(*_: Any) -> None:  # noqa: ANN401  any arguments
        return

    patch.setattr(SharedPoolSeal, "seal", nothing)


def seals_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """An agent assigns addresses of a shared pool that is sealed."""
    patch.setattr(IPPoolBatcher, "_reject_if_sealed", lambda _batcher, requests, _pools: list(requests))
