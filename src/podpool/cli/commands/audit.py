"""`podpool audit`: check the invariants from outside, and repair what is safe to repair."""

import asyncio
from collections.abc import Callable

from rich.text import Text

from podpool.cli.context import ClusterContext
from podpool.cli.errors import FAILED, UNREACHABLE, ComponentUnreachable
from podpool.cli.output import BAD, GOOD, TextTable, ask
from podpool.cli.state_tables import finding_table, repair_table
from podpool.core.errors import PodpoolError
from podpool.core.quantities import parse_duration
from podpool.core.two_observations import OBSERVATION_INTERVAL
from podpool.inspect.audit import AuditReport, audit, confirmed, summarize
from podpool.inspect.audit_snapshot import AuditSnapshot, read_audit_snapshot
from podpool.inspect.repair import RepairResult, execute_plan, plan_repairs, plan_view
from podpool.inspect.status import error_text


async def run_audit(
    context: ClusterContext, *, settle: str, repair: bool, yes: bool, confirm: Callable[[str], bool] | None = None
) -> int:
    """Check, and check again if something is wrong; with `repair`, apply the plan after a confirmation."""
    interval = parse_duration(settle, what="--settle")
    first = await _read_snapshot(context)
    report = audit(first)
    second = first
    if report.findings:
        await asyncio.sleep(max(interval, OBSERVATION_INTERVAL) if repair else interval)
        second = await _read_snapshot(context)
        report = confirmed(report, audit(second))
    steps = plan_repairs(first, second, report) if repair and report.findings else ()
    data = {"report": report, "server": context.server, "plan": plan_view(steps)} if repair else report
    parts = _lines(report)
    if steps:
        parts += ["", f"In the cluster at {context.server}:", repair_table(plan_view(steps))]
    elif repair and report.findings:
        parts += ["", "None of this can be repaired automatically without risk; -o wide shows what to do."]
    context.printer.result(data, *parts)
    question = f"Apply this plan in the cluster at {context.server}?"
    if steps and (yes or (confirm(context.server) if confirm else ask(question))):
        for repaired in await execute_plan(steps, context.kube, at=context.clock.wall()):
            context.printer.event(repaired, _repair_line(repaired))
    return _code(report)


async def _read_snapshot(context: ClusterContext) -> AuditSnapshot:
    try:
        return await read_audit_snapshot(context.kube, context.ledger, at=context.clock.boot())
    except PodpoolError as error:
        alternative = "`podpool ledger check` checks the ledger's database without it."
        raise ComponentUnreachable(error_text("the API server", error), alternative) from None


def _code(report: AuditReport) -> int:
    if report.findings:
        return FAILED
    return UNREACHABLE if report.unchecked else 0


def _lines(report: AuditReport) -> list[TextTable | str | Text]:
    style = GOOD if report.clean else BAD * bool(report.findings)
    parts: list[TextTable | str | Text] = [Text(summarize(report), style=style)]
    if report.findings:
        parts += ["", finding_table(report.findings)]
    return [*parts, *(f"Not checked: {each}" for each in report.unchecked)]


def _repair_line(done: RepairResult) -> Text:
    if done.error:
        return Text(f"{done.subject}: not repaired: {done.error}", style=BAD)
    return Text(f"{done.subject}: repaired: {done.message}", style=GOOD)
