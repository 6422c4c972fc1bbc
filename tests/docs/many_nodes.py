"""A lite API server, many Nodes and their agents in one process, for a page about large clusters.

`python many_nodes.py KUBECONFIG JOURNALS NODES SETTINGS`. The agents serve slices only. A Pod with a secondary network
that is created on a node gets its address from the agent, as by Multus, and releases it when it is deleted.
"""

import asyncio
import random
import sys
from pathlib import Path
from typing import Any

from podpool.agent.agent import Agent
from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.api.builtin import NODES
from podpool.api.builtin import PODS as POD_KIND
from podpool.api.crds import crd_manifests, multus_crd_manifest
from podpool.cni.protocol import PluginRequest, decode_response, encode_request
from podpool.core.settings import Settings, parse_settings
from podpool.kube.client import KubeClient
from podpool.kube.crd_install import install_crds
from podpool.lab.apiserver.garbage_collector import run_garbage_collector
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.registry import PODS
from podpool.lab.apiserver.root_handler import LiteApiServer
from podpool.lab.apiserver.store import ObjectStore
from podpool.lab.apiserver.tls import kubeconfig
from podpool.runtime import process
from podpool.runtime.clock import SystemClock
from podpool.runtime.disk import LocalDisk
from podpool.runtime.http_server import serving
from podpool.runtime.logging import configure_logging

PORT = 7782
POLL = 0.5
"""Seconds between two looks at the Pods."""
NETWORKS = "k8s.v1.cni.cncf.io/networks"
RNG = random.Random(1)  # noqa: S311  the same each time


class Machines:
    """The nodes of a cluster."""

    def __init__(self, store: ObjectStore, journals: Path, settings: Settings) -> None:
        self._store = store
        self._kube = KubeClient(ResourceHandler(store))
        self._journals = journals
        self._settings = settings
        self._agents: dict[str, Agent] = {}
        self._served: dict[str, tuple[str, str]] = {}
        """Node and network of each Pod that has an address."""

    async def run(self, count: int) -> None:
        """Register the Nodes, and run their agents and Pods."""
        await install_crds(self._kube, [*crd_manifests(), multus_crd_manifest()])
        async with asyncio.TaskGroup() as group:
            for number in range(count):
                name = f"node-{number:03}"
                info = {"nodeInfo": {"bootID": f"boot-of-{name}"}}
                await self._kube.create(NODES, {"metadata": {"name": name}, "status": info})
                self._agents[name] = self._agent(name)
                group.create_task(self._agents[name].run())
            group.create_task(self._follow_pods())

    def _agent(self, name: str) -> Agent:
        deps = AgentDeps(
            node=name,
            boot_id=f"boot-of-{name}",
            kube=self._kube,
            disk=LocalDisk(self._journals / name),
            clock=SystemClock(),
            rng=random.Random(name),  # noqa: S311  the same each time
            settings=self._settings,
            deferred_deletes=LocalDisk(self._journals / f"{name}.deletes"),
        )
        return Agent(deps, AgentOptions(whereabouts_namespace="kube-system"))

    async def _follow_pods(self) -> None:
        while True:
            await asyncio.sleep(POLL)
            pods = {key: pod for key, pod in self._store.objects(PODS.group, PODS.plural).items() if _network(pod)}
            deleted = {key for key, pod in pods.items() if "deletionTimestamp" in pod["metadata"]}
            for key in pods.keys() - deleted - self._served.keys():
                place = pods[key]["spec"]["nodeName"], _network(pods[key])
                if await self._call("ADD", key, *place):
                    self._served[key] = place
                    await self._set_running(key)
            for key in deleted:
                if key in self._served and await self._call("DEL", key, *self._served.pop(key)):
                    namespace, _, name = key.partition("/")
                    await self._kube.delete(POD_KIND, name, namespace=namespace, grace_seconds=0)

    async def _set_running(self, pod: str) -> None:
        """Report the Pod's address in its default network, as a kubelet does."""
        namespace, _, name = pod.partition("/")
        status = {"phase": "Running", "podIPs": [{"ip": f"10.1.0.{len(self._served)}"}]}
        await self._kube.merge_patch(POD_KIND, name, {"status": status}, namespace=namespace, subresource="status")

    async def _call(self, command: str, pod: str, node: str, network: str) -> bool:
        """Call the agent as the plugin does; return whether it succeeded."""
        namespace, _, name = pod.partition("/")
        config = self._config(namespace, network)
        request = PluginRequest(
            command=command,
            container_id=f"sandbox-{name}",
            netns=f"/run/netns/{name}",
            ifname="net1",
            args=f"K8S_POD_NAMESPACE={namespace};K8S_POD_NAME={name}",
            stdin=config.encode(),
        )
        return decode_response(await self._agents[node].handle(encode_request(request))).exit_code == 0

    def _config(self, namespace: str, network: str) -> str:
        nads = self._store.objects("k8s.cni.cncf.io", "network-attachment-definitions")
        return str(nads[f"{namespace}/{network}"]["spec"]["config"])


def _network(pod: Any) -> str:  # noqa: ANN401  an object
    return str(pod["metadata"].get("annotations", {}).get(NETWORKS, ""))


async def serve(config: Path, journals: Path, count: int, settings: Settings) -> None:
    """Serve the API server, and run the nodes."""
    store = ObjectStore(clock=SystemClock(), rng=RNG)
    async with serving(LiteApiServer(store, hosts=frozenset()), host="127.0.0.1", port=PORT):
        await asyncio.to_thread(config.write_text, kubeconfig(f"http://127.0.0.1:{PORT}"))
        async with asyncio.TaskGroup() as group:
            group.create_task(run_garbage_collector(store))
            group.create_task(Machines(store, journals, settings).run(count))


if __name__ == "__main__":
    kubeconfig_path, journals_path, nodes, settings_text = sys.argv[1:]
    configure_logging(level="error")
    process.run(lambda: serve(Path(kubeconfig_path), Path(journals_path), int(nodes), parse_settings(settings_text)))
