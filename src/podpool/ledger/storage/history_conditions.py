"""Conditions of history queries, for both databases."""

from podpool.ledger.domain.rows import HistoryQuery

_HELD_BY_NODE = (
    "EXISTS (SELECT 1 FROM allocation_period AS period"
    " WHERE period.address = pod_usage.address AND period.network = pod_usage.network)"
)
"""Whether the ledger has ever granted the address of a Pod to a node."""


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
