"""Bugs to plant in the sandbox GC: each omits one rule. They use private names, as a bug would."""

from collections.abc import Collection, Iterable

import pytest

from podpool.agent import sandbox_gc
from podpool.agent.sandbox_gc import RuntimeObservations, SandboxGC
from podpool.api.builtin import FINISHED, Pod
from podpool.core.two_observations import TwoObservations
from podpool.lab.sim.container_runtime import SimRuntime


def lost_dels_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Addresses are released by DELs only."""

    async def collect(_gc: SandboxGC) -> None:
        pass

    patch.setattr(SandboxGC, "collect", collect)


def a_mass_loss_is_never_released(patch: pytest.MonkeyPatch) -> None:
    """A list without any known sandbox does not count, even if Pods show the same."""
    patch.setattr(RuntimeObservations, "listed", lambda _observations, interfaces: interfaces)


def one_observation_is_enough(patch: pytest.MonkeyPatch) -> None:
    """What is absent once is released."""
    patch.setattr(TwoObservations, "observe", lambda _observations, candidates, *, now: tuple(candidates))  # noqa: ARG005  the signature


def a_mass_loss_needs_one_source(patch: pytest.MonkeyPatch) -> None:
    """Any number is released at once."""
    patch.setattr(sandbox_gc, "is_mass_loss", lambda _lost, *, of: False)  # noqa: ARG005  the signature


def every_list_counts(patch: pytest.MonkeyPatch) -> None:
    """A list counts also if it contains no known sandbox."""
    patch.setattr(RuntimeObservations, "_is_credible", lambda *_args, **_kwargs: True)


def slow_add_chains_are_forgotten(patch: pytest.MonkeyPatch) -> None:
    """A sandbox that was never listed is absent at once."""
    patch.setattr(sandbox_gc, "ADD_CHAIN_SECONDS", 0.0)


def namespaces_are_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A sandbox without Pod has ended."""

    async def all_gone(_runtime: SimRuntime, paths: Collection[str]) -> frozenset[str]:
        return frozenset(paths)

    patch.setattr(SimRuntime, "netns_gone", all_gone)


def config_hashes_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """Only the UID of a Pod object counts."""

    def pod_uids(pods: Iterable[Pod]) -> frozenset[str]:
        return frozenset(pod.metadata.uid for pod in pods if pod.status.phase not in FINISHED)

    patch.setattr(sandbox_gc, "pod_uids", pod_uids)
