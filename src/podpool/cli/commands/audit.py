"""`podpool audit`: what must be true, looked at from outside; and mended, where that is surely safe."""

import asyncio
from collections.abc import Callable

from rich.text import Text

from podpool.cli.context import Desk
from podpool.cli.errors import AWAY, WRONG, Away
from podpool.cli.output import BAD, GOOD, Sheet
from podpool.cli.tables import finding_sheet, repair_sheet
from podpool.core.errors import PodpoolError
from podpool.inspect.audit import Report, audit, confirmed
from podpool.inspect.audit_snapshot import Evidence, gather
from podpool.inspect.repair import Done, carry_out, plan, shown_plan
from podpool.inspect.snapshot import told_of
from podpool.whereabouts.orphan_gc import APART

SETTLING = 5.0
"""Seconds between two looks: what was under way has arrived by then."""


async def run_audit(desk: Desk, *, settling: float, repair: bool, agreed: Callable[[str], bool]) -> int:
    """Look, and look again when something seems wrong; with `repair`, mend what can be mended once it is agreed."""
    first = await _gather(desk)
    report = audit(first)
    second = first
    if report.findings:
        await asyncio.sleep(max(settling, APART) if repair else settling)
        second = await _gather(desk)
        report = confirmed(report, audit(second))
    steps = plan(first, second, report) if repair and report.findings else ()
    answer = {"report": report, "server": desk.server, "plan": shown_plan(steps)} if repair else report
    parts = _told(report)
    if steps:
        parts += ["", f"In the cluster at {desk.server}:", repair_sheet(shown_plan(steps))]
    elif repair and report.findings:
        parts += ["", "Nothing of this can be mended from here without risk: do what is said above, with -o wide."]
    desk.teller.answer(answer, *parts)
    if steps and agreed(desk.server):
        for done in await carry_out(steps, desk.kube, at=desk.clock.wall()):
            desk.teller.event(done, _done(done))
    return _code(report)


async def _gather(desk: Desk) -> Evidence:
    try:
        return await gather(desk.kube, desk.ledger, at=desk.clock.boot())
    except PodpoolError as error:
        still = "The ledger's own books are checked by `podpool ledger check`."
        raise Away(told_of("the API server", error), still) from None


def _code(report: Report) -> int:
    if report.findings:
        return WRONG
    return AWAY if report.unchecked else 0


def verdict(report: Report) -> str:
    """Say in a sentence what an audit came to."""
    counts = {"node": report.nodes, "grant": report.grants, "Pod": report.pods, "IPPool entry": report.entries}
    looked = ", ".join(_counted(count, what) for what, count in counts.items())
    wrong = {0: "Nothing is", 1: "1 thing is"}.get(len(report.findings), f"{len(report.findings)} things are")
    return f"{wrong} wrong among {looked}."


def _told(report: Report) -> list[Sheet | str | Text]:
    style = GOOD if report.clean else BAD * bool(report.findings)
    parts: list[Sheet | str | Text] = [Text(verdict(report), style=style)]
    if report.findings:
        parts += ["", finding_sheet(report.findings)]
    return [*parts, *(f"Not looked at: {each}" for each in report.unchecked)]


def _counted(count: int, what: str) -> str:
    return f"{count} {what if count == 1 else what.replace('entry', 'entrie') + 's'}"


def _done(done: Done) -> Text:
    if done.error:
        return Text(f"{done.about}: left as it is: {done.error}", style=BAD)
    return Text(f"{done.about}: done: {done.told}", style=GOOD)
