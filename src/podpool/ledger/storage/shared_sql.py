"""SQL for both databases: the numbered migration scripts, and the conditions of history queries."""

from collections.abc import Collection
from importlib import resources
from importlib.resources.abc import Traversable

from podpool import __version__
from podpool.ledger.domain.rows import HistoryQuery
from podpool.ledger.errors import Invalid

_HELD_BY_NODE = (
    "EXISTS (SELECT 1 FROM allocation_period AS period"
    " WHERE period.address = pod_usage.address AND period.network = pod_usage.network)"
)
"""Whether the ledger has ever granted the address of a Pod to a node."""


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


def periods_condition(query: HistoryQuery, placeholder: str) -> tuple[str, tuple[object, ...]]:
    """Return a condition for periods, and its values; value N is written as `placeholder` and N."""
    return f"{_condition(query, placeholder)} ORDER BY since DESC, number DESC LIMIT {placeholder}5", query.terms


def usages_condition(query: HistoryQuery, placeholder: str) -> tuple[str, tuple[object, ...]]:
    """Return a condition for Pod usage, and its values."""
    condition = f"{_condition(query, placeholder)} AND {_optional(placeholder, 6, 'namespace')}"
    if query.by != "name":
        condition += f" AND NOT {_HELD_BY_NODE}"
    ordered = f"{condition} ORDER BY since DESC, network, address, uid LIMIT {placeholder}5"
    return ordered, (*query.terms, query.namespace)


def _condition(query: HistoryQuery, placeholder: str) -> str:
    time = f"since <= {placeholder}3 AND (until IS NULL OR until > {placeholder}4)"
    return f"{query.by} = {placeholder}1 AND {_optional(placeholder, 2, 'cluster')} AND {time}"


def _optional(placeholder: str, number: int, column: str) -> str:
    return f"(CAST({placeholder}{number} AS text) IS NULL OR {column} = {placeholder}{number})"
