"""A cluster, its ledger and its machines, with every part's own code, in one process on virtual time.

Whatever happens in it is decided by the seed: each process draws from randomness of its own, so that a fault in one
does not shift the dice of another. A second cluster on the same ledger is a cluster beside the first: it has an API
server, controllers and machines of its own, and shares the rest.
"""

import asyncio
import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from podpool.agent.agent import Agent
from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.agent.underlay import HostAgent
from podpool.api.crds import crd_manifests
from podpool.controller.controller import LEASE, Controller
from podpool.controller.settings import ControllerSettings
from podpool.kube.client import KubeClient
from podpool.lab.apiserver.garbage_collector import run_garbage_collector
from podpool.lab.apiserver.handler import ResourceHandler
from podpool.lab.apiserver.registry import BUILTIN, CRDS, PODS
from podpool.lab.apiserver.store import ObjectStore, StoreSnapshot
from podpool.lab.sim import nads
from podpool.lab.sim.api_errors import ApiErrorInjector
from podpool.lab.sim.event_loop import VirtualLoop
from podpool.lab.sim.interceptor import AgentInterceptor
from podpool.lab.sim.kubelet import Kubelet, PodNetworks, PodStatusReporter, AgentSocket
from podpool.lab.sim.ledger_host import SUBNET, LedgerHost
from podpool.lab.sim.machine import Machine, MachineClock, MachineDisk, Process
from podpool.lab.sim.network import Network, Service
from podpool.lab.sim.oracle import Oracle, Violation
from podpool.lab.sim.scenario import SimConfig
from podpool.lab.sim.underlay import Underlay
from podpool.ledger.client import LedgerClient
from podpool.ledger.messages import NetworkContainerRecord

SEGMENT = 1500
"""Bytes of an agent's journal after which it is made short: many times in a history."""
NODES = next(each for each in BUILTIN if each.plural == "nodes")


_definitions = cache(crd_manifests)


class Host:
    """One machine of the cluster, with what runs on it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.socket = AgentSocket()
        self.deletes = MachineDisk()
        self.agent: Agent | None = None
        self.agent_process: Process | None = None
        self.kubelet: Kubelet | None = None
        self.reads: dict[str, float] = {}
        """When the reads were sent that told an agent of this boot last what it is, by what was read."""
        self.stranded: dict[str, str] | None = None
        """The Pods of a kubelet that hears nothing any more."""


class SimCluster:
    """All of it. Parts are started, killed and changed by name."""

    def __init__(self, seed: int, shape: SimConfig | None = None, *, beside: "SimCluster | None" = None, name: str = "") -> None:
        self.seed = seed
        self.shape = shape or SimConfig()
        self.name = name
        """Of a second cluster: what the names of its parts begin with."""
        self.loop: VirtualLoop = beside.loop if beside else VirtualLoop()
        self.network: Network = beside.network if beside else Network(self.loop, self.dice("network"))
        self.oracle: Oracle = beside.oracle if beside else Oracle(self.loop, settings=self.shape.settings)
        self.clock = MachineClock(self.loop)
        self.ledger_host: LedgerHost = (
            beside.ledger_host if beside else LedgerHost(self.network, self.shape, clock=self.clock, dice=self.dice)
        )
        self.store = ObjectStore(clock=self.clock, rng=self.dice("uids"))
        self.api = Service(f"{name}api")
        self.underlay = Service(f"{name}underlay")
        self.underlay = Underlay(self.loop, self.dice("fabric")) if self.shape.underlay else None
        self.hosts: dict[str, Host] = {}
        self.controllers: dict[str, Process] = {}
        self.looks: list[Callable[[], None]] = []
        """Who looks at the cluster now and then."""
        self.losing_power: list[Callable[[str], None]] = []
        """Whom to tell that a machine is about to lose power."""
        self.restores = 0
        """How often the API server went back to an older copy,"""
        self.restored_at = -math.inf
        """and when it last did."""
        self._beside = beside
        self._starts = 0

    def dice(self, name: str) -> random.Random:
        """Make the randomness of one part."""
        return random.Random(f"{self.seed}/{self.name}{name}")  # noqa: S311  a simulation

    # The parts that are always there

    async def begin(self) -> None:
        """Start the API server, the ledger with its subnet, and the controllers."""
        for manifest in _definitions():
            self.store.create(CRDS, manifest)
        if self.shape.slices:
            nads.define(self.store, self.shape)
        self.start_api()
        if self.underlay:
            self.store.on_write.append(self.underlay.see)
            self.underlay.serve(self.underlay.handle, self._process(self.underlay.name))
        if self._beside is None:
            await self.ledger_host.start()
            self.loop.create_task(self.ledger_host.run())
        for number in range(self.shape.controllers):
            self.start_controller(f"{self.name}controller-{number}")

    def start_api(self) -> None:
        """Start the API server on what it has stored."""
        process = self._process(self.api.name)
        self.refusing = ApiErrorInjector(ResourceHandler(self.store), self._fresh_dice("refusals"))
        self.api.serve(self.refusing, process)
        process.spawn(run_garbage_collector(self.store))

    def restore_api(self, copy: StoreSnapshot) -> None:
        """Start the API server on an older copy of its objects.

        Kubelets whose Node is not in it register again, and whoever removed a machine deletes its Node and Pods again.
        """
        if self.api.process:
            self.api.process.kill()
        self.store.restore(copy)
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
        """Start one of the controllers; each has a replica of the ledger that it calls."""
        replicas = self.ledger_host.replicas
        process, ledger = self._process(name), replicas[[*self.controllers, name].index(name) % len(replicas)]
        controller = Controller(
            KubeClient(self.network.transport(name, self.api)),
            None if self.shape.slices else LedgerClient(self.network.transport(name, ledger)),
            settings=ControllerSettings(
                subnet=SUBNET,
                common=self.shape.settings,
                scarcity=self.shape.scarcity,
                pod_history=self.shape.pod_history,
                election=self.shape.election,
            ),
            clock=self.clock,
            rng=self._fresh_dice(name),
        )
        self.controllers[name] = process
        process.spawn(controller.run())

    # Machines

    def add_host(self, name: str) -> None:
        """Let a new machine join under a name."""
        host = Host(Machine(name, self.loop, self.dice(f"{name}/{self._starts}")))
        self.hosts[name] = host
        self.boot(name)

    def boot(self, name: str) -> None:
        """Start what runs on a machine that has just got power."""
        host = self.hosts[name]
        host.reads = {}
        self.register(name)
        host.kubelet = Kubelet(
            host.machine,
            host.socket,
            self.oracle,
            host.deletes,
            rng=self._fresh_dice(f"{name}/kubelet"),
            bound=lambda: self.pods_on(name) if host.stranded is None else host.stranded,
            networks=self._pod_networks(),
        )
        host.kubelet.start()
        self.start_agent(name)

    def _pod_networks(self) -> PodNetworks:
        if self.shape.slices:
            return nads.MultusNetworks(self.store, self.shape)
        return PodStatusReporter(self.store) if self.shape.shown else PodNetworks()

    def reboot(self, name: str) -> None:
        """Cut a machine's power and give it back: the Node stays, the boot id is new."""
        for tell in self.losing_power:
            tell(name)
        self.oracle.end_machine(name)
        self.hosts[name].machine.reboot()
        self.hosts[name].deletes = MachineDisk()  # on a tmpfs
        self.boot(name)

    def start_agent(self, name: str) -> None:
        """Start a machine's agent on what it has written."""
        host = self.hosts[name]
        process = host.machine.start("agent")
        road = self.network.transport(name, self.api)
        deps = AgentDeps(
            node=name,
            boot_id=host.machine.boot_id,
            kube=KubeClient(AgentInterceptor(road, machine=name, report=self._report, reads=host.reads)),
            disk=host.machine.disk,
            clock=host.machine.clock,
            rng=self._fresh_dice(f"{name}/agent"),
            settings=self.shape.settings,
            deferred_deletes=host.deletes,
            underlay=HostAgent(self.network.transport(name, self.underlay)) if self.underlay else None,
        )
        options = AgentOptions(
            nodes=max(len(self.hosts), 1),
            whereabouts_namespace="kube-system" if self.shape.slices else "",
            third_party_plugins=False,
            segment_bytes=SEGMENT,
        )
        agent = Agent(deps, options)
        host.agent, host.agent_process = agent, process
        host.socket.open(agent, process)
        process.spawn(agent.run())

    def kill_agent(self, name: str) -> None:
        """Kill a machine's agent between two awaits."""
        process = self.hosts[name].agent_process
        if process:
            process.kill()

    def remove_host(self, name: str) -> None:
        """Let a machine leave for good, and its Node with it, whose deletion says that its Pods have stopped."""
        host = self.hosts.pop(name, None)
        if host is None:
            return
        for process in host.machine.processes:
            process.kill()
        self.oracle.end_machine(name)
        for pod in self.pods_on(name).values():
            self.delete_pod(pod)
        self.delete_node(name)

    def strand(self, name: str) -> None:
        """Cut a machine off, its kubelet too: its Pods run on, whatever is said of them."""
        self.hosts[name].stranded = self.pods_on(name)
        self.network.partition(name, "api")

    def register(self, name: str) -> None:
        """Have a machine's kubelet register its Node, or report its new boot."""
        status = {"nodeInfo": {"bootID": self.hosts[name].machine.boot_id}}
        if name in self.nodes():
            self.store.update(NODES, name, lambda node: {**node, "status": status}, subresource="status")
        else:
            self.store.create(NODES, {"metadata": {"name": name}, "status": status})

    def delete_node(self, name: str) -> None:
        """Delete a Node object."""
        if name in self.nodes():
            self.store.delete(NODES, name)

    # Pods

    def bind(self, name: str) -> str:
        """Schedule a new Pod to a node; gives its key."""
        self._starts += 1
        pod = f"{self.name}pod-{self._starts}"
        made = self.store.create(
            PODS,
            {"metadata": {"name": pod, "namespace": "default"}, "spec": {"nodeName": name}},
            namespace="default",
        )
        return f"default/{made['metadata']['name']}"

    def delete_pod(self, key: str) -> None:
        """Delete a Pod at once, as `--force` does."""
        if key in self.store.objects("", "pods"):
            self.store.delete(PODS, key, grace=0)

    def pods_on(self, name: str) -> dict[str, str]:
        """List the Pods that should run on a node: their keys by UID."""
        pods = self.store.objects("", "pods").items()
        return {
            pod["metadata"]["uid"]: key
            for key, pod in pods
            if pod["spec"].get("nodeName") == name and pod.get("status", {}).get("phase") not in {"Succeeded", "Failed"}
        }

    def waiting_on(self, name: str) -> list[str]:
        """List the Pods of a machine that should run and do not."""
        kubelet = self.hosts[name].kubelet if name in self.hosts else None
        return kubelet.waiting() if kubelet else []

    def nodes(self) -> Mapping[str, Any]:
        """List the Node objects by name."""
        return self.store.objects("", "nodes")

    def configs(self) -> Mapping[str, Any]:
        """List the NNCs by node name."""
        found = self.store.objects("acn.azure.com", "nodenetworkconfigs")
        return {key.rpartition("/")[2]: config for key, config in found.items()}

    # What the books say, looked at from outside: no network, no time

    def records(self) -> dict[str, list[NetworkContainerRecord]]:
        """List the cluster's containers that are not closed, by the name of their node."""
        return self.ledger_host.records(self.store.objects("", "namespaces")["kube-system"]["metadata"]["uid"])

    def owners(self) -> dict[str, str]:
        """List which node has which address."""
        found = [record for records in self.records().values() for record in records]
        return {grant.address: record.node for record in found for grant in record.state.grants}

    def batch(self) -> int:
        """Tell the batch in force in this cluster."""
        scaler = self._shown_subnet().get("status", {}).get("scaler", {})
        return int(scaler.get("batch") or self.ledger_host.subnet().scaler.batch)

    def is_pinned(self) -> bool:
        """Tell whether somebody insists on a batch and buffer in this cluster."""
        return bool(self._shown_subnet().get("spec", {}).get("scaler"))

    def _shown_subnet(self) -> Any:  # noqa: ANN401  JSON
        return self.store.objects("acn.azure.com", "clustersubnets").get(f"kube-system/{SUBNET.name}", {})

    def written(self) -> dict[str, str]:
        """Tell the version of everything in cluster and ledger, and who asked the API server how often for a change.

        But for the leader's Lease, and the counts of Events, which are written minutes later. Where Pods try in vain to
        get addresses of all their networks, IPPools show it. Calls to the ledger do not count: some only compare.
        """
        trying = self.shape.networks > 1 and any(map(self.waiting_on, self.hosts))
        objects = {
            f"{self.name}{served.plural} {key}": "" if served.plural == "events" else obj["metadata"]["resourceVersion"]
            for served, key, obj in self.store.everything()
            if not (trying and served.plural == "ippools") and key != f"kube-system/{LEASE}"
        }
        apart = ("/events/", f"/leases/{LEASE}", *(("/ippools",) if trying else ()))
        asked = {
            f"what {source} asked for, {what}": str(count)
            for (source, target, what), count in self.network.writes.items()
            if target == self.api.name and not any(each in what for each in apart)
        }
        return {**objects, **asked, "the books": str(self.ledger_host.subnet().revision)}

    # Helpers

    def edit_request(self, name: str, requested: int, *, names: Sequence[str] | None = None) -> None:
        """Have somebody edit a node's request by hand, perhaps with names that are to be released."""
        key = f"kube-system/{name}"
        served = self.store.registry.find("acn.azure.com", "v1alpha", "nodenetworkconfigs")
        spec = {"requestedIPCount": requested} | ({} if names is None else {"ipsNotInUse": list(names)})
        if key in self.store.objects("acn.azure.com", "nodenetworkconfigs"):
            self.store.update(served, key, lambda config: {**config, "spec": {**config["spec"], **spec}})

    def edit_scaler(self, scaler: Mapping[str, float]) -> None:
        """Have somebody insist on a batch and buffer for this cluster, or, with nothing, no longer."""
        served = self.store.registry.find("acn.azure.com", "v1alpha1", "clustersubnets")
        if (key := f"kube-system/{SUBNET.name}") in self.store.objects("acn.azure.com", "clustersubnets"):
            self.store.update(served, key, lambda subnet: {**subnet, "spec": {"scaler": dict(scaler)}})

    def meddle(self, name: str, change: Callable[[Any], Any], *, sub: str | None = None) -> None:
        """Have somebody change a node's NNC by hand, or delete it, when there is nothing left of it."""
        key = f"kube-system/{name}"
        served = self.store.registry.find("acn.azure.com", "v1alpha", "nodenetworkconfigs")
        config = self.store.objects("acn.azure.com", "nodenetworkconfigs").get(key)
        if config is None:
            return
        if change(config) is None:
            self.store.delete(served, key)
        else:
            self.store.update(served, key, change, subresource=sub)

    def delete_subnet(self) -> None:
        """Have somebody delete the ClusterSubnet and the ClusterSubnetState."""
        for plural in ("clustersubnets", "clustersubnetstates"):
            if (key := f"kube-system/{SUBNET.name}") in self.store.objects("acn.azure.com", plural):
                self.store.delete(self.store.registry.find("acn.azure.com", "v1alpha1", plural), key)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and raise what went wrong meanwhile."""
        await asyncio.sleep(seconds)
        self.look()

    def look(self) -> None:
        """Look at everything, and raise what is wrong."""
        self.raise_failures()
        for look in self.looks:
            look()

    def raise_failures(self) -> None:
        """Raise what failed where nobody awaited it."""
        for failure in self.loop.failures:
            error = failure.get("exception")
            if isinstance(error, BaseException):
                raise error
            raise RuntimeError(failure.get("message"))

    def _report(self, violation: Violation) -> None:
        """Take note of something wrong that was seen on the way: it is raised at the next look."""
        self.loop.call_exception_handler({"message": str(violation), "exception": violation})

    def _process(self, name: str) -> Process:
        return Process(name, self.loop)

    def _fresh_dice(self, name: str) -> random.Random:
        self._starts += 1
        return self.dice(f"{name}/{self._starts}")
