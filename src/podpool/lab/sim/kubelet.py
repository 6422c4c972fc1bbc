"""A model of kubelet and its container runtime, as far as they use addresses; not podpool's code.

Every bound Pod gets a sandbox. ADD goes to the agent; if it fails, the sandbox is deleted and created again later under
a new ID, as containerd and kubelet do. A Pod that is deleted or finished loses its sandbox first, then DEL is sent
until it is answered. While no agent answers, a DEL is left in the directory of deferred DELs, as the shim does. The
container runtime may lose DELs, and give up ADDs whose plugins go on (`container_runtime`).
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from podpool.cni.protocol import PluginRequest, decode_response, encode_request
from podpool.lab.apiserver.registry import PODS
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.sim.address_use_oracle import AddressOracle, AddressUse
from podpool.lab.sim.container_runtime import SimRuntime, netns_path
from podpool.lab.sim.machine import SimMachine, SimProcess
from podpool.runtime.entropy import new_uuid

RETRY_SECONDS = 13.0
"""Seconds after which kubelet creates a failed sandbox again."""
GIVEN_UP_ADDS = 0.5
"""The share of ADDs that a runtime gives up while it gives up any."""
DUPLICATE_ADDS = 0.05
"""The share of ADDs that a runtime sends twice at once."""
CONFIG = b'{"cniVersion":"1.0.0","name":"podpool","type":"ptp","ipam":{"type":"podpool"}}'
PRIMARY_INTERFACE = "eth0"

InterfaceConfigs = Mapping[str, bytes]
"""The CNI configuration of each interface, in order."""


class FrameHandler(Protocol):
    """An agent behind its socket."""

    async def handle(self, body: bytes) -> bytes:
        """Return the response to the body of one frame."""


class AgentSocket:
    """The agent's socket: answers while the agent runs."""

    def __init__(self) -> None:
        self._agent: FrameHandler | None = None
        self._process: SimProcess | None = None

    def open(self, agent: FrameHandler, process: SimProcess) -> None:
        """Let an agent answer."""
        self._agent, self._process = agent, process

    async def call(self, request: PluginRequest) -> dict[str, Any] | None:
        """Return the response to a request; None if no agent runs, or it is killed meanwhile."""
        process, agent = self._process, self._agent
        if agent is None or process is None or not process.alive:
            return None
        done: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def on_exit() -> None:
            if not done.done():
                done.set_result(None)

        async def handle() -> None:
            body = await agent.handle(encode_request(request))
            if not done.done():
                done.set_result(body)

        process.on_exit(on_exit)
        process.spawn(handle())
        body = await done
        process.remove_exit_callback(on_exit)
        if body is None:
            return None
        response = decode_response(body)
        return {"code": response.exit_code, **(msgspec.json.decode(response.stdout) if response.stdout else {})}


class PodNetworks:
    """The networks of Pods: by default one, the node's pool."""

    report_delay = 0.0
    """Seconds after which, at most, the addresses of a Pod are reported."""

    def configs(self) -> InterfaceConfigs | None:
        """Return the configurations of a Pod that starts now; None while a network is missing."""
        return {PRIMARY_INTERFACE: CONFIG}

    def report(self, pod: str, addresses: Mapping[str, str]) -> None:
        """Report the addresses of a Pod by interface; by default not at all."""


class PodStatusReporter(PodNetworks):
    """Reports the addresses in the Pod status, some time after they are assigned."""

    report_delay = 8.0

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def report(self, pod: str, addresses: Mapping[str, str]) -> None:
        """Write the addresses into the Pod's status."""
        ips = {"podIPs": [{"ip": each} for each in addresses.values()]}
        if pod in self._store.objects("", "pods"):
            self._store.update(
                PODS, pod, lambda old: {**old, "status": old.get("status", {}) | ips}, subresource="status"
            )


class SimKubelet:
    """Runs the Pods of one machine."""

    def __init__(
        self,
        machine: SimMachine,
        socket: AgentSocket,
        oracle: AddressOracle,
        runtime: SimRuntime,
        *,
        rng: random.Random,
        bound_pods: Callable[[], dict[str, str]],
        networks: PodNetworks,
    ) -> None:
        self._machine = machine
        self._socket = socket
        self._oracle = oracle
        self._runtime = runtime
        self._rng = rng
        self._bound_pods = bound_pods
        """The Pods that should run here: namespace/name by UID."""
        self._networks = networks
        self._configs: dict[str, InterfaceConfigs] = {}
        """The configurations of the ADDs by sandbox, for the DELs."""
        self._sandboxes: dict[str, str] = {}
        """The sandbox of each Pod, by the Pod's UID."""
        self._busy: dict[str, str] = {}
        """The sandbox that is being created or removed, by the Pod's UID."""
        self._outliving: dict[str, str] = {}
        """Pods whose sandboxes outlive them: namespace/name by UID."""
        self._process: SimProcess | None = None

    def waiting(self) -> list[str]:
        """Return the Pods that should run and do not."""
        return [pod for uid, pod in self._bound_pods().items() if uid not in self._sandboxes]

    def start(self) -> None:
        """Start on a machine that has just booted, without sandboxes."""
        self._sandboxes.clear()
        self._outliving.clear()
        self._configs.clear()
        self._busy.clear()
        self._start_process()

    def restart(self) -> None:
        """Kill the runtime, and start it again: sandboxes that it was creating or removing end without a DEL."""
        if self._process:
            self._process.kill()
        for uid, sandbox in self._busy.items():
            if self._configs.pop(sandbox, None) is not None:
                if self._sandboxes.get(uid) == sandbox:
                    del self._sandboxes[uid]
                self._oracle.release(self._machine.name, sandbox)
                self._runtime.lose(sandbox, uid)
        self._busy.clear()
        self._start_process()

    def _start_process(self) -> None:
        self._process = self._machine.start("kubelet")
        self._process.spawn(self._sync())

    def outlive(self, uid: str, pod: str) -> None:
        """Let the sandbox of a Pod run on when the Pod is deleted."""
        self._outliving[uid] = pod

    def end_outliving(self, uid: str) -> None:
        """End a sandbox that outlived its Pod."""
        self._outliving.pop(uid, None)

    async def _sync(self) -> None:
        process = self._process
        while process is not None:
            bound = self._outliving | self._bound_pods() if self._outliving else self._bound_pods()
            if bound.keys() != self._sandboxes.keys():  # else nothing is to be done, as mostly
                self._start_and_end(process, bound)
            await asyncio.sleep(self._rng.uniform(0.2, 0.8))

    def _start_and_end(self, process: SimProcess, bound: Mapping[str, str]) -> None:
        for uid in [each for each in self._sandboxes if each not in bound and each not in self._busy]:
            self._busy[uid] = self._sandboxes[uid]
            process.spawn(self._remove(uid))
        for uid, pod in bound.items():
            if uid not in self._sandboxes and uid not in self._busy:
                self._busy[uid] = ""
                process.spawn(self._create(uid, pod))

    async def _create(self, uid: str, pod: str) -> None:
        sandbox, configs = new_uuid(self._rng), self._networks.configs()
        if configs is None:
            self._busy.pop(uid, None)
            return
        self._configs[sandbox] = configs
        self._busy[uid] = sandbox
        self._runtime.create(sandbox)
        addresses: dict[str, str] = {}
        for ifname in configs:
            address = await self._add(self._request("ADD", sandbox, uid, pod, ifname))
            if address is None:
                break
            addresses[ifname] = address
            if len(addresses) == len(configs):
                self._sandboxes[uid] = sandbox
            now = asyncio.get_running_loop().time()
            self._oracle.assign(AddressUse(address, self._machine.name, sandbox, pod, now))
        if uid not in self._sandboxes:
            self._oracle.release(self._machine.name, sandbox)
            await self._delete(sandbox, uid, pod)
            await asyncio.sleep(RETRY_SECONDS * self._rng.uniform(0.8, 1.2))
        else:
            await self._runtime.complete(sandbox, uid)
        self._busy.pop(uid, None)
        if addresses and self._networks.report_delay:
            await asyncio.sleep(self._rng.uniform(0.0, self._networks.report_delay))
        if self._sandboxes.get(uid) == sandbox:
            self._networks.report(pod, addresses)

    async def _add(self, request: PluginRequest) -> str | None:
        """Return the assigned address; None if the ADD fails."""
        if self._runtime.gives_up_adds and self._rng.random() < GIVEN_UP_ADDS:
            self._machine.start("plugin").spawn(self._add_late(request))
            await asyncio.sleep(self._rng.uniform(0.0, 1.0))
            return None
        if self._rng.random() < DUPLICATE_ADDS and self._process:
            self._process.spawn(self._socket.call(request))  # as after a timeout, while the first is still in progress
        response = await self._socket.call(request)
        if not response or response["code"] != 0:
            if response:
                self._oracle.refuse(self._machine.name, str(response["msg"]))
            return None
        return str(response["ips"][0]["address"].partition("/")[0])

    async def _add_late(self, request: PluginRequest) -> None:
        """Send an ADD that the runtime has given up, perhaps after its DEL."""
        await asyncio.sleep(self._rng.uniform(0.0, 2.0))
        response = await self._socket.call(request)
        if response and response["code"] == 0 and request.container_id not in self._configs:
            self._runtime.lose(request.container_id, request.arguments()["K8S_POD_UID"])

    async def _remove(self, uid: str) -> None:
        sandbox = self._sandboxes.pop(uid)
        self._oracle.release(self._machine.name, sandbox)
        await self._delete(sandbox, uid, "")
        self._busy.pop(uid, None)

    async def _delete(self, sandbox: str, uid: str, pod: str) -> None:
        if self._runtime.loses_dels:
            self._runtime.lose(sandbox, uid)
            del self._configs[sandbox]
            return
        for ifname in self._configs[sandbox]:
            request = self._request("DEL", sandbox, uid, pod, ifname)
            if await self._socket.call(request) is None:
                name = sandbox if ifname == PRIMARY_INTERFACE else f"{sandbox}-{ifname}"
                self._runtime.deferred_deletes.append(name, encode_request(request))
        self._configs.pop(sandbox, None)
        self._runtime.remove(sandbox)

    def _request(self, command: str, sandbox: str, uid: str, pod: str, ifname: str) -> PluginRequest:
        namespace, _, name = pod.partition("/")
        args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}"
        where = {"container_id": sandbox, "netns": netns_path(sandbox), "ifname": ifname, "path": "/bin"}
        return PluginRequest(command=command, **where, args=args, stdin=self._configs[sandbox][ifname])
