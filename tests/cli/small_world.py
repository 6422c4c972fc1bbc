"""A small cluster that is always the same: the real ledger, controller and agents on virtual time, and a person.

Pods show their addresses as a kubelet would have them shown; what a person types is answered into memory.
"""

from __future__ import annotations

import io
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from podpool.cli.context import PATIENCE, Desk
from podpool.cli.options import Asked
from podpool.cli.output import Teller
from podpool.cli.spec import Output
from podpool.controller.pod_usage import GATHER
from podpool.kube.client import KubeClient
from podpool.lab.apiserver.registry import PODS
from podpool.lab.sim.event_loop import PROCESS
from podpool.lab.sim.scenario import Shape
from podpool.lab.sim.world import World
from podpool.ledger.client import LedgerClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

SETTLED = 60.0
SERVER = "https://api.small:6443"
Answered = tuple[int, str, str]
"""The exit code, what was told, and what was remarked."""


class SmallWorld(World):
    """Two nodes, with three Pods on the first and one on the second."""

    def __init__(self) -> None:
        super().__init__(1, Shape(cidr="10.0.0.0/26", controllers=1, pod_history=True))
        self.pods: list[str] = []
        """As namespace/name: the last is on the second node."""

    async def open(self) -> None:
        """Let everything come to rest."""
        PROCESS.set(None)
        await self.begin()
        for name in ("one", "two"):
            self.add_host(name)
        await self.settle()
        self.pods = [self.bind(name) for name in ("one", "one", "one", "two")]
        await self.settle()

    async def settle(self) -> None:
        """Let time pass, Pods show what they have, and the ledger be told of it."""
        await self.pass_time(SETTLED)
        for use in self.truth.uses():
            self.show(use.pod, use.address)
        await self.pass_time(2 * GATHER)

    def show(self, pod: str, *addresses: str) -> None:
        """Have a Pod show addresses."""
        status = {"phase": "Running", "podIPs": [{"ip": each} for each in addresses]}
        self.store.update(PODS, pod, lambda was: {**was, "status": status}, sub="status")

    def create(self, group: str, version: str, plural: str, obj: dict[str, Any]) -> None:
        """Have somebody make an object in kube-system."""
        kind = self.store.kinds.find(group, version, plural)
        head = {"apiVersion": f"{group}/{version}", "kind": kind.kind}
        self.store.create(kind, {**head, **obj}, namespace="kube-system")

    def stop_all(self) -> None:
        """Kill controllers and agents: nobody mends anything any more."""
        for process in self.controllers.values():
            process.kill()
        for name in self.hosts:
            self.kill_agent(name)

    async def type(
        self, work: Callable[..., Awaitable[int]], output: Output = Output.TABLE, **said: object
    ) -> Answered:
        """Do what a command does; tells its exit code, what was told, and what was remarked."""
        out, err = io.StringIO(), io.StringIO()
        teller = Teller(
            Asked(output=output), out=Console(file=out, highlight=False), err=Console(file=err, highlight=False)
        )
        desk = Desk(
            kube=KubeClient(self.network.transport("person", self.api)),
            server=SERVER,
            ledger=LedgerClient(
                self.network.transport("person", self.office.replicas[0]), patience=PATIENCE, rng=self.dice("person")
            ),
            clock=self.clock,
            teller=teller,
        )
        code = await work(desk, **said)
        return code, out.getvalue(), err.getvalue()


@contextmanager
def small_world() -> Iterator[SmallWorld]:
    """Make one, and end it."""
    logging.disable(logging.CRITICAL)
    made = SmallWorld()
    try:
        made.loop.run_until_complete(made.open())
        yield made
    finally:
        made.loop.end()
        logging.disable(logging.NOTSET)


def told(
    world: SmallWorld, work: Callable[..., Awaitable[int]], output: Output = Output.TABLE, **said: object
) -> tuple[int, list[str], str]:
    """The exit code, the lines of the answer, and what was remarked beside it."""
    code, out, err = world.loop.run_until_complete(world.type(work, output, **said))
    return code, out.splitlines(), err
