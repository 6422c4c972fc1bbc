"""What a cluster has beside podpool, for all nodes of the stage: a scheduler, and kubelets that start the plugin.

A Pod that names no node is bound to the one with the fewest, of those that are not cordoned. A bound Pod gets its
address from the plugin, started as a container runtime starts it, and then runs; one that is deleted is disconnected
first. There are no containers. The sandbox of a Pod is named by its UID, so that nothing needs to be remembered here.
"""

import asyncio
import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Coroutine, Mapping
from pathlib import Path
from typing import Any

import msgspec

from podpool.api.builtin import PODS, ObjectReference
from podpool.api.meta import rfc3339
from podpool.api.multus import NETWORK_ATTACHMENTS
from podpool.core.errors import PodpoolError
from podpool.kube.client import KubeClient
from podpool.kube.errors import ApiError
from podpool.kube.events import EventRecorder
from podpool.kube.informer import Informer
from podpool.lab.demo.pods import FIRST_INTERFACE, DemoPod, network_status, running
from podpool.runtime import entropy
from podpool.runtime.clock import SystemClock
from podpool.runtime.transport import Request, Transport, Unreachable

MAX_CONCURRENT = 16
KUBELET, SCHEDULER = "kubelet", "default-scheduler"
RETRY = 2.0
"""Seconds after which a Pod that got no address is tried again."""
POLL = 0.2
Work = Callable[[DemoPod], Coroutine[Any, Any, None]]
CONFIG = b'{"cniVersion":"1.1.0","name":"podpool","type":"ptp","ipam":{"type":"podpool"}}'


class Refused(PodpoolError):
    """A Pod is not connected, in the plugin's words."""


class PluginEndpoint(msgspec.Struct, frozen=True):
    """Where the plugin of a node finds its agent."""

    socket: Path
    deletes: Path


class DemoKubelets:
    """The kubelets of all nodes, and the scheduler."""

    def __init__(
        self,
        road: Transport,
        pods: Informer[DemoPod],
        *,
        doors: Mapping[str, PluginEndpoint],
        plugin: Path,
        alive: Callable[[], Collection[str]],
        taking: Callable[[], Collection[str]],
    ) -> None:
        self._road = road
        self._kube = KubeClient(road)
        self._pods = pods.cache
        self._doors = doors
        self._plugin = plugin
        self._alive = alive
        self._taking = taking
        self._busy: set[str] = set()
        self._chosen: dict[str, str] = {}
        """Where Pods are being bound to, by their UID, before that is seen."""
        self._turns: dict[tuple[str, str], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_CONCURRENT))
        """By node and command: who waits for an address on one node holds up nobody on another, and no end of a Pod."""
        self._tellers = {component: self._teller(component) for component in (KUBELET, SCHEDULER)}
        self.refusals: dict[str, str] = {}
        """Why a Pod has no address, by its key, as the plugin said it last."""

    async def run(self) -> None:
        """Look after all Pods, for ever."""
        async with asyncio.TaskGroup() as group:
            for teller in self._tellers.values():
                group.create_task(teller.run())
            while True:
                for pod in self._pods.values():
                    if pod.metadata.uid not in self._busy and (work := self._due(pod)):
                        self._busy.add(pod.metadata.uid)
                        group.create_task(self._do(work, pod))
                await asyncio.sleep(POLL)

    def _due(self, pod: DemoPod) -> Work | None:
        node = pod.spec.node_name
        if not node:
            return None if pod.metadata.deletion_timestamp else self._bind
        if node not in self._alive():
            return None
        if pod.metadata.deletion_timestamp:
            return self._end
        return self._begin if pod.needs_address and not pod.status.pod_ips else None

    async def _do(self, work: Work, pod: DemoPod) -> None:
        try:
            await work(pod)
        except (ApiError, Unreachable):
            await asyncio.sleep(POLL)  # it changed under our hands, or the API server is away: look again
        finally:
            self._busy.discard(pod.metadata.uid)

    async def _bind(self, pod: DemoPod) -> None:
        count = Counter(each.spec.node_name or self._chosen.get(each.metadata.uid) for each in self._pods.values())
        node = min(self._taking(), key=lambda name: (count[name], name), default=None)
        if not node:
            nodes = len(self._doors)
            self._tell(SCHEDULER, pod, "FailedScheduling", f"0/{nodes} nodes are available: none of them takes Pods.")
            await asyncio.sleep(RETRY)
            return
        self._chosen[pod.metadata.uid] = node
        try:
            await self._send_binding(pod, node)
        finally:
            del self._chosen[pod.metadata.uid]

    async def _send_binding(self, pod: DemoPod, node: str) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        body |= {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        path = PODS.path(namespace=namespace, name=name, subresource="binding")
        headers = {"content-type": "application/json"}
        request = Request(method="POST", path=path, headers=headers, body=msgspec.json.encode(body))
        await (await self._road.send(request)).read()
        await self._seen(lambda: (now := self._pods.get(pod.key)) is None or bool(now.spec.node_name))

    async def _begin(self, pod: DemoPod) -> None:
        try:
            addresses = await self._connected(pod)
        except Refused as refused:
            self.refusals[pod.key] = str(refused)
            failed = f'Failed to create pod sandbox: plugin type="podpool" failed (add): {refused}'
            self._tell(KUBELET, pod, "FailedCreatePodSandBox", failed)
            await self._disconnect(pod)
            await asyncio.sleep(RETRY)
            return
        self.refusals.pop(pod.key, None)
        name, namespace = pod.metadata.name, pod.metadata.namespace
        first = addresses.pop(FIRST_INTERFACE)
        if addresses:
            told = network_status(namespace, pod.further, addresses)
            await self._kube.merge_patch(PODS, name, {"metadata": {"annotations": told}}, namespace=namespace)
        status = running(pod, first, now=rfc3339(time.time()))
        await self._kube.merge_patch(PODS, name, {"status": status}, namespace=namespace, subresource="status")
        await self._seen(lambda: (now := self._pods.get(pod.key)) is None or bool(now.status.pod_ips))

    async def _connected(self, pod: DemoPod) -> dict[str, str]:
        """Connect a Pod, as Multus does: its first interface, and then one for each further network."""
        addresses = {FIRST_INTERFACE: await self._add(pod, FIRST_INTERFACE, CONFIG)}
        for interface, config in (await self._configs(pod)).items():
            addresses[interface] = await self._add(pod, interface, config)
        return addresses

    async def _add(self, pod: DemoPod, interface: str, config: bytes) -> str:
        code, told = await self._call("ADD", pod, interface, config)
        answer = msgspec.json.decode(told or b"{}")
        if code:
            raise Refused(answer.get("msg", "the plugin said nothing"))
        return str(answer["ips"][0]["address"]).partition("/")[0]

    async def _configs(self, pod: DemoPod) -> dict[str, bytes]:
        found = {
            name: (await self._kube.get(NETWORK_ATTACHMENTS, name, namespace=pod.metadata.namespace)).spec.config.encode()
            for name in dict.fromkeys(pod.further.values())
        }
        return {interface: found[name] for interface, name in pod.further.items()}

    async def _disconnect(self, pod: DemoPod) -> None:
        for interface, config in reversed((await self._configs(pod)).items()):
            await self._call("DEL", pod, interface, config)
        await self._call("DEL", pod, FIRST_INTERFACE, CONFIG)

    async def _end(self, pod: DemoPod) -> None:
        await self._disconnect(pod)
        self.refusals.pop(pod.key, None)
        await self._kube.delete(
            PODS, pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.metadata.uid, grace_seconds=0
        )
        await self._seen(lambda: pod.key not in self._pods)

    async def _seen(self, so: Callable[[], bool]) -> None:
        """Wait until our own write has come round, so that it is not made twice."""
        for _ in range(50):
            if so():
                return
            await asyncio.sleep(0.02)

    async def _call(self, command: str, pod: DemoPod, interface: str, config: bytes) -> tuple[int, bytes]:
        meta, door = pod.metadata, self._doors[pod.spec.node_name]
        args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={meta.namespace};K8S_POD_NAME={meta.name};K8S_POD_UID={meta.uid}"
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": meta.uid,
            "CNI_NETNS": f"/run/netns/{meta.name}",
            "CNI_IFNAME": interface,
            "CNI_PATH": str(self._plugin.parent),
            "CNI_ARGS": args,
            "PODPOOL_SOCKET": str(door.socket),
            "PODPOOL_DEFERRED_DELETES": str(door.deletes),
            "PATH": os.environ.get("PATH", ""),
        }
        pipe = asyncio.subprocess.PIPE
        async with self._turns[pod.spec.node_name, command]:
            process = await asyncio.create_subprocess_exec(self._plugin, env=environment, stdin=pipe, stdout=pipe)
            try:
                told, _ = await process.communicate(config)
            finally:
                if process.returncode is None:  # the stage ends, and it waits for an address
                    process.kill()
                    await process.wait()
        return process.returncode or 0, told

    def _teller(self, component: str) -> EventRecorder:
        rng = entropy.system_random()
        return EventRecorder(self._kube, component=component, instance="podpool-up", clock=SystemClock(), rng=rng)

    def _tell(self, component: str, pod: DemoPod, reason: str, note: str) -> None:
        """Tell a person who asks `kubectl describe pod`, as the real ones do."""
        meta = pod.metadata
        about = ObjectReference(api_version="v1", kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
        self._tellers[component].record(about, reason=reason, action="Starting", note=note, warning=True)
