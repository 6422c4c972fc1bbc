"""What was: who has an address and had it, and what a node or a Pod had, also one that is gone. The ledger knows."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime

from rich.text import Text

from podpool.api.builtin import NAMESPACES
from podpool.cli.context import Desk
from podpool.cli.errors import AWAY, WRONG, Away
from podpool.cli.ledger_connection import NO_LEDGER
from podpool.cli.output import BAD, Sheet
from podpool.cli.commands.status import need_cluster, see_cluster
from podpool.cli.tables import past_sheet
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.inspect.diagnose import why
from podpool.inspect.observer import LEDGER
from podpool.inspect.search import AddressNow, Questions, address_now
from podpool.inspect.snapshot import glance, told_of
from podpool.ledger.admin_messages import History, ReportedUse
from podpool.ledger.client import LedgerClient
from podpool.runtime.transport import Unreachable

EXAMPLE = "2026-11-16T02:30:00Z"


async def who(desk: Desk, *, address: str, at: str) -> int:
    """Tell who has an address, and who had it."""
    wanted = str(parse_address(address, what="ADDRESS"))
    if at:
        still = f"Without --at, `podpool who {wanted}` tells who has it now."
        return await _tell(desk, wanted, lambda ledger: ledger.history(address=wanted, at=at), at=at, still=still)
    scene = await see_cluster(desk)
    now = address_now(scene, wanted)
    if desk.ledger is None:
        desk.teller.answer({"now": now, "past": (), "uses": ()}, f"{wanted} {_whose(now, ())}.")
        return 0
    found = await Questions(scene, desk.ledger).address(wanted)
    parts: list[Sheet | str] = [f"{wanted} {_whose(now, found.uses)}."]
    if found.past or found.uses:
        parts += ["", past_sheet(found.past, found.uses)]
    desk.teller.answer({"now": now, "past": found.past, "uses": found.uses}, *parts)
    if found.past_missing:
        desk.teller.remark(f"who had it before is not known: {found.past_missing}")
        return AWAY
    return 0


def _whose(now: AddressNow, uses: Sequence[ReportedUse]) -> str:
    where = f" on node {now.node}" if now.node else ""
    if now.pod:
        return f"is Pod {now.pod}'s,{where}"
    if now.primary:
        return f"is a primary address, for no Pod,{where}"
    if now.node:
        return f"is idle{where}"
    further = [f"Pod {use.namespace}/{use.name}'s, in network {use.network}" for use in uses if use.until is None]
    return f"is {' and '.join(further)}" if further else "is no node's in this cluster"


async def explain(desk: Desk, *, pod: str, namespace: str) -> int:
    """Tell why a Pod has no address, and what to do; of one that is gone what it had."""
    key = _key(pod, namespace or desk.namespace)
    scene = (await glance(desk.kube, desk.ledger, at=desk.clock.wall())).scene
    need_cluster(scene)
    reason = why(scene, key)
    there = key in scene.mirrors.pods
    if not there and desk.ledger and LEDGER not in scene.troubles:
        uid = (await desk.kube.get(NAMESPACES, "kube-system")).metadata.uid
        reason = (await Questions(scene, desk.ledger, cluster=lambda: uid).pod(key)).reason or reason
    parts = [Text(f"{key}: {reason.told}", style=BAD if reason.waits else "")]
    if reason.todo:
        parts.append(Text(reason.todo))
    desk.teller.answer(reason, *parts)
    return WRONG if reason.waits or not there else 0


async def of_address(desk: Desk, *, address: str, at: str) -> int:
    """Tell who had an address."""
    wanted = str(parse_address(address, what="ADDRESS"))
    return await _tell(desk, wanted, lambda ledger: ledger.history(address=wanted, at=at), at=at)


async def of_node(desk: Desk, *, node: str, at: str) -> int:
    """Tell what a node had."""
    return await _tell(desk, f"node {node}", lambda ledger: ledger.history(node=node, at=at), at=at)


async def of_pod(desk: Desk, *, pod: str, namespace: str, at: str) -> int:
    """Tell what a Pod had, also one that is gone."""
    key = _key(pod, namespace or desk.namespace)
    space, _, name = key.partition("/")
    return await _tell(desk, f"Pod {key}", lambda ledger: ledger.pod_history(name, namespace=space, at=at), at=at)


async def _tell(
    desk: Desk,
    what: str,
    asking: Callable[[LedgerClient], Awaitable[History]],
    *,
    at: str,
    still: str = "What is now, `podpool pods` and `podpool nodes` tell without it.",
) -> int:
    if desk.ledger is None:
        raise InvalidInput("--ledger", NO_LEDGER, "only the ledger knows the past: name it")
    _check_moment(at or EXAMPLE)
    try:
        past = await asking(desk.ledger)
    except Unreachable as error:
        raise Away(told_of(LEDGER, error), still) from None
    when = f"of that moment, {at}" if at else "of it"
    nothing = f"{what}: nothing is known {when}; the past is kept for {past.kept / 3600:g} h."
    desk.teller.answer(past, past_sheet(past.tenures, past.uses) if past.tenures or past.uses else nothing)
    return 0


def _check_moment(at: str) -> None:
    try:
        zone = datetime.fromisoformat(at).tzinfo
    except ValueError:
        raise InvalidInput("--at", at, f"no moment: write it as {EXAMPLE}") from None
    if zone is None:
        raise InvalidInput("--at", at, f"does not say in which time zone: write it as {EXAMPLE}")


def _key(pod: str, namespace: str) -> str:
    return pod if "/" in pod else f"{namespace}/{pod}"
