"""Pods of the yield benchmark: objects bound to nodes, and calls of their agents as a container runtime makes them.

A Pod is created and bound at once; its ADD follows after `SANDBOX_SECONDS`. A failed ADD is followed by a DEL and, as
from kubelet, by a new sandbox 10 to 15 seconds later. A Pod that departs sends its DEL, then the object is deleted.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from bench.yield_load import Pace
from podpool.api.builtin import PODS
from podpool.cni.protocol import PluginRequest

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Coroutine, Iterable, Sequence

    from bench.yield_load import PodEvent
    from podpool.cni.protocol import PluginResponse
    from podpool.kube.client import KubeClient

NAMESPACE = "default"
CONFIG = msgspec.json.encode({"cniVersion": "1.0.0", "name": "podpool", "type": "ptp", "ipam": {"type": "podpool"}})
SANDBOX_SECONDS = 0.5
RETRY_SECONDS = (10.0, 15.0)
LONGEST_WAIT = 0.5
"""Seconds for which an ADD may wait before `play` holds back further events."""
INTERVAL = 0.02
TIMEOUT = 120.0


class CniNode(Protocol):
    """A node whose agent answers the plugin."""

    name: str

    async def call(self, request: PluginRequest) -> PluginResponse:
        """Answer one call."""


class BenchPod:
    """One Pod."""

    def __init__(self, number: int, node: int) -> None:
        self.number, self.node = number, node
        self.name = f"pod-{number}"
        self.uid = ""
        self.sandbox = 0
        self.address = ""
        self.adding = False
        self.departs = asyncio.Event()

    def request(self, command: str) -> PluginRequest:
        """Return the plugin's request for the current sandbox."""
        names = f"K8S_POD_NAMESPACE={NAMESPACE};K8S_POD_NAME={self.name};K8S_POD_UID={self.uid}"
        return PluginRequest(
            command=command,
            container_id=f"{self.name}-{self.sandbox}",
            netns=f"/run/netns/{self.name}-{self.sandbox}",
            ifname="eth0",
            args=f"IgnoreUnknown=1;{names}",
            path="/opt/cni/bin",
            stdin=CONFIG,
        )


class Pods:
    """All Pods, their addresses, when they got and freed them, and the first refusal."""

    def __init__(
        self, kube: KubeClient, nodes: Sequence[CniNode], group: asyncio.TaskGroup, rng: random.Random
    ) -> None:
        self._kube = kube
        self._nodes = nodes
        self._group = group
        self._rng = rng
        self._present: dict[int, BenchPod] = {}
        self._adding: dict[int, float] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._holders: dict[str, BenchPod] = {}
        self.served_at: list[float] = []
        """When ADDs returned an address, by the loop's time."""
        self.freed_at: list[float] = []
        """When DELs of Pods with an address returned."""
        self.held_at_first_refusal: int | None = None
        """Addresses that Pods had when the first ADD failed."""

    @property
    def held(self) -> int:
        """Number of addresses that Pods have."""
        return len(self._holders)

    def with_address(self, nodes: Iterable[int]) -> list[BenchPod]:
        """Return the Pods of some nodes that have an address."""
        chosen = frozenset(nodes)
        return [pod for pod in self._present.values() if pod.address and pod.node in chosen]

    def waiting(self, nodes: Iterable[int]) -> list[BenchPod]:
        """Return the Pods of some nodes that have no address."""
        chosen = frozenset(nodes)
        return [pod for pod in self._present.values() if not pod.address and pod.node in chosen]

    def longest_wait(self) -> float:
        """Return the seconds for which the longest waiting ADD waits."""
        return self._now() - next(iter(self._adding.values()), self._now())

    async def play(self, events: Iterable[PodEvent], *, closed: bool) -> Pace:
        """Start events on time; a closed loop stops the clock while an ADD waits, and ends at the first refusal."""
        pace = Pace(self._now())
        for event in events:
            await asyncio.sleep(pace.wait(event, self._now()))
            if closed:
                pace.stop(await self._no_add_waits())
            if closed and self.held_at_first_refusal is not None:
                break
            pace.started(event, self._now())
            if event.arrives:
                self.arrive(event.pod, event.node)
            else:
                self.depart(event.pod)
        return pace

    def arrive(self, number: int, node: int) -> None:
        """Start a Pod on a node."""
        pod = self._present[number] = BenchPod(number, node)
        self._spawn(self._live(pod))

    def depart(self, number: int) -> None:
        """End a Pod; the DEL also ends an ADD that waits."""
        pod = self._present.pop(number)
        pod.departs.set()
        if pod.adding:
            self._spawn(self._delete_sandbox(pod))

    def cancel(self) -> None:
        """End all tasks."""
        for task in self._tasks:
            task.cancel()

    async def _live(self, pod: BenchPod) -> None:
        spec = {"nodeName": self._nodes[pod.node].name, "containers": [{"name": "main", "image": "none"}]}
        created = await self._kube.create(PODS, {"metadata": {"name": pod.name}, "spec": spec}, namespace=NAMESPACE)
        pod.uid = created.metadata.uid
        await asyncio.sleep(SANDBOX_SECONDS)
        while not pod.departs.is_set() and not await self._add(pod):
            await self._delete_sandbox(pod)
            pod.sandbox += 1
            await self._departs_within(pod, self._rng.uniform(*RETRY_SECONDS))
        await pod.departs.wait()
        await self._delete_sandbox(pod)
        await self._kube.delete(PODS, pod.name, namespace=NAMESPACE, grace_seconds=0)

    async def _add(self, pod: BenchPod) -> bool:
        self._adding[pod.number], pod.adding = self._now(), True
        try:
            response = await self._nodes[pod.node].call(pod.request("ADD"))
        finally:
            pod.adding = False
            del self._adding[pod.number]
        if not response.exit_code:
            self._hold(pod, address_of(response))
        elif not pod.departs.is_set() and self.held_at_first_refusal is None:
            self.held_at_first_refusal = self.held
        return not response.exit_code

    def _hold(self, pod: BenchPod, address: str) -> None:
        if address in self._holders:
            raise AssertionError(f"{address} is assigned to {pod.name} and {self._holders[address].name}")
        self._holders[address], pod.address = pod, address
        self.served_at.append(self._now())

    async def _delete_sandbox(self, pod: BenchPod) -> None:
        address, pod.address = pod.address, ""
        self._holders.pop(address, None)  # before the DEL: its address may be assigned before the answer is read
        response = await self._nodes[pod.node].call(pod.request("DEL"))
        if response.exit_code:
            raise RuntimeError(f"DEL of {pod.name} failed: {response.stdout.decode()}")
        if address:
            self.freed_at.append(self._now())

    async def _departs_within(self, pod: BenchPod, seconds: float) -> None:
        await asyncio.wait({wait := asyncio.ensure_future(pod.departs.wait())}, timeout=seconds)
        wait.cancel()

    async def _no_add_waits(self) -> float:
        """Wait while an ADD waits; return for how long."""
        begun = self._now()
        await wait_until(lambda: self.longest_wait() <= LONGEST_WAIT or self.held_at_first_refusal is not None)
        return self._now() - begun

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def address_of(response: PluginResponse) -> str:
    """Return the address in the result of an ADD."""
    result = msgspec.json.decode(response.stdout)
    return str(result["ips"][0]["address"]).partition("/")[0]


async def wait_until(holds: Callable[[], bool], *, seconds: float = TIMEOUT) -> bool:
    """Wait until a condition holds; return whether it does, at the latest after so many seconds."""
    deadline = asyncio.get_running_loop().time() + seconds
    while not holds() and asyncio.get_running_loop().time() < deadline:  # noqa: ASYNC110  it depends on many parts
        await asyncio.sleep(INTERVAL)
    return holds()
