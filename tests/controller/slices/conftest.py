"""Slices are tested on pocket in virtual time, and on a real API server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.controller.slices.harness import SlicePlace
from tests.kube.clusters import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from typing import Any

    from tests.controller.slices.harness import SliceSite

    Story = Callable[[SliceSite], Coroutine[Any, Any, None]]

PLANE = (pytest.mark.real, pytest.mark.xdist_group("control-plane"))


@pytest.fixture(params=["pocket", pytest.param("real", marks=PLANE)])
def slice_place(request: pytest.FixtureRequest) -> SlicePlace:
    """Each API server."""
    real = request.param == "real"
    return SlicePlace(Cluster(request.getfixturevalue("control_plane") if real else None), real=real)


@pytest.fixture
def tell(slice_place: SlicePlace) -> Callable[[Story], None]:
    """Tell a story on it."""
    return slice_place.play
