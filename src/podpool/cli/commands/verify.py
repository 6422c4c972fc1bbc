"""`podpool verify`: test a running cluster with short-lived Pods."""

import asyncio
import secrets
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from rich.text import Text

from podpool.cli.context import ClusterContext
from podpool.cli.errors import FAILED, UNREACHABLE, ComponentUnreachable, DoesNotExist
from podpool.cli.output import BAD, FAINT, GOOD, StyledText, TextTable, joined
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.quantities import parse_duration
from podpool.inspect.preflight.objects import MACHINES, Machine
from podpool.inspect.status import error_text, list_objects
from podpool.inspect.verify.pods import FAILED_CHECK, PASSED, SKIPPED, VerifyReport
from podpool.inspect.verify.runner import Verification, VerifyOptions
from podpool.ledger.client import LedgerClient

MAX_NODES = 200
"""Nodes of one run: the API server gets a few requests for each."""
MAX_PODS_PER_NODE = 50
DEFAULT_COOLDOWN = 5.0
_STYLES = {PASSED: GOOD, FAILED_CHECK: BAD, SKIPPED: FAINT}


async def verify(
    context: ClusterContext, *, image: str, nodes: str, pods_per_node: int, start_timeout: str, reachability: bool
) -> int:
    """Start Pods on the nodes, check their addresses, and delete them."""
    if not image:
        raise InvalidInput("--image", image, "name the image of podpool that the nodes have or can pull")
    if not 1 <= pods_per_node <= MAX_PODS_PER_NODE:
        raise InvalidInput("--pods-per-node", pods_per_node, f"use 1 to {MAX_PODS_PER_NODE}")
    seconds = parse_duration(start_timeout, what="--start-timeout")
    try:
        chosen = await _choose(context, [each.strip() for each in nodes.split(",") if each.strip()])
        options = VerifyOptions(
            namespace=f"podpool-verify-{secrets.token_hex(3)}",
            image=image,
            nodes=chosen,
            pods_per_node=pods_per_node,
            timeout=seconds,
            reachability=reachability,
            cooldown=await _cooldown(context.ledger),
        )
        report = await _run(context, options)
    except DoesNotExist:
        raise
    except PodpoolError as error:
        if isinstance(error, InvalidInput) or 400 <= getattr(error, "status", 0) < 500:
            raise
        raise ComponentUnreachable(error_text("the API server", error), "The test did not end.") from None
    context.printer.result(report, *_parts(report))
    return FAILED if report.failed else UNREACHABLE if _incomplete(report) else 0


async def _run(context: ClusterContext, options: VerifyOptions) -> VerifyReport:
    test = Verification(context.kube, context.ledger, context.clock, options, context.printer.note)
    with _stopped_like_an_interrupt():
        return await test.run()


@contextmanager
def _stopped_like_an_interrupt() -> Iterator[None]:
    """Have SIGTERM end the test as Ctrl-C does, which deletes its Pods.

    It does not raise SIGINT: a shell without job control starts background commands with SIGINT ignored.
    """
    loop, test = asyncio.get_running_loop(), asyncio.current_task()
    received = False

    def stop(*_: object) -> None:
        nonlocal received
        received = True
        if test:
            loop.call_soon_threadsafe(test.cancel)  # which also wakes the loop

    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except asyncio.CancelledError:
        if received:
            raise KeyboardInterrupt from None
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


async def _choose(context: ClusterContext, named: list[str]) -> tuple[str, ...]:
    """Return the named nodes, or all on which Pods may start."""
    found = {each.metadata.name: each for each in await list_objects(context.kube, MACHINES)}
    for name in named:
        if name not in found:
            raise DoesNotExist("NODE", name, f"existing: {joined(found)}")
    able = [name for name, each in found.items() if _is_schedulable(each)]
    if left_out := sorted(set(found) - set(able) - set(named)):
        context.printer.warn(f"not tested, because not ready or not schedulable: {joined(left_out)}")
    chosen = named or able
    if not chosen:
        raise DoesNotExist("NODE", "ready and schedulable", "start the agents, or uncordon a Node")
    if len(chosen) > MAX_NODES:
        raise InvalidInput("--nodes", len(chosen), f"more than {MAX_NODES} Nodes: name some of them")
    return tuple(sorted(set(chosen)))


def _is_schedulable(node: Machine) -> bool:
    return not (node.not_ready or node.spec.unschedulable or node.metadata.deletion_timestamp)


async def _cooldown(ledger: LedgerClient | None) -> float:
    """Return the shortest time for which no subnet assigns an address again."""
    states = (await ledger.subnets()).subnets if ledger else ()
    return min((each.shortest_cooldown or DEFAULT_COOLDOWN for each in states), default=DEFAULT_COOLDOWN)


def _incomplete(report: VerifyReport) -> bool:
    return any(each.check == "audit" and each.result == SKIPPED for each in report.checks)


def _parts(report: VerifyReport) -> list[TextTable | str | Text]:
    rows = [(each.check, StyledText(each.result, _STYLES[each.result]), each.message) for each in report.checks]
    pods = [(each.name, each.node, joined(each.addresses), f"{each.seconds:.1f} s") for each in report.pods]
    last = Text("A check failed.", style=BAD) if report.failed else Text("All checks passed.", style=GOOD)
    return [
        TextTable(("POD", "NODE", "ADDRESS", "STARTED-AFTER"), pods),
        "",
        TextTable(("CHECK", "RESULT", "FINDING"), rows),
        "",
        last,
    ]
