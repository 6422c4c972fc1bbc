"""`podpool adopt whereabouts`: report Whereabouts objects and their inconsistencies, and migrate to podpool or back.

Nothing is changed without `--apply`. The migration needs no change: podpool uses the IPPools of shared ranges as they
are, and controller and agents adopt those of slices with their entries. `--apply` records the addresses of running Pods
that no pool lists, which would be assigned again. Leaked entries stay; orphan GC removes them after two observations.

The way back needs no change either, because entries are where Whereabouts expects them. `--revert --apply` removes
podpool's labels and annotations from IPPools, Leases and NodeSlicePools, and its NodeSlices, once neither a controller
nor an agent runs: a controller renews its Lease, and an agent answers an inventory request in its NodeSlices.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from podpool.api.annotation_decoder import parse_number
from podpool.api.builtin import ADDRESSED_PODS, CONFIG_MAPS, LEASES, NODES, Lease
from podpool.api.meta import Kind, KubeObject, ObjectMeta, T
from podpool.api.multus import NETWORK_ATTACHMENTS, NetworkAttachmentDefinition
from podpool.api.node_slices import INVENTORY_CONFIG_MAP, NODE_SLICES, NodeSlices
from podpool.api.whereabouts import (
    IP_POOLS,
    IP_RESERVATIONS,
    NODE_SLICE_POOLS,
    NODE_UID_LABEL,
    Allocation,
    IPPool,
    IPPoolSpec,
)
from podpool.cli.connect import read_flat_file
from podpool.cli.context import ClusterContext
from podpool.cli.errors import FAILED
from podpool.core.errors import InvalidInput
from podpool.core.ranges import find_prefix
from podpool.inspect.slice_inventory import REQUEST
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiAlreadyExists, ApiInvalid, ApiNotFound
from podpool.runtime.clock import Clock
from podpool.whereabouts.adoption_findings import (
    MigrationFinding,
    MigrationInputs,
    PodAddress,
    Problem,
    build_migration_report,
)
from podpool.whereabouts.ippool import AllocationChange, allocation_patch, parse_ippool
from podpool.whereabouts.nad import ParsedNad, parse_nad
from podpool.whereabouts.object_names import PoolIdentifier

Marked = TypeVar("Marked", bound=KubeObject)

ADOPTED = "adopted"
"""The container ID in recorded entries: the real one is unknown."""
CONTROLLER = "podpool-controller"
ANSWER_TIMEOUT = 5.0
"""Seconds in which an agent answers: it watches the request, and spreads its answer over two seconds."""
PREFIX = "podpool.io/"
KEY_LIMIT = 1 << 63
"""Whereabouts reads only smaller keys."""


class MigrationStep(msgspec.Struct, frozen=True, kw_only=True):
    """A write, planned or done."""

    where: str
    message: str
    done: bool = False


class AdoptionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the command."""

    pools: int
    entries: int
    reservations: int
    attachments: int
    findings: tuple[MigrationFinding, ...] = ()
    unreadable: tuple[str, ...] = ()
    """NetworkAttachmentDefinitions with an invalid configuration, and the error."""
    steps: tuple[MigrationStep, ...] = ()
    applied: bool = False

    @property
    def consistent(self) -> bool:
        """Whether no address is, or can be, assigned twice."""
        written = sum(step.done for step in self.steps)
        unrecorded = sum(each.problem is Problem.UNRECORDED for each in self.findings)
        return unrecorded <= written and all(each.problem is not Problem.DUPLICATE for each in self.findings)


async def adopt_whereabouts(
    context: ClusterContext, *, whereabouts_namespace: str, flat_file: str, apply: bool, revert: bool
) -> int:
    """Report, and migrate with --apply."""
    migrator = WhereaboutsMigrator(
        context.kube, whereabouts_namespace, clock=context.clock, flat=read_flat_file(flat_file)
    )
    report = await (migrator.revert if revert else migrator.adopt)(apply=apply)
    context.printer.result(report, as_text(report, revert=revert))
    return 0 if report.consistent else FAILED


class WhereaboutsMigrator:
    """Migrates one cluster; `flat` is the content of the flat file on the nodes."""

    def __init__(self, kube: KubeClient, namespace: str, *, clock: Clock, flat: bytes | None = None) -> None:
        self._kube = kube
        self._namespace = namespace
        self._clock = clock
        self._flat = flat

    async def adopt(self, *, apply: bool = False) -> AdoptionReport:
        """Report; with `apply` record addresses of running Pods that no pool lists."""
        objects, unrecorded, report = await self._read()
        steps = []
        for pod_address in unrecorded:
            pool = _pool_for(pod_address, objects.pools)
            if pool:
                message = f"record {pod_address.address} of {pod_address.pod} {pod_address.interface}"
                done = apply and await self._record(pod_address, pool)
                steps.append(MigrationStep(where=f"ippool/{pool.metadata.name}", message=message, done=done))
        return msgspec.structs.replace(report, steps=tuple(steps), applied=apply)

    async def revert(self, *, apply: bool = False) -> AdoptionReport:
        """Report podpool's metadata and what Whereabouts cannot read; with `apply` remove the metadata."""
        if apply:
            await self._check_stopped()
        objects, _, report = await self._read()
        leases = await self._list(LEASES, namespace=self._namespace, labels=NODE_UID_LABEL)
        slice_pools = await self._list(NODE_SLICE_POOLS, namespace=self._namespace)
        steps = [await self._remove_metadata(IP_POOLS, each, apply=apply) for each in filter(_is_marked, objects.pools)]
        steps += [await self._remove_metadata(LEASES, each, apply=apply) for each in leases]
        marked = filter(_is_marked, slice_pools)
        steps += [await self._remove_metadata(NODE_SLICE_POOLS, each, apply=apply) for each in marked]
        steps += [await self._remove_slices(each, apply=apply) for each in await self._list(NODE_SLICES)]
        if apply:
            with suppress(ApiNotFound):
                await self._kube.delete(CONFIG_MAPS, INVENTORY_CONFIG_MAP, namespace=self._namespace)
        findings = (*report.findings, *_unreadable_entries(objects.pools))
        return msgspec.structs.replace(report, findings=findings, steps=tuple(steps), applied=apply)

    async def _read(self) -> tuple[MigrationInputs, tuple[PodAddress, ...], AdoptionReport]:
        """Return all objects, addresses that no pool lists, and the report before any step.

        Pools are read before Pods, so that a listed Pod was there when its pool was read.
        """
        pools = await self._list(IP_POOLS, namespace=self._namespace)
        reservations = await self._list(IP_RESERVATIONS, namespace=self._namespace)
        nads, unreadable = _parse_nads(await self._list(NETWORK_ATTACHMENTS), self._flat)
        pods = await self._list(ADDRESSED_PODS)
        nodes = [each.metadata.name for each in await self._list(NODES)]
        objects = MigrationInputs(pools=pools, reservations=reservations, pods=pods, nads=nads, nodes=nodes)
        found = build_migration_report(objects)
        report = AdoptionReport(
            pools=found.pools,
            entries=found.entries,
            reservations=found.reservations,
            attachments=len(nads),
            findings=found.findings,
            unreadable=unreadable,
        )
        return objects, found.unrecorded, report

    async def _list(self, kind: Kind[T], *, namespace: str | None = None, labels: str | None = None) -> Sequence[T]:
        with suppress(ApiNotFound):  # the CRD is not installed
            return (await self._kube.list(kind, namespace=namespace, labels=labels)).items
        return ()

    async def _record(self, pod_address: PodAddress, pool: IPPool) -> bool:
        """Add an entry for a running Pod; return False if another one was added meanwhile."""
        if not pool.metadata.uid:
            with suppress(ApiAlreadyExists):
                await self._kube.create(IP_POOLS, pool, namespace=self._namespace)
        key = parse_ippool(pool.spec).key(pod_address.address)
        entry = Allocation(id=ADOPTED, podref=pod_address.pod, ifname=pod_address.interface)
        change = AllocationChange(key=key, address=pod_address.address, before=None, after=entry)
        try:
            await self._kube.json_patch(
                IP_POOLS, pool.metadata.name, allocation_patch([change]), namespace=self._namespace
            )
        except ApiInvalid:
            return False
        return True

    async def _check_stopped(self) -> None:
        """Raise an error if a controller or an agent runs: it would write or use the metadata."""
        lease = await self._kube.find(LEASES, CONTROLLER, namespace="kube-system")
        if lease and lease.spec.holder_identity and not _is_expired(lease, at=self._clock.wall()):
            rule = "is still the leader: stop the agents, then the controller, and retry"
            raise InvalidInput(CONTROLLER, lease.spec.holder_identity, rule)
        running = await self._running_agents()
        if running:
            raise InvalidInput("agents", ", ".join(running), "are still running: stop them and retry")

    async def _running_agents(self) -> list[str]:
        """Ask agents for an inventory, as the controller does; return the nodes that answer."""
        if not await self._list(NODE_SLICES):
            return []
        question = f"revert-{self._clock.wall():.3f}"
        data = {"data": {REQUEST: question}}
        try:
            await self._kube.merge_patch(CONFIG_MAPS, INVENTORY_CONFIG_MAP, data, namespace=self._namespace)
        except ApiNotFound:
            meta = {"name": INVENTORY_CONFIG_MAP, "namespace": self._namespace}
            await self._kube.create(CONFIG_MAPS, {"metadata": meta, **data})
        await asyncio.sleep(ANSWER_TIMEOUT)
        answers = {each.metadata.name: each.status.inventory for each in await self._list(NODE_SLICES)}
        return sorted(name for name, answer in answers.items() if answer == question)

    async def _remove_metadata(self, kind: Kind[Marked], obj: Marked, *, apply: bool) -> MigrationStep:
        meta = obj.metadata
        labels, notes = dict.fromkeys(_own_keys(meta.labels)), dict.fromkeys(_own_keys(meta.annotations))
        patch: dict[str, Any] = {"metadata": {"labels": labels, "annotations": notes}}
        if isinstance(obj, Lease):
            patch["spec"] = {"holderIdentity": ""}
        if apply:
            version = meta.resource_version
            await self._kube.merge_patch(kind, meta.name, patch, namespace=self._namespace, precondition=version)
        where = f"{kind.kind.lower()}/{meta.name}"
        return MigrationStep(where=where, message="remove labels and annotations of podpool", done=apply)

    async def _remove_slices(self, node: NodeSlices, *, apply: bool) -> MigrationStep:
        """Delete the NodeSlices of a node, whose finalizer no other program removes."""
        name = node.metadata.name
        if apply:
            with suppress(ApiNotFound):
                await self._kube.merge_patch(NODE_SLICES, name, {"metadata": {"finalizers": None}})
                await self._kube.delete(NODE_SLICES, name)
        return MigrationStep(where=f"nodeslices/{name}", message="delete the slices of the node", done=apply)


def as_text(report: AdoptionReport, *, revert: bool = False) -> str:
    """Return the report as text."""
    found = f"{report.pools} IPPools with {report.entries} entries, {report.reservations} reservations"
    lines = [f"{found}, {report.attachments} NetworkAttachmentDefinitions with IPAM"]
    lines += [f"  invalid: {each}" for each in report.unreadable]
    kinds = Counter(each.problem.value for each in report.findings)
    lines += [f"{count} x {kind}" for kind, count in sorted(kinds.items())]
    lines += [f"  {each}" for each in report.findings]
    for step in report.steps:
        state = "done" if step.done else "not done" if report.applied else "with --apply"
        lines.append(f"{state}: {step.where}: {step.message}")
    return "\n".join([*lines, *_next(report, revert=revert)])


def _next(report: AdoptionReport, *, revert: bool) -> list[str]:
    """Return the next action."""
    if any(each.problem is Problem.DUPLICATE for each in report.findings):
        return ["an address has two owners: delete one of the Pods, then run the command again"]
    if report.steps and not report.applied:
        return ["nothing was changed: run the command with --apply"]
    if not report.consistent:
        return ["an address of a running Pod is in no pool and can be assigned again: delete the Pod, then retry"]
    if revert:
        uninstall = "`podpool cni uninstall --name podpool,whereabouts --conf-dir ''`"
        return [f"Whereabouts can continue: restore its plugin with {uninstall} on each node"]
    install = "`podpool cni install --name podpool,whereabouts`"
    short = [each for each in report.findings if each.problem is Problem.INSUFFICIENT]
    if short:
        ranges = "a range has" if len(short) == 1 else f"{len(short)} ranges have"
        effect = "Pods with that network do not start on nodes without a slice"
        return [f"{ranges} fewer slices than nodes: {effect}. Change that, then continue with {install} on each node"]
    return [f"no inconsistencies: running Pods keep their addresses; continue with {install} on each node"]


def _is_expired(lease: Lease, *, at: float) -> bool:
    """Return whether a holder has not renewed in time; without a time it counts as alive."""
    try:
        renewed = datetime.fromisoformat(lease.spec.renew_time or "").timestamp()
    except ValueError:
        return False
    duration = lease.spec.lease_duration_seconds
    return duration is not None and at > renewed + duration


def _pool_for(pod_address: PodAddress, pools: Sequence[IPPool]) -> IPPool | None:
    """Return the pool for an address: of the node's slice, or of the whole range, which may not exist yet."""
    if pod_address.range.slice_size:
        return next((each for each in pools if _is_slice_of(each, pod_address)), None)
    name = PoolIdentifier(range=pod_address.range.prefix, network=pod_address.network).name
    absent = IPPool(metadata=ObjectMeta(name=name), spec=IPPoolSpec(range=str(pod_address.range.prefix)))
    return next((each for each in pools if each.metadata.name == name), absent)


def _is_slice_of(pool: IPPool, pod_address: PodAddress) -> bool:
    range_ = find_prefix(pool.spec.range)
    if range_ is None:
        return False
    place = PoolIdentifier(range=range_, network=pod_address.network, node=pod_address.node)
    return pod_address.address in range_ and pool.metadata.name == place.name


def _unreadable_entries(pools: Iterable[IPPool]) -> Iterator[MigrationFinding]:
    """Return entries that Whereabouts cannot read, and whose addresses it would assign again."""
    for pool in pools:
        for key in pool.spec.allocations:
            number = parse_number(key)
            if key.isdecimal() and (number is None or number >= KEY_LIMIT):
                message = f"entry {key} is out of range for Whereabouts, which would assign it again: delete the Pod"
                yield MigrationFinding(problem=Problem.OUTSIDE, where=f"ippool/{pool.metadata.name}", message=message)


def _parse_nads(
    definitions: Iterable[NetworkAttachmentDefinition], flat: bytes | None
) -> tuple[tuple[ParsedNad, ...], tuple[str, ...]]:
    nads, invalid = [], []
    for each in definitions:
        try:
            nad = parse_nad(each, flat=flat)
        except InvalidInput as error:
            invalid.append(f"{each.key}: {error}")
        else:
            nads += [nad] if nad else []
    return tuple(nads), tuple(invalid)


def _is_marked(obj: KubeObject) -> bool:
    return bool(_own_keys(obj.metadata.labels) or _own_keys(obj.metadata.annotations))


def _own_keys(keys: Iterable[str]) -> list[str]:
    return [each for each in keys if each.startswith(PREFIX)]
