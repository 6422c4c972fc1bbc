"""Runs a self-test: creates Pods, waits, checks, deletes. Whatever happens, its namespace is deleted."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import msgspec

from podpool.api.azure import NODE_NETWORK_CONFIGS
from podpool.api.builtin import NAMESPACES
from podpool.core.errors import PodpoolError
from podpool.inspect.audit import audit, confirmed
from podpool.inspect.audit_snapshot import read_audit_snapshot
from podpool.inspect.status import list_objects
from podpool.inspect.verify import checks
from podpool.inspect.verify import pods as p
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiAlreadyExists, ApiForbidden, ApiNotFound
from podpool.ledger.client import LedgerClient
from podpool.runtime.clock import Clock

POLL = 0.5
"""Seconds between two reads of the Pods."""
CLEANUP_TIMEOUT = 60.0
"""Seconds in which the Pods must be gone at the end."""
AUDIT_SETTLE = 5.0
"""Seconds between the two audits."""

Progress = Callable[[str], None]


class VerifyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to start."""

    namespace: str
    image: str
    nodes: tuple[str, ...]
    pods_per_node: int = 2
    timeout: float = 120.0
    """Seconds in which all Pods must run, and be gone."""
    reachability: bool = True
    cooldown: float = 5.0
    """Seconds for which an address must not be assigned again."""


class Verification:
    """One self-test."""

    def __init__(
        self, kube: KubeClient, ledger: LedgerClient | None, clock: Clock, options: VerifyOptions, progress: Progress
    ) -> None:
        self._kube = kube
        self._ledger = ledger
        self._clock = clock
        self._options = options
        self._progress = progress

    async def run(self) -> p.VerifyReport:
        """Run all checks, and clean up."""
        namespace = self._options.namespace
        try:
            await self._kube.create(NAMESPACES, p.namespace_manifest(namespace))
            found, pods = await self._run()
        finally:
            self._progress(f"deleting namespace {namespace}")
            await self._clean_up()
        return p.VerifyReport(namespace=namespace, checks=(*found, *await self._audit()), pods=tuple(pods))

    async def _run(self) -> tuple[list[p.VerifyCheck], list[p.VerifiedPod]]:
        first = self._names("first")
        self._progress(f"starting {len(first)} Pods on {len(self._options.nodes)} nodes")
        started, started_check = await self._start(first)
        found = [started_check]
        if started:
            nncs = await list_objects(self._kube, NODE_NETWORK_CONFIGS)
            found += [
                checks.check_grants(started, nncs),
                checks.check_unique(started, await list_objects(self._kube, p.VERIFY_PODS)),
                await self._reachability(started),
            ]
        loop = asyncio.get_running_loop()
        deleted = loop.time()
        self._progress("deleting the Pods")
        left = await self._delete_all()
        found.append(checks.result("release", left, f"{len(first)} Pods are gone after {loop.time() - deleted:.1f} s"))
        if left or not started:
            return found, started
        again, again_check = await self._start(self._names("second"))
        found += [
            msgspec.structs.replace(again_check, check="addresses again"),
            checks.check_cooldown(started, again, elapsed=loop.time() - deleted, cooldown=self._options.cooldown),
        ]
        return found, [*started, *again]

    def _names(self, turn: str) -> dict[str, str]:
        """Return the nodes of all Pods by their names."""
        numbers = range(self._options.pods_per_node)
        return {
            f"{turn}-{place}-{number}": node for place, node in enumerate(self._options.nodes) for number in numbers
        }

    async def _start(self, wanted: Mapping[str, str]) -> tuple[list[p.VerifiedPod], p.VerifyCheck]:
        """Create Pods and wait until all run with addresses, or the time is over."""
        loop = asyncio.get_running_loop()
        begin = loop.time()
        deadline = begin + self._options.timeout
        for name, node in wanted.items():
            manifest = p.server_manifest(
                name,
                namespace=self._options.namespace,
                node=node,
                image=self._options.image,
                listening=self._options.reachability,
            )
            await self._create(manifest, deadline=deadline)
        started = dict[str, p.VerifiedPod]()
        while True:
            seen = {each.metadata.name: each for each in await self._pods()}
            for name, pod in seen.items():
                if name in wanted and name not in started and pod.status.phase == "Running" and pod.addresses:
                    seconds = loop.time() - begin
                    started[name] = p.VerifiedPod(
                        name=name, node=wanted[name], addresses=pod.addresses, seconds=seconds
                    )
            if len(started) == len(wanted) or loop.time() >= deadline:
                return list(started.values()), checks.check_started(wanted, list(started.values()), seen)
            await asyncio.sleep(POLL)

    async def _create(self, manifest: dict[str, object], *, deadline: float) -> None:
        """Create a Pod; the service account of a new namespace takes a moment."""
        while True:
            try:
                await self._kube.create(p.VERIFY_PODS, manifest)
            except ApiAlreadyExists:
                return
            except ApiForbidden as error:
                if "serviceaccount" not in str(error) or asyncio.get_running_loop().time() >= deadline:
                    raise
                await asyncio.sleep(POLL)
            else:
                return

    async def _reachability(self, started: Sequence[p.VerifiedPod]) -> p.VerifyCheck:
        """Have a Pod on each node connect to one Pod of its own and one of the next node."""
        if not self._options.reachability:
            return checks.skipped("reachability", "--reachability=false")
        by_node = {node: [each for each in started if each.node == node] for node in self._options.nodes}
        present = [node for node, found in by_node.items() if found]
        targets = {
            node: tuple(
                dict.fromkeys(
                    address
                    for one in (node, present[(place + 1) % len(present)])
                    for address in by_node[one][0].addresses[:1]
                )
            )
            for place, node in enumerate(present)
        }
        self._progress(f"connecting Pods on {len(present)} nodes")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.timeout
        probes = {f"probe-{place}": node for place, node in enumerate(present)}
        for name, node in probes.items():
            manifest = p.probe_manifest(
                name, namespace=self._options.namespace, node=node, image=self._options.image, targets=targets[node]
            )
            await self._create(manifest, deadline=deadline)
        while True:
            found = dict[tuple[str, str], bool | None]()
            seen = {each.metadata.name: each for each in await self._pods()}
            for name, node in probes.items():
                pod = seen.get(name, p.VerifyPod())
                found |= {(node, address): ok for address, ok in p.probe_results(pod, targets[node]).items()}
            if None not in found.values() or loop.time() >= deadline:
                return checks.check_reachability(found)
            await asyncio.sleep(POLL)

    async def _pods(self) -> Sequence[p.VerifyPod]:
        return (await self._kube.list(p.VERIFY_PODS, namespace=self._options.namespace, labels=p.LABEL)).items

    async def _delete_all(self) -> list[str]:
        """Delete the Pods and wait until they are gone; return those that are not."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + min(self._options.timeout, CLEANUP_TIMEOUT)
        deleted = set[str]()
        while left := [each.metadata.name for each in await self._pods()]:
            for name in left:
                if name not in deleted:
                    with suppress(ApiNotFound):
                        await self._kube.delete(p.VERIFY_PODS, name, namespace=self._options.namespace)
                    deleted.add(name)
            if loop.time() >= deadline:
                return left
            await asyncio.sleep(POLL)
        return []

    async def _clean_up(self) -> None:
        """Delete everything, also after an error or an interrupt; what stays is named."""
        namespace = self._options.namespace
        try:
            left = await self._delete_all()
            with suppress(ApiNotFound):
                await self._kube.delete(NAMESPACES, namespace)
        except PodpoolError as error:
            self._progress(f"namespace {namespace} is left, run `kubectl delete namespace {namespace}`: {error}")
            return
        if left:
            self._progress(f"Pods are left in namespace {namespace}: {', '.join(left)}")

    async def _audit(self) -> tuple[p.VerifyCheck, ...]:
        """Audit the cluster twice, as `podpool audit`."""
        try:
            report = audit(await read_audit_snapshot(self._kube, self._ledger, at=self._clock.boot()))
            if report.findings:
                await asyncio.sleep(AUDIT_SETTLE)
                second = audit(await read_audit_snapshot(self._kube, self._ledger, at=self._clock.boot()))
                report = confirmed(report, second)
        except PodpoolError as error:
            return (checks.skipped("audit", str(error)),)
        problems = [f"{each.code} of {each.subject}" for each in report.findings]
        return (checks.result("audit", problems, "no violations"),)
