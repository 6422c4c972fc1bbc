"""One suite, two servers, one of them on two roads."""

import pytest

from tests.kube.clusters import Cluster

REAL = (pytest.mark.real, pytest.mark.xdist_group("control-plane"))


@pytest.fixture(params=["pocket", "pocket-http", pytest.param("real", marks=REAL)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    """Pocket and the real API server: where they differ, pocket is wrong."""
    if request.param != "real":
        return Cluster(None, http=request.param == "pocket-http")
    return Cluster(request.getfixturevalue("control_plane"))
