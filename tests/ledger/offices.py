"""A ledger in this process, on the database in use, with a clock that stands still until it is told."""

import copy
import random
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from podpool.ledger.client import LedgerClient
from podpool.ledger.domain.service import LedgerSettings, LedgerService
from podpool.ledger.http.handler import LedgerHandler
from podpool.ledger.messages import (
    NetworkContainerState,
    Grant,
    ReconcileItem,
    InventoryItem,
    Inventory,
    InventoryResponse,
    SubnetSpec,
    OpenTermRequest,
    ErrorResponse,
    ReconcileRequest,
    ReconcileResponse,
    DemandReport,
    SubnetName,
    SubnetState,
)
from podpool.ledger.storage.rollback_detector import MemoryRollbackDetector
from podpool.runtime.transport import Handler, Request, Response
from tests.ledger.stores import in_use

T = TypeVar("T")
SUBNET = SubnetName(network="vnet", name="pods")


def done(work: Coroutine[Any, Any, T]) -> T:
    """Run a call to its end, on the database in use."""
    return in_use[-1].done(work)


class HandClock:
    """Time that goes on by hand."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now

    def wall(self) -> float:
        return self.now

    def boot(self) -> float:
        return self.now


class Wire:
    """A road without a network."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def send(self, request: Request) -> Response:
        return await self._handler(request)


class Office:
    """A ledger, its books, and a client."""

    def __init__(
        self,
        *,
        image: bytes | None = None,
        witness: MemoryRollbackDetector | None = None,
        clock: HandClock | None = None,
        seed: int = 1,
        settings: LedgerSettings | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or HandClock()
        self.witness = witness or MemoryRollbackDetector()
        self.store = in_use[-1].open(image=image, witness=self.witness)
        self.rng = random.Random(seed)  # noqa: S311  the same each time
        self.ledger = LedgerService(self.store, clock=self.clock, rng=self.rng, settings=settings)
        self.client = LedgerClient(Wire(LedgerHandler(self.ledger)))
        done(self.ledger.start())

    def restored(self, image: bytes, *, witness: MemoryRollbackDetector | None = None) -> "Office":
        """The same ledger after its books were exchanged for an older copy; with its own witness, unless told."""
        witness = witness or self.witness_copy()
        seed = self.rng.getrandbits(32)
        return Office(image=image, witness=witness, clock=self.clock, seed=seed, settings=self.settings)

    def witness_copy(self) -> MemoryRollbackDetector:
        in_use[-1].attest(self.store, self.witness)
        return copy.deepcopy(self.witness)

    def subnet(self, cidr: str = "10.0.0.0/24", *, name: str = "pods", **settings: Any) -> SubnetState:  # noqa: ANN401  as NewSubnet has them
        new = SubnetSpec(network="vnet", name=name, cidr=cidr, **settings)
        return done(self.client.create_subnet(new))

    def state(self, name: str = "pods") -> SubnetState:
        return done(self.client.subnet(SubnetName(network="vnet", name=name)))

    def reserved(self) -> int:
        (utilization,) = done(self.client.utilization(SUBNET))
        return utilization.reserved

    def later(self, seconds: float) -> None:
        """Let time pass, and the ledger notice."""
        self.clock.now += seconds
        done(self.ledger.tick())


class Leader:
    """The leader of a cluster: its term and number, and what it has seen."""

    def __init__(self, office: Office, cluster: str = "c1", *, known: int = 0, seen: int = 0) -> None:
        self.office = office
        self.cluster = cluster
        self.known = known
        self.seen = seen
        self.number = 0
        self.term = 0
        self.listing_wanted = False
        self.lead()

    def lead(self) -> None:
        term = done(self.office.client.open_term(OpenTermRequest(cluster=self.cluster, known=self.known, seen=self.seen)))
        self.term = self.known = term.term
        self.seen = max(self.seen, term.revision)
        self.listing_wanted = term.listing_wanted
        self.number = 0

    def moved_to(self, office: Office) -> "Leader":
        self.office = office
        return self

    def call(self, *items: ReconcileItem, number: int | None = None) -> ReconcileResponse:
        self.number += 1
        call = ReconcileRequest(
            cluster=self.cluster,
            term=self.term,
            number=self.number if number is None else number,
            seen=self.seen,
            items=items,
        )
        answer = done(self.office.client.reconcile(call))
        self.seen = max(self.seen, answer.revision)
        return answer

    def one(self, item: ReconcileItem) -> NetworkContainerState:
        """Send one item that must succeed."""
        (result,) = self.call(item).results
        assert result.error is None, result.error
        assert result.state is not None
        return result.state

    def problem(self, item: ReconcileItem) -> ErrorResponse:
        """Send one item that must fail."""
        (result,) = self.call(item).results
        assert result.error is not None, result.state
        return result.error

    def node(self, name: str = "n1", *, wanted: int = 0, waiting: int = 0, demand: int = 0) -> NetworkContainerState:
        """Open the container of a node."""
        return self.one(item(name, wanted=wanted, report=DemandReport(demand=demand, waiting=waiting)))

    def list_all(self, *containers: InventoryItem) -> InventoryResponse:
        listing = Inventory(cluster=self.cluster, term=self.term, seen=self.seen, network_containers=containers)
        answer = done(self.office.client.send_listing(listing))
        self.seen = max(self.seen, answer.revision)
        return answer


def item(
    node: str = "n1",
    state: NetworkContainerState | None = None,
    *,
    wanted: int = 0,
    released: Sequence[str] = (),
    cooled_seconds: float = 0.0,
    report: DemandReport | None = DemandReport(),  # noqa: B008  frozen
    subnet: SubnetName = SUBNET,
    **more: Any,  # noqa: ANN401  as Item has them
) -> ReconcileItem:
    """Make an item for a node, and its container if it has one."""
    return ReconcileItem(
        subnet=subnet,
        node=node,
        node_uid=more.pop("node_uid", f"uid-{node}"),
        nc_id=state.nc_id if state else None,
        wanted=wanted,
        released=tuple(released),
        cooled_seconds=cooled_seconds,
        report=report,
        **more,
    )


def ids(state: NetworkContainerState) -> list[str]:
    return [grant.id for grant in state.grants]


def addresses(state: NetworkContainerState) -> list[str]:
    return [grant.address for grant in state.grants]


def listed(node: str, state: NetworkContainerState, **more: Any) -> InventoryItem:  # noqa: ANN401  as it has them
    """Show a container as its NNC does."""
    grants: tuple[Grant, ...] = more.pop("grants", state.grants)
    version: int = more.pop("version", state.version)
    return InventoryItem(
        nc_id=state.nc_id,
        subnet=state.subnet,
        node=node,
        node_uid=more.pop("node_uid", f"uid-{node}"),
        version=version,
        primary=more.pop("primary", state.primary),
        grants=grants,
        wanted=more.pop("wanted", len(grants)),
        **more,
    )
