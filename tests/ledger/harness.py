"""A ledger in this process, on the current backend, with a manual clock."""

import copy
import random
from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

import msgspec

from podpool.ledger.admin_messages import CreateTokenRequest, TokenInfo
from podpool.ledger.client import LedgerClient
from podpool.ledger.domain.service import LedgerService, LedgerSettings
from podpool.ledger.http.auth import AuthMiddleware
from podpool.ledger.http.handler import LedgerHandler
from podpool.ledger.http.rate_limit import RateLimits
from podpool.ledger.messages import (
    DemandReport,
    ErrorResponse,
    Grant,
    Inventory,
    InventoryItem,
    InventoryResponse,
    NetworkContainerState,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    ReconcileResponse,
    SubnetName,
    SubnetSpec,
    SubnetState,
)
from podpool.ledger.storage.rollback_detector import MemoryRollbackDetector
from podpool.runtime.transport import Handler, Request, Response
from tests.ledger.backends import backends

T = TypeVar("T")
SUBNET = SubnetName(network="vnet", name="pods")


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the current backend."""
    return backends[-1].run(work)


class ManualClock:
    """A clock that tests advance."""

    def __init__(self, now: float = 1_000_000.0) -> None:
        self.now = now
        self.wall_error = 0.0
        self.booted_at = 0.0

    def wall(self) -> float:
        return self.now + self.wall_error

    def boot(self) -> float:
        return self.now - self.booted_at


class InProcessTransport:
    """Passes requests to a handler in this process."""

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    async def send(self, request: Request) -> Response:
        return await self._handler(request)


class LedgerHarness:
    """A ledger, its store, and a client."""

    def __init__(
        self,
        *,
        image: bytes | None = None,
        detector: MemoryRollbackDetector | None = None,
        clock: ManualClock | None = None,
        seed: int = 1,
        settings: LedgerSettings | None = None,
    ) -> None:
        self.settings = settings
        self.clock = clock or ManualClock()
        self.detector = detector or MemoryRollbackDetector()
        self.store = backends[-1].open(image=image, detector=self.detector)
        self.rng = random.Random(seed)  # noqa: S311  reproducible
        self.ledger = LedgerService(self.store, clock=self.clock, rng=self.rng, settings=settings)
        self.client = LedgerClient(InProcessTransport(LedgerHandler(self.ledger)))
        run(self.ledger.start())

    def restore(self, image: bytes, *, detector: MemoryRollbackDetector | None = None) -> "LedgerHarness":
        """Return the ledger on an older copy of its database, by default with a copy of its rollback detector."""
        detector = detector or self.detector_copy()
        seed = self.rng.getrandbits(32)
        return LedgerHarness(image=image, detector=detector, clock=self.clock, seed=seed, settings=self.settings)

    def detector_copy(self) -> MemoryRollbackDetector:
        backends[-1].record_revision(self.store, self.detector)
        return copy.deepcopy(self.detector)

    def subnet(
        self,
        cidr: str = "10.0.0.0/24",
        *,
        name: str = "pods",
        network: str = "vnet",
        **settings: Any,  # noqa: ANN401  fields of SubnetSpec
    ) -> SubnetState:
        cooldown = settings.pop("cooldown", None)
        if cooldown is not None:  # one level while it is not exhausted
            settings |= {"cooldown_roomy": cooldown, "cooldown_filling": cooldown}
        new = SubnetSpec(network=network, name=name, cidr=cidr, **settings)
        return run(self.client.create_subnet(new))

    def state(self, name: str = "pods") -> SubnetState:
        return run(self.client.subnet(SubnetName(network="vnet", name=name)))

    def reserved(self) -> int:
        (utilization,) = run(self.client.utilization(SUBNET))
        return utilization.reserved

    def advance(self, seconds: float) -> None:
        """Advance the clock, and run the timers."""
        self.clock.now += seconds
        run(self.ledger.run_due_timers())


class AuthHarness(LedgerHarness):
    """A ledger with authentication; `client` bypasses it."""

    def __init__(self, limits: RateLimits | None = None) -> None:
        super().__init__()
        self.auth = AuthMiddleware(LedgerHandler(self.ledger), self.ledger.admin, clock=self.clock, limits=limits)

    def token(
        self,
        name: str = "one",
        *,
        cluster: str | None = None,
        admin: bool = False,
        **limits: Any,  # noqa: ANN401  fields of CreateTokenRequest
    ) -> TokenInfo:
        return run(self.client.create_token(CreateTokenRequest(name=name, cluster=cluster, admin=admin, **limits)))

    def caller(self, token: TokenInfo) -> LedgerClient:
        return LedgerClient(InProcessTransport(self.auth), token=token.secret or "")

    def status(self, method: str, path: str, *, authorization: str = "", body: object = None, **query: str) -> int:
        """Send a raw request; returns its status."""
        headers = {"authorization": authorization} if authorization else {}
        content = b"" if body is None else msgspec.json.encode(body)
        request = Request(method=method, path=path, query=query, headers=headers, body=content)
        response = run(self.auth(request))
        run(response.close())
        return response.status


class Leader:
    """The leader of a cluster, with its term, request number and known revision in one network."""

    def __init__(
        self,
        harness: LedgerHarness,
        cluster: str = "c1",
        *,
        network: str = "vnet",
        known_term: int = 0,
        known_revision: int = 0,
    ) -> None:
        self.harness = harness
        self.cluster = cluster
        self.network = network
        self.known_term = known_term
        self.known_revision = known_revision
        self.number = 0
        self.term = 0
        self.inventory_required = False
        self.lead()

    def lead(self) -> None:
        term = run(
            self.harness.client.open_term(
                OpenTermRequest(
                    cluster=self.cluster,
                    network=self.network,
                    known_term=self.known_term,
                    known_revision=self.known_revision,
                )
            )
        )
        self.term = self.known_term = term.term
        self.known_revision = max(self.known_revision, term.revision)
        self.inventory_required = term.inventory_required
        self.number = 0

    def move_to(self, harness: LedgerHarness) -> "Leader":
        self.harness = harness
        return self

    def reconcile(self, *items: ReconcileItem, number: int | None = None, missing: int = 0) -> ReconcileResponse:
        self.number += 1
        request = ReconcileRequest(
            cluster=self.cluster,
            network=self.network,
            term=self.term,
            number=self.number if number is None else number,
            known_revision=self.known_revision,
            items=items,
            missing=missing,
        )
        response = run(self.harness.client.reconcile(request))
        self.known_revision = max(self.known_revision, response.revision)
        return response

    def reconcile_one(self, item: ReconcileItem) -> NetworkContainerState:
        """Send one item that must succeed."""
        (result,) = self.reconcile(item).results
        assert result.error is None, result.error
        assert result.state is not None
        return result.state

    def error(self, item: ReconcileItem) -> ErrorResponse:
        """Send one item that must fail."""
        (result,) = self.reconcile(item).results
        assert result.error is not None, result.state
        return result.error

    def node(self, name: str = "n1", *, wanted: int = 0, waiting: int = 0, demand: int = 0) -> NetworkContainerState:
        """Open the NC of a node."""
        return self.reconcile_one(item(name, wanted=wanted, report=DemandReport(demand=demand, waiting=waiting)))

    def send_inventory(self, *items: InventoryItem) -> InventoryResponse:
        inventory = Inventory(
            cluster=self.cluster,
            network=self.network,
            term=self.term,
            known_revision=self.known_revision,
            network_containers=items,
        )
        response = run(self.harness.client.send_inventory(inventory))
        self.known_revision = max(self.known_revision, response.revision)
        return response


def item(
    node: str = "n1",
    state: NetworkContainerState | None = None,
    *,
    wanted: int = 0,
    released: Sequence[str] = (),
    cooled_seconds: float = 0.0,
    report: DemandReport | None = DemandReport(),  # noqa: B008  frozen
    subnet: SubnetName = SUBNET,
    **more: Any,  # noqa: ANN401  fields of ReconcileItem
) -> ReconcileItem:
    """Return an item for a node, with its NC if it has one."""
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


def inventory_item(node: str, state: NetworkContainerState, **more: Any) -> InventoryItem:  # noqa: ANN401  fields of InventoryItem
    """Return an NC as its NNC shows it."""
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
