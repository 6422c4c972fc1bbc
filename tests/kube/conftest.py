"""One suite, two servers."""

import pytest

from tests.kube.clusters import Cluster

REAL = (pytest.mark.real, pytest.mark.xdist_group("control-plane"))


@pytest.fixture(params=["pocket", pytest.param("real", marks=REAL)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Pocket and the real API server: where they differ, pocket is wrong."""
    if request.param == "pocket":
        return Cluster(None)
    return Cluster(request.getfixturevalue("control_plane"))
