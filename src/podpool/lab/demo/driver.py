"""What can be done on the stage, and what is to be seen on it."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS, ClusterSubnet, NodeNetworkConfig, agent_report
from podpool.api.builtin import LEASES, NODES, PODS, Lease, Pod
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.whereabouts import NODE_UID_LABEL
from podpool.core.errors import PodpoolError
from podpool.inspect.audit import AuditReport, audit, confirmed
from podpool.inspect.audit_snapshot import read_audit_snapshot
from podpool.inspect.view_models import with_cluster_scaler
from podpool.kube.errors import ApiAlreadyExists, ApiError, ApiNotFound, ApiServerError
from podpool.kube.events import EventRecorder
from podpool.kube.informer import Informer
from podpool.lab.demo.cluster import Cluster
from podpool.lab.demo.kubelet import DemoKubelets
from podpool.lab.demo.nads import NAD_NAME, nad
from podpool.lab.demo.nodes import LEASE_NAMESPACE, DEMO_NODES, RENEW_INTERVAL, DemoNode, node_lease, node_status
from podpool.lab.demo.pods import NETWORKS, DEMO_PODS, DemoPod
from podpool.ledger.errors import LedgerError
from podpool.ledger.messages import SubnetState
from podpool.runtime import entropy
from podpool.runtime.clock import SystemClock
from podpool.runtime.transport import Unreachable

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = "kube-system"
POLL = 0.25
INFORMER_TIMEOUT = 10.0
"""Seconds in which new Pods are seen, unless somebody has deleted them."""
AUDIT_INTERVAL = 1.0
"""Seconds between two looks of an audit."""


class DemoNodeState(msgspec.Struct, frozen=True, kw_only=True):
    """One node, as a row."""

    name: str
    alive: bool
    running: int
    waiting: int
    served: bool
    """Whether it was given anything: on the bare rung a primary is all that it needs."""
    held: int
    requested: int
    batch: int


class DemoState(msgspec.Struct, frozen=True, kw_only=True):
    """Everything, at one moment."""

    nodes: tuple[DemoNodeState, ...]
    subnet: SubnetState | None
    """As the ledger has it; batch and exhaustion as the controller decided."""

    @property
    def running(self) -> int:
        """Pods that have an address."""
        return sum(each.running for each in self.nodes)

    @property
    def idle(self) -> int:
        """Addresses that nodes hold and no Pod has, resting ones among them."""
        return sum(max(0, each.held - each.running) for each in self.nodes)

    @property
    def unserved(self) -> list[str]:
        """The nodes that have been given nothing; all of them while the ledger is away."""
        return [each.name for each in self.nodes if not (each.served and self.subnet)]

    @property
    def batch(self) -> int:
        """The subnet's batch; 0 while the ledger is away."""
        return self.subnet.scaler.batch if self.subnet else 0

    @property
    def waiting(self) -> int:
        """Pods that have none."""
        return sum(each.waiting for each in self.nodes)


class DemoDriver:
    """The cluster with its machines and Pods."""

    def __init__(self, cluster: Cluster, plugin: Path) -> None:
        self.cluster = cluster
        self.settings = cluster.settings
        self._kube = cluster.kube
        rng = entropy.system_random()
        self.pods: Informer[DemoPod] = Informer(cluster.kube, DEMO_PODS, rng=rng)
        self._configs: Informer[NodeNetworkConfig] = Informer(cluster.kube, NODE_NETWORK_CONFIGS, rng=rng)
        self._decided: Informer[ClusterSubnet] = Informer(cluster.kube, CLUSTER_SUBNETS, rng=rng)
        self._machines: Informer[DemoNode] = Informer(cluster.kube, DEMO_NODES, rng=rng)
        self._leases: Informer[Lease] = Informer(cluster.kube, LEASES, rng=rng, labels=NODE_UID_LABEL)
        self.alive = dict.fromkeys(self.settings.node_names)
        self.kubelets = DemoKubelets(
            cluster.road,
            self.pods,
            doors=cluster.doors,
            plugin=plugin,
            alive=lambda: self.alive,
            taking=self._open,
        )
        self.events = EventRecorder(
            cluster.kube, component="podpool-up", instance="podpool-up", clock=SystemClock(), rng=rng
        )
        self._subnet: SubnetState | None = None
        self._made = 0

    async def run(self) -> None:
        """Follow what there is, and let the kubelets work."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self.pods.run())
            group.create_task(self._configs.run())
            group.create_task(self._decided.run())
            group.create_task(self._leases.run())
            group.create_task(self._machines.run())
            group.create_task(self.events.run())
            group.create_task(self._live())
            group.create_task(self._follow_subnet())
            await self.pods.cache.synced.wait()
            await self._machines.cache.synced.wait()
            self._made = max((_number(each) for each in self.pods.cache.values()), default=0)
            group.create_task(self.kubelets.run())

    # Machines

    def boot_of(self, node: str) -> str:
        """Tell the boot of a machine of the stage: it started when this machine did, or took a lost one's place."""
        lost = self.cluster.home.file("lost", node)
        return f"{BOOT_ID.read_text().strip()}-{node}-{lost.read_text() if lost.exists() else '0'}"

    async def register(self) -> None:
        """Let every machine be a Node, as its kubelet does."""
        for name in self.settings.node_names:
            boot = self.boot_of(name)
            try:
                known = await self._kube.get(NODES, name)
            except ApiNotFound:
                known = None
            if known and known.boot_id not in {"", boot}:
                await self.remove(each for each in await self._listed() if each.spec.node_name == name)
            await self._report(name, boot)

    async def _report(self, name: str, boot: str) -> None:
        status = node_status(name, boot, now=time.time())
        with suppress(ApiAlreadyExists):
            await self._kube.create(NODES, {"metadata": {"name": name}})
        await self._kube.merge_patch(NODES, name, {"status": status}, subresource="status")
        with suppress(ApiAlreadyExists):
            await self._kube.create(LEASES, node_lease(name, now=time.time()), namespace=LEASE_NAMESPACE)

    async def _live(self) -> None:
        """Renew the Leases of the machines that live."""
        while True:
            for name in list(self.alive):
                lease = node_lease(name, now=time.time())
                await retry_until_done(partial(self._kube.merge_patch, LEASES, name, lease, namespace=LEASE_NAMESPACE))
            await asyncio.sleep(RENEW_INTERVAL)

    def _open(self) -> list[str]:
        """The machines that take Pods: they live, and nobody has cordoned them."""
        cordoned = {each.metadata.name for each in self._machines.cache.values() if each.spec.unschedulable}
        return [name for name in self.alive if name not in cordoned]

    async def lose(self, node: str) -> None:
        """Let a machine die: its agent, its Pods, and then its Node, which somebody deletes."""
        self.alive.pop(node, None)
        await self.cluster.agents[node].stop(kill=True)
        self.cluster.home.replace_machine(node)
        await self.remove(each for each in self.pods.cache.values() if each.spec.node_name == node)
        await retry_until_done(lambda: self._kube.delete(LEASES, node, namespace=LEASE_NAMESPACE))
        await retry_until_done(lambda: self._kube.delete(NODES, node))

    # Pods

    async def widen(self) -> None:
        """Make the second network, unless it is there."""
        await retry_until_done(lambda: self._kube.create(NETWORK_ATTACHMENTS, nad(), namespace="default"))

    def sliced(self) -> set[str]:
        """The nodes that have taken their slice of the second network."""
        return {
            each.spec.holder_identity.partition("/")[0]
            for each in self._leases.cache.values()
            if each.spec.holder_identity
        }

    async def add(self, count: int, *, node: str = "", interfaces: int = 0) -> list[str]:
        """Create Pods, on a node or wherever the scheduler puts them, perhaps with further interfaces."""
        names = [f"pod-{number:04}" for number in range(self._made + 1, self._made + count + 1)]
        self._made += count
        spec = {"containers": [{"name": "main", "image": "none.invalid/none"}], "terminationGracePeriodSeconds": 1}
        spec |= {"nodeName": node} if node else {}
        further = {"annotations": {NETWORKS: ",".join([NAD_NAME] * interfaces)}} if interfaces else {}
        meta = {"labels": {"app": "podpool-up"}, **further}
        bodies = [{"metadata": {"name": name, **meta}, "spec": spec} for name in names]
        await asyncio.gather(*(retry_until_done(partial(self._kube.create, PODS, each, namespace="default")) for each in bodies))
        keys = {f"default/{name}" for name in names}
        await self.until(lambda: keys <= set(self.pods.cache), within=INFORMER_TIMEOUT)  # or all that are seen would run
        return names

    async def remove(self, pods: Iterable[Pod]) -> None:
        """Take Pods away as if they had never been: their machine is gone."""
        for each in list(pods):
            meta = each.metadata
            await retry_until_done(partial(self._kube.delete, PODS, meta.name, namespace=meta.namespace, grace_seconds=0))

    async def end(self, pods: Iterable[Pod]) -> None:
        """Delete Pods in good order; their kubelets see to it."""
        for each in list(pods):
            meta = each.metadata
            await retry_until_done(partial(self._kube.delete, PODS, meta.name, namespace=meta.namespace))

    def own(self) -> list[DemoPod]:
        """Find the Pods that the story made; a user's own are left lock_directory."""
        return [each for each in self.pods.cache.values() if _number(each)]

    async def _listed(self) -> tuple[Pod, ...]:
        return tuple((await self._kube.list(PODS)).items)

    # What is to be seen

    def picture(self) -> DemoState:
        """Tell everything, as it is known now."""
        running, waiting = Counter[str](), Counter[str]()
        for pod in self.pods.cache.values():
            (running if pod.status.pod_ips else waiting)[pod.spec.node_name] += 1
        configs = {each.metadata.name: each for each in self._configs.cache.values()}
        nodes = tuple(
            DemoNodeState(
                name=name,
                alive=name in self.alive,
                running=running[name],
                waiting=waiting[name],
                served=bool((config := configs.get(name)) and config.status.network_containers),
                **_of_config(configs.get(name)),
            )
            for name in self.settings.node_names
        )
        decided = self._decided.cache.get(f"{NAMESPACE}/{self.cluster.subnet.name}")
        return DemoState(nodes=nodes, subnet=self._subnet and with_cluster_scaler(self._subnet, decided))

    def asked(self, node: str) -> int:
        """Tell how often a node has asked: the generation of its request."""
        config = self._configs.cache.get(f"{NAMESPACE}/{node}")
        return config.metadata.generation if config else 0

    async def audited(self, *, within: float) -> AuditReport:
        """Audit as `podpool audit` does: what seems wrong counts if the next look finds it too, while there is time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        report = before = await self._audit()
        while not report.clean and loop.time() < end:
            await asyncio.sleep(AUDIT_INTERVAL)
            latest = await self._audit()
            report, before = confirmed(before, latest), latest
        return report

    async def _audit(self) -> AuditReport:
        try:
            return audit(await read_audit_snapshot(self._kube, self.cluster.ledger, at=SystemClock().boot()))
        except PodpoolError as error:
            return AuditReport(clean=False, unchecked=(str(error),))

    async def until(self, holds: Callable[[], bool], *, within: float) -> bool:
        """Wait for something to be so; tells whether it is."""
        try:
            async with asyncio.timeout(within):
                while not holds():  # noqa: ASYNC110  what it asks has many sources
                    await asyncio.sleep(POLL)
        except TimeoutError:
            return False
        return True

    async def _follow_subnet(self) -> None:
        while True:
            try:
                self._subnet = await self.cluster.ledger.subnet(self.cluster.subnet)
            except (LedgerError, Unreachable, ApiError):
                self._subnet = None
            await asyncio.sleep(POLL)


async def retry_until_done(ask: Callable[[], Awaitable[object]]) -> None:
    """Ask until the API server is there; what somebody has done meanwhile is done."""
    while True:
        try:
            await ask()
        except (ApiAlreadyExists, ApiNotFound):
            return
        except (Unreachable, ApiServerError):
            await asyncio.sleep(POLL)
        else:
            return


def _of_config(config: NodeNetworkConfig | None) -> Mapping[str, int]:
    if config is None:
        return {"held": 0, "requested": 0, "batch": 0}
    report = agent_report(config)
    return {
        "held": len(_addresses(config)),
        "requested": config.spec.requested,
        "batch": report.batch if report else 0,
    }


def _addresses(config: NodeNetworkConfig) -> list[str]:
    return [each.ip for container in config.status.network_containers for each in container.ip_assignments]


def _number(pod: Pod) -> int:
    tail = pod.metadata.name.rpartition("-")[2]
    return int(tail) if pod.metadata.name.startswith("pod-") and tail.isdecimal() else 0
