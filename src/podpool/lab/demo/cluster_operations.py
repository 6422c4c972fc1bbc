"""Operations on the demo cluster, such as creating Pods and deleting a node, and its observed state."""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

import msgspec

from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS, ClusterSubnet, NodeNetworkConfig, agent_report
from podpool.api.builtin import LEASES, NODES, PODS, Pod
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.api.node_slices import NODE_SLICES, NodeSlices
from podpool.core.errors import PodpoolError
from podpool.inspect import audit
from podpool.inspect.audit import AuditReport, confirmed
from podpool.inspect.audit_snapshot import read_audit_snapshot
from podpool.inspect.view_models import with_cluster_scaler
from podpool.kube.errors import ApiAlreadyExists, ApiError, ApiNotFound, ApiServerError
from podpool.kube.events import EventRecorder
from podpool.kube.informer import Informer
from podpool.lab.demo import objects
from podpool.lab.demo.cluster import DemoCluster
from podpool.lab.demo.kubelet import DemoKubelets
from podpool.ledger.errors import LedgerError
from podpool.ledger.messages import SubnetState
from podpool.runtime import entropy
from podpool.runtime.clock import SystemClock
from podpool.runtime.transport import Unreachable

KERNEL_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
NAMESPACE = "kube-system"
COMPONENT = "podpool-up"
POLL = 0.25
INFORMER_TIMEOUT = 10.0
"""Seconds until the informer shows new Pods, unless a user has deleted them."""
AUDIT_INTERVAL = 1.0
"""Seconds between two audits."""


class DemoNodeState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of one node."""

    name: str
    alive: bool
    running: int
    waiting: int
    served: bool
    """Whether it has an NC: on the last rung a node without Pods has a primary address only."""
    held: int
    requested: int
    batch: int


class DemoState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the demo cluster."""

    nodes: tuple[DemoNodeState, ...]
    subnet: SubnetState | None
    """As in the ledger, with batch and exhaustion as in the ClusterSubnet; None while the ledger is unreachable."""

    @property
    def running(self) -> int:
        """Pods with an address."""
        return sum(each.running for each in self.nodes)

    @property
    def idle(self) -> int:
        """Addresses that nodes hold and no Pod uses, cooling down or not."""
        return sum(max(0, each.held - each.running) for each in self.nodes)

    @property
    def unserved(self) -> list[str]:
        """Nodes without an NC; all nodes while the ledger is unreachable."""
        return [each.name for each in self.nodes if not (each.served and self.subnet)]

    @property
    def batch(self) -> int:
        """The subnet's batch; 0 while the ledger is unreachable."""
        return self.subnet.scaler.batch if self.subnet else 0

    @property
    def waiting(self) -> int:
        """Pods without an address."""
        return sum(each.waiting for each in self.nodes)


class DemoDriver:
    """Drives nodes and Pods of the demo cluster."""

    def __init__(self, cluster: DemoCluster, plugin: Path) -> None:
        self.cluster = cluster
        self.settings = cluster.settings
        self._kube = cluster.kube
        rng = entropy.system_random()
        self.pods: Informer[objects.DemoPod] = Informer(cluster.kube, objects.DEMO_PODS, rng=rng)
        self._nncs: Informer[NodeNetworkConfig] = Informer(cluster.kube, NODE_NETWORK_CONFIGS, rng=rng)
        self._subnets: Informer[ClusterSubnet] = Informer(cluster.kube, CLUSTER_SUBNETS, rng=rng)
        self._nodes: Informer[objects.DemoNode] = Informer(cluster.kube, objects.DEMO_NODES, rng=rng)
        self._slices: Informer[NodeSlices] = Informer(cluster.kube, NODE_SLICES, rng=rng)
        self.alive = dict.fromkeys(self.settings.node_names)
        self.kubelets = DemoKubelets(
            cluster.transport,
            self.pods,
            endpoints=cluster.endpoints,
            plugin=plugin,
            alive=lambda: self.alive,
            schedulable=self._schedulable,
        )
        self.events = EventRecorder(cluster.kube, component=COMPONENT, instance=COMPONENT, clock=SystemClock(), rng=rng)
        self._subnet: SubnetState | None = None
        self._created = 0

    async def run(self) -> None:
        """Run informers, node Leases and kubelets."""
        async with asyncio.TaskGroup() as group:
            for each in (self.pods, self._nncs, self._subnets, self._slices, self._nodes, self.events):
                group.create_task(each.run())
            group.create_task(self._renew_leases())
            group.create_task(self._poll_subnet())
            await self.pods.cache.synced.wait()
            await self._nodes.cache.synced.wait()
            self._created = max((_pod_number(each) for each in self.pods.cache.values()), default=0)
            group.create_task(self.kubelets.run())

    # Nodes

    def boot_id(self, node: str) -> str:
        """Return the boot ID of a node: new when this machine rebooted, or when the node was replaced."""
        lost = self.cluster.home.file("lost", node)
        return f"{KERNEL_BOOT_ID.read_text().strip()}-{node}-{lost.read_text() if lost.exists() else '0'}"

    async def register(self) -> None:
        """Register all Nodes, as their kubelets do."""
        for name in self.settings.node_names:
            boot = self.boot_id(name)
            try:
                known = await self._kube.get(NODES, name)
            except ApiNotFound:
                known = None
            if known and known.boot_id not in {"", boot}:
                pods = [each for each in (await self._kube.list(PODS)).items if each.spec.node_name == name]
                await self.delete_pods(pods, grace_seconds=0)
            await self._report(name, boot)

    async def _report(self, name: str, boot: str) -> None:
        status = objects.node_status(name, boot, now=time.time())
        with suppress(ApiAlreadyExists):
            await self._kube.create(NODES, {"metadata": {"name": name}})
        await self._kube.merge_patch(NODES, name, {"status": status}, subresource="status")
        with suppress(ApiAlreadyExists):
            await self._kube.create(
                LEASES, objects.node_lease(name, now=time.time()), namespace=objects.LEASE_NAMESPACE
            )

    async def _renew_leases(self) -> None:
        """Renew the Leases of running nodes."""
        while True:
            for name in list(self.alive):
                lease = objects.node_lease(name, now=time.time())
                await retry_until_done(
                    partial(self._kube.merge_patch, LEASES, name, lease, namespace=objects.LEASE_NAMESPACE)
                )
            await asyncio.sleep(objects.RENEW_INTERVAL)

    def _schedulable(self) -> list[str]:
        """Return running nodes that are not cordoned."""
        cordoned = {each.metadata.name for each in self._nodes.cache.values() if each.spec.unschedulable}
        return [name for name in self.alive if name not in cordoned]

    async def destroy_node(self, node: str) -> None:
        """Kill a node's agent, and delete its state, Pods and Node object."""
        self.alive.pop(node, None)
        await self.cluster.agents[node].stop(kill=True)
        self.cluster.home.replace_node(node)
        pods = [each for each in self.pods.cache.values() if each.spec.node_name == node]
        await self.delete_pods(pods, grace_seconds=0)
        await retry_until_done(lambda: self._kube.delete(LEASES, node, namespace=objects.LEASE_NAMESPACE))
        await retry_until_done(lambda: self._kube.delete(NODES, node))

    # Pods

    async def create_network(self) -> None:
        """Create the NetworkAttachmentDefinition of the secondary network, unless it exists."""
        await retry_until_done(lambda: self._kube.create(NETWORK_ATTACHMENTS, objects.nad(), namespace="default"))

    def nodes_with_slice(self) -> set[str]:
        """Return the nodes that hold a slice of the secondary network."""
        return {
            each.metadata.name
            for each in self._slices.cache.values()
            if any(slice_.held and not slice_.returned for slice_ in each.status.slices)
        }

    async def create_pods(self, count: int, *, node: str = "", interfaces: int = 0) -> list[str]:
        """Create Pods, on a node or where the scheduler binds them, with any number of secondary interfaces."""
        names = [f"pod-{number:04}" for number in range(self._created + 1, self._created + count + 1)]
        self._created += count
        spec = {"containers": [{"name": "main", "image": "none.invalid/none"}], "terminationGracePeriodSeconds": 1}
        spec |= {"nodeName": node} if node else {}
        annotations = (
            {"annotations": {objects.NETWORKS: ",".join([objects.NAD_NAME] * interfaces)}} if interfaces else {}
        )
        meta = {"labels": {"app": COMPONENT}, **annotations}
        bodies = [{"metadata": {"name": name, **meta}, "spec": spec} for name in names]
        await asyncio.gather(
            *(retry_until_done(partial(self._kube.create, PODS, each, namespace="default")) for each in bodies)
        )
        keys = {f"default/{name}" for name in names}
        # else "all Pods run" would hold for the others
        await self.until(lambda: keys <= set(self.pods.cache), within=INFORMER_TIMEOUT)
        return names

    async def delete_pods(self, pods: Iterable[Pod], *, grace_seconds: int | None = None) -> None:
        """Delete Pods; their kubelets call DEL, unless there is no grace period: then their node is gone."""
        for each in list(pods):
            delete = partial(self._kube.delete, PODS, each.metadata.name, namespace=each.metadata.namespace)
            await retry_until_done(partial(delete, grace_seconds=grace_seconds))

    def scenario_pods(self) -> list[objects.DemoPod]:
        """Return the Pods that the scenario created, without those of the user."""
        return [each for each in self.pods.cache.values() if _pod_number(each)]

    # State

    def state(self) -> DemoState:
        """Return the state as observed."""
        running, waiting = Counter[str](), Counter[str]()
        for pod in self.pods.cache.values():
            (running if pod.status.pod_ips else waiting)[pod.spec.node_name] += 1
        configs = {each.metadata.name: each for each in self._nncs.cache.values()}
        nodes = tuple(
            DemoNodeState(
                name=name,
                alive=name in self.alive,
                running=running[name],
                waiting=waiting[name],
                served=bool((config := configs.get(name)) and config.status.network_containers),
                **_nnc_counts(configs.get(name)),
            )
            for name in self.settings.node_names
        )
        subnet = self._subnets.cache.get(f"{NAMESPACE}/{self.cluster.subnet.name}")
        return DemoState(nodes=nodes, subnet=self._subnet and with_cluster_scaler(self._subnet, subnet))

    def request_count(self, node: str) -> int:
        """Return how many requests a node has made: the generation of its NNC."""
        config = self._nncs.cache.get(f"{NAMESPACE}/{node}")
        return config.metadata.generation if config else 0

    async def audit(self, *, within: float) -> AuditReport:
        """Audit as `podpool audit` does: a violation counts if the next audit confirms it, while there is time."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within
        report = before = await self._audit_once()
        while not report.clean and loop.time() < end:
            await asyncio.sleep(AUDIT_INTERVAL)
            latest = await self._audit_once()
            report, before = confirmed(before, latest), latest
        return report

    async def _audit_once(self) -> AuditReport:
        try:
            return audit.audit(await read_audit_snapshot(self._kube, self.cluster.ledger, at=SystemClock().boot()))
        except PodpoolError as error:
            return AuditReport(clean=False, unchecked=(str(error),))

    async def until(self, condition: Callable[[], bool], *, within: float) -> bool:
        """Wait for a condition; return whether it holds."""
        try:
            async with asyncio.timeout(within):
                while not condition():  # noqa: ASYNC110  the condition reads many caches
                    await asyncio.sleep(POLL)
        except TimeoutError:
            return False
        return True

    async def _poll_subnet(self) -> None:
        while True:
            try:
                self._subnet = await self.cluster.ledger.subnet(self.cluster.subnet)
            except (LedgerError, Unreachable, ApiError):
                self._subnet = None
            await asyncio.sleep(POLL)


async def retry_until_done(call: Callable[[], Awaitable[object]]) -> None:
    """Call the API server until it answers; an object that exists or is gone already counts as done."""
    while True:
        try:
            await call()
        except (ApiAlreadyExists, ApiNotFound):
            return
        except (Unreachable, ApiServerError):
            await asyncio.sleep(POLL)
        else:
            return


def _nnc_counts(config: NodeNetworkConfig | None) -> Mapping[str, int]:
    if config is None:
        return {"held": 0, "requested": 0, "batch": 0}
    report, held = agent_report(config), sum(len(each.ip_assignments) for each in config.status.network_containers)
    return {"held": held, "requested": config.spec.requested, "batch": report.batch if report else 0}


def _pod_number(pod: Pod) -> int:
    tail = pod.metadata.name.rpartition("-")[2]
    return int(tail) if pod.metadata.name.startswith("pod-") and tail.isdecimal() else 0
