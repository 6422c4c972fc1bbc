"""The controller is tested on the lite API server with SQLite, and on a real one with PostgreSQL."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from tests.controller.controller_env import ControllerEnvs
from tests.kube.api_servers import ApiServerUnderTest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from parts.postgres import Postgres

PLANE = (pytest.mark.real, pytest.mark.xdist_group("controllers"))
TEMPLATE = "controller_template"

_number = itertools.count(1)


@pytest.fixture(scope="session")
def migrated(started_postgres: Postgres) -> Postgres:
    """PostgreSQL with a migrated template database: copying it is faster than migrating."""
    started_postgres.psql(f"CREATE DATABASE {TEMPLATE}")
    ControllerEnvs.prepare(started_postgres.url(TEMPLATE))
    return started_postgres


@pytest.fixture(params=["lite-sqlite", pytest.param("real-postgres", marks=PLANE)])
def envs(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ControllerEnvs]:
    """Environments on an API server and a database."""
    server, _, database = request.param.partition("-")
    cluster = ApiServerUnderTest(request.getfixturevalue("control_plane") if server == "real" else None)
    if database == "sqlite":
        yield ControllerEnvs(cluster, f"sqlite://{tmp_path / 'ledger.db'}")
        return
    postgres: Postgres = request.getfixturevalue("migrated")
    name = f"controller{next(_number)}"
    postgres.psql(f"CREATE DATABASE {name} TEMPLATE {TEMPLATE}")
    try:
        yield ControllerEnvs(cluster, postgres.url(name))
    finally:
        postgres.psql(f"DROP DATABASE {name} WITH (FORCE)")
