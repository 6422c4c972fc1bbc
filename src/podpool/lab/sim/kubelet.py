"""A kubelet and its container runtime, as far as they matter to addresses: not podpool's code, but its world.

Every bound Pod gets a sandbox. ADD goes to the agent; when it fails, the sandbox is deleted and tried again later under
a new id, as containerd and kubelet do. A Pod that is deleted or finished loses its sandbox first, and then DEL is sent
until it was heard. While no agent answers, a DEL is left in the directory for later, as the shim does.
"""

import asyncio
import random
from collections.abc import Callable, Mapping
from typing import Any, Protocol

import msgspec

from podpool.cni.protocol import Request, decode_answer, encode_request
from podpool.lab.apiserver.registry import PODS
from podpool.lab.apiserver.store import PocketStore
from podpool.lab.sim.machine import Machine, Process
from podpool.lab.sim.oracle import Truth, Use
from podpool.runtime.disk import Disk
from podpool.runtime.entropy import new_uuid

RETRY = 13.0
"""Seconds after which kubelet tries a sandbox again."""
TWICE = 0.05
"""The share of sandboxes that a runtime asks for twice at once."""
CONFIG = b'{"cniVersion":"1.0.0","name":"podpool","type":"ptp","ipam":{"type":"podpool"}}'
FIRST = "eth0"

Configs = Mapping[str, bytes]
"""How a Pod's interfaces are configured, by their names, in order."""


class Answers(Protocol):
    """An agent, as its socket shows it."""

    async def handle(self, body: bytes) -> bytes:
        """Answer the body of one frame."""


class Socket:
    """The agent's socket: there while an agent runs, and deaf after that."""

    def __init__(self) -> None:
        self._agent: Answers | None = None
        self._process: Process | None = None

    def open(self, agent: Answers, process: Process) -> None:
        """Let an agent answer."""
        self._agent, self._process = agent, process

    async def ask(self, request: Request) -> dict[str, Any] | None:
        """Send a request; None when nobody answers, or the agent dies over it."""
        process, agent = self._process, self._agent
        if agent is None or process is None or not process.alive:
            return None
        answered: asyncio.Future[bytes | None] = asyncio.get_running_loop().create_future()

        def died() -> None:
            if not answered.done():
                answered.set_result(None)

        async def answer() -> None:
            body = await agent.handle(encode_request(request))
            if not answered.done():
                answered.set_result(body)

        process.on_death(died)
        process.spawn(answer())
        body = await answered
        process.forget(died)
        if body is None:
            return None
        told = decode_answer(body)
        return {"code": told.exit_code, **(msgspec.json.decode(told.stdout) if told.stdout else {})}


class PodNetworks:
    """How the Pods of a cluster are connected: by the node's own pool, unless somebody says otherwise."""

    late = 0.0
    """Seconds after which, at the most, it is told."""

    def configs(self) -> Configs | None:
        """Tell how a Pod that starts now is configured; None while a network of it is missing."""
        return {FIRST: CONFIG}

    def connected(self, pod: str, addresses: Mapping[str, str]) -> None:
        """Hear which addresses a Pod has, by interface."""


class Shown(PodNetworks):
    """Pods that show their addresses, some time after they have them."""

    late = 8.0

    def __init__(self, store: PocketStore) -> None:
        self._store = store

    def connected(self, pod: str, addresses: Mapping[str, str]) -> None:
        """Have it told in the Pod's status."""
        status = {"podIPs": [{"ip": each} for each in addresses.values()]}
        if pod in self._store.objects("", "pods"):
            self._store.update(PODS, pod, lambda old: {**old, "status": old.get("status", {}) | status}, sub="status")


class Kubelet:
    """One machine's Pods."""

    def __init__(
        self,
        machine: Machine,
        socket: Socket,
        truth: Truth,
        deletes: Disk,
        *,
        rng: random.Random,
        bound: Callable[[], dict[str, str]],
        networks: PodNetworks,
    ) -> None:
        self._machine = machine
        self._socket = socket
        self._truth = truth
        self._deletes = deletes
        self._rng = rng
        self._bound = bound
        """Pods that should run here: namespace/name by UID."""
        self._networks = networks
        self._configs: dict[str, Configs] = {}
        """What they were configured with, by sandbox, for the DEL."""
        self._sandboxes: dict[str, str] = {}
        """The sandbox of each Pod, by the Pod's UID."""
        self._busy: dict[str, None] = {}
        self._process: Process | None = None

    def waiting(self) -> list[str]:
        """List the Pods that should run and do not."""
        return [pod for uid, pod in self._bound().items() if uid not in self._sandboxes]

    def start(self) -> None:
        """Begin on a machine that has just booted: nothing runs yet."""
        self._sandboxes.clear()
        self._configs.clear()
        self._busy.clear()
        self._process = self._machine.start("kubelet")
        self._process.spawn(self._sync())

    async def _sync(self) -> None:
        process = self._process
        while process is not None:
            bound = self._bound()
            for uid in [each for each in self._sandboxes if each not in bound and each not in self._busy]:
                self._busy[uid] = None
                process.spawn(self._remove(uid))
            for uid, pod in bound.items():
                if uid not in self._sandboxes and uid not in self._busy:
                    self._busy[uid] = None
                    process.spawn(self._create(uid, pod))
            await asyncio.sleep(self._rng.uniform(0.2, 0.8))

    async def _create(self, uid: str, pod: str) -> None:
        sandbox, configs = new_uuid(self._rng), self._networks.configs()
        if configs is None:
            self._busy.pop(uid, None)
            return
        self._configs[sandbox] = configs
        addresses: dict[str, str] = {}
        for ifname in configs:
            address = await self._add(self._request("ADD", sandbox, uid, pod, ifname))
            if address is None:
                break
            addresses[ifname] = address
            if len(addresses) == len(configs):
                self._sandboxes[uid] = sandbox
            self._truth.begin(Use(address, self._machine.name, sandbox, pod, asyncio.get_running_loop().time()))
        if uid not in self._sandboxes:
            self._truth.end(self._machine.name, sandbox)
            await self._delete(sandbox, uid, pod)
            await asyncio.sleep(RETRY * self._rng.uniform(0.8, 1.2))
        self._busy.pop(uid, None)
        if addresses and self._networks.late:
            await asyncio.sleep(self._rng.uniform(0.0, self._networks.late))
        if self._sandboxes.get(uid) == sandbox:
            self._networks.connected(pod, addresses)

    async def _add(self, request: Request) -> str | None:
        """Ask for an address; None when there is none."""
        if self._rng.random() < TWICE and self._process:
            self._process.spawn(self._socket.ask(request))  # somebody's patience ended, and the first is under way
        told = await self._socket.ask(request)
        return str(told["ips"][0]["address"].partition("/")[0]) if told and told["code"] == 0 else None

    async def _remove(self, uid: str) -> None:
        sandbox = self._sandboxes.pop(uid)
        self._truth.end(self._machine.name, sandbox)
        await self._delete(sandbox, uid, "")
        self._busy.pop(uid, None)

    async def _delete(self, sandbox: str, uid: str, pod: str) -> None:
        for ifname in self._configs[sandbox]:
            request = self._request("DEL", sandbox, uid, pod, ifname)
            if await self._socket.ask(request) is None:
                self._deletes.append(sandbox if ifname == FIRST else f"{sandbox}-{ifname}", encode_request(request))
        self._configs.pop(sandbox, None)

    def _request(self, command: str, sandbox: str, uid: str, pod: str, ifname: str) -> Request:
        namespace, _, name = pod.partition("/")
        args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name};K8S_POD_UID={uid}"
        config = self._configs[sandbox][ifname]
        return Request(
            command=command, container_id=sandbox, netns="/ns", ifname=ifname, args=args, path="/bin", stdin=config
        )
