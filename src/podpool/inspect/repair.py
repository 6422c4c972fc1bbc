"""Mending what an audit found, only where it is surely safe: a plan first, then what the plan says.

What must hold: nothing of a Pod or a node that lives is taken away. Entries and reservations go by the rules of
`slices.cleanup`: two looks, a minute apart, agree that the Pod is gone, and the write fits only what was seen. Whatever
else is wrong is the controller's to mend from the ledger's books: it is asked to look at the node again.
"""

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.whereabouts import IP_POOLS, IP_RESERVATIONS
from podpool.core.errors import PodpoolError
from podpool.inspect.audit import AuditReport
from podpool.inspect.audit_snapshot import AuditSnapshot
from podpool.inspect.view_models import ViewModel
from podpool.kube.client import KubeClient
from podpool.whereabouts.ippool import allocation_patch
from podpool.whereabouts.migration_report import owner_text
from podpool.whereabouts.orphan_gc import OrphanedEntry, orphaned_entries, orphaned_reservations

RECONCILE_ANNOTATION = "podpool.io/look-again"
"""On an NNC: when somebody asked for another look. The write itself is what wakes controller and agent."""
REPAIRED_BY_RECONCILE = frozenset({"books-differ", "container-unknown", "nodes-share-address", "unaligned"})


class Repair(ViewModel, frozen=True, kw_only=True):
    """One thing to be done."""

    about: str
    """The object, as kubectl names it."""
    message: str


class RequestReconcile(Repair, frozen=True, kw_only=True):
    """Have controller and agent look at a node again."""

    node: str


class ReleaseEntries(Repair, frozen=True, kw_only=True):
    """Take entries of Pods that are gone out of a pool."""

    namespace: str
    entries: tuple[OrphanedEntry, ...]


class DeleteReservation(Repair, frozen=True, kw_only=True):
    """Delete the reservation of a Pod that is gone."""

    namespace: str
    name: str
    uid: str


RepairStep = RequestReconcile | ReleaseEntries | DeleteReservation


class RepairResult(ViewModel, frozen=True, kw_only=True):
    """What became of a step; without an error it is done."""

    about: str
    message: str
    error: str = ""


def plan_repairs(first: AuditSnapshot, second: AuditSnapshot, report: AuditReport) -> tuple[RepairStep, ...]:
    """Plan what can be done about a report that both looks confirm."""
    return (*_entries(first, second), *_reservations(first, second), *_looks(second, report))


def _entries(first: AuditSnapshot, second: AuditSnapshot) -> Iterable[RepairStep]:
    found = orphaned_entries(first.look, second.look)
    for pool in second.pools:
        here = tuple(each for each in found if each.pool == pool.metadata.name)
        if here:
            owners = ", ".join(f"{each.change.address} of {_owner(each)}" for each in here)
            yield ReleaseEntries(
                about=f"ippool/{pool.metadata.name}",
                message=f"release {owners}",
                namespace=pool.metadata.namespace,
                entries=here,
            )


def _owner(release: OrphanedEntry) -> str:
    return owner_text(release.change.before) if release.change.before else "nobody"


def _reservations(first: AuditSnapshot, second: AuditSnapshot) -> Iterable[RepairStep]:
    for each in orphaned_reservations(first.look, second.look):
        yield DeleteReservation(
            about=f"overlappingrangeipreservation/{each.metadata.name}",
            message=f"delete it: {each.spec.podref} is gone",
            namespace=each.metadata.namespace,
            name=each.metadata.name,
            uid=each.metadata.uid,
        )


def _looks(evidence: AuditSnapshot, report: AuditReport) -> Iterable[RepairStep]:
    doubted = {each.about for each in report.findings if each.code in REPAIRED_BY_RECONCILE}
    for config in evidence.configs:
        name = config.metadata.name
        addresses = {
            f"address/{each.ip}" for container in config.status.network_containers for each in container.ip_assignments
        }
        if doubted & {f"nodenetworkconfig/{name}", f"node/{name}", *addresses}:
            yield RequestReconcile(
                about=f"nodenetworkconfig/{name}", message="ask its controller and agent to look again", node=name
            )


async def execute_plan(steps: Sequence[RepairStep], kube: KubeClient, *, at: float) -> list[RepairResult]:
    """Do what was planned; what has changed meanwhile is left as it is, and message."""
    done = []
    for step in steps:
        try:
            await _do(step, kube, at=at)
        except PodpoolError as error:
            done.append(RepairResult(about=step.about, message=step.message, error=str(error)))
        else:
            done.append(RepairResult(about=step.about, message=step.message))
    return done


async def _do(step: RepairStep, kube: KubeClient, *, at: float) -> None:
    if isinstance(step, RequestReconcile):
        moment = datetime.fromtimestamp(at, UTC).isoformat(timespec="seconds")
        patch = {"metadata": {"annotations": {RECONCILE_ANNOTATION: moment}}}
        await kube.merge_patch(NODE_NETWORK_CONFIGS, step.node, patch, namespace="kube-system")
    elif isinstance(step, ReleaseEntries):
        changes = allocation_patch(each.change for each in step.entries)
        await kube.json_patch(IP_POOLS, step.entries[0].pool, changes, namespace=step.namespace)
    else:
        await kube.delete(IP_RESERVATIONS, step.name, namespace=step.namespace, uid=step.uid)


def plan_view(steps: Sequence[RepairStep]) -> list[Repair]:
    """Show a plan without what only the doing needs."""
    return [Repair(about=each.about, message=each.message) for each in steps]
