"""A small cluster that is always the same: the real ledger, controller and agents on virtual time.

Pods report their addresses as a kubelet does. Commands print into memory.
"""

from __future__ import annotations

import io
import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console

from podpool.cli.context import TIMEOUTS, ClusterContext
from podpool.cli.output import Printer
from podpool.cli.spec.model import Output
from podpool.controller.pod_history_reporter import BATCH_DELAY
from podpool.kube.client import KubeClient
from podpool.lab.apiserver.registry import PODS
from podpool.lab.sim.cluster import SimCluster
from podpool.lab.sim.event_loop import PROCESS
from podpool.lab.sim.profiles import SimConfig
from podpool.ledger.client import LedgerClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

SETTLED = 60.0
SERVER = "https://api.small:6443"
Answered = tuple[int, str, str]
"""Exit code, output and warnings."""


class SmallCluster(SimCluster):
    """Two nodes, with three Pods on the first and one on the second."""

    def __init__(self) -> None:
        super().__init__(1, SimConfig(cidr="10.0.0.0/26", controllers=1, pod_history=True))
        self.pods: list[str] = []
        """As namespace/name: the last is on the second node."""

    async def open(self) -> None:
        """Start the components and wait until they have settled."""
        PROCESS.set(None)
        await self.start()
        for name in ("two", "one"):  # one after the other, so that each always has the same addresses
            self.add_host(name)
            await self.settle()
        self.pods = [self.bind(name) for name in ("one", "one", "one", "two")]
        await self.settle()

    async def settle(self) -> None:
        """Let time pass, report the addresses of Pods, and wait until the ledger has them."""
        await self.run_for(SETTLED)
        for use in self.oracle.uses():
            self.show(use.pod, use.address)
        await self.run_for(2 * BATCH_DELAY)

    def show(self, pod: str, *addresses: str) -> None:
        """Set the addresses in a Pod's status."""
        status = {"phase": "Running", "podIPs": [{"ip": each} for each in addresses]}
        self.store.update(PODS, pod, lambda was: {**was, "status": status}, subresource="status")

    def create(self, group: str, version: str, plural: str, obj: dict[str, Any]) -> None:
        """Create an object in kube-system."""
        kind = self.store.registry.find(group, version, plural)
        head = {"apiVersion": f"{group}/{version}", "kind": kind.kind}
        self.store.create(kind, {**head, **obj}, namespace="kube-system")

    def stop_all(self) -> None:
        """Kill controllers and agents, so that nothing is reconciled."""
        for process in self.controllers.values():
            process.kill()
        for name in self.hosts:
            self.kill_agent(name)

    async def invoke(
        self, handler: Callable[..., Awaitable[int]], output: Output = Output.TABLE, **values: object
    ) -> Answered:
        """Run a handler; return its exit code, output and warnings."""
        out, err = io.StringIO(), io.StringIO()
        printer = Printer(output, out=Console(file=out, highlight=False), err=Console(file=err, highlight=False))
        context = ClusterContext(
            kube=KubeClient(self.network.transport("cli", self.api)),
            server=SERVER,
            ledger=LedgerClient(
                self.network.transport("cli", self.ledger_host.replicas[0]), timeouts=TIMEOUTS, rng=self.rng("cli")
            ),
            clock=self.clock,
            printer=printer,
        )
        code = await handler(context, **values)
        return code, out.getvalue(), err.getvalue()


@contextmanager
def small_cluster() -> Iterator[SmallCluster]:
    """Create a cluster and stop it at the end."""
    logging.disable(logging.CRITICAL)
    made = SmallCluster()
    try:
        made.loop.run_until_complete(made.open())
        yield made
    finally:
        made.loop.shutdown()
        logging.disable(logging.NOTSET)


def run(
    cluster: SmallCluster, handler: Callable[..., Awaitable[int]], output: Output = Output.TABLE, **values: object
) -> tuple[int, list[str], str]:
    """Run a handler; return its exit code, lines of output, and warnings."""
    code, out, err = cluster.loop.run_until_complete(cluster.invoke(handler, output, **values))
    return code, out.splitlines(), err
