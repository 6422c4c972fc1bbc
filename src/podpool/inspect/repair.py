"""Repair of audit findings, only where it is safe: a plan first, then its execution.

Nothing of an existing Pod or node is removed. IPPool entries and reservations follow the rules of
`whereabouts.orphan_gc`: two snapshots a minute apart show the Pod as gone, and the patch tests the entry. Other
findings are repaired by the controller from the ledger; the repair requests a reconcile of the node.
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
from podpool.whereabouts.adoption_findings import owner_text
from podpool.whereabouts.ippool import allocation_patch
from podpool.whereabouts.orphan_gc import OrphanedEntry, orphaned_entries, orphaned_reservations

RECONCILE_ANNOTATION = "podpool.io/reconcile-requested"
"""On an NNC: when a reconcile was requested. The write itself triggers controller and agent."""
REPAIRED_BY_RECONCILE = frozenset({"nnc-differs", "unknown-nc", "nodes-share-address", "unaligned"})


class Repair(ViewModel, frozen=True, kw_only=True):
    """One planned action."""

    subject: str
    """The object as kubectl names it."""
    message: str


class RequestReconcile(Repair, frozen=True, kw_only=True):
    """Request a reconcile of a node by its controller and agent."""

    node: str


class ReleaseEntries(Repair, frozen=True, kw_only=True):
    """Remove IPPool entries of deleted Pods."""

    namespace: str
    entries: tuple[OrphanedEntry, ...]


class DeleteReservation(Repair, frozen=True, kw_only=True):
    """Delete the reservation of a deleted Pod."""

    namespace: str
    name: str
    uid: str


RepairStep = RequestReconcile | ReleaseEntries | DeleteReservation


class RepairResult(ViewModel, frozen=True, kw_only=True):
    """Outcome of an action; no error means success."""

    subject: str
    message: str
    error: str = ""


def plan_repairs(first: AuditSnapshot, second: AuditSnapshot, report: AuditReport) -> tuple[RepairStep, ...]:
    """Plan the repair of a report that both snapshots confirm."""
    return (*_entries(first, second), *_reservations(first, second), *_reconciles(second, report))


def _entries(first: AuditSnapshot, second: AuditSnapshot) -> Iterable[RepairStep]:
    found = orphaned_entries(first.gc_snapshot, second.gc_snapshot)
    for pool in second.pools:
        here = tuple(each for each in found if each.pool == pool.metadata.name)
        if here:
            owners = ", ".join(f"{each.change.address} of {_owner(each)}" for each in here)
            subject, namespace = f"ippool/{pool.metadata.name}", pool.metadata.namespace
            yield ReleaseEntries(subject=subject, message=f"release {owners}", namespace=namespace, entries=here)


def _owner(release: OrphanedEntry) -> str:
    return owner_text(release.change.before) if release.change.before else "no owner"


def _reservations(first: AuditSnapshot, second: AuditSnapshot) -> Iterable[RepairStep]:
    for each in orphaned_reservations(first.gc_snapshot, second.gc_snapshot):
        name, namespace, uid = each.metadata.name, each.metadata.namespace, each.metadata.uid
        subject, message = f"overlappingrangeipreservation/{name}", f"delete: {each.spec.podref} is gone"
        yield DeleteReservation(subject=subject, message=message, namespace=namespace, name=name, uid=uid)


def _reconciles(snapshot: AuditSnapshot, report: AuditReport) -> Iterable[RepairStep]:
    affected = {each.subject for each in report.findings if each.code in REPAIRED_BY_RECONCILE}
    for nnc in snapshot.nncs:
        name = nnc.metadata.name
        addresses = {
            f"address/{each.ip}" for container in nnc.status.network_containers for each in container.ip_assignments
        }
        if affected & {f"nodenetworkconfig/{name}", f"node/{name}", *addresses}:
            message = "request a reconcile by its controller and agent"
            yield RequestReconcile(subject=f"nodenetworkconfig/{name}", message=message, node=name)


async def execute_plan(steps: Sequence[RepairStep], kube: KubeClient, *, at: float) -> list[RepairResult]:
    """Execute the plan; objects that changed meanwhile are left alone and reported."""
    done = []
    for step in steps:
        failure = ""
        try:
            await _do(step, kube, at=at)
        except PodpoolError as error:
            failure = str(error)
        done.append(RepairResult(subject=step.subject, message=step.message, error=failure))
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
    """Return the plan without internal details."""
    return [Repair(subject=each.subject, message=each.message) for each in steps]
