"""Slices are tested on the lite API server in virtual time, and on a real one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.controller.slices.slice_env import SliceEnvs
from tests.kube.api_servers import ApiServerUnderTest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from tests.controller.slices.slice_env import SliceEnv

    Scenario = Callable[[SliceEnv], Coroutine[Any, Any, None]]

PLANE = (pytest.mark.real, pytest.mark.xdist_group("controllers"))


@pytest.fixture(params=["lite", pytest.param("real", marks=PLANE)])
def slice_envs(request: pytest.FixtureRequest) -> SliceEnvs:
    """Environments on each API server."""
    real = request.param == "real"
    return SliceEnvs(ApiServerUnderTest(request.getfixturevalue("control_plane") if real else None), real=real)


@pytest.fixture
def run_scenario(slice_envs: SliceEnvs) -> Callable[[Scenario], None]:
    """Run a scenario in a new environment."""
    return slice_envs.run
