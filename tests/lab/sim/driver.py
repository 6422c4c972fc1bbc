"""The driver of hand-written scenarios: steps on a small cluster, with periodic checks."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from podpool.core.settings import Settings
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.convergence import check_converged
from podpool.lab.sim.invariants import InvariantChecker
from podpool.lab.sim.network import MessageFilter, MessageHold
from podpool.lab.sim.profiles import SimConfig
from podpool.ledger.messages import ReconcileItem, ReconcileRequest

CHECK_INTERVAL = 0.5
SETTINGS = Settings(
    batch=4,
    shrink_hold=5.0,
    step_up_hold=10.0,
    cooldown_roomy=12.0,
    cooldown_filling=8.0,
    cooldown_exhausted=2.0,
    fence=30.0,
    confirmation_interval=10.0,
    node_gc_delay=45.0,
    clock_error=5.0,
    reserved_for_primaries=2,
)
"""Scenarios rely on them: a node with up to 2 Pods has 3 addresses, with 6 it has 7; node GC takes a minute."""
WIDE = SimConfig(settings=SETTINGS)
NARROW = SimConfig(cidr="10.0.0.0/28", settings=SETTINGS)
"""Ten addresses for Pods on one node, nine on two: what one releases, the other gets."""


class ScenarioDriver:
    """Steps on a cluster."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster

    async def run_for(self, seconds: float) -> None:
        """Let time pass, with periodic checks."""
        for _ in range(round(seconds / CHECK_INTERVAL)):
            await asyncio.sleep(CHECK_INTERVAL)
            self.check()

    async def wait_until(self, condition: Callable[[], object], *, within: float = 30.0) -> None:
        """Let time pass until a condition holds, which the scenario needs."""
        end = self.cluster.loop.time() + within
        while not condition():
            if self.cluster.loop.time() > end:
                raise AssertionError(f"the condition does not hold within {within:g} s")
            await asyncio.sleep(0.02)
            self.check()

    def check(self) -> None:
        """Raise what is wrong."""
        self.cluster.raise_failures()
        self.cluster.check()

    async def converge(self, seconds: float) -> None:
        """Let time pass, then check convergence."""
        await self.run_for(seconds)
        check_converged(self.cluster)

    async def join(self, *names: str) -> None:
        """Add machines, and wait for their first batch."""
        for name in names:
            self.cluster.add_host(name)
        await self.run_for(2)
        assert all(self.listed_addresses(name) for name in names)

    async def serve_pods(self, name: str, pods: int = 6) -> list[str]:
        """Bind Pods, and wait until all of the node have addresses."""
        bound = self.bind(name, pods)
        await self.wait_until(lambda: self.served(name) == len(self.cluster.pods_on(name)))
        return bound

    async def shrink(self, name: str, message: MessageFilter) -> MessageHold:
        """Serve 6 Pods and delete 5, so that the node releases 4 of 7 addresses; hold a message about that."""
        pods = await self.serve_pods(name)
        hold = self.hold(message)
        self.delete_pods(pods[1:])
        await self.wait_until(lambda: hold.messages)
        return hold

    async def hold_node_gc(self, name: str) -> MessageHold:
        """Delete a Node, and hold the call by which the leader closes its network container."""
        call = self.hold(reconcile_calls(lambda item: item.node_gone))
        self.cluster.delete_node(name)
        await self.wait_until(lambda: call.messages, within=60)
        return call

    def bind(self, name: str, pods: int) -> list[str]:
        """Bind Pods to a node."""
        return [self.cluster.bind(name) for _ in range(pods)]

    def delete_pods(self, pods: list[str]) -> None:
        """Delete Pods."""
        for pod in pods:
            self.cluster.delete_pod(pod)

    def served(self, name: str) -> int:
        """Return the number of Pods on a machine that have an address."""
        return len(self.cluster.oracle.uses_on(name))

    def nnc_spec(self, name: str) -> dict[str, Any]:
        """Return the spec of a node's NNC."""
        found: dict[str, Any] = self.cluster.nncs()[name]["spec"]
        return found

    def pending_release(self, name: str) -> list[str]:
        """Return the grants that a node's NNC releases."""
        return list(self.nnc_spec(name).get("ipsNotInUse", ()))

    def listed_addresses(self, name: str) -> list[str]:
        """Return the addresses in the status of a node's NNC."""
        status = self.cluster.nncs().get(name, {}).get("status", {})
        ncs = status.get("networkContainers", ())
        return [each["ip"] for nc in ncs for each in nc.get("ipAssignments", ())]

    def restart_agent(self, name: str) -> None:
        """Kill an agent, and start it again on its files."""
        self.cluster.kill_agent(name)
        self.cluster.start_agent(name)

    def pause_controllers(self) -> None:
        """Pause all controllers."""
        for process in self.cluster.controllers.values():
            process.pause()

    def resume_controllers(self) -> None:
        """Resume all controllers."""
        for process in self.cluster.controllers.values():
            process.resume()

    def hold(self, matches: MessageFilter, *, limit: int | None = 1, responses: bool = False) -> MessageHold:
        """Hold messages in flight."""
        return self.cluster.network.hold(matches, limit=limit, responses=responses)


Scenario = Callable[[ScenarioDriver], Awaitable[None]]


def run_scenario(
    scenario: Scenario,
    *,
    seed: int,
    config: SimConfig,
    checker: Callable[[SimCluster], object] | None = InvariantChecker,
) -> None:
    """Run a scenario on a new cluster; raises violations."""
    cluster = SimCluster(seed, config)
    if checker:
        checker(cluster)

    async def run() -> None:
        await cluster.start()
        await scenario(ScenarioDriver(cluster))

    try:
        cluster.loop.run_until_complete(run())
    finally:
        cluster.loop.shutdown()


# filters of messages to hold


def nnc_patches_of(name: str) -> MessageFilter:
    """Match an agent's patches of its NNC."""
    return lambda each: (
        each.source == name
        and each.request.method == "PATCH"
        and each.request.path.endswith(f"/nodenetworkconfigs/{name}")
    )


def nnc_status_writes_of(name: str) -> MessageFilter:
    """Match a controller's writes of a node's NNC status."""
    return lambda each: each.request.path.endswith(f"/nodenetworkconfigs/{name}/status")


def reconcile_calls(matches: Callable[[ReconcileItem], object]) -> MessageFilter:
    """Match a controller's reconcile calls of the ledger with a matching item."""
    return lambda each: (
        each.request.path == "/v1/reconcile"
        and any(map(matches, msgspec.json.decode(each.request.body, type=ReconcileRequest).items))
    )


def reads_of(plural: str, source: str) -> MessageFilter:
    """Match lists and watches of a whole resource."""
    return lambda each: (
        each.source.startswith(source) and each.request.method == "GET" and each.request.path.endswith(f"/{plural}")
    )
