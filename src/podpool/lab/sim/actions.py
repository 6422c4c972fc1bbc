"""Fault injection: the actions of a scenario on one cluster, each a method of its name.

Faults end by themselves: what is killed is started again, partitions heal, so that every scenario ends in a cluster
that can converge. An action that cannot apply has no effect.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from podpool.lab.apiserver.registry import PODS
from podpool.lab.sim import manual_edits
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.machine import MachineDisk, SimProcess
from podpool.lab.sim.profiles import Profile
from podpool.lab.sim.sandbox_actions import SandboxActions
from podpool.lab.sim.scenario import ScenarioEvent

if TYPE_CHECKING:
    from podpool.lab.apiserver.store import StoreSnapshot

MAX_STEPS_BEFORE_KILL = 40
"""Callbacks that a process still runs before it is killed: the work on a message or a few."""
LEDGER_CLOCK_STEPS = (60.0, 86_400.0, 31 * 86_400.0)
WRONG_CLOCK_PROBABILITY = 0.5
CHECKSUMMED_FILES = ("segment.", "snapshot")
"""Prefixes of the files whose damage an agent detects."""


class FaultInjector(SandboxActions):
    """Applies the actions of a scenario to a cluster, with its own random stream."""

    def __init__(self, cluster: SimCluster, profile: Profile) -> None:
        self._cluster = cluster
        self._profile = profile
        self._rng = cluster.rng("stage")
        self._pending: list[asyncio.Task[None]] = []
        self._scheduled_kills: list[SimProcess] = []
        self._ledger_backup: bytes | None = None
        self._api_backup: StoreSnapshot | None = None

    async def finish(self) -> None:
        """Wait until every fault has ended."""
        self._cluster.store.lag = lambda: 0
        for process in self._scheduled_kills:
            process.cancel_kill()
        for task in self._pending:
            await task

    def _after(self, seconds: float, action: Callable[[], None]) -> None:
        async def run() -> None:
            await asyncio.sleep(seconds)
            action()

        self._pending.append(self._cluster.loop.create_task(run()))

    def _kill(self, process: SimProcess | None, then: Callable[[], None]) -> None:
        """Kill a process after a few more of its steps."""
        if process and process.alive:
            process.schedule_kill(self._rng.randint(1, MAX_STEPS_BEFORE_KILL), then)
            self._scheduled_kills.append(process)

    # workload

    def join(self, event: ScenarioEvent) -> None:
        """Add a machine."""
        if event.node not in self._cluster.hosts:
            self._cluster.add_host(event.node)

    def bind_pod(self, event: ScenarioEvent) -> None:
        """Bind a Pod to a node."""
        if event.node in self._cluster.hosts:
            self._cluster.bind(event.node)

    def bind_burst(self, event: ScenarioEvent) -> None:
        """Bind many Pods at once."""
        for _ in range(self._profile.burst):
            self.bind_pod(event)

    def delete_pod(self, event: ScenarioEvent) -> None:
        """Delete a Pod."""
        pod = self._random_pod(event.node)
        if pod:
            self._cluster.delete_pod(pod)

    def finish_pod(self, event: ScenarioEvent) -> None:
        """Let a Pod succeed."""
        pod = self._random_pod(event.node)
        if pod:
            status = {"status": {"phase": "Succeeded"}}
            self._cluster.store.update(PODS, pod, lambda old: {**old, **status}, subresource="status")

    def _random_pod(self, node: str) -> str | None:
        pods = sorted(self._cluster.pods_on(node).values())
        return self._rng.choice(pods) if pods else None

    # manual edits

    def edit_request(self, event: ScenarioEvent) -> None:
        """Edit the request in an NNC."""
        manual_edits.edit_request(self._cluster.store, event.node, int(event.amount))

    def edit_scaler(self, event: ScenarioEvent) -> None:
        """Set the scaler override of the ClusterSubnet, or remove it."""
        override = {"batch": 2, "buffer": 0.5} if int(event.amount) % 2 else {}
        manual_edits.edit_scaler(self._cluster.store, override)

    def delete_nnc(self, event: ScenarioEvent) -> None:
        """Delete an NNC."""
        manual_edits.delete_nnc(self._cluster.store, event.node)

    def clear_nnc_status(self, event: ScenarioEvent) -> None:
        """Empty the status of an NNC."""
        manual_edits.clear_nnc_status(self._cluster.store, event.node)

    def strip_nnc_metadata(self, event: ScenarioEvent) -> None:
        """Remove owner and finalizers of an NNC."""
        manual_edits.strip_nnc_metadata(self._cluster.store, event.node)

    def delete_subnet(self, _: ScenarioEvent) -> None:
        """Delete the ClusterSubnet and the ClusterSubnetState."""
        manual_edits.delete_subnet(self._cluster.store)

    # faults of machines

    def kill_agent(self, event: ScenarioEvent) -> None:
        """Kill an agent, and start it again later."""
        if event.node in self._cluster.hosts:
            self._kill(self._cluster.hosts[event.node].agent_process, lambda: self._start_agent_later(event))

    def _start_agent_later(self, event: ScenarioEvent) -> None:
        if event.node in self._cluster.hosts:
            boot = self._cluster.hosts[event.node].machine.boot_id
            self._after(event.amount, lambda: self._start_agent(event.node, boot))

    def _start_agent(self, node: str, boot: str) -> None:
        host = self._cluster.hosts.get(node)
        if host and host.machine.boot_id == boot and not host.machine.running("agent"):
            self._cluster.start_agent(node)

    def overlap_agents(self, event: ScenarioEvent) -> None:
        """Start a second agent on the files of the first, and kill one of them later."""
        if event.node in self._cluster.hosts:
            machine = self._cluster.hosts[event.node].machine
            if len(machine.running("agent")) == 1:
                self._cluster.start_agent(event.node)
                ending, boot = self._rng.choice(machine.running("agent")), machine.boot_id
                self._after(event.amount, lambda: self._end_overlap(event.node, boot, ending))

    def _end_overlap(self, node: str, boot: str, ending: SimProcess) -> None:
        ending.kill()
        self._start_agent(node, boot)  # if the other one was killed meanwhile

    def fail_sync(self, event: ScenarioEvent) -> None:
        """Let the next sync of a machine's disk fail and drop what it should have written."""
        if event.node in self._cluster.hosts:
            self._cluster.hosts[event.node].machine.disk.failing_syncs = 1

    def lose_journal(self, event: ScenarioEvent) -> None:
        """Kill an agent, and remove its files."""
        self._change_files(event, lambda disk, name: disk.remove(name))

    def damage_journal(self, event: ScenarioEvent) -> None:
        """Kill an agent, and change a byte in each file of its journal."""
        self._change_files(event, lambda disk, name: disk.damage(name, self._rng), prefixes=CHECKSUMMED_FILES)

    def _change_files(
        self, event: ScenarioEvent, change: Callable[[MachineDisk, str], None], *, prefixes: tuple[str, ...] = ("",)
    ) -> None:
        if event.node in self._cluster.hosts:
            self._cluster.kill_agent(event.node)
            self._start_agent_later(event)
            machine = self._cluster.hosts[event.node].machine
            machine.journal_faults += 1
            for name in filter(lambda each: each.startswith(prefixes), machine.disk.names()):
                change(machine.disk, name)

    def pause_machine(self, event: ScenarioEvent) -> None:
        """Pause all processes of a machine, while its clocks run on."""
        if event.node in self._cluster.hosts:
            for process in tuple(self._cluster.hosts[event.node].machine.processes):
                process.pause()
                self._after(event.amount, process.resume)

    def reboot(self, event: ScenarioEvent) -> None:
        """Reboot a machine in the middle of its agent's work."""
        if event.node in self._cluster.hosts:
            self._kill(self._cluster.hosts[event.node].agent_process, lambda: self._reboot(event.node))

    def _reboot(self, node: str) -> None:
        if node in self._cluster.hosts:
            self._cluster.reboot(node)

    def set_clock(self, event: ScenarioEvent) -> None:
        """Set a machine's wall clock, within the tolerated clock error."""
        if event.node in self._cluster.hosts:
            error = self._cluster.config.settings.clock_error
            self._cluster.hosts[event.node].machine.clock.wall_error = self._rng.uniform(-error, error)

    def step_clock(self, event: ScenarioEvent) -> None:
        """Set a machine's wall clock by more than the fence time, forward or back."""
        if event.node in self._cluster.hosts:
            step = self._cluster.config.settings.fence * self._rng.uniform(1.0, 10.0)
            self._cluster.hosts[event.node].machine.clock.wall_error += self._rng.choice((-step, step))

    def partition_node(self, event: ScenarioEvent) -> None:
        """Partition a machine from the API server, for long."""
        api = self._cluster.api.name
        self._cluster.network.partition(event.node, api)
        self._after(10 * event.amount, lambda: self._cluster.network.heal(event.node, api))

    def reregister_node(self, event: ScenarioEvent) -> None:
        """Delete a Node whose machine runs on; its kubelet registers it again, with its Pods still running."""
        if event.node in self._cluster.hosts:
            self._cluster.delete_node(event.node)
            self._after(event.amount, lambda: self._register(event.node))

    def _register(self, node: str) -> None:
        if node in self._cluster.hosts:
            self._cluster.register(node)

    def remove_machine(self, event: ScenarioEvent) -> None:
        """Remove a machine for good."""
        self._cluster.remove_host(event.node)

    def replace_machine(self, event: ScenarioEvent) -> None:
        """Replace a machine by a new one under the same name."""
        if event.node in self._cluster.hosts:
            self._cluster.remove_host(event.node)
            self._after(event.amount, lambda: self.join(event))

    # faults of controllers and API server

    def kill_controller(self, event: ScenarioEvent) -> None:
        """Kill a controller, and start it again later."""
        name = self._random_controller()
        restart = partial(self._start_controller, name)
        self._kill(self._cluster.controllers[name], lambda: self._after(event.amount, restart))

    def _start_controller(self, name: str) -> None:
        if not self._cluster.controllers[name].alive:
            self._cluster.start_controller(name)

    def pause_controller(self, event: ScenarioEvent) -> None:
        """Pause a controller, often for longer than its Lease lasts."""
        process = self._cluster.controllers[self._random_controller()]
        process.pause()
        self._after(2 * event.amount, process.resume)

    def partition_controller(self, event: ScenarioEvent) -> None:
        """Partition a controller from the API server, but not from the ledger."""
        name, api = self._random_controller(), self._cluster.api.name
        self._cluster.network.partition(name, api)
        self._after(3 * event.amount, lambda: self._cluster.network.heal(name, api))

    def partition_ledger(self, event: ScenarioEvent) -> None:
        """Partition a controller from the ledger."""
        name, network = self._random_controller(), self._cluster.network
        for replica in self._cluster.ledger_host.replicas:
            network.partition(name, replica.name)
            self._after(event.amount, partial(network.heal, name, replica.name))

    def _random_controller(self) -> str:
        return self._rng.choice(sorted(self._cluster.controllers))

    def kill_api(self, event: ScenarioEvent) -> None:
        """Kill the API server, and start it again later."""
        self._kill(self._cluster.api.process, lambda: self._on_api_exit(event))

    def _on_api_exit(self, event: ScenarioEvent) -> None:
        self._cluster.store.stop_watches()
        self._after(event.amount, self._start_api)

    def _start_api(self) -> None:
        if not self._cluster.api.up:
            self._cluster.start_api()

    def stale_lists(self, event: ScenarioEvent) -> None:
        """Let cached lists lag behind."""
        lag = int(event.amount)
        self._cluster.store.lag = lambda: lag
        self._after(event.amount, self._fresh_lists)

    def _fresh_lists(self) -> None:
        self._cluster.store.lag = lambda: 0

    # faults of the ledger, and restores

    def kill_ledger(self, event: ScenarioEvent) -> None:
        """Kill a replica of the ledger, and start it again later."""
        replicas = self._cluster.ledger_host.replicas
        number = self._rng.randrange(len(replicas))
        restart = partial(self._start_ledger, number)
        self._kill(replicas[number].process, lambda: self._after(event.amount, restart))

    def _start_ledger(self, number: int) -> None:
        if not self._cluster.ledger_host.replicas[number].up:
            self._cluster.ledger_host.start_replica(number)

    def set_ledger_clock(self, _: ScenarioEvent) -> None:
        """Set the wall clock of the ledger's machine, by a minute, a day or a month."""
        self._cluster.ledger_host.clock.wall_error += self._rng.choice((-1, 1)) * self._rng.choice(LEDGER_CLOCK_STEPS)

    def reboot_ledger(self, event: ScenarioEvent) -> None:
        """Reboot the machine of the ledger, whose clock may be wrong afterwards."""
        if self._rng.random() < WRONG_CLOCK_PROBABILITY:
            self.set_ledger_clock(event)
        self._cluster.ledger_host.reboot()
        for number in range(len(self._cluster.ledger_host.replicas)):
            self._after(event.amount, partial(self._start_ledger, number))

    def back_up(self, _: ScenarioEvent) -> None:
        """Copy the ledger's database and the API server's objects."""
        self._ledger_backup, self._api_backup = self._cluster.ledger_host.image(), self._cluster.store.snapshot()

    def restore_ledger(self, _: ScenarioEvent) -> None:
        """Restore the ledger from its copy."""
        if self._ledger_backup is not None:
            self._cluster.ledger_host.restore(self._ledger_backup)

    def restore_api(self, _: ScenarioEvent) -> None:
        """Restore the API server from its copy."""
        if self._api_backup is not None:
            self._cluster.restore_api(self._api_backup)

    def restore_both(self, event: ScenarioEvent) -> None:
        """Restore both from their copies."""
        self.restore_ledger(event)
        self.restore_api(event)
