"""`podpool preflight`: check before an installation whether podpool will work in a cluster."""

from rich.text import Text

from podpool.cli.commands.agent import BOOT_ID, CRI_SOCKETS
from podpool.cli.context import ClusterContext
from podpool.cli.errors import FAILED, UNREACHABLE, ComponentUnreachable
from podpool.cli.output import BAD, FAINT, GOOD, WARNING, StyledText, TextTable
from podpool.controller.settings import parse_subnet
from podpool.core.errors import PodpoolError
from podpool.inspect.preflight.checks import PreflightOptions, run_preflight
from podpool.inspect.preflight.node_files import NodePaths
from podpool.inspect.preflight.report import PreflightFinding, PreflightReport, Severity
from podpool.inspect.preflight.snapshot import API_SERVER
from podpool.inspect.status import error_text

_STYLES = {
    Severity.OK: GOOD,
    Severity.INFO: FAINT,
    Severity.WARNING: WARNING,
    Severity.ERROR: BAD,
    Severity.UNKNOWN: WARNING,
}


async def preflight(
    context: ClusterContext, *, subnet: str, namespace: str, bin_dir: str, conf_dir: str, state: str
) -> int:
    """Run all checks, and print a line for each."""
    if subnet:
        parse_subnet(subnet, what="--subnet")
    paths = NodePaths(bin_dir=bin_dir, conf_dir=conf_dir, state=state, cri_sockets=CRI_SOCKETS, boot_id=BOOT_ID)
    options = PreflightOptions(subnet=subnet, namespace=namespace, paths=paths)
    try:
        report = await run_preflight(context.kube, context.ledger, clock=context.clock, options=options)
    except PodpoolError as error:
        alternative = "Nothing was checked: name a cluster with --kubeconfig or --context."
        raise ComponentUnreachable(error_text(API_SERVER, error), alternative) from None
    remedies = [_remedy(each) for each in report.findings if each.remedy]
    context.printer.result(report, _table(report), "", *remedies, *([""] * bool(remedies)), _summary(report))
    return _code(report)


def _code(report: PreflightReport) -> int:
    if report.count(Severity.ERROR):
        return FAILED
    return UNREACHABLE if report.count(Severity.UNKNOWN) else 0


def _table(report: PreflightReport) -> TextTable:
    rows = [
        (each.check, StyledText(each.severity, _STYLES[each.severity]), each.object, each.message)
        for each in report.findings
    ]
    return TextTable(("CHECK", "RESULT", "OBJECT", "FINDING"), rows)


def _remedy(found: PreflightFinding) -> Text:
    return Text.assemble((f"{found.severity}: ", _STYLES[found.severity]), f"{found.object}: {found.remedy}.")


def _summary(report: PreflightReport) -> Text:
    errors, warnings, unknown = (report.count(each) for each in (Severity.ERROR, Severity.WARNING, Severity.UNKNOWN))
    text = f"{errors} errors, {warnings} warnings, {unknown} not checked"
    if errors:
        return Text(f"podpool will not work here: {text}.", style=BAD)
    if warnings or unknown:
        return Text(f"podpool can be installed: {text}.", style=WARNING)
    return Text("podpool can be installed.", style=GOOD)
