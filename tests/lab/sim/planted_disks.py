"""Planted bugs in what the agent does with its disk."""

import pytest


def two_agents_share_a_disk(patch: pytest.MonkeyPatch) -> None:
    """No agent locks its state directory, neither before its socket nor before its journal."""

    async def no_lock(*_args: object, **_kwargs: object) -> None:
        pass

    patch.setattr("podpool.lab.sim.cluster.acquire_lock", no_lock)
    patch.setattr("podpool.agent.state.require_lock", lambda _: None)


def sandboxes_without_pods_are_ignored(patch: pytest.MonkeyPatch) -> None:
    """After the loss of a journal only Pods are asked for addresses in use."""
    patch.setattr("podpool.agent.lost_grants.podless_sandboxes", lambda *_args: [])
