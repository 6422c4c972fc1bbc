"""Concurrent callers: clusters that request and release addresses through any replica.

A caller keeps the responses. After any failure the database must match them: what was granted is held, what was
released is not, and no address has two owners.
"""

import asyncio
import random
from collections.abc import Sequence

from podpool.ledger.domain.repository import LedgerStore
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.errors import StaleTerm, Unavailable
from podpool.ledger.messages import (
    DemandReport,
    Inventory,
    InventoryItem,
    NetworkContainerState,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    ReconcileResponse,
    SubnetName,
    SubnetSpec,
)
from podpool.runtime.clock import SystemClock
from tests.ledger.harness import inventory_item

SUBNETS = tuple(SubnetName(network="vnet", name=name) for name in ("blue", "green", "red"))
NodeKey = tuple[SubnetName, str]


def ledger_on(store: LedgerStore) -> LedgerService:
    return LedgerService(store, clock=SystemClock(), rng=random.SystemRandom())


async def make_subnets(ledger: LedgerService, *, cooldown: float = 0.0) -> None:
    for number, name in enumerate(SUBNETS):
        cidr = f"10.{number}.0.0/22"
        new = SubnetSpec(
            network=name.network,
            name=name.name,
            cidr=cidr,
            cooldown_roomy=cooldown,
            cooldown_filling=cooldown,
            cooldown_exhausted=cooldown,
        )
        await ledger.admin.create_subnet(new)


class Cluster:
    """The leader of one cluster. Each call goes to a random replica; one without a response is repeated unchanged."""

    def __init__(self, name: str, replicas: Sequence[LedgerService], *, seed: int) -> None:
        self.name = name
        self.replicas = replicas
        self.rng = random.Random(seed)  # noqa: S311  reproducible
        self.term = self.number = self.known_revision = 0
        self.held: dict[NodeKey, NetworkContainerState] = {}
        self.released: set[str] = set()
        self.completed = 0
        self.progressed = asyncio.Event()

    async def lead(self) -> bool:
        """Open a term; returns whether the ledger requires an inventory."""
        while True:
            try:
                opening = OpenTermRequest(cluster=self.name, known_term=self.term, known_revision=self.known_revision)
                term = await self.replica().open_term(opening)
            except Unavailable:
                continue
            self.term, self.number, self.known_revision = term.term, 0, max(self.known_revision, term.revision)
            return term.inventory_required

    async def call(self, *, nodes: int = 6, size: int = 4) -> None:
        """Change random network containers in all subnets."""
        keys = {(self.rng.choice(SUBNETS), f"n{self.rng.randrange(nodes)}") for _ in range(size)}
        items = [self.item(key) for key in sorted(keys, key=str)]
        self.number += 1
        response = await self.send(
            ReconcileRequest(
                cluster=self.name,
                term=self.term,
                number=self.number,
                known_revision=self.known_revision,
                items=tuple(items),
            )
        )
        self.known_revision = max(self.known_revision, response.revision)
        for item, result in zip(items, response.results, strict=True):
            assert result.state is not None, result.error
            self.released.update(item.released)
            self.held[item.subnet, item.node] = result.state
        self.completed += 1
        self.progressed.set()

    async def reached(self, completed: int) -> None:
        """Wait until this many calls are completed."""
        while self.completed < completed:
            self.progressed.clear()
            await self.progressed.wait()

    async def send(self, call: ReconcileRequest) -> ReconcileResponse:
        while True:
            try:
                return await self.replica().reconcile(call)
            except Unavailable:  # it may have taken effect: repeated with the same number
                continue

    async def send_inventory(self) -> None:
        """Send the inventory, as after a restore."""
        containers = tuple(self.shown(node, state) for (_, node), state in self.held.items())
        inventory = Inventory(
            cluster=self.name, term=self.term, known_revision=self.known_revision, network_containers=containers
        )
        response = await self.replica().apply_inventory(inventory)
        assert () == response.conflicts
        self.known_revision = max(self.known_revision, response.revision)
        for key, result in zip(self.held, response.results, strict=True):
            assert result.state is not None, result.error
            assert self.held[key].grants == result.state.grants
            self.held[key] = result.state

    def shown(self, node: str, state: NetworkContainerState) -> InventoryItem:
        return inventory_item(node, state, node_uid=f"{self.name}-{node}")

    def item(self, key: NodeKey) -> ReconcileItem:
        subnet, node = key
        state = self.held.get(key)
        grants = state.grants if state else ()
        released = tuple(grant.id for grant in grants if self.rng.random() < 0.3)
        return ReconcileItem(
            subnet=subnet,
            node=node,
            node_uid=f"{self.name}-{node}",
            nc_id=state.nc_id if state else None,
            wanted=self.rng.randrange(20),
            released=released,
            report=DemandReport(demand=5),
        )

    def replica(self) -> LedgerService:
        return self.rng.choice(self.replicas)


async def check_consistent(ledger: LedgerService, clusters: Sequence[Cluster], *, cooling: bool = False) -> None:
    """The database matches the responses, and its counts are right."""
    counted: dict[SubnetName, int] = dict.fromkeys(SUBNETS, 0)
    owners: dict[str, tuple[str, NodeKey]] = {}
    for cluster in clusters:
        shown = {
            (each.state.subnet, each.node): each.state
            for each in (await ledger.network_containers(cluster.name)).network_containers
        }
        assert cluster.held == shown
        for key, state in shown.items():
            grants = {grant.id for grant in state.grants}
            assert not grants & cluster.released
            for address in (state.primary, *(grant.address for grant in state.grants)):
                assert address not in owners, f"{address}: {owners[address]} and {cluster.name}, {key}"
                owners[address] = (cluster.name, key)
                counted[key[0]] += 1
    for name in SUBNETS:
        subnet = await ledger.subnet(name)
        assert counted[name] == subnet.reserved - subnet.cooling_down
        assert cooling or not subnet.cooling_down


async def recover(clusters: Sequence[Cluster]) -> None:
    """After a restore: every leader opens a new term and sends its inventory."""
    for cluster in clusters:
        if await cluster.lead():
            await cluster.send_inventory()


async def call_until(cluster: Cluster, stop: asyncio.Event) -> None:
    """Call repeatedly; ends early when the ledger recovers and requires an inventory."""
    while not stop.is_set():
        try:
            await cluster.call()
        except StaleTerm:
            return
