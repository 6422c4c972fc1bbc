"""Numbered migration scripts of the ledger's tables, and the check of their version."""

from collections.abc import Collection
from importlib import resources
from importlib.resources.abc import Traversable

from podpool import __version__
from podpool.ledger.errors import Invalid


def migration_scripts(dialect: str) -> list[str]:
    """Return the migration scripts of a database in order. The same number creates the same tables in both."""
    return [each.read_text() for each in _migration_files(dialect)]


def row_conversions(dialect: str, *, since: int) -> list[str]:
    """Return the scripts after a version that convert rows. They can be repeated, on the rows of an older backup."""
    return [each.read_text() for each in _migration_files(dialect)[since:] if each.name.endswith("_rows.sql")]


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
