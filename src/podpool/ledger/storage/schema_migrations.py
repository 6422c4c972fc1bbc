"""Numbered migration scripts of the ledger's tables, and the check of their version."""

from collections.abc import Collection
from importlib import resources
from importlib.resources.abc import Traversable

from podpool import __version__
from podpool.ledger.errors import Invalid

_SHARDS = 7
"""The version that made each network a shard."""


def migration_scripts(dialect: str) -> list[str]:
    """Return the migration scripts of a database in order. The same number creates the same tables in both."""
    return [each.read_text() for each in _migration_files(dialect)]


def revision_table(version: int) -> str:
    """Return the table with the revision in a version of the tables; it has a row from the beginning."""
    return "shard" if version >= _SHARDS else "ledger"


def check_layout(version: int, *, tables: Collection[str]) -> None:
    """Refuse a database whose tables have other names: of a development version, or of another program."""
    if version and "network_container" not in tables:
        raise Invalid(
            f"the database has version {version} of the tables, but no table network_container: a development version "
            "of podpool or another program wrote it; use another database, or an empty one"
        )


def check_version(what: str, version: int) -> None:
    """Refuse the tables of a later version: this one would drop fields of their rows."""
    known = len(_migration_files("sqlite"))
    if version > known:
        raise Invalid(
            f"the {what} has version {version} of the tables, and podpool {__version__} knows versions up to {known}: "
            f"run the podpool that wrote it, or a later one; or restore a backup of version {known} or earlier"
        )


def _migration_files(dialect: str) -> list[Traversable]:
    folder = resources.files("podpool.ledger.storage").joinpath("migrations", dialect)
    return sorted(folder.iterdir(), key=lambda each: each.name)
