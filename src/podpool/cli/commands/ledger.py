"""The ledger's books, for a person: copies of them, and whether they are consistent."""

import os
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from podpool.cli.errors import WRONG
from podpool.cli.options import Asked
from podpool.cli.output import Teller
from podpool.cli.spec import Output
from podpool.core.errors import InvalidInput
from podpool.ledger.storage.backup import check_copy, read_head, read_rows
from podpool.ledger.storage.database import parse_database
from podpool.ledger.storage.fsck import check
from podpool.runtime import entropy


def back_up(*, file: str, database: str) -> None:
    """Copy the books into a file that is whole or not there."""
    path = Path(file)
    beside = path.with_name(f"{path.name}.new")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as copy:
        rows = parse_database(database).back_up(copy)
        copy.flush()
        os.fsync(copy.fileno())
    beside.rename(path)
    print(f"{path}: {rows} rows")  # noqa: T201  for the person who typed it


def restore(*, file: str, database: str) -> None:
    """Exchange the books for a copy; the ledger then recovers, and the clusters list what they have."""
    path = _there(file)
    check_copy(path)
    with path.open("rb") as copy:
        head = parse_database(database).restore(copy, rng=entropy.system())
    print(f"restored revision {head.revision}: nothing is granted before the clusters have listed what they have")  # noqa: T201  as above


def check_books(*, database: str, file: str, output: str, no_color: str) -> None:
    """Check the books, or a copy of them; the exit code is 1 when something is wrong."""
    with tempfile.TemporaryFile() as scratch:
        copy = _there(file).open("rb") if file else cast("BinaryIO", scratch)
        with copy:
            if not file:
                parse_database(database).back_up(copy)
                copy.seek(0)
            read_head(copy)
            found = check(read_rows(copy))
    told = f"{found.subnets} subnets, {found.containers} containers, {found.addresses} addresses"
    teller = Teller(Asked(output=Output(output), no_color=bool(no_color)))
    teller.answer(found, *(found.faults or [f"the books are consistent: {told}"]))
    if found.faults:
        raise SystemExit(WRONG)


def _there(file: str) -> Path:
    if not Path(file).is_file():
        raise InvalidInput("FILE", file, "is not there")
    return Path(file)
