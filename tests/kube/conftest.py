"""API servers under test."""

import pytest

from tests.kube.api_servers import ApiServerUnderTest

HTTP = pytest.mark.integration
REAL = (pytest.mark.real, pytest.mark.xdist_group("control-plane"))


@pytest.fixture(params=["lite", pytest.param("lite-http", marks=HTTP), pytest.param("real", marks=REAL)])
def cluster(request: pytest.FixtureRequest) -> ApiServerUnderTest:
    """The lite API server and a real one: where they differ, the lite one is wrong."""
    if request.param != "real":
        return ApiServerUnderTest(None, http=request.param == "lite-http")
    return ApiServerUnderTest(request.getfixturevalue("control_plane"))
