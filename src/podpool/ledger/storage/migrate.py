"""The numbered migrations of each database, of the same tables under one number; and questions that both understand."""

from importlib import resources

from podpool.ledger.storage.rows import Question

_IN_A_NODES_HANDS = "EXISTS (SELECT 1 FROM tenure WHERE tenure.address = pod.address AND tenure.network = pod.network)"
"""Whether an address that a Pod has, or had, is one that the ledger gives to nodes."""


def scripts(dialect: str) -> list[str]:
    """Read them, first to last."""
    folder = resources.files("podpool.ledger.storage").joinpath("migrations", dialect)
    return [each.read_text() for each in sorted(folder.iterdir(), key=lambda each: each.name)]


def tenures_asked_for(question: Question, mark: str) -> tuple[str, tuple[object, ...]]:
    """Write a condition with what it is asked for; a value's place in it is `mark` and a number."""
    return f"{_asked(question, mark)} ORDER BY since DESC, number DESC LIMIT {mark}5", question.terms


def pods_asked_for(question: Question, mark: str) -> tuple[str, tuple[object, ...]]:
    """Write the same for what Pods had."""
    condition = f"{_asked(question, mark)} AND {_any_or(mark, 6, 'namespace')}"
    if question.by != "name":
        condition += f" AND NOT {_IN_A_NODES_HANDS}"
    ordered = f"{condition} ORDER BY since DESC, network, address, uid LIMIT {mark}5"
    return ordered, (*question.terms, question.namespace)


def _asked(question: Question, mark: str) -> str:
    time = f"since <= {mark}3 AND (until IS NULL OR until > {mark}4)"
    return f"{question.by} = {mark}1 AND {_any_or(mark, 2, 'cluster')} AND {time}"


def _any_or(mark: str, place: int, column: str) -> str:
    return f"(CAST({mark}{place} AS text) IS NULL OR {column} = {mark}{place})"
