"""What every test may ask for: the real parts, started once for each worker, and the profiles of the random searches.

A test may stop, pause or kill a part: each test gets it running, because the fixture settles it after the last one.
Tests of one part share an xdist group, so that it starts once.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, Phase, settings

from parts.browser import Browser
from parts.control_plane import ControlPlane
from parts.namespaces import Namespaces
from parts.postgres import Postgres

if TYPE_CHECKING:
    from collections.abc import Iterator

# Under xdist a busy machine makes any generator look slow, and workers run the same test from different places.
NOT_OUR_CONCERN = (HealthCheck.too_slow, HealthCheck.differing_executors)
settings.register_profile("dev", deadline=None, suppress_health_check=NOT_OUR_CONCERN)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, max_examples=100, print_blob=True)
# One run of the tests for each mutant: fewer examples, and nothing remembered from the mutant before.
settings.register_profile(
    "mutants", settings.get_profile("ci"), max_examples=30, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.register_profile("soak", settings.get_profile("dev"), max_examples=int(os.environ.get("EXAMPLES", "5000")))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


@pytest.fixture(scope="session")
def started_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and the API server, for all tests of this worker."""
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def control_plane(started_control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A real Kubernetes control plane, serving before and after the test."""
    yield started_control_plane
    started_control_plane.settle()


@pytest.fixture(scope="session")
def started_postgres() -> Iterator[Postgres]:
    """PostgreSQL, for all tests of this worker."""
    postgres = Postgres()
    try:
        postgres.start()
        yield postgres
    finally:
        postgres.remove()


@pytest.fixture
def postgres(started_postgres: Postgres) -> Iterator[Postgres]:
    """A real PostgreSQL, serving before and after the test."""
    yield started_postgres
    started_postgres.server.settle()


@pytest.fixture
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespaces]:
    """A host side of its own for each test, cheap enough, with Pods' namespaces to be made in it."""
    held = Namespaces(tmp_path_factory.mktemp("namespaces"))
    try:
        held.start()
        yield held
    finally:
        held.stop()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium, for all tests of this worker."""
    started = Browser(tmp_path_factory.mktemp("chromium"))
    started.start()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def pictures(request: pytest.FixtureRequest) -> Path:
    """Where pictures of the page are kept after the tests of a folder."""
    place = Path(__file__).resolve().parents[1] / "artefacts" / request.path.parent.name
    place.mkdir(parents=True, exist_ok=True)
    return place
