"""Callers at the same time: clusters whose nodes ask for addresses and let go of them, through any replica.

A caller knows what it was answered. Whatever happened in between, the books must show exactly that: what was granted is
held, what was let go of is not, and no address has two owners.
"""

import asyncio
import random
from collections.abc import Sequence

from podpool.ledger.domain.service import LedgerService
from podpool.ledger.errors import StaleTerm, Unavailable
from podpool.ledger.messages import (
    NetworkContainerState,
    ReconcileItem,
    InventoryItem,
    Inventory,
    SubnetSpec,
    OpenTermRequest,
    ReconcileRequest,
    ReconcileResponse,
    DemandReport,
    SubnetName,
)
from podpool.ledger.domain.repository import LedgerStore
from podpool.runtime.clock import SystemClock
from tests.ledger.offices import listed

SUBNETS = tuple(SubnetName(network="vnet", name=name) for name in ("blue", "green", "red"))
Place = tuple[SubnetName, str]


def ledger_on(store: LedgerStore) -> LedgerService:
    return LedgerService(store, clock=SystemClock(), rng=random.SystemRandom())


async def make_subnets(ledger: LedgerService, *, cooldown: float = 0.0) -> None:
    for number, name in enumerate(SUBNETS):
        cidr = f"10.{number}.0.0/22"
        new = SubnetSpec(network=name.network, name=name.name, cidr=cidr, cooldown=cooldown, cooldown_exhausted=cooldown)
        await ledger.create_subnet(new)


class Cluster:
    """One cluster's leader. Every call goes to some replica; one without an answer is sent again, as it was."""

    def __init__(self, name: str, replicas: Sequence[LedgerService], *, seed: int) -> None:
        self.name = name
        self.replicas = replicas
        self.rng = random.Random(seed)  # noqa: S311  the same each time
        self.term = self.number = self.seen = 0
        self.held: dict[Place, NetworkContainerState] = {}
        self.released: set[str] = set()
        self.answered = 0
        self.news = asyncio.Event()

    async def lead(self) -> bool:
        """Open a term; tells whether the ledger wants a list."""
        while True:
            try:
                opening = OpenTermRequest(cluster=self.name, known=self.term, seen=self.seen)
                term = await self.replica().open_term(opening)
            except Unavailable:
                continue
            self.term, self.number, self.seen = term.term, 0, max(self.seen, term.revision)
            return term.listing_wanted

    async def call(self, *, nodes: int = 6, size: int = 4) -> None:
        """Change some containers at random, in all subnets."""
        places = {(self.rng.choice(SUBNETS), f"n{self.rng.randrange(nodes)}") for _ in range(size)}
        items = [self.item(place) for place in sorted(places, key=str)]
        self.number += 1
        answer = await self.send(
            ReconcileRequest(cluster=self.name, term=self.term, number=self.number, seen=self.seen, items=tuple(items))
        )
        self.seen = max(self.seen, answer.revision)
        for item, result in zip(items, answer.results, strict=True):
            assert result.state is not None, result.error
            self.released.update(item.released)
            self.held[item.subnet, item.node] = result.state
        self.answered += 1
        self.news.set()

    async def reached(self, answered: int) -> None:
        """Wait until it was answered so often."""
        while self.answered < answered:
            self.news.clear()
            await self.news.wait()

    async def send(self, call: ReconcileRequest) -> ReconcileResponse:
        while True:
            try:
                return await self.replica().reconcile(call)
            except Unavailable:  # nobody knows whether it was done: again, with the same number
                continue

    async def list_all(self) -> None:
        """Tell the ledger everything that this cluster was answered, as after a restore."""
        containers = tuple(self.shown(node, state) for (_, node), state in self.held.items())
        listing = Inventory(cluster=self.name, term=self.term, seen=self.seen, network_containers=containers)
        answer = await self.replica().take_listing(listing)
        assert () == answer.conflicts
        self.seen = max(self.seen, answer.revision)
        for place, result in zip(self.held, answer.results, strict=True):
            assert result.state is not None, result.error
            assert self.held[place].grants == result.state.grants
            self.held[place] = result.state

    def shown(self, node: str, state: NetworkContainerState) -> InventoryItem:
        return listed(node, state, node_uid=f"{self.name}-{node}")

    def item(self, place: Place) -> ReconcileItem:
        subnet, node = place
        state = self.held.get(place)
        grants = state.grants if state else ()
        gone = tuple(grant.id for grant in grants if self.rng.random() < 0.3)
        return ReconcileItem(
            subnet=subnet,
            node=node,
            node_uid=f"{self.name}-{node}",
            nc_id=state.nc_id if state else None,
            wanted=self.rng.randrange(20),
            released=gone,
            report=DemandReport(demand=5),
        )

    def replica(self) -> LedgerService:
        return self.rng.choice(self.replicas)


async def agree(ledger: LedgerService, clusters: Sequence[Cluster], *, cooling: bool = False) -> None:
    """The books show what the callers were answered, and count it right."""
    counted: dict[SubnetName, int] = dict.fromkeys(SUBNETS, 0)
    owners: dict[str, tuple[str, Place]] = {}
    for cluster in clusters:
        shown = {
            (each.state.subnet, each.node): each.state for each in (await ledger.containers(cluster.name)).network_containers
        }
        assert cluster.held == shown
        for place, state in shown.items():
            grants = {grant.id for grant in state.grants}
            assert not grants & cluster.released
            for address in (state.primary, *(grant.address for grant in state.grants)):
                assert address not in owners, f"{address}: {owners[address]} and {cluster.name}, {place}"
                owners[address] = (cluster.name, place)
                counted[place[0]] += 1
    for name in SUBNETS:
        subnet = await ledger.subnet(name)
        assert counted[name] == subnet.reserved - subnet.cooling
        assert cooling or not subnet.cooling


async def lead_again(clusters: Sequence[Cluster]) -> None:
    """After a restore: every leader opens a new term and lists."""
    for cluster in clusters:
        if await cluster.lead():
            await cluster.list_all()


async def call_until(cluster: Cluster, over: asyncio.Event) -> None:
    """Call again and again; ends early when the ledger has recovered and wants a list."""
    while not over.is_set():
        try:
            await cluster.call()
        except StaleTerm:
            return
