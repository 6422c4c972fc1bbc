"""The ledger's side of the world: its books, the services that stand on them, and what the books say.

Several replicas are several services on one store, which take turns at transactions.
"""

import asyncio
import random
import sqlite3
from collections.abc import Callable, Coroutine
from functools import cache
from typing import Any, TypeVar

from podpool.lab.sim.machine import MachineClock, Process
from podpool.lab.sim.network import Network, Service
from podpool.lab.sim.scenario import Shape
from podpool.ledger.client import LedgerClient
from podpool.ledger.domain.circuit_breaker import Brake
from podpool.ledger.domain.service import Habits, Ledger
from podpool.ledger.http.handler import Service as LedgerApi
from podpool.ledger.messages import ContainerRecord, Growth, NewSubnet, SubnetName, SubnetState
from podpool.ledger.storage.backup import TABLES, select_all
from podpool.ledger.storage.fsck import check
from podpool.ledger.storage.rollback_detector import MemoryWitness
from podpool.ledger.storage.sqlite.store import InlineStore
from podpool.runtime.transport import Handler, Request, Response

T = TypeVar("T")

CONFIRMED = 10.0
"""Seconds between two looks at clusters that have lost many machines."""
SUBNET = SubnetName(network="vnet", name="pods")


@cache
def _blank() -> bytes:
    """Make the books of a ledger that has not begun."""
    return InlineStore().image()


class Office:
    """One authority for however many clusters."""

    def __init__(
        self, network: Network, shape: Shape, *, clock: MachineClock, dice: Callable[[str], random.Random]
    ) -> None:
        self.changed: list[Callable[[], None]] = []
        """Whom to tell when the books have changed."""
        self.replicas = [Service("ledger" if not number else f"ledger-{number}") for number in range(shape.replicas)]
        self._network = network
        self._shape = shape
        self._clock = clock
        self._dice = dice
        self._starts = 0
        self._records: dict[str, dict[str, list[ContainerRecord]]] = {}
        self._subnet: SubnetState | None = None
        self._witness = MemoryWitness()
        self._open(_blank())

    def _open(self, image: bytes) -> None:
        self._books = InlineStore(witness=self._witness, image=image)
        self._books.follow(self._forget)
        self._forget()

    async def begin(self) -> None:
        """Start every replica, and make the subnet."""
        for number in range(len(self.replicas)):
            self.start(number)
        shape = self._shape
        new = NewSubnet(network=SUBNET.network, name=SUBNET.name, cidr=shape.cidr, gateway=shape.gateway)
        await LedgerClient(self._network.transport("operator", self.replicas[0])).create_subnet(
            new.with_settings(shape.settings)
        )

    def start(self, number: int = 0) -> None:
        """Start a replica on the books."""
        self._starts += 1
        process = Process(self.replicas[number].name, self._network.loop)
        habits = Habits(brake=Brake(within=self._shape.settings.node_gc_delay))
        ledger = Ledger(self._books, clock=self._clock, rng=self._dice(f"ledger/{self._starts}"), habits=habits)
        _at_once(ledger.start())
        self.replicas[number].serve(LedgerApi(ledger), process)
        process.spawn(ledger.run())

    def image(self) -> bytes:
        """Copy the books, as a backup would."""
        return self._books.image()

    def restore(self, image: bytes) -> None:
        """Start every replica on an older copy of the books; the witness beside them was not restored."""
        for replica in self.replicas:
            if replica.process:
                replica.process.kill()
        self._open(image)
        for number in range(len(self.replicas)):
            self.start(number)

    async def run(self) -> None:
        """Be the operator: machines that are lost in this world are really gone, and somebody says so."""
        while True:
            await asyncio.sleep(CONFIRMED)
            for cluster in _at_once(self._auditor().clusters()).clusters:
                if cluster.braked:
                    _at_once(self._auditor().confirm_loss(cluster.id))

    def grow(self, cidr: str) -> None:
        """Be the operator: give the subnet more addresses."""
        _at_once(self._auditor().grow_subnet(SUBNET, Growth(cidr=cidr)))

    # What the books say, looked at from outside: no network, no time

    def records(self, cluster: str) -> dict[str, list[ContainerRecord]]:
        """List a cluster's containers that are not closed, by the name of their node."""
        if cluster not in self._records:
            found: dict[str, list[ContainerRecord]] = {}
            for record in _at_once(self._auditor().containers(cluster)).containers:
                found.setdefault(record.node, []).append(record)
            self._records[cluster] = found
        return self._records[cluster]

    def subnet(self) -> SubnetState:
        """Show the subnet, as it was when the books last changed."""
        if self._subnet is None:
            self._subnet = _at_once(self._auditor().subnet(SUBNET))
        return self._subnet

    def subnet_now(self) -> SubnetState:
        """Show the subnet at this moment: rests end without a change of the books."""
        return _at_once(self._auditor().subnet(SUBNET))

    def held(self) -> int:
        """Count the grants and primaries of all clusters."""
        clusters = [each.id for each in _at_once(self._auditor().clusters()).clusters]
        found = [each.state for cluster in clusters for records in self.records(cluster).values() for each in records]
        return sum(len(state.grants) + bool(state.primary) for state in found)

    def faults(self) -> list[str]:
        """Count every sum in the books again, from the slots of their blocks."""
        copy = sqlite3.connect(":memory:")
        copy.deserialize(self.image())
        rows = ((table, columns, copy.execute(select_all(table))) for table, columns in TABLES.items())
        return check((table, columns, row) for table, columns, found in rows for row in found).faults

    def _auditor(self) -> LedgerClient:
        return LedgerClient(_Direct(LedgerApi(Ledger(self._books, clock=self._clock, rng=self._dice("auditor")))))

    def _forget(self, _: object = None) -> None:
        self._records, self._subnet = {}, None
        for tell in self.changed:
            tell()


class _Direct:
    """A road without a network."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def send(self, request: Request) -> Response:
        return await self._handler(request)


def _at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run what waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        value: T = done.value
        return value
    raise RuntimeError("the books cannot be read at once")
