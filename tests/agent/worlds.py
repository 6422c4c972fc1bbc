"""One node's world in virtual time: an API server in process, a controller's hand, and the agent itself."""

import asyncio
import itertools
import json
import random
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from typing import Any

import msgspec

from podpool.agent.agent import Agent
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
from podpool.runtime.disk import Disk
from podpool.runtime.transport import Request as HttpRequest
from podpool.runtime.transport import Response, Unreachable
from tests.agent.clocks import LoopClock
from tests.agent.disks import MemoryDisk
from tests.kube.loops import play

NODE, SYSTEM = "node-1", "kube-system"
SETTLED = 5.0
"""Virtual seconds in which everything that is under way happens, and nothing that is held for long."""


def in_world(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in a fresh world, which is its last argument."""

    @wraps(test)
    def run(*args: object) -> None:
        async def story() -> None:
            world = World()
            await world.begin()
            try:
                await test(*args, world)
            finally:
                await world.end()

        play(story())

    del run.__wrapped__  # pytest would take the world for a fixture
    return run


class Road:
    """The way to the API server: patches of the NNC are kept, those of other objects counted, and it can be cut."""

    def __init__(self, server: ResourceHandler) -> None:
        self.patches: list[dict[str, Any]] = []
        self.others = 0
        self.cut = False
        self._hidden: str | None = None
        self.on_patch: Callable[[dict[str, Any]], None] = lambda _body: None
        self._server = server

    def hide(self, path: str | None) -> None:
        """Cut off whatever has this in its path."""
        self._hidden = path

    async def send(self, request: HttpRequest) -> Response:
        if self.cut or (self._hidden and self._hidden in request.path):
            raise Unreachable("the API server", "cut")
        if request.method == "PATCH" and "/nodenetworkconfigs/" not in request.path:
            self.others += 1
        elif request.method == "PATCH":
            body = json.loads(request.body)
            self.on_patch(body)
            self.patches.append(body)
        return await self._server.send(request)


class World:
    """A cluster of one node on a subnet of `capacity` addresses."""

    def __init__(self) -> None:
        self.store = ObjectStore(clock=LoopClock(), rng=random.Random(1))  # noqa: S311  seeded
        self.server = ResourceHandler(self.store)
        self.kube = KubeClient(self.server)
        self.road = Road(self.server)
        self.disk = MemoryDisk()
        self.deletes = MemoryDisk()
        self.clock = LoopClock()
        self.boot_id = "boot-1"
        self.capacity = 1000
        self.controller_works = True
        self.settings = Settings()
        self.told: list[str] = []
        self.agent: Agent | None = None
        self._running: asyncio.Task[None] | None = None
        self._grants = 0
        self._controller: asyncio.Task[None] | None = None
        self._seeds = itertools.count(2)
        self.options: dict[str, Any] = {}
        """What else the next agent is told."""

    async def begin(self) -> None:
        """Define the kinds, and register the node as kubelet and controller do."""
        await install_crds(self.kube, crd_manifests())
        await self.register_node()
        await self.scale_by(batch=16, buffer="0.5")
        await self.create_config(container="nc-1")
        self._controller = asyncio.create_task(self._control())

    async def end(self) -> None:
        await self.stop()
        if self._controller:
            self._controller.cancel()
            await asyncio.gather(self._controller, return_exceptions=True)

    # The cluster

    async def register_node(self) -> None:
        info = {"nodeInfo": {"bootID": self.boot_id}}
        await self.kube.create(NODES, {"metadata": {"name": NODE}, "status": info})

    async def report_boot(self, boot_id: str) -> None:
        await self.kube.merge(NODES, NODE, {"status": {"nodeInfo": {"bootID": boot_id}}}, sub="status")

    async def create_config(self, *, container: str) -> None:
        uid = (await self.kube.get(NODES, NODE)).metadata.uid
        owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": uid, "controller": True}
        meta = {"name": NODE, "namespace": SYSTEM, "ownerReferences": [owner]}
        await self.kube.create(NODE_NETWORK_CONFIGS, {"metadata": meta, "spec": {"requestedIPCount": 0}})
        await self.write_status(version=1, grants={}, container=container)

    async def scale_by(self, *, batch: int, buffer: str, exhausted: bool = False) -> None:
        name = {"metadata": {"name": "pods", "namespace": SYSTEM}}
        try:
            await self.kube.get(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        except Exception:  # noqa: BLE001  it is not there yet
            await self.kube.create(CLUSTER_SUBNETS, name)
        told = {"exhausted": exhausted, "scaler": {"batch": batch, "buffer": float(buffer)}}
        await self.kube.merge(CLUSTER_SUBNETS, "pods", {"status": told}, namespace=SYSTEM, sub="status")

    async def say_exhausted(self, *, exhausted: bool, subnet: str = "pods") -> None:
        """As controllers of the first phase do, on a ClusterSubnetState."""
        try:
            await self.kube.get(CLUSTER_SUBNET_STATES, subnet, namespace=SYSTEM)
        except ApiNotFound:
            await self.kube.create(CLUSTER_SUBNET_STATES, {"metadata": {"name": subnet, "namespace": SYSTEM}})
        told = {"exhausted": exhausted, "timestamp": "2026-01-01T00:00:00Z"}
        await self.kube.merge(CLUSTER_SUBNET_STATES, subnet, {"status": told}, namespace=SYSTEM, sub="status")

    async def config(self) -> NodeNetworkConfig:
        return await self.kube.get(NODE_NETWORK_CONFIGS, NODE, namespace=SYSTEM)

    async def write_status(
        self,
        *,
        version: int,
        grants: dict[str, str],
        container: str = "nc-1",
        answer: str = "NCUpdateSuccess",
        beside: Sequence[dict[str, Any]] = (),
        **others: str,
    ) -> None:
        told = {
            "id": container,
            "primaryIP": "10.0.0.4",
            "subnetName": "pods",
            "subnetAddressSpace": "10.0.0.0/16",
            "defaultGateway": "10.0.0.1",
            "version": version,
            "status": answer,
            "ipAssignments": [{"name": name, "ip": address} for name, address in grants.items()],
            **others,
        }
        body = {"status": {"assignedIPCount": len(grants), "networkContainers": [told, *beside]}}
        await self.kube.merge(NODE_NETWORK_CONFIGS, NODE, body, namespace=SYSTEM, sub="status")

    async def bind(self, *names: str, host_network: bool = False, phase: str = "Pending") -> None:
        for name in names:
            spec = {"nodeName": NODE, "hostNetwork": host_network}
            meta = {"name": name, "namespace": "default"}
            await self.kube.create(PODS, {"metadata": meta, "spec": spec, "status": {"phase": phase}})
            if phase != "Pending":
                await self.kube.merge(PODS, name, {"status": {"phase": phase}}, namespace="default", sub="status")

    async def remove(self, *names: str) -> None:
        for name in names:
            await self.kube.delete(PODS, name, namespace="default", grace=0)

    async def _control(self) -> None:
        """What a controller does, 0.1 s late: held less named, topped up to the request."""
        while True:
            await asyncio.sleep(0.1)
            if self.controller_works:
                await self.reconcile()

    async def reconcile(self) -> None:
        try:
            config = await self.config()
        except Exception:  # noqa: BLE001  it is being made anew
            return
        if not config.status.network_containers:
            return
        container = config.status.network_containers[0]
        held = {each.name: each.ip for each in container.ip_assignments}
        kept = {name: address for name, address in held.items() if name not in config.spec.released}
        while len(kept) < min(config.spec.requested, self.capacity):
            self._grants += 1
            kept[f"grant-{self._grants}"] = f"10.0.{1 + self._grants // 250}.{self._grants % 250}"
        answer: str = "NCUpdateSuccess" if len(kept) >= config.spec.requested else "NCUpdateSubnetFullError"
        if kept != held or answer != container.status:
            await self.write_status(version=container.version + 1, grants=kept, answer=answer, container=container.id)

    # The agent

    async def start(self, *, wait: bool = True, disk: Disk | None = None, deletes: Disk | None = None) -> Agent:
        self.agent = Agent(
            NODE,
            KubeClient(self.road),
            disk=disk or self.disk,
            deletes=deletes or self.deletes,
            clock=self.clock,
            rng=random.Random(next(self._seeds)),  # noqa: S311  seeded
            boot_id=self.boot_id,
            settings=self.settings,
            tell=self.told.append,
            **self.options,
        )
        self._running = asyncio.create_task(self.agent.run())
        if wait:
            await asyncio.sleep(SETTLED)
        return self.agent

    async def stop(self, *, killed: bool = False) -> None:
        if self._running:
            running, self._running = self._running, None
            running.cancel()
            (ended,) = await asyncio.gather(running, return_exceptions=True)
            if not killed and not isinstance(ended, asyncio.CancelledError):
                raise AssertionError("the agent did not live until it was stopped") from ended

    async def kill(self) -> None:
        """End the agent as SIGKILL does: nothing that it does from now on has an effect."""
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
        """ADD that must succeed; gives the address."""
        answer = await self.call("ADD", sandbox, pod=pod)
        assert 0 == answer.exit_code, answer.stdout
        address: str = json.loads(answer.stdout)["ips"][0]["address"]
        return address

    async def refused(self, sandbox: str) -> dict[str, Any]:
        """ADD that must fail; gives the error."""
        answer = await self.call("ADD", sandbox)
        assert 1 == answer.exit_code, answer.stdout
        error: dict[str, Any] = json.loads(answer.stdout)
        return error
