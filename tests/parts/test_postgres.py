"""PostgreSQL is a real one: what was committed is there after a crash, and only that."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parts.postgres import Postgres

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("postgres")]


@pytest.fixture
def names(postgres: Postgres) -> Iterator[None]:
    """A table of names."""
    postgres.psql("CREATE TABLE names (name text)")
    yield
    postgres.server.settle()
    postgres.psql("DROP TABLE names")


def begin(postgres: Postgres, insert: str) -> subprocess.Popen[str]:
    """A client in the middle of a transaction, after the insert."""
    words = postgres.psql_argv()
    client = subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert client.stdin
    assert client.stdout
    client.stdin.write(f"BEGIN;\n{insert};\n\\echo inserted\n")
    client.stdin.flush()
    assert client.stdout.readline() == "inserted\n"
    return client


@pytest.mark.usefixtures("names")
def test_after_a_crash_committed_rows_are_there_and_an_open_transaction_is_not(postgres: Postgres) -> None:
    postgres.psql("INSERT INTO names VALUES ('committed')")
    with begin(postgres, "INSERT INTO names VALUES ('open')") as client:
        postgres.kill()
        postgres.start()
        assert postgres.psql("SELECT name FROM names") == "committed"
        client.communicate("COMMIT;\n")
    assert postgres.psql("SELECT name FROM names") == "committed"


@pytest.mark.usefixtures("names")
def test_a_restart_in_order_rolls_back_what_is_open(postgres: Postgres) -> None:
    with begin(postgres, "INSERT INTO names VALUES ('open')"):
        postgres.restart()
    assert postgres.psql("SELECT count(*) FROM names") == "0"


def test_it_syncs_to_disk_and_listens_on_no_port(postgres: Postgres) -> None:
    assert postgres.psql("SHOW fsync") == "on"
    assert postgres.psql("SHOW listen_addresses") == ""
