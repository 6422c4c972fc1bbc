"""A PostgreSQL server that answers commits which a crash may lose is refused, at the start and when it reconnects."""

import asyncio
import random
from collections.abc import Iterator

import pytest

from parts.polling import until
from parts.postgres import Postgres
from podpool.ledger.errors import Unavailable
from podpool.ledger.storage.postgres.store import PostgresStore
from tests.ledger.load import ledger_on, make_subnets

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


@pytest.fixture
def url(postgres: Postgres) -> Iterator[str]:
    postgres.psql("CREATE DATABASE durability")
    yield postgres.url("durability")
    postgres.psql("DROP DATABASE durability")


def test_asynchronous_commits_are_refused(postgres: Postgres, url: str) -> None:
    """The error names the setting; with the setting corrected the same ledger starts."""

    async def main() -> None:
        store = await PostgresStore.open(url, rng=random.SystemRandom())
        try:
            postgres.psql("ALTER DATABASE durability SET synchronous_commit = off")
            with pytest.raises(Unavailable, match="synchronous_commit=off: .* set synchronous_commit to on"):
                await ledger_on(store).start()
            postgres.psql("ALTER DATABASE durability RESET synchronous_commit")
            await ledger_on(store).start()
        finally:
            await store.close()

    asyncio.run(main())


def test_a_reconnect_checks_the_settings_again(postgres: Postgres, url: str) -> None:
    """Nothing is granted on a server whose configuration was changed while the ledger ran."""

    async def main() -> None:
        store = await PostgresStore.open(url, rng=random.SystemRandom())
        try:
            await ledger_on(store).start()
            set_fsync(postgres, "off")
            await asyncio.to_thread(postgres.psql, DISCONNECT)
            with pytest.raises(Unavailable, match="PostgreSQL has fsync=off"):
                await make_subnets(ledger_on(store))
            set_fsync(postgres, "on")
            await make_subnets(ledger_on(store))
        finally:
            await store.close()

    try:
        asyncio.run(main())
    finally:
        set_fsync(postgres, "on")


DISCONNECT = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'podpool-ledger'"


def set_fsync(postgres: Postgres, value: str) -> None:
    """Change the server's configuration as an administrator does."""
    postgres.psql(f"ALTER SYSTEM SET fsync = {value}")
    postgres.psql("SELECT pg_reload_conf()")
    until(lambda: postgres.psql("SHOW fsync") == value, f"fsync is {value}")
