"""The behaviour of the ledger is tested on each of its databases: `pytestmark = pytest.mark.usefixtures("books")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ledger.stores import OnPostgres, in_use

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.postgres import Postgres

ON_POSTGRES = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


@pytest.fixture(scope="module", params=["sqlite", pytest.param("postgres", marks=ON_POSTGRES)])
def books(request: pytest.FixtureRequest) -> Iterator[str]:
    """Offices open their books in SQLite, then in PostgreSQL; tells in which."""
    if request.param == "sqlite":
        yield "sqlite"
        return
    server: Postgres = request.getfixturevalue("started_postgres")
    names = ("behaviour1", "behaviour2")
    for name in names:
        server.psql(f"CREATE DATABASE {name}")
    database = OnPostgres([server.url(name) for name in names])
    in_use.append(database)
    try:
        yield "postgres"
    finally:
        in_use.pop()
        database.close()
        for name in names:
            server.psql(f"DROP DATABASE {name}")
