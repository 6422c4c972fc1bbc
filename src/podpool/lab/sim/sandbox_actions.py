"""Fault injection in container runtimes: lost DELs, ADDs that are given up, and what an agent sees of sandboxes."""

from collections.abc import Callable, Iterator
from functools import partial

from podpool.cni.protocol import decode_request
from podpool.lab.sim.cluster import SimCluster, SimHost
from podpool.lab.sim.container_runtime import SimRuntime, SocketState
from podpool.lab.sim.profiles import Profile
from podpool.lab.sim.scenario import ScenarioEvent


class SandboxActions:
    """Actions on the runtime of one machine; each ends by itself."""

    _cluster: SimCluster
    _profile: Profile

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        raise NotImplementedError

    def _random_pod(self, node: str) -> str | None:
        raise NotImplementedError

    def lose_dels(self, event: ScenarioEvent) -> None:
        """Let sandboxes end without a DEL, for a while."""
        self._for_a_while(event, "loses_dels", value=True)

    def give_up_adds(self, event: ScenarioEvent) -> None:
        """Let the runtime give up ADDs whose plugins go on, for a while."""
        self._for_a_while(event, "gives_up_adds", value=True)

    def slow_add_chain(self, event: ScenarioEvent) -> None:
        """List sandboxes long after their ADDs, for a while."""
        self._for_a_while(event, "chain_seconds", value=event.amount)

    def wrong_runtime_socket(self, event: ScenarioEvent) -> None:
        """Let the agent list the sandboxes of another runtime, for a while."""
        self._for_a_while(event, "socket", value=SocketState.OTHER_RUNTIME)

    def close_runtime_socket(self, event: ScenarioEvent) -> None:
        """Let the agent reach no runtime, for a while."""
        self._for_a_while(event, "socket", value=SocketState.NOTHING)

    def _for_a_while(self, event: ScenarioEvent, attribute: str, *, value: object) -> None:
        for host in self._hosts(event):
            setattr(host.runtime, attribute, value)
            self._after(event.amount, partial(setattr, host.runtime, attribute, getattr(SimRuntime(), attribute)))

    def kill_runtime(self, event: ScenarioEvent) -> None:
        """Kill the runtime, which forgets the sandboxes that it is creating or removing."""
        for host in self._hosts(event):
            if host.kubelet:
                host.kubelet.restart()

    def delete_deferred_dels(self, event: ScenarioEvent) -> None:
        """Delete the DELs that were left for the agent."""
        for host in self._hosts(event):
            left = host.runtime.deferred_deletes
            for name in left.names():
                request = decode_request(left.read(name) or b"")
                host.runtime.lose(request.container_id, request.arguments()["K8S_POD_UID"])
                left.remove(name)

    def bind_static_pod(self, event: ScenarioEvent) -> None:
        """Bind a static Pod, whose mirror Pod has another UID than its sandbox."""
        if event.node in self._cluster.hosts:
            self._cluster.bind(event.node, static=True)

    def outlive_pod(self, event: ScenarioEvent) -> None:
        """Force-delete a Pod whose sandbox runs on, for a while."""
        pod = self._random_pod(event.node)
        for host in self._hosts(event):
            if pod and host.kubelet:
                uid = next(uid for uid, key in self._cluster.pods_on(event.node).items() if key == pod)
                host.kubelet.outlive(uid, pod)
                self._cluster.delete_pod(pod)
                self._after(self._profile.outliving_factor * event.amount, partial(host.kubelet.end_outliving, uid))

    def _hosts(self, event: ScenarioEvent) -> Iterator[SimHost]:
        """Return the machine of an event, if it exists."""
        return (host for name, host in self._cluster.hosts.items() if name == event.node)
