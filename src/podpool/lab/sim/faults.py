"""What can happen to one cluster: the events of a plan, each a method of its name.

Faults end by themselves: what is killed is started again after a while, what is cut is mended, so that every plan ends
in a cluster that could be well. An event that makes no sense at its moment does nothing.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from podpool.lab.apiserver.registry import PODS
from podpool.lab.sim.machine import MachineDisk, Process
from podpool.lab.sim.scenario import Profile, Event
from podpool.lab.sim.cluster import SimCluster

if TYPE_CHECKING:
    from podpool.lab.apiserver.store import StoreSnapshot

MOST_STEPS = 40
"""Steps that a process does at the most before it dies: what it does on one message, or on a few."""
JOURNAL = ("segment.", "snapshot")
"""Files whose bytes are checked when they are read."""


class FaultInjector:
    """Done to a cluster, with dice of its own."""

    def __init__(self, cluster: SimCluster, climate: Profile) -> None:
        self._cluster = cluster
        self._climate = climate
        self._dice = cluster.dice("stage")
        self._later: list[asyncio.Task[None]] = []
        self._doomed: list[Process] = []
        self._image: bytes | None = None
        self._copy: StoreSnapshot | None = None

    async def ended(self) -> None:
        """Wait until every fault has ended."""
        self._cluster.store.lag = lambda: 0
        for process in self._doomed:
            process.pardon()
        for task in self._later:
            await task

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        async def later() -> None:
            await asyncio.sleep(seconds)
            act()

        self._later.append(self._cluster.loop.create_task(later()))

    def _kill(self, process: Process | None, died: Callable[[], None]) -> None:
        """Kill a process in the midst of its work: after a few more steps of its own."""
        if process and process.alive:
            process.doom(self._dice.randint(1, MOST_STEPS), died)
            self._doomed.append(process)

    # The workload

    def join(self, event: Event) -> None:
        """A machine joins."""
        if event.node not in self._cluster.hosts:
            self._cluster.add_host(event.node)

    def bind(self, event: Event) -> None:
        """A Pod is scheduled."""
        if event.node in self._cluster.hosts:
            self._cluster.bind(event.node)

    def burst(self, event: Event) -> None:
        """Many Pods are scheduled at once."""
        for _ in range(self._climate.burst):
            self.bind(event)

    def delete_pod(self, event: Event) -> None:
        """A Pod is deleted."""
        pod = self._some_pod(event.node)
        if pod:
            self._cluster.delete_pod(pod)

    def finish_pod(self, event: Event) -> None:
        """A Pod ends by itself."""
        pod = self._some_pod(event.node)
        if pod:
            self._cluster.store.update(PODS, pod, lambda old: {**old, "status": {"phase": "Succeeded"}}, subresource="status")

    def _some_pod(self, node: str) -> str | None:
        pods = sorted(self._cluster.pods_on(node).values())
        return self._dice.choice(pods) if pods else None

    def edit_request(self, event: Event) -> None:
        """Somebody edits a request by hand."""
        self._cluster.edit_request(event.node, int(event.amount))

    def edit_scaler(self, event: Event) -> None:
        """Somebody insists on a batch, or no longer does."""
        self._cluster.edit_scaler({"batch": 2, "buffer": 0.5} if int(event.amount) % 2 else {})

    # People who meddle

    def delete_config(self, event: Event) -> None:
        """Somebody deletes an NNC."""
        self._cluster.meddle(event.node, lambda _: None)

    def strip_status(self, event: Event) -> None:
        """Somebody empties the status of an NNC."""
        self._cluster.meddle(event.node, lambda config: {**config, "status": {}}, sub="status")

    def strip_config(self, event: Event) -> None:
        """Somebody removes owner and finalizers of an NNC."""
        bare: dict[str, list[str]] = {"ownerReferences": [], "finalizers": []}
        self._cluster.meddle(event.node, lambda config: {**config, "metadata": {**config["metadata"], **bare}})

    def delete_subnet(self, _: Event) -> None:
        """Somebody deletes what agents read of the subnet."""
        self._cluster.delete_subnet()

    # The faults of machines

    def kill_agent(self, event: Event) -> None:
        """An agent is killed between two awaits."""
        if event.node in self._cluster.hosts:
            self._kill(self._cluster.hosts[event.node].agent_process, lambda: self._start_agent_later(event))

    def _start_agent_later(self, event: Event) -> None:
        if event.node in self._cluster.hosts:
            boot = self._cluster.hosts[event.node].machine.boot_id
            self._after(event.amount, lambda: self._agent_again(event.node, boot))

    def _agent_again(self, node: str, boot: str) -> None:
        host = self._cluster.hosts.get(node)
        if host and host.machine.boot_id == boot and not (host.agent_process and host.agent_process.alive):
            self._cluster.start_agent(node)

    def lose_journal(self, event: Event) -> None:
        """An agent is killed, and its journal is gone."""
        self._spoil(event, lambda disk, name: disk.remove(name))

    def damage_journal(self, event: Event) -> None:
        """An agent is killed, and a byte of its journal is another."""
        self._spoil(event, lambda disk, name: disk.damage(name, self._dice), only=JOURNAL)

    def _spoil(self, event: Event, spoil: Callable[[MachineDisk, str], None], *, only: tuple[str, ...] = ("",)) -> None:
        if event.node in self._cluster.hosts:
            self._cluster.kill_agent(event.node)
            self._start_agent_later(event)
            machine = self._cluster.hosts[event.node].machine
            machine.spoilt, disk = machine.spoilt + 1, machine.disk
            for name in filter(lambda each: each.startswith(only), disk.names()):
                spoil(disk, name)

    def pause_machine(self, event: Event) -> None:
        """Nothing runs on a machine for a while, and its clocks go on."""
        if event.node in self._cluster.hosts:
            for process in tuple(self._cluster.hosts[event.node].machine.processes):
                process.pause()
                self._after(event.amount, process.resume)

    def reboot(self, event: Event) -> None:
        """A machine loses power, in the midst of what its agent does."""
        if event.node in self._cluster.hosts:
            self._kill(self._cluster.hosts[event.node].agent_process, lambda: self._reboot(event.node))

    def _reboot(self, node: str) -> None:
        if node in self._cluster.hosts:
            self._cluster.reboot(node)

    def set_clock(self, event: Event) -> None:
        """Somebody sets a machine's wall clock, as wrong as clocks may be."""
        if event.node in self._cluster.hosts:
            error = self._cluster.shape.settings.clock_error
            self._cluster.hosts[event.node].machine.clock.wall_error = self._dice.uniform(-error, error)

    def cut_api(self, event: Event) -> None:
        """A machine is cut off, for long."""
        self._cluster.network.partition(event.node, self._cluster.api.name)
        self._after(10 * event.amount, lambda: self._cluster.network.heal(event.node, self._cluster.api.name))

    def delete_and_register(self, event: Event) -> None:
        """Somebody deletes a Node whose machine lives on: its kubelet registers it again, its Pods still running."""
        if event.node in self._cluster.hosts:
            self._cluster.delete_node(event.node)
            self._after(event.amount, lambda: self._registered_again(event.node))

    def _registered_again(self, node: str) -> None:
        if node in self._cluster.hosts:
            self._cluster.register(node)

    def leave(self, event: Event) -> None:
        """A machine leaves for good."""
        self._cluster.remove_host(event.node)

    def replace(self, event: Event) -> None:
        """Another machine takes over a name: it inherits nothing."""
        if event.node in self._cluster.hosts:
            self._cluster.remove_host(event.node)
            self._after(event.amount, lambda: self.join(event))

    # The faults of controllers and API servers

    def kill_controller(self, event: Event) -> None:
        """A controller is killed."""
        name = self._some_controller()
        again = partial(self._controller_again, name)
        self._kill(self._cluster.controllers[name], lambda: self._after(event.amount, again))

    def _controller_again(self, name: str) -> None:
        if not self._cluster.controllers[name].alive:
            self._cluster.start_controller(name)

    def pause_controller(self, event: Event) -> None:
        """A controller stands still, often for longer than its lead lasts, and goes on as if nothing had been."""
        process = self._cluster.controllers[self._some_controller()]
        process.pause()
        self._after(2 * event.amount, process.resume)

    def cut_controller(self, event: Event) -> None:
        """A controller is cut off from the API server, and not from the ledger."""
        name, api = self._some_controller(), self._cluster.api.name
        self._cluster.network.partition(name, api)
        self._after(3 * event.amount, lambda: self._cluster.network.heal(name, api))

    def cut_ledger(self, event: Event) -> None:
        """A controller cannot reach the ledger."""
        name = self._some_controller()
        for replica in self._cluster.ledger_host.replicas:
            self._cluster.network.partition(name, replica.name)
            self._after(event.amount, lambda at=replica.name: self._cluster.network.heal(name, at))  # type: ignore[misc]  # its default is a str

    def _some_controller(self) -> str:
        return self._dice.choice(sorted(self._cluster.controllers))

    def kill_api(self, event: Event) -> None:
        """The API server is killed."""
        self._kill(self._cluster.api.process, lambda: self._api_died(event))

    def _api_died(self, event: Event) -> None:
        self._cluster.store.stop_watches()
        self._after(event.amount, self._api_again)

    def _api_again(self) -> None:
        if not self._cluster.api.up:
            self._cluster.start_api()

    def stale_lists(self, event: Event) -> None:
        """Cached lists are old."""
        behind = int(event.amount)
        self._cluster.store.lag = lambda: behind
        self._after(event.amount, self._fresh_lists)

    def _fresh_lists(self) -> None:
        self._cluster.store.lag = lambda: 0

    # The faults of the ledger, and restores

    def kill_ledger(self, event: Event) -> None:
        """A replica of the ledger is killed."""
        office = self._cluster.ledger_host
        number = self._dice.randrange(len(office.replicas))
        again = partial(self._ledger_again, number)
        self._kill(office.replicas[number].process, lambda: self._after(event.amount, again))

    def _ledger_again(self, number: int) -> None:
        if not self._cluster.ledger_host.replicas[number].up:
            self._cluster.ledger_host.start(number)

    def back_up(self, _: Event) -> None:
        """The ledger's books and the API server's objects are copied."""
        self._image, self._copy = self._cluster.ledger_host.image(), self._cluster.store.snapshot()

    def restore_ledger(self, _: Event) -> None:
        """The ledger goes back to its copy."""
        if self._image is not None:
            self._cluster.ledger_host.restore(self._image)

    def restore_api(self, _: Event) -> None:
        """The API server goes back to its copy."""
        if self._copy is not None:
            self._cluster.restore_api(self._copy)

    def restore_both(self, event: Event) -> None:
        """Both go back."""
        self.restore_ledger(event)
        self.restore_api(event)
