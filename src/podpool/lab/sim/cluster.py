"""A cluster with its ledger and machines: every component's own code, in one process on virtual time.

The seed decides everything that happens. Each process draws from its own random stream, so that a fault in one does not
change the numbers of another. The names of the streams are part of what a seed means: a renamed stream changes every
history. A second cluster on the same ledger has its own API server, controllers and machines, and shares the rest.
"""

import asyncio
import math
import random
from collections.abc import Callable, Mapping
from typing import Any

from podpool.agent.agent import Agent
from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.agent.state_lock import acquire_lock
from podpool.agent.underlay_poller import NMAgentClient
from podpool.api.azure import CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.crds import crd_manifests
from podpool.api.node_slices import CONFIRM_LOSS_ANNOTATION, INVENTORY_CONFIG_MAP
from podpool.controller.controller import Controller
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.lab.apiserver.garbage_collector import run_garbage_collector
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.registry import BUILTIN, CONFIG_MAPS, CRDS, PODS, Object
from podpool.lab.apiserver.store import ObjectStore, StoreSnapshot
from podpool.lab.apiserver.watch_cache import StoreEvent
from podpool.lab.sim import nads
from podpool.lab.sim.address_use_oracle import AddressOracle, Violation
from podpool.lab.sim.container_runtime import SimRuntime
from podpool.lab.sim.event_loop import VirtualLoop
from podpool.lab.sim.interceptor import AgentInterceptor, ApiErrorInjector
from podpool.lab.sim.kubelet import AgentSocket, PodNetworks, PodStatusReporter, SimKubelet
from podpool.lab.sim.ledger_host import SUBNET, LedgerHost
from podpool.lab.sim.machine import MachineClock, SimMachine, SimProcess
from podpool.lab.sim.network import SimNetwork, SimService, SimTransport
from podpool.lab.sim.profiles import SimConfig
from podpool.lab.sim.underlay import SimUnderlay
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import NetworkContainerRecord

CONFIG_HASH, CONFIG_MIRROR = "kubernetes.io/config.hash", "kubernetes.io/config.mirror"
SEGMENT_BYTES = 1500
"""The size at which an agent compacts its journal: small, so that it happens often in a run."""
NODES = next(each for each in BUILTIN if each.plural == "nodes")
NODE_LIFECYCLE_INTERVAL, NODE_GRACE_SECONDS = 1.0, 5.0
"""Seconds between two looks at all Nodes, and seconds without its kubelet after which a Node is not ready."""


def _runtime_uid(meta: Mapping[str, Any]) -> str:
    """Return the UID of a Pod in the runtime: a mirror Pod has another."""
    return str(meta.get("annotations", {}).get(CONFIG_HASH) or meta["uid"])


class SimHost:
    """One machine of the cluster, and what runs on it."""

    def __init__(self, machine: SimMachine) -> None:
        self.node = machine.name
        """The name of its Node; the machine has another name when it is cut off."""
        self.machine = machine
        self.socket = AgentSocket()
        self.runtime = SimRuntime()
        self.agent: Agent | None = None
        self.agent_process: SimProcess | None = None
        self.kubelet: SimKubelet | None = None
        self.transports: list[SimTransport] = []
        """The connections of its agents to the API server."""
        self.reads: dict[str, float] = {}
        """When the last answered confirming reads of this boot were sent, by resource."""
        self.isolated_pods: dict[str, str] | None = None
        """The Pods of a kubelet that is cut off; None while it is connected."""


async def _run_agent(host: SimHost, agent: Agent, deps: AgentDeps, process: SimProcess) -> None:
    """Run an agent as `podpool agent run` does."""
    await acquire_lock(deps.disk, deps.log, directory=f"of {deps.node}")
    host.agent, host.agent_process = agent, process
    host.socket.open(agent, process)
    await agent.run()


class SimCluster:
    """The components of a cluster, which are started, killed and changed by name."""

    def __init__(
        self, seed: int, config: SimConfig | None = None, *, first: "SimCluster | None" = None, name: str = ""
    ) -> None:
        self.seed = seed
        self.config = config or SimConfig()
        self.name = name
        """The prefix of this cluster's names; empty for the first cluster."""
        self.loop: VirtualLoop = first.loop if first else VirtualLoop()
        self.network: SimNetwork = first.network if first else SimNetwork(self.loop, self.rng("network"))
        self.oracle: AddressOracle = first.oracle if first else AddressOracle(self.loop, settings=self.config.settings)
        self.clock = MachineClock(self.loop)
        self.ledger_host: LedgerHost = (
            first.ledger_host if first else LedgerHost(self.network, self.config, rng=self.rng)
        )
        self.store = ObjectStore(clock=self.clock, rng=self.rng("uids"))
        self.api = SimService(f"{name}api")
        self.underlay_service = SimService(f"{name}underlay")
        self.underlay = SimUnderlay(self.loop, self.rng("fabric")) if self.config.underlay else None
        self.hosts: dict[str, SimHost] = {}
        self.cut_off_hosts: dict[str, SimHost] = {}
        """Machines that are cut off for good, by their present names; others may have their Nodes' names."""
        self.controllers: dict[str, SimProcess] = {}
        self.checks: list[Callable[[], None]] = []
        """Called periodically."""
        self.on_power_loss: list[Callable[[str], None]] = []
        """Called before a machine loses power."""
        self.restores = 0
        """How often the API server was restored from a copy."""
        self.restored_at = -math.inf
        self.confirms_losses = False
        """Whether an operator confirms a mass loss of nodes."""
        self.edited_ippools: dict[str, str] = {}
        """The IPPools that a person or a third party edited or deleted, with the version that they left."""
        self._pods: dict[str | None, dict[str, str]] | None = None
        """The unfinished Pods of each node; None after a Pod has changed."""
        self._nncs: dict[str, Object] | None = None
        """The NNCs by node name; None after one has changed."""
        self.store.on_write.append(self._on_write)
        self._is_first = first is None
        self._streams = 0

    def rng(self, stream: str) -> random.Random:
        """Return the random stream of a component."""
        return random.Random(f"{self.seed}/{self.name}{stream}")  # noqa: S311  a simulation

    def _new_rng(self, stream: str) -> random.Random:
        """Return the random stream of a new instance of a component."""
        self._streams += 1
        return self.rng(f"{stream}/{self._streams}")

    # control plane

    async def start(self) -> None:
        """Start the API server, the ledger with its subnet, and the controllers."""
        for manifest in crd_manifests():
            self.store.create(CRDS, manifest)
        if self.config.slices:
            nads.create_all(self.store, self.config)
        self.start_api()
        if self.underlay:
            self.store.on_write.append(self.underlay.on_write)
            self.underlay_service.serve(self.underlay.handle, SimProcess(self.underlay_service.name, self.loop))
        if self._is_first:
            await self.ledger_host.start()
            self.loop.create_task(self.ledger_host.run_operator())
        for number in range(self.config.controllers):
            self.start_controller(f"{self.name}controller-{number}")
        if self.config.slices:
            self.loop.create_task(self._run_node_lifecycle())

    async def _run_node_lifecycle(self) -> None:
        """Report which Nodes are ready, as kubelets and the node lifecycle controller do."""
        reported: dict[str, float] = {}
        while True:
            await asyncio.sleep(NODE_LIFECYCLE_INTERVAL)
            for name in list(self.nodes()) if self.api.up else ():
                host = self.hosts.get(name)
                paused = host is not None and any(each.backlog is not None for each in host.machine.running("kubelet"))
                if host and not paused and not self.network.is_partitioned(name, self.api.name):
                    reported[name] = self.loop.time()
                silent = self.loop.time() - reported.setdefault(name, self.loop.time())
                self._set_ready(name, "Unknown" if silent > NODE_GRACE_SECONDS else "True")
            if self.confirms_losses and self.api.up:
                self._confirm_loss()

    def _confirm_loss(self) -> None:
        """Confirm a mass loss of nodes as an operator does, who knows that the machines are gone."""
        key = f"kube-system/{INVENTORY_CONFIG_MAP}"
        inventory = self.store.objects("", "configmaps").get(key, {})
        loss = inventory.get("data", {}).get("loss")

        def confirm(obj: Any) -> Any:  # noqa: ANN401  JSON
            meta = obj["metadata"]
            notes = {**meta.get("annotations", {}), CONFIRM_LOSS_ANNOTATION: loss}
            return {**obj, "metadata": {**meta, "annotations": notes}}

        if loss:
            self.store.update(CONFIG_MAPS, key, confirm)

    def _set_ready(self, name: str, ready: str) -> None:
        conditions = [{"type": "Ready", "status": ready}]
        if self.nodes()[name].get("status", {}).get("conditions") != conditions:
            self.store.update(
                NODES,
                name,
                lambda node: {**node, "status": {**node.get("status", {}), "conditions": conditions}},
                subresource="status",
            )

    def start_api(self) -> None:
        """Start the API server on its stored objects."""
        process = SimProcess(self.api.name, self.loop)
        self.api_errors = ApiErrorInjector(ResourceHandler(self.store), self._new_rng("refusals"))
        self.api.serve(self.api_errors, process)
        process.spawn(run_garbage_collector(self.store))

    def restore_api(self, snapshot: StoreSnapshot) -> None:
        """Start the API server on an older copy of its objects.

        Kubelets whose Node is not in it register again, and the Nodes and Pods of removed machines are deleted again.
        """
        if self.api.process:
            self.api.process.kill()
        self.store.restore(snapshot)
        self._pods = self._nncs = None
        self.restores, self.restored_at = self.restores + 1, self.loop.time()
        self.start_api()
        for name in self.hosts:
            self.register(name)
        for key, pod in dict(self.store.objects("", "pods")).items():
            if pod["spec"].get("nodeName") not in self.hosts:
                self.delete_pod(key)
        for name in [each for each in self.nodes() if each not in self.hosts]:
            self.delete_node(name)

    def start_controller(self, name: str) -> None:
        """Start a controller; each calls one replica of the ledger."""
        replicas = self.ledger_host.replicas
        ledger = replicas[[*self.controllers, name].index(name) % len(replicas)]
        process = SimProcess(name, self.loop)
        controller = Controller(
            KubeClient(self.network.transport(name, self.api)),
            None if self.config.slices else LedgerClient(self.network.transport(name, ledger)),
            settings=ControllerSettings(
                subnet=SUBNET,
                common=self.config.settings,
                scarcity=self.config.scarcity,
                pod_history=self.config.pod_history,
                election=self.config.election,
            ),
            clock=self.clock,
            rng=self._new_rng(name),
        )
        self.controllers[name] = process
        process.spawn(controller.run())

    # machines

    def add_host(self, name: str) -> None:
        """Add a new machine under a name."""
        self.hosts[name] = SimHost(SimMachine(name, self.loop, self.rng(f"{name}/{self._streams}")))
        self.boot(name)

    def boot(self, name: str) -> None:
        """Start kubelet and agent of a machine that has just got power."""
        host = self.hosts[name]
        host.reads = {}
        self.register(name)
        host.kubelet = SimKubelet(
            host.machine,
            host.socket,
            self.oracle,
            host.runtime,
            rng=self._new_rng(f"{name}/kubelet"),
            bound_pods=lambda: self.pods_on(name) if host.isolated_pods is None else host.isolated_pods,
            networks=self._pod_networks(),
        )
        host.kubelet.start()
        self.start_agent(name)

    def _pod_networks(self) -> PodNetworks:
        if self.config.slices:
            return nads.MultusNetworks(self.store, self.config)
        return PodStatusReporter(self.store) if self.config.pod_status_ips else PodNetworks()

    def reboot(self, name: str) -> None:
        """Cut a machine's power and restore it: the Node stays, the boot ID is new."""
        for callback in self.on_power_loss:
            callback(name)
        self.oracle.release_machine(name)
        self.hosts[name].machine.reboot()
        self.hosts[name].runtime = SimRuntime()
        self.boot(name)

    def start_agent(self, name: str) -> None:
        """Start a machine's agent on the files of its predecessor."""
        host = self.hosts[name]
        process = host.machine.start("agent")
        transport = self.network.transport(name, self.api)
        host.transports.append(transport)
        underlay = NMAgentClient(self.network.transport(name, self.underlay_service)) if self.underlay else None
        deps = AgentDeps(
            node=name,
            boot_id=host.machine.boot_id,
            kube=KubeClient(AgentInterceptor(transport, machine=name, report=self.report, reads=host.reads)),
            disk=host.machine.disk,
            clock=host.machine.clock,
            rng=self._new_rng(f"{name}/agent"),
            settings=self.config.settings,
            deferred_deletes=host.runtime.deferred_deletes,
            underlay=underlay,
            runtime=host.runtime if self.config.runtime_socket else None,
            netns_gone=host.runtime.netns_gone,
        )
        options = AgentOptions(
            whereabouts_namespace="kube-system" if self.config.slices else "",
            third_party_plugins=False,
            segment_bytes=SEGMENT_BYTES,
        )
        process.spawn(_run_agent(host, Agent(deps, options), deps, process))

    def kill_agent(self, name: str) -> None:
        """Kill a machine's agent between two awaits, and one that waits for it to stop."""
        for process in self.hosts[name].machine.running("agent"):
            process.kill()

    def remove_host(self, name: str) -> None:
        """Remove a machine for good, and delete its Node, which asserts that its Pods have stopped."""
        host = self.hosts.pop(name, None)
        if host is None:
            return
        for process in host.machine.processes:
            process.kill()
        self.oracle.release_machine(name)
        for pod in self.pods_on(name).values():
            self.delete_pod(pod)
        self.delete_node(name)

    def isolate(self, name: str) -> None:
        """Cut off a machine and its kubelet: its Pods run on, whatever happens to their objects."""
        self.hosts[name].isolated_pods = self.pods_on(name)
        self.network.partition(name, "api")

    def cut_off(self, name: str) -> SimHost:
        """Cut off a machine for good, so that another one can have the name of its Node; its Pods run on."""
        host = self.hosts.pop(name)
        host.isolated_pods = self.pods_on(name)
        self._streams += 1
        host.machine.name = f"{name} (cut off {self._streams})"
        self.cut_off_hosts[host.machine.name] = host
        self.oracle.rename(name, host.machine.name)
        for transport in host.transports:
            transport.source = host.machine.name
        self.network.partition(host.machine.name, self.api.name)
        return host

    def end(self, host: SimHost) -> None:
        """End a machine that was cut off."""
        for process in host.machine.processes:
            process.kill()
        self.oracle.release_machine(host.machine.name)
        self.cut_off_hosts.pop(host.machine.name)

    def register(self, name: str) -> None:
        """Create a machine's Node, or report its new boot ID, as its kubelet does."""
        status = {"nodeInfo": {"bootID": self.hosts[name].machine.boot_id}}
        if name in self.nodes():
            self.store.update(
                NODES, name, lambda node: {**node, "status": {**node.get("status", {}), **status}}, subresource="status"
            )
        else:
            self.store.create(NODES, {"metadata": {"name": name}, "status": status})

    def delete_node(self, name: str) -> None:
        """Delete a Node object."""
        if name in self.nodes():
            self.store.delete(NODES, name)

    def nodes(self) -> Mapping[str, Any]:
        """Return the Node objects by name."""
        return self.store.objects("", "nodes")

    # Pods

    def bind(self, name: str, *, static: bool = False) -> str:
        """Create a Pod that is bound to a node, and return its key; of a static Pod, its mirror Pod."""
        self._streams += 1
        pod = f"{self.name}pod-{self._streams}"
        mirror = {"annotations": dict.fromkeys((CONFIG_HASH, CONFIG_MIRROR), f"hash-of-{pod}")} if static else {}
        new = {"metadata": {"name": pod, "namespace": "default", **mirror}, "spec": {"nodeName": name}}
        created = self.store.create(PODS, new, namespace="default")
        return f"default/{created['metadata']['name']}"

    def delete_pod(self, key: str) -> None:
        """Delete a Pod at once, as `--force` does."""
        if key in self.store.objects("", "pods"):
            self.store.delete(PODS, key, grace=0)

    def pods_on(self, name: str) -> dict[str, str]:
        """Return the Pods that should run on a node: their keys by UID, as the runtime has it."""
        if self._pods is None:
            self._pods = {}
            for key, pod in self.store.objects("", "pods").items():
                if pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}:
                    node = self._pods.setdefault(pod["spec"].get("nodeName"), {})
                    node[_runtime_uid(pod["metadata"])] = key
        return self._pods.get(name, {})

    def _on_write(self, event: StoreEvent) -> None:
        if event.id == PODS.id:
            self._pods = None
        elif event.id[1] == NODE_NETWORK_CONFIGS.plural or event.id == CRDS.id:  # without their CRD there are none
            self._nncs = None

    def waiting_pods(self, name: str) -> list[str]:
        """Return the Pods of a machine that should run and do not."""
        kubelet = self.hosts[name].kubelet if name in self.hosts else None
        return kubelet.waiting() if kubelet else []

    # state of NNCs, ledger and subnet, without the network and without delay

    def nncs(self) -> Mapping[str, Any]:
        """Return the NNCs by node name."""
        if self._nncs is None:
            found = self.store.objects(NODE_NETWORK_CONFIGS.group, NODE_NETWORK_CONFIGS.plural)
            self._nncs = {key.rpartition("/")[2]: nnc for key, nnc in found.items()}
        return self._nncs

    def nc_records(self) -> dict[str, list[NetworkContainerRecord]]:
        """Return the ledger's open network containers of this cluster by node name."""
        return self.ledger_host.records(self.store.objects("", "namespaces")["kube-system"]["metadata"]["uid"])

    def owners(self) -> dict[str, str]:
        """Return the node of each granted address."""
        found = [record for records in self.nc_records().values() for record in records]
        return {grant.address: record.node for record in found for grant in record.state.grants}

    def batch(self) -> int:
        """Return the batch in force in this cluster."""
        scaler = self._cluster_subnet().get("status", {}).get("scaler", {})
        return int(scaler.get("batch") or self.ledger_host.subnet().scaler.batch)

    def has_scaler_override(self) -> bool:
        """Return whether a person has set batch and buffer in this cluster."""
        return bool(self._cluster_subnet().get("spec", {}).get("scaler"))

    def _cluster_subnet(self) -> Any:  # noqa: ANN401  JSON
        found = self.store.objects(CLUSTER_SUBNETS.group, CLUSTER_SUBNETS.plural)
        return found.get(f"kube-system/{SUBNET.name}", {})

    # time and checks

    async def run_for(self, seconds: float) -> None:
        """Let time pass, then run the checks."""
        await asyncio.sleep(seconds)
        self.check()

    def check(self) -> None:
        """Run the checks, and raise what is wrong."""
        self.raise_failures()
        for check in self.checks:
            check()

    def raise_failures(self) -> None:
        """Raise exceptions that no code awaited."""
        for failure in self.loop.failures:
            error = failure.get("exception")
            if isinstance(error, BaseException):
                raise error
            raise RuntimeError(failure.get("message"))

    def report(self, violation: Violation) -> None:
        """Record a violation that is found inside a callback: the next check raises it."""
        self.loop.call_exception_handler({"message": str(violation), "exception": violation})
