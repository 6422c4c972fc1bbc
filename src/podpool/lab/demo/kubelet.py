"""The scheduler and the kubelets of the demo cluster.

The scheduler binds a Pod to the schedulable node with the fewest Pods. A kubelet calls the CNI plugin as a container
runtime does, and sets the Pod's status; for a deleted Pod it calls DEL first. There are no containers. The sandbox ID
is the Pod's UID, so that no state is kept here.
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
from podpool.lab.demo.objects import FIRST_INTERFACE, DemoPod, network_status, running_status
from podpool.runtime import entropy
from podpool.runtime.clock import SystemClock
from podpool.runtime.transport import Request, Transport, Unreachable

MAX_CONCURRENT = 16
KUBELET, SCHEDULER = "kubelet", "default-scheduler"
RETRY = 2.0
"""Seconds until the next attempt for a Pod without an address."""
POLL = 0.2
Action = Callable[[DemoPod], Coroutine[Any, Any, None]]
CONFIG = b'{"cniVersion":"1.1.0","name":"podpool","type":"ptp","ipam":{"type":"podpool"}}'


class PluginFailed(PodpoolError):
    """The plugin refused an ADD, with its error."""


class PluginEndpoint(msgspec.Struct, frozen=True):
    """The agent's socket and directory of deferred DELs, for the plugin of a node."""

    socket: Path
    deferred_deletes: Path


class DemoKubelets:
    """The kubelets of all nodes and the scheduler."""

    def __init__(
        self,
        transport: Transport,
        pods: Informer[DemoPod],
        *,
        endpoints: Mapping[str, PluginEndpoint],
        plugin: Path,
        alive: Callable[[], Collection[str]],
        schedulable: Callable[[], Collection[str]],
    ) -> None:
        self._transport = transport
        self._kube = KubeClient(transport)
        self._pods = pods.cache
        self._endpoints = endpoints
        self._plugin = plugin
        self._alive = alive
        self._schedulable = schedulable
        self._busy: set[str] = set()
        self._binding: dict[str, str] = {}
        """Node of each Pod UID that is being bound, until the informer shows it."""
        self._slots: dict[tuple[str, str], asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(MAX_CONCURRENT))
        """By node and command, so that waiting ADDs delay neither other nodes nor DELs."""
        self._recorders = {component: self._recorder(component) for component in (KUBELET, SCHEDULER)}
        self.errors: dict[str, str] = {}
        """The plugin's last error by Pod key."""

    async def run(self) -> None:
        """Reconcile all Pods until cancelled."""
        async with asyncio.TaskGroup() as group:
            for recorder in self._recorders.values():
                group.create_task(recorder.run())
            while True:
                for pod in self._pods.values():
                    if pod.metadata.uid not in self._busy and (action := self._next_action(pod)):
                        self._busy.add(pod.metadata.uid)
                        group.create_task(self._perform(action, pod))
                await asyncio.sleep(POLL)

    def _next_action(self, pod: DemoPod) -> Action | None:
        node = pod.spec.node_name
        if not node:
            return None if pod.metadata.deletion_timestamp else self._bind
        if node not in self._alive():
            return None
        if pod.metadata.deletion_timestamp:
            return self._stop
        return self._start if pod.needs_address and not pod.status.pod_ips else None

    async def _perform(self, action: Action, pod: DemoPod) -> None:
        try:
            await action(pod)
        except (ApiError, Unreachable):
            await asyncio.sleep(POLL)  # the Pod changed, or the API server is unreachable: retry
        finally:
            self._busy.discard(pod.metadata.uid)

    async def _bind(self, pod: DemoPod) -> None:
        count = Counter(each.spec.node_name or self._binding.get(each.metadata.uid) for each in self._pods.values())
        node = min(self._schedulable(), key=lambda name: (count[name], name), default=None)
        if not node:
            nodes = len(self._endpoints)
            self._record(
                SCHEDULER, pod, "FailedScheduling", f"0/{nodes} nodes are available: all are cordoned or gone."
            )
            await asyncio.sleep(RETRY)
            return
        self._binding[pod.metadata.uid] = node
        try:
            await self._send_binding(pod, node)
        finally:
            del self._binding[pod.metadata.uid]

    async def _send_binding(self, pod: DemoPod, node: str) -> None:
        name, namespace = pod.metadata.name, pod.metadata.namespace
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}}
        body |= {"target": {"apiVersion": "v1", "kind": "Node", "name": node}}
        path = PODS.path(namespace=namespace, name=name, subresource="binding")
        headers = {"content-type": "application/json"}
        request = Request(method="POST", path=path, headers=headers, body=msgspec.json.encode(body))
        await (await self._transport.send(request)).read()
        await self._wait_for(lambda: (now := self._pods.get(pod.key)) is None or bool(now.spec.node_name))

    async def _start(self, pod: DemoPod) -> None:
        try:
            addresses = await self._add_all(pod)
        except PluginFailed as error:
            self.errors[pod.key] = str(error)
            failed = f'Failed to create pod sandbox: plugin type="podpool" failed (add): {error}'
            self._record(KUBELET, pod, "FailedCreatePodSandBox", failed)
            await self._delete_all(pod)
            await asyncio.sleep(RETRY)
            return
        self.errors.pop(pod.key, None)
        name, namespace = pod.metadata.name, pod.metadata.namespace
        first = addresses.pop(FIRST_INTERFACE)
        if addresses:
            annotations = network_status(namespace, pod.secondary_networks, addresses)
            await self._kube.merge_patch(PODS, name, {"metadata": {"annotations": annotations}}, namespace=namespace)
        status = running_status(pod, first, now=rfc3339(time.time()))
        await self._kube.merge_patch(PODS, name, {"status": status}, namespace=namespace, subresource="status")
        await self._wait_for(lambda: (now := self._pods.get(pod.key)) is None or bool(now.status.pod_ips))

    async def _add_all(self, pod: DemoPod) -> dict[str, str]:
        """Call ADD as Multus does: for the first interface, then for each secondary network."""
        addresses = {FIRST_INTERFACE: await self._add(pod, FIRST_INTERFACE, CONFIG)}
        for interface, config in (await self._configs(pod)).items():
            addresses[interface] = await self._add(pod, interface, config)
        return addresses

    async def _add(self, pod: DemoPod, interface: str, config: bytes) -> str:
        code, output = await self._call("ADD", pod, interface, config)
        answer = msgspec.json.decode(output or b"{}")
        if code:
            raise PluginFailed(answer.get("msg", "the plugin printed no error"))
        return str(answer["ips"][0]["address"]).partition("/")[0]

    async def _configs(self, pod: DemoPod) -> dict[str, bytes]:
        found = {
            name: (
                await self._kube.get(NETWORK_ATTACHMENTS, name, namespace=pod.metadata.namespace)
            ).spec.config.encode()
            for name in dict.fromkeys(pod.secondary_networks.values())
        }
        return {interface: found[name] for interface, name in pod.secondary_networks.items()}

    async def _delete_all(self, pod: DemoPod) -> None:
        for interface, config in reversed((await self._configs(pod)).items()):
            await self._call("DEL", pod, interface, config)
        await self._call("DEL", pod, FIRST_INTERFACE, CONFIG)

    async def _stop(self, pod: DemoPod) -> None:
        await self._delete_all(pod)
        self.errors.pop(pod.key, None)
        await self._kube.delete(
            PODS, pod.metadata.name, namespace=pod.metadata.namespace, uid=pod.metadata.uid, grace_seconds=0
        )
        await self._wait_for(lambda: pod.key not in self._pods)

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        """Wait until the informer shows a write, so that it is not repeated."""
        for _ in range(50):
            if condition():
                return
            await asyncio.sleep(0.02)

    async def _call(self, command: str, pod: DemoPod, interface: str, config: bytes) -> tuple[int, bytes]:
        meta, endpoint = pod.metadata, self._endpoints[pod.spec.node_name]
        args = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={meta.namespace};K8S_POD_NAME={meta.name};K8S_POD_UID={meta.uid}"
        environment = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": meta.uid,
            "CNI_NETNS": f"/run/netns/{meta.name}",
            "CNI_IFNAME": interface,
            "CNI_PATH": str(self._plugin.parent),
            "CNI_ARGS": args,
            "PODPOOL_SOCKET": str(endpoint.socket),
            "PODPOOL_DEFERRED_DELETES": str(endpoint.deferred_deletes),
            "PATH": os.environ.get("PATH", ""),
        }
        pipe = asyncio.subprocess.PIPE
        async with self._slots[pod.spec.node_name, command]:
            process = await asyncio.create_subprocess_exec(self._plugin, env=environment, stdin=pipe, stdout=pipe)
            try:
                output, _ = await process.communicate(config)
            finally:
                if process.returncode is None:  # the demo stops while the plugin waits for an address
                    process.kill()
                    await process.wait()
        return process.returncode or 0, output

    def _recorder(self, component: str) -> EventRecorder:
        rng = entropy.system_random()
        return EventRecorder(self._kube, component=component, instance="podpool-up", clock=SystemClock(), rng=rng)

    def _record(self, component: str, pod: DemoPod, reason: str, note: str) -> None:
        """Record an Event, which `kubectl describe pod` shows."""
        meta = pod.metadata
        about = ObjectReference(api_version="v1", kind="Pod", namespace=meta.namespace, name=meta.name, uid=meta.uid)
        self._recorders[component].record(about, reason=reason, action="Starting", note=note, warning=True)
