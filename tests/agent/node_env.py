"""One node in virtual time: an API server in process, a minimal controller, and the agent."""

import asyncio
import itertools
import json
import logging
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

import msgspec

from podpool.agent.agent import Agent
from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.api.azure import CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS, NodeNetworkConfig
from podpool.api.builtin import NODES, PODS
from podpool.api.crds import crd_manifests
from podpool.cni.protocol import PluginRequest, PluginResponse, decode_response, encode_request
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.kube.errors import ApiNotFound
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.watch_cache import StoreEvent
from podpool.runtime.disk import Disk
from podpool.runtime.logging import fields_of
from podpool.runtime.transport import Request as HttpRequest
from podpool.runtime.transport import Response, Unreachable
from tests.agent.clocks import LoopClock
from tests.agent.disks import MemoryDisk
from tests.kube.event_loops import run_virtual

NODE, SYSTEM = "node-1", "kube-system"
SETTLE_TIME = 5.0
"""Virtual seconds in which everything in flight completes, and no hold or cooldown ends."""


def in_node_env(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test with a new environment as its last argument."""

    @wraps(test)
    def run(*args: object) -> None:
        async def body() -> None:
            env = NodeEnv()
            await env.begin()
            try:
                await test(*args, env)
            finally:
                await env.end()

        run_virtual(body())

    del run.__wrapped__  # pytest would take the argument for a fixture
    return run


class RecordingTransport:
    """Keeps patches of the NNC, counts those of other objects, and can be cut."""

    def __init__(self, server: ResourceHandler) -> None:
        self.patches: list[dict[str, Any]] = []
        self.others = 0
        self.cut = False
        self._hidden: str | None = None
        self._silent: str | None = None
        self.on_patch: Callable[[dict[str, Any]], None] = lambda _body: None
        self._server = server

    def hide(self, path: str | None) -> None:
        """Fail requests with this in their method and path."""
        self._hidden = path

    def silence(self, path: str) -> None:
        """Let new lists and watches with this in their path, without a name, hang."""
        self._silent = path

    async def send(self, request: HttpRequest) -> Response:
        if self._silent and request.path.endswith(self._silent):
            await asyncio.Event().wait()
        if self.cut or (self._hidden and self._hidden in f"{request.method} {request.path}"):
            raise Unreachable("the API server", "cut")
        if request.method == "PATCH" and "/nodenetworkconfigs/" not in request.path:
            self.others += 1
        elif request.method == "PATCH":
            body = json.loads(request.body)
            self.on_patch(body)
            self.patches.append(body)
        return await self._server.send(request)


class LogLines(logging.Handler):
    """Collects log lines as text: the event and its fields."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.all: list[str] = []
        self.warnings: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        line = " ".join((record.getMessage(), *(f"{key}={value}" for key, value in fields_of(record).items())))
        self.all.append(line)
        if record.levelno >= logging.WARNING:
            self.warnings.append(line)

    def attach(self) -> None:
        """Collect what all agents of this process log."""
        logger = logging.getLogger("podpool.agent")
        logger.setLevel(logging.INFO)
        logger.addHandler(self)

    def detach(self) -> None:
        logger = logging.getLogger("podpool.agent")
        logger.removeHandler(self)
        logger.setLevel(logging.NOTSET)


class NodeEnv:
    """A cluster of one node on a subnet of `capacity` addresses."""

    def __init__(self) -> None:
        self.store = ObjectStore(clock=LoopClock(), rng=random.Random(1))  # noqa: S311  seeded
        self._changed = asyncio.Event()
        self.store.on_write.append(self._note_write)
        self.server = ResourceHandler(self.store)
        self.kube = KubeClient(self.server)
        self.transport = RecordingTransport(self.server)
        self.disk = MemoryDisk()
        self.deletes = MemoryDisk()
        self.clock = LoopClock()
        self.boot_id = "boot-1"
        self._capacity = 1000
        self.controller_works = True
        self.settings = Settings()
        self._log_lines = LogLines()
        self.logs, self.warnings = self._log_lines.all, self._log_lines.warnings
        """What agents logged: event and fields as text, from INFO and from WARNING."""
        self.agent: Agent | None = None
        self._running: asyncio.Task[None] | None = None
        self._grants = 0
        self._controller: asyncio.Task[None] | None = None
        self._seeds = itertools.count(2)
        self.deps: dict[str, Any] = {}
        self.options: dict[str, Any] = {}
        """Further dependencies and options of the next agent."""

    async def begin(self) -> None:
        """Install the CRDs, and register the node as kubelet and controller do."""
        self._log_lines.attach()
        await install_crds(self.kube, crd_manifests())
        await self.register_node()
        await self.scale_by(batch=16, buffer="0.5")
        await self.create_nnc(nc="nc-1")
        self._controller = asyncio.create_task(self._control())

    async def end(self) -> None:
        await self.stop()
        self._log_lines.detach()
        if self._controller:
            self._controller.cancel()
            await asyncio.gather(self._controller, return_exceptions=True)

    # The cluster

    async def register_node(self) -> None:
        info = {"nodeInfo": {"bootID": self.boot_id}}
        await self.kube.create(NODES, {"metadata": {"name": NODE}, "status": info})

    async def report_boot(self, boot_id: str) -> None:
        await self.kube.merge_patch(NODES, NODE, {"status": {"nodeInfo": {"bootID": boot_id}}}, subresource="status")

    async def create_nnc(self, *, nc: str) -> None:
        uid = (await self.kube.get(NODES, NODE)).metadata.uid
        owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
        meta = {"name": NODE, "namespace": SYSTEM, "ownerReferences": [owner]}
        await self.kube.create(NODE_NETWORK_CONFIGS, {"metadata": meta, "spec": {"requestedIPCount": 0}})
        await self.write_status(version=1, grants={}, nc=nc)

    async def scale_by(self, *, batch: int, buffer: str, exhausted: bool = False, nodes: int = 1) -> None:
        name = {"metadata": {"name": "pods", "namespace": SYSTEM}}
        try:
            await self.kube.get(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        except Exception:  # noqa: BLE001  it does not exist yet
            await self.kube.create(CLUSTER_SUBNETS, name)
        status = {"exhausted": exhausted, "scaler": {"batch": batch, "buffer": float(buffer)}, "nodes": nodes}
        await self.kube.merge_patch(CLUSTER_SUBNETS, "pods", {"status": status}, namespace=SYSTEM, subresource="status")

    async def publish_exhausted(self, *, exhausted: bool, subnet: str = "pods") -> None:
        """Publish exhaustion on a ClusterSubnetState, as older controllers do."""
        try:
            await self.kube.get(CLUSTER_SUBNET_STATES, subnet, namespace=SYSTEM)
        except ApiNotFound:
            await self.kube.create(CLUSTER_SUBNET_STATES, {"metadata": {"name": subnet, "namespace": SYSTEM}})
        status = {"exhausted": exhausted, "timestamp": "2026-01-01T00:00:00Z"}
        await self.kube.merge_patch(
            CLUSTER_SUBNET_STATES, subnet, {"status": status}, namespace=SYSTEM, subresource="status"
        )

    async def nnc(self) -> NodeNetworkConfig:
        return await self.kube.get(NODE_NETWORK_CONFIGS, NODE, namespace=SYSTEM)

    async def write_status(
        self,
        *,
        version: int,
        grants: dict[str, str],
        nc: str = "nc-1",
        answer: str = "NCUpdateSuccess",
        additional_ncs: Sequence[dict[str, Any]] = (),
        **others: str,
    ) -> None:
        own = {
            "id": nc,
            "primaryIP": "10.0.0.4",
            "subnetName": "pods",
            "subnetAddressSpace": "10.0.0.0/16",
            "defaultGateway": "10.0.0.1",
            "version": version,
            "status": answer,
            "ipAssignments": [{"name": name, "ip": address} for name, address in grants.items()],
            **others,
        }
        body = {"status": {"assignedIPCount": len(grants), "networkContainers": [own, *additional_ncs]}}
        await self.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, body, namespace=SYSTEM, subresource="status")

    async def bind(self, *names: str, host_network: bool = False, phase: str = "Pending") -> None:
        for name in names:
            spec = {"nodeName": NODE, "hostNetwork": host_network}
            meta = {"name": name, "namespace": "default"}
            await self.kube.create(PODS, {"metadata": meta, "spec": spec, "status": {"phase": phase}})
            if phase != "Pending":
                await self.kube.merge_patch(
                    PODS, name, {"status": {"phase": phase}}, namespace="default", subresource="status"
                )

    async def remove(self, *names: str) -> None:
        for name in names:
            await self.kube.delete(PODS, name, namespace="default", grace_seconds=0)

    @property
    def capacity(self) -> int:
        """The number of addresses of the subnet."""
        return self._capacity

    @capacity.setter
    def capacity(self, addresses: int) -> None:
        self._capacity = addresses
        self._changed.set()

    async def _control(self) -> None:
        """Reconcile as a controller does, 0.1 s late: grants less pending releases, topped up to the request."""
        while True:
            await self._changed.wait()  # a poll would make tests of long times take long
            await asyncio.sleep(0.1)
            if self.controller_works:
                self._changed.clear()
                await self.reconcile()

    def _note_write(self, _event: StoreEvent) -> None:
        self._changed.set()

    async def reconcile(self) -> None:
        try:
            nnc = await self.nnc()
        except Exception:  # noqa: BLE001  it is being recreated
            return
        if not nnc.status.network_containers:
            return
        nc = nnc.status.network_containers[0]
        held = {each.name: each.ip for each in nc.ip_assignments}
        kept = {name: address for name, address in held.items() if name not in nnc.spec.pending_release}
        while len(kept) < min(nnc.spec.requested, self.capacity):
            self._grants += 1
            kept[f"grant-{self._grants}"] = f"10.0.{1 + self._grants // 250}.{self._grants % 250}"
        answer: str = "NCUpdateSuccess" if len(kept) >= nnc.spec.requested else "NCUpdateSubnetFullError"
        if kept != held or answer != nc.status:
            await self.write_status(version=nc.version + 1, grants=kept, answer=answer, nc=nc.id)

    # The agent

    async def start(self, *, wait: bool = True, disk: Disk | None = None, deletes: Disk | None = None) -> Agent:
        deps = AgentDeps(
            node=NODE,
            boot_id=self.boot_id,
            kube=KubeClient(self.transport),
            disk=disk or self.disk,
            clock=self.clock,
            rng=random.Random(next(self._seeds)),  # noqa: S311  seeded
            settings=self.settings,
            deferred_deletes=deletes or self.deletes,
            **self.deps,
        )
        self.agent = Agent(deps, AgentOptions(**self.options))
        self._running = asyncio.create_task(self.agent.run())
        if wait:
            await asyncio.sleep(SETTLE_TIME)
        return self.agent

    async def stop(self, *, killed: bool = False) -> None:
        if self._running:
            running, self._running = self._running, None
            running.cancel()
            (ended,) = await asyncio.gather(running, return_exceptions=True)
            if not killed and not isinstance(ended, asyncio.CancelledError):
                raise AssertionError("the agent failed before it was stopped") from ended

    async def kill(self) -> None:
        """Stop the agent as SIGKILL does: nothing it does from now on has an effect."""
        self.disk, dying = self.disk.after_kill(), self.disk
        self.deletes = self.deletes.after_kill()
        dying.budget = -1
        await self.stop(killed=True)

    async def reboot(self, boot_id: str, *, clean: bool = False) -> None:
        if clean:
            await self.stop()
        self.disk, dying = self.disk.after_reboot(), self.disk
        dying.budget = -1
        await self.stop(killed=True)
        self.boot_id, self.clock = boot_id, LoopClock()

    async def call(
        self,
        command: str,
        sandbox: str,
        *,
        pod: str = "",
        version: str = "1.0.0",
        network: str = "net",
        **config: Any,  # noqa: ANN401  JSON
    ) -> PluginResponse:
        assert self.agent
        request = PluginRequest(
            command=command,
            container_id=sandbox,
            ifname="eth0",
            netns="/run/netns/x",
            args=f"K8S_POD_NAMESPACE=default;K8S_POD_NAME={pod}" if pod else "",
            stdin=msgspec.json.encode({"cniVersion": version, "name": network, **config}),
        )
        return decode_response(await self.agent.handle(encode_request(request)))

    async def add(self, sandbox: str, *, pod: str = "") -> str:
        """Send an ADD that must succeed; return the address."""
        answer = await self.call("ADD", sandbox, pod=pod)
        assert 0 == answer.exit_code, answer.stdout
        address: str = json.loads(answer.stdout)["ips"][0]["address"]
        return address

    async def refused(self, sandbox: str) -> dict[str, Any]:
        """Send an ADD that must fail; return the error."""
        answer = await self.call("ADD", sandbox)
        assert 1 == answer.exit_code, answer.stdout
        error: dict[str, Any] = json.loads(answer.stdout)
        return error
