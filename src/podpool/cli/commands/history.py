"""`podpool who`, `why` and `history`: present and past owners of addresses. The ledger keeps the past."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from rich.text import Text

from podpool.api.builtin import NAMESPACES
from podpool.cli.commands.status import load_cluster, require_cluster
from podpool.cli.context import ClusterContext
from podpool.cli.errors import FAILED, UNREACHABLE, ComponentUnreachable
from podpool.cli.output import BAD, TextTable
from podpool.cli.spec.options import NO_LEDGER
from podpool.cli.state_tables import history_table
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.inspect.diagnose import Diagnosis, diagnose, diagnose_node
from podpool.inspect.observer import LEDGER
from podpool.inspect.search import AddressStatus, HistorySearch, address_status
from podpool.inspect.status import error_text, read_status
from podpool.ledger.admin_messages import AddressHistory, ReportedPodUsage
from podpool.ledger.client import LedgerClient
from podpool.runtime.transport import Unreachable

EXAMPLE = "2026-11-16T02:30:00Z"


async def who(context: ClusterContext, *, address: str, at: str) -> int:
    """Show the present and past owners of an address."""
    wanted = str(parse_address(address, what="ADDRESS"))
    if at:
        alternative = f"Without --at, `podpool who {wanted}` shows the present owner."
        return await _show(
            context, wanted, lambda ledger: ledger.history(address=wanted, at=at), at=at, alternative=alternative
        )
    model = await load_cluster(context)
    now = address_status(model, wanted)
    if context.ledger is None:
        context.printer.result({"now": now, "periods": (), "pod_usages": ()}, f"{wanted} {_owner(now, ())}.")
        return 0
    found = await HistorySearch(model, context.ledger).address(wanted)
    parts: list[TextTable | str] = [f"{wanted} {_owner(now, found.uses)}."]
    if found.past or found.uses:
        parts += ["", history_table(found.past, found.uses)]
    context.printer.result({"now": now, "periods": found.past, "pod_usages": found.uses}, *parts)
    if found.history_error:
        context.printer.warn(f"past owners are unknown: {found.history_error}")
        return UNREACHABLE
    return 0


def _owner(now: AddressStatus, uses: Sequence[ReportedPodUsage]) -> str:
    where = f" on node {now.node}" if now.node else ""
    if now.pod:
        return f"belongs to Pod {now.pod}{where}"
    if now.primary:
        return f"is a primary address{where}"
    if now.node:
        return f"is idle{where}"
    secondary = [f"Pod {use.namespace}/{use.name} in network {use.network}" for use in uses if use.until is None]
    return f"belongs to {' and '.join(secondary)}" if secondary else "belongs to no node of this cluster"


async def explain(context: ClusterContext, *, pod: str, namespace: str, node: str = "") -> int:
    """Explain why a Pod or a node has no address, and what to do; for a deleted Pod, show what it had."""
    if bool(pod) == bool(node):
        raise InvalidInput("POD", pod, "name a Pod, or a node with --node")
    key = node or _key(pod, namespace or context.namespace)
    model = (await read_status(context.kube, context.ledger, at=context.clock.wall())).model
    require_cluster(model)
    if node:
        reason = diagnose_node(model, node)
        _print_reason(context, reason.message, reason)
        return FAILED if reason.waiting_for_address or node not in model.nodes else 0
    reason = diagnose(model, key)
    exists = key in model.caches.pods
    if not exists and context.ledger and LEDGER not in model.problems:
        uid = (await context.kube.get(NAMESPACES, "kube-system")).metadata.uid
        reason = (await HistorySearch(model, context.ledger, cluster=lambda: uid).pod(key)).reason or reason
    _print_reason(context, f"{key}: {reason.message}", reason)
    return FAILED if reason.waiting_for_address or not exists else 0


def _print_reason(context: ClusterContext, text: str, reason: Diagnosis) -> None:
    parts = [Text(text, style=BAD if reason.waiting_for_address else "")]
    if reason.action:
        parts.append(Text(reason.action))
    context.printer.result(reason, *parts)


async def address_history(context: ClusterContext, *, address: str, at: str) -> int:
    """Show the past owners of an address."""
    wanted = str(parse_address(address, what="ADDRESS"))
    return await _show(context, wanted, lambda ledger: ledger.history(address=wanted, at=at), at=at)


async def node_history(context: ClusterContext, *, node: str, at: str) -> int:
    """Show the past addresses of a node."""
    return await _show(context, f"node {node}", lambda ledger: ledger.history(node=node, at=at), at=at)


async def pod_history(context: ClusterContext, *, pod: str, namespace: str, at: str) -> int:
    """Show the past addresses of a Pod, deleted or not."""
    key = _key(pod, namespace or context.namespace)
    space, _, name = key.partition("/")
    return await _show(context, f"Pod {key}", lambda ledger: ledger.pod_history(name, namespace=space, at=at), at=at)


async def _show(
    context: ClusterContext,
    what: str,
    query: Callable[[LedgerClient], Awaitable[AddressHistory]],
    *,
    at: str,
    alternative: str = "`podpool pods` and `podpool nodes` show the present without it.",
) -> int:
    if context.ledger is None:
        raise InvalidInput("--ledger", NO_LEDGER, "only the ledger keeps the past: name its URL")
    if at:
        _check_time(at, now=context.clock.wall())
    try:
        past = await query(context.ledger)
    except Unreachable as error:
        raise ComponentUnreachable(error_text(LEDGER, error), alternative) from None
    when = f" at {at}" if at else ""
    nothing = f"{what}: no records{when}; history is kept for {past.retention_seconds / 3600:g} h."
    context.printer.result(
        past, history_table(past.periods, past.pod_usages) if past.periods or past.pod_usages else nothing
    )
    return 0


def _check_time(at: str, *, now: float) -> None:
    try:
        time = datetime.fromisoformat(at)
    except ValueError:
        raise InvalidInput("--at", at, f"is not a time, such as {EXAMPLE}") from None
    if time.tzinfo is None:
        raise InvalidInput("--at", at, f"has no time zone: write it as {EXAMPLE}")
    if time.timestamp() > now:
        raise InvalidInput("--at", at, "is in the future: name a past time, or omit --at")


def _key(pod: str, namespace: str) -> str:
    return pod if "/" in pod else f"{namespace}/{pod}"
