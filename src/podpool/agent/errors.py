"""Why there is no address, in words that a person can act on."""

from podpool.agent.state import Book
from podpool.core.quantities import show_duration
from podpool.core.settings import Settings


def not_yet(node: str, book: Book, *, settings: Settings) -> str | None:
    """Say what the agent needs before it can give any address; None when it has all of it."""
    pool = book.pool
    if not pool.adopted:
        return (
            f"node {node} has no network container yet: see whether podpool's controller runs, and whether "
            f"NodeNetworkConfig kube-system/{node} belongs to this Node and its Node reports boot id {pool.boot_id}"
        )
    if not book.programming.covers(pool.adopted, 0):
        return f"the underlay of node {node} does not know container {pool.adopted} yet: see whether it was told of it"
    return None if book.fence.is_open() else fenced(node, book.fence.age(), settings)


def why_none(node: str, book: Book, *, requested: int | None, resting: int, settings: Settings) -> str:
    """Say what is missing, and where to look."""
    missing = not_yet(node, book, settings=settings)
    if missing:
        return missing
    pool = book.pool
    status = pool.container.status if pool.container else ""
    subnet = pool.container.subnet_name if pool.container else ""
    behind = sum(1 for _ in pool.unprogrammed())
    unknown = f", {behind} that the underlay does not know yet" if behind else ""
    asked = "has not asked for more yet" if requested is None else f"asked for {requested}"
    return (
        f"node {node} has no free address: it holds {pool.listed} ({len(pool.holdings)} in use, {resting} resting, "
        f"{len(pool.named)} being given back{unknown}) and {asked}; subnet {subnet or 'of this node'} answered "
        f"{status or 'nothing yet'}{_advice(status)}"
    )


def fenced(node: str, age: float | None, settings: Settings) -> str:
    """Say that the Node is not confirmed, and since when."""
    since = "since it started" if age is None else f"for {show_duration(round(age))}"
    return (
        f"the agent of node {node} gives no new address, because it has not been able to confirm its Node {since} "
        f"(limit {show_duration(settings.fence)}): see whether it reaches the API server"
    )


def _advice(status: str) -> str:
    if status == "NCUpdateSubnetFullError":
        return ": the subnet is full, so make it larger or run fewer Pods on it"
    return "" if status in ("", "NCUpdateSuccess") else ": see the log of podpool's controller"
