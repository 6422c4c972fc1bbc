"""Copying the books out of PostgreSQL, and putting a copy back in."""

import random
from collections.abc import Iterator
from itertools import groupby, islice
from typing import TYPE_CHECKING, BinaryIO

from podpool.ledger.storage.backup import TABLES, Head, columns_text, read_head, read_rows, select_all, write_copy
from podpool.ledger.storage.migrate import scripts

if TYPE_CHECKING:
    from asyncpg import Connection

_ELSEWHERE = 0
"""No server has this identity: whoever opens the books finds that they come from somewhere else."""
_AT_ONCE = 1_000


async def back_up(connection: "Connection", file: BinaryIO) -> int:
    """Copy the books as they are at one moment; tells how many rows there are."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        head = Head(schema=len(scripts("postgres")), revision=await connection.fetchval("SELECT revision FROM ledger"))
        tables = [(table, [tuple(row) for row in await connection.fetch(select_all(table))]) for table in TABLES]
        return write_copy(file, head, tables)


async def restore(connection: "Connection", file: BinaryIO, *, rng: random.Random) -> Head:
    """Exchange the books for a copy, all or nothing; replicas that run notice it and recover."""
    head = read_head(file)
    async with connection.transaction():
        await connection.execute("SELECT turn FROM ledger FOR UPDATE")
        for table in reversed(list(TABLES)):
            await connection.execute(f"DELETE FROM {table}")  # noqa: S608  ours alone
        await connection.execute("DELETE FROM change")
        for (table, columns), lines in groupby(read_rows(file), key=lambda line: line[:2]):
            await _insert(connection, table, columns, (row for *_, row in lines), rng)
        await connection.execute(
            "UPDATE ledger SET subnets = (SELECT coalesce(max(number), 0) FROM subnet),"
            " containers = (SELECT coalesce(max(number), 0) FROM container)"
        )
        for table in ("event", "tenure"):
            highest = f"(SELECT coalesce(max(number), 0) + 1 FROM {table})"  # noqa: S608  ours alone
            await connection.execute(f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), {highest}, false)")
    return head


async def _insert(
    connection: "Connection",
    table: str,
    columns: tuple[str, ...],
    rows: Iterator[tuple[object, ...]],
    rng: random.Random,
) -> None:
    if table == "ledger":
        columns = (*columns, "turn", "commits", "subnets", "containers", "system", "timeline")
        rows = ((*row, rng.getrandbits(63), 0, 0, 0, _ELSEWHERE, 0) for row in rows)
    places = ", ".join(f"${place}" for place in range(1, len(columns) + 1))
    statement = f"INSERT INTO {table} ({columns_text(columns)}) VALUES ({places})"  # noqa: S608  ours alone
    while some := list(islice(rows, _AT_ONCE)):
        await connection.executemany(statement, some)
