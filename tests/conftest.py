"""Fixtures of real components, started once per worker, and the hypothesis profiles.

A test may stop, pause or kill a component: its fixture restores it afterwards. Tests that use the same component share
an xdist group, so that it starts once.
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

# A busy machine makes generators slow, and xdist runs a test from different executors.
SUPPRESSED = (HealthCheck.too_slow, HealthCheck.differing_executors)
settings.register_profile("dev", deadline=None, suppress_health_check=SUPPRESSED)
settings.register_profile("ci", settings.get_profile("dev"), derandomize=True, max_examples=100, print_blob=True)
settings.register_profile("fast", settings.get_profile("ci"), max_examples=15)
# Mutation tests run the suite once per mutant: fewer examples, and no examples of earlier mutants.
settings.register_profile(
    "mutants", settings.get_profile("ci"), max_examples=30, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.register_profile("soak", settings.get_profile("dev"), max_examples=int(os.environ.get("EXAMPLES", "5000")))
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

# xdist starts groups in this order (--no-loadscope-reorder): those that take longest first, single tests last. Most of
# them wait for a component, so there are two workers more than cores, one for each of the four longest groups.
GROUPS = (
    "cluster",
    "install",
    "controllers",
    "postgres",
    "control-plane",
    "patroni",
    "installation",
    "image",
    "shim",
    "fuzz",
    "demo",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order tests by group."""
    items.sort(key=_rank)


def _rank(item: pytest.Item) -> int:
    marker = item.get_closest_marker("xdist_group")
    if marker is None:
        return len(GROUPS) + 1
    return GROUPS.index(marker.args[0]) if marker.args[0] in GROUPS else len(GROUPS)


@pytest.fixture(scope="session")
def started_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """etcd and kube-apiserver for all tests of this worker."""
    plane = ControlPlane(tmp_path_factory.mktemp("control-plane"))
    try:
        plane.start()
        yield plane
    finally:
        plane.stop()


@pytest.fixture
def control_plane(started_control_plane: ControlPlane) -> Iterator[ControlPlane]:
    """A real Kubernetes control plane; restored after the test."""
    yield started_control_plane
    started_control_plane.settle()


@pytest.fixture(scope="session")
def started_postgres() -> Iterator[Postgres]:
    """PostgreSQL for all tests of this worker."""
    postgres = Postgres()
    try:
        postgres.start()
        yield postgres
    finally:
        postgres.remove()


@pytest.fixture
def postgres(started_postgres: Postgres) -> Iterator[Postgres]:
    """A real PostgreSQL; restored after the test."""
    yield started_postgres
    started_postgres.server.settle()


@pytest.fixture
def namespaces(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespaces]:
    """Network namespaces of one test: a host side, in which the test creates those of Pods."""
    held = Namespaces(tmp_path_factory.mktemp("namespaces"))
    try:
        held.start()
        yield held
    finally:
        held.stop()


@pytest.fixture(scope="session")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """Chromium for all tests of this worker."""
    started = Browser(tmp_path_factory.mktemp("chromium"))
    started.start()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def pictures(request: pytest.FixtureRequest) -> Path:
    """The directory for screenshots that tests of a folder keep."""
    place = Path(__file__).resolve().parents[1] / "artefacts" / request.path.parent.name
    place.mkdir(parents=True, exist_ok=True)
    return place
