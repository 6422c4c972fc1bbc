"""`podpool adopt whereabouts`: what a cluster has of Whereabouts, what is wrong with it, and the way in and back.

Nothing is changed unless `--apply` is typed. Going on needs no change: the IPPools of shared ranges are used as they
are, and those of slices are taken over by the controller and each node's agent, entries and all. What `--apply` does is
to write down the addresses of running Pods that no pool knows of, which Whereabouts would give again. Leaks stay: the
controller releases what is of no Pod any more, after two looks.

Back is the same: entries are where Whereabouts looks for them. With `--apply` our marks come off IPPools, Leases,
NodeSlicePools and Nodes, once nobody of ours is at work: a controller renews its Lease, and an agent that holds a slice
answers a question on its Node.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from podpool.api.builtin import ADDRESSED_PODS, LEASES, NODES, Lease, Node
from podpool.api.meta import Kind, KubeObject, ObjectMeta, T
from podpool.api.multus import NETWORK_ATTACHMENTS, NetworkAttachmentDefinition
from podpool.api.whereabouts import (
    IP_POOLS,
    IP_RESERVATIONS,
    NODE_ANNOTATION,
    NODE_SLICE_POOLS,
    NODE_UID_LABEL,
    SLICE_INVENTORY_ANNOTATION,
    SLICE_REPORT_ANNOTATION,
    Allocation,
    IPPool,
    IPPoolSpec,
    slice_report,
)
from podpool.cli.connect import read_flat_file
from podpool.cli.context import ClusterContext
from podpool.cli.errors import FAILED
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiAlreadyExists, ApiInvalid, ApiNotFound
from podpool.runtime.clock import Clock
from podpool.whereabouts.ippool import AllocationChange, allocation_patch, parse_ippool
from podpool.whereabouts.migration_report import (
    MigrationFinding,
    MigrationInputs,
    MigrationReport,
    PodAddress,
    Problem,
    build_migration_report,
)
from podpool.whereabouts.multus import ParsedNad, parse_nad
from podpool.whereabouts.object_names import PoolIdentifier

Marked = TypeVar("Marked", bound=KubeObject)

ADOPTED = "adopted"
"""Stands for the container in entries that are written here: nobody knows it any more."""
CONTROLLER = "podpool-controller"
ANSWERED = 5.0
"""Seconds within which an agent answers: it watches its Node."""
OURS = "podpool.io/"
LARGEST_KEY = 1 << 63
"""What Whereabouts reads is below."""


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is to be written, or was."""

    where: str
    told: str
    done: bool = False


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What is said, to people and to programs."""

    pools: int
    entries: int
    reservations: int
    attachments: int
    findings: tuple[MigrationFinding, ...] = ()
    unreadable: tuple[str, ...] = ()
    """NetworkAttachmentDefinitions whose configuration is wrong, and why."""
    steps: tuple[Step, ...] = ()
    applied: bool = False

    @property
    def sound(self) -> bool:
        """Whether no address is about to be given twice, or has been."""
        written = sum(step.done for step in self.steps)
        unrecorded = sum(each.problem is Problem.UNRECORDED for each in self.findings)
        return unrecorded <= written and all(each.problem is not Problem.DUPLICATE for each in self.findings)


async def adopt_whereabouts(
    context: ClusterContext, *, whereabouts_namespace: str, flat_file: str, apply: bool, revert: bool
) -> int:
    """Look, do what was asked for, and say it."""
    mover = Mover(context.kube, whereabouts_namespace, clock=context.clock, flat=read_flat_file(flat_file))
    report = await (mover.back if revert else mover.survey)(apply=apply)
    context.printer.result(report, as_text(report, back=revert))
    return 0 if report.sound else FAILED


class Mover:
    """One cluster, on its way in or out; `flat` is what nodes have for a flat file."""

    def __init__(self, kube: KubeClient, namespace: str, *, clock: Clock, flat: bytes | None = None) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._flat = flat

    async def survey(self, *, apply: bool = False) -> Report:
        """Look at everything; with `apply` write down what running Pods have and no pool knows of."""
        objects, unreadable = await self._look()
        found = build_migration_report(objects)
        steps = []
        for lent in found.unrecorded:
            pool = _pool_for(lent, objects.pools)
            if pool:
                told = f"{lent.address} of {lent.pod} {lent.interface} is written down"
                done = apply and await self._record(lent, pool)
                steps.append(Step(where=f"ippool/{pool.metadata.name}", told=told, done=done))
        return _report(found, objects, unreadable=unreadable, steps=steps, applied=apply)

    async def back(self, *, apply: bool = False) -> Report:
        """Find what of ours is on the objects, and what Whereabouts cannot read; with `apply` take the marks off."""
        if apply:
            await self._nobody_at_work()
        objects, unreadable = await self._look()
        found = build_migration_report(objects)
        leases = await self._all(LEASES, labels=NODE_UID_LABEL)
        tables = await self._all(NODE_SLICE_POOLS)
        steps = [await self._unmark(IP_POOLS, each, apply=apply) for each in objects.pools if _marks(each)]
        steps += [await self._unmark(LEASES, each, apply=apply) for each in leases]
        steps += [await self._unmark(NODE_SLICE_POOLS, each, apply=apply) for each in tables if _marks(each)]
        steps += [await self._hush(each, apply=apply) for each in await self._everywhere(NODES) if _talks(each)]
        findings = (*found.findings, *_too_far(objects.pools))
        return _report(
            msgspec.structs.replace(found, findings=findings),
            objects,
            unreadable=unreadable,
            steps=steps,
            applied=apply,
        )

    async def _look(self) -> tuple[MigrationInputs, tuple[str, ...]]:
        """Read pools before Pods: what is found was there when the Pods were looked for."""
        pools = await self._all(IP_POOLS)
        reservations = await self._all(IP_RESERVATIONS)
        attachments, unreadable = _read(await self._everywhere(NETWORK_ATTACHMENTS), self._flat)
        pods = await self._everywhere(ADDRESSED_PODS)
        nodes = [each.metadata.name for each in await self._everywhere(NODES)]
        objects = MigrationInputs(pools=pools, reservations=reservations, pods=pods, nads=attachments, nodes=nodes)
        return objects, unreadable

    async def _all(self, kind: Kind[T], *, labels: str | None = None) -> Sequence[T]:
        with suppress(ApiNotFound):  # the kind is not defined: there are none
            return (await self._kube.list(kind, namespace=self._namespace, labels=labels)).items
        return ()

    async def _everywhere(self, kind: Kind[T]) -> Sequence[T]:
        with suppress(ApiNotFound):
            return (await self._kube.list(kind)).items
        return ()

    async def _record(self, lent: PodAddress, pool: IPPool) -> bool:
        """Write an entry for a running Pod where there is none; who was faster is right."""
        if not pool.metadata.uid:
            with suppress(ApiAlreadyExists):
                await self._kube.create(IP_POOLS, pool, namespace=self._namespace)
        key = parse_ippool(pool.spec).key(lent.address)
        entry = Allocation(id=ADOPTED, podref=lent.pod, ifname=lent.interface)
        change = AllocationChange(key=key, address=lent.address, before=None, after=entry)
        try:
            await self._kube.json_patch(
                IP_POOLS, pool.metadata.name, allocation_patch([change]), namespace=self._namespace
            )
        except ApiInvalid:
            return False
        return True

    async def _nobody_at_work(self) -> None:
        """Refuse to take marks off that would be put back at once, or that an agent gives addresses by."""
        with suppress(ApiNotFound):
            lease = await self._kube.get(LEASES, CONTROLLER, namespace="kube-system")
            if lease.spec.holder_identity and not _ended(lease, at=self._clock.wall()):
                rule = "still leads: stop the agents and then the controller first, then try again"
                raise InvalidInput(CONTROLLER, lease.spec.holder_identity, rule)
        answering = await self._answering()
        if answering:
            raise InvalidInput("agents", ", ".join(answering), "still answer: stop them first, then try again")

    async def _answering(self) -> list[str]:
        """Ask the agents that hold slices, as the controller does, and tell on which nodes they are at work."""
        leases = await self._all(LEASES, labels=NODE_UID_LABEL)
        held = {each.metadata.annotations.get(NODE_ANNOTATION, "") for each in leases if each.spec.holder_identity}
        asked = [each.metadata.name for each in await self._everywhere(NODES) if each.metadata.name in held]
        question = f"back-{self._clock.wall():.3f}"
        for name in asked:
            with suppress(ApiNotFound):
                await self._kube.merge_patch(
                    NODES, name, {"metadata": {"annotations": {SLICE_INVENTORY_ANNOTATION: question}}}
                )
        await asyncio.sleep(ANSWERED if asked else 0.0)
        nodes = await self._everywhere(NODES) if asked else ()
        reports = {each.metadata.name: slice_report(each) for each in nodes}
        return sorted(name for name, report in reports.items() if report and report.inventory == question)

    async def _unmark(self, kind: Kind[Marked], obj: Marked, *, apply: bool) -> Step:
        meta = obj.metadata
        labels, notes = dict.fromkeys(_of_ours(meta.labels)), dict.fromkeys(_of_ours(meta.annotations))
        patch: dict[str, Any] = {"metadata": {"labels": labels, "annotations": notes}}
        if isinstance(obj, Lease):
            patch["spec"] = {"holderIdentity": ""}
        if apply:
            version = meta.resource_version
            await self._kube.merge_patch(kind, meta.name, patch, namespace=self._namespace, precondition=version)
        where = f"{kind.kind.lower()}/{meta.name}"
        return Step(where=where, told="our labels and annotations come off", done=apply)

    async def _hush(self, node: Node, *, apply: bool) -> Step:
        """Take question and answer off a Node; what else is there of ours is people's."""
        name = node.metadata.name
        if apply:
            await self._kube.merge_patch(NODES, name, {"metadata": {"annotations": dict.fromkeys(_talks(node))}})
        return Step(where=f"node/{name}", told="our annotations about slices come off", done=apply)


def as_text(report: Report, *, back: bool = False) -> str:
    """Write a report for people."""
    found = f"{report.pools} IPPools with {report.entries} entries, {report.reservations} reservations"
    lines = [f"{found}, {report.attachments} network attachments that ask for addresses"]
    lines += [f"  not readable: {each}" for each in report.unreadable]
    kinds = Counter(each.problem.value for each in report.findings)
    lines += [f"{count} x {kind}" for kind, count in sorted(kinds.items())]
    lines += [f"  {each}" for each in report.findings]
    for step in report.steps:
        mark = "done" if step.done else "not done" if report.applied else "with --apply"
        lines.append(f"{mark}: {step.where}: {step.told}")
    return "\n".join([*lines, *_next(report, back=back)])


def _next(report: Report, *, back: bool) -> list[str]:
    """Tell what to do now."""
    if any(each.problem is Problem.DUPLICATE for each in report.findings):
        return ["an address has two owners: delete one of the Pods, then look again"]
    if report.steps and not report.applied:
        return ["nothing was changed: type the same with --apply"]
    if not report.sound:
        return ["an address of a running Pod is in no pool and would be given again: delete the Pod, then look again"]
    if back:
        uninstall = "`podpool cni uninstall --name podpool,whereabouts --conf-dir ''`"
        return [f"Whereabouts can go on: put its plugin back with {uninstall} on each node"]
    install = "`podpool cni install --name podpool,whereabouts`"
    return [f"all is well: running Pods keep their addresses; go on with {install} on each node"]


def _ended(lease: Lease, *, at: float) -> bool:
    """Tell whether a holder has not renewed in time; without a time it is taken to be alive."""
    try:
        renewed = datetime.fromisoformat(lease.spec.renew_time or "").timestamp()
    except ValueError:
        return False
    lasts = lease.spec.lease_duration_seconds
    return lasts is not None and at > renewed + lasts


def _report(
    found: MigrationReport,
    objects: MigrationInputs,
    *,
    unreadable: tuple[str, ...],
    steps: Sequence[Step],
    applied: bool,
) -> Report:
    return Report(
        pools=found.pools,
        entries=found.entries,
        reservations=found.reservations,
        attachments=len(objects.nads),
        findings=found.findings,
        unreadable=unreadable,
        steps=tuple(steps),
        applied=applied,
    )


def _pool_for(lent: PodAddress, pools: Sequence[IPPool]) -> IPPool | None:
    """Find the pool for an address: the node's slice that it is in, or the whole range's, which may have to be made."""
    if lent.range.slice_size:
        return next((each for each in pools if _is_slice_of(each, lent)), None)
    name = PoolIdentifier(range=lent.range.prefix, network=lent.network).name
    absent = IPPool(metadata=ObjectMeta(name=name), spec=IPPoolSpec(range=str(lent.range.prefix)))
    return next((each for each in pools if each.metadata.name == name), absent)


def _is_slice_of(pool: IPPool, lent: PodAddress) -> bool:
    try:
        range_ = parse_prefix(pool.spec.range)
    except InvalidInput:
        return False
    place = PoolIdentifier(range=range_, network=lent.network, node=lent.node)
    return lent.address in range_ and pool.metadata.name == place.name


def _too_far(pools: Iterable[IPPool]) -> Iterator[MigrationFinding]:
    """Find entries that Whereabouts would not read, and then give again."""
    for pool in pools:
        for key in pool.spec.allocations:
            if key.isdecimal() and int(key) >= LARGEST_KEY:
                told = f"entry {key} is too far for Whereabouts, which would give the address again: delete the Pod"
                yield MigrationFinding(problem=Problem.OUTSIDE, where=f"ippool/{pool.metadata.name}", message=told)


def _read(
    definitions: Iterable[NetworkAttachmentDefinition], flat: bytes | None
) -> tuple[tuple[ParsedNad, ...], tuple[str, ...]]:
    attachments, wrong = [], []
    for each in definitions:
        try:
            attachment = parse_nad(each, flat=flat)
        except InvalidInput as error:
            wrong.append(f"{each.key}: {error}")
        else:
            attachments += [attachment] if attachment else []
    return tuple(attachments), tuple(wrong)


def _talks(node: Node) -> list[str]:
    return [each for each in (SLICE_INVENTORY_ANNOTATION, SLICE_REPORT_ANNOTATION) if each in node.metadata.annotations]


def _marks(obj: KubeObject) -> list[str]:
    return [*_of_ours(obj.metadata.labels), *_of_ours(obj.metadata.annotations)]


def _of_ours(keys: Iterable[str]) -> list[str]:
    return [each for each in keys if each.startswith(OURS)]
