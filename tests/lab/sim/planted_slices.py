"""Bugs to plant where slices are given and taken back: each leaves out one rule."""

from typing import Any

import pytest

from podpool.agent.secondary.ippool_batcher import Lane
from podpool.agent.secondary.slice_leases import OwnLeases, Signed
from podpool.agent.secondary.slice_reconciler import Keeper
from podpool.api.builtin import Lease
from podpool.controller.slices import nodeslicepool_reconciler
from podpool.controller.slices.informers import Latest
from podpool.controller.slices.inventory import Hearing
from podpool.controller.slices.node_gc import Lost
from podpool.controller.slices.ownership import Claim, Claims
from podpool.controller.slices.shared_pool_seal import SharedPools
from podpool.kube.client import KubeClient


def a_holder_does_not_matter(patch: pytest.MonkeyPatch) -> None:
    """What is not wanted is taken back, whoever holds it."""
    patch.setattr(Claim, "held", property(lambda _: False))


def a_slice_keeps_its_first_range(patch: pytest.MonkeyPatch) -> None:
    """What the definition's range has become since a slice was taken is nothing to its agent."""
    patch.setattr(Keeper, "_range", lambda *_: None)


def deleted_at_any_version(patch: pytest.MonkeyPatch) -> None:
    """A Lease is deleted by its name."""

    async def by_name(latest: Latest[Any], kube: KubeClient, obj: Any) -> None:  # noqa: ANN401  of any kind
        await kube.delete(latest._mirror.kind, obj.metadata.name, namespace=obj.metadata.namespace)
        latest.gone(obj)

    patch.setattr(Latest, "end", by_name)


def a_cache_tells_who_is_gone(patch: pytest.MonkeyPatch) -> None:
    """Whether a Node is gone is decided by what a watch has shown."""

    async def by_cache(lost: Lost, claim: Claim) -> bool:
        return not claim.belongs(lost._ground.nodes.get(claim.node))

    patch.setattr(Lost, "_is_gone", by_cache)


def a_leader_begins_with_its_cache(patch: pytest.MonkeyPatch) -> None:
    """Slices are given by what watches have shown, when a lead begins."""

    async def nothing(*_words: Any, **_others: Any) -> None:  # noqa: ANN401  whatever was to be read
        return

    patch.setattr(Latest, "read", nothing)


def nobody_is_heard(patch: pytest.MonkeyPatch) -> None:
    """What agents say that they have counts for nothing."""
    patch.setattr(Claims, "hear", lambda *_words, **_others: None)


def nobody_is_waited_for(patch: pytest.MonkeyPatch) -> None:
    """Slices are given whether it is known who uses what or not."""
    patch.setattr(Hearing, "is_over", property(lambda _: True))


def an_offer_is_enough(patch: pytest.MonkeyPatch) -> None:
    """An agent takes what is offered, whoever agrees to it."""

    def agreed(leases: OwnLeases, lease: Lease) -> Signed | None:
        return leases._signed.get(lease.metadata.uid) if leases.is_pending(lease) else None

    patch.setattr(OwnLeases, "agreed", agreed)


def what_is_shared_does_not_matter(patch: pytest.MonkeyPatch) -> None:
    """Slices are given whatever Pods have from the range as all nodes shared it."""
    patch.setattr(nodeslicepool_reconciler, "shared_in_use", lambda _: ())


def no_pool_is_shut(patch: pytest.MonkeyPatch) -> None:
    """Ranges are cut while others may write the pools of all nodes."""

    async def nothing(*_: Any) -> None:  # noqa: ANN401  whatever was to be shut
        return

    patch.setattr(SharedPools, "shut", nothing)


def a_mark_does_not_matter(patch: pytest.MonkeyPatch) -> None:
    """An agent gives of the pool that all nodes share, also where it is marked."""
    patch.setattr(Lane, "_let_in", lambda _lane, asks, _pools: list(asks))
