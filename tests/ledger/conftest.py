"""Runs tests of the ledger's behaviour on each database: `pytestmark = pytest.mark.usefixtures("backend")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ledger.backends import PostgresBackend, backends

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.postgres import Postgres

ON_POSTGRES = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=ON_POSTGRES)])
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    """Select the database of the tests' ledgers: SQLite, then PostgreSQL; returns its name."""
    if request.param == "sqlite":
        yield "sqlite"
        return
    server: Postgres = request.getfixturevalue("started_postgres")
    names = ("behaviour1", "behaviour2")
    for name in names:
        server.psql(f"CREATE DATABASE {name}")
    postgres_backend = PostgresBackend([server.url(name) for name in names])
    backends.append(postgres_backend)
    try:
        yield "postgres"
    finally:
        backends.pop()
        postgres_backend.close()
        for name in names:
            server.psql(f"DROP DATABASE {name}")
