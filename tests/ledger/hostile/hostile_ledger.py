"""A complete ledger that counts the transactions that its callers cause."""

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import TypeVar

from podpool.ledger.admin_messages import CreateTokenRequest
from podpool.ledger.client import LedgerClient
from podpool.ledger.domain.repository import Repository
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.http.app import build_app
from podpool.ledger.http.rate_limit import RateLimits
from podpool.ledger.messages import (
    DemandReport,
    NetworkContainerState,
    OpenTermRequest,
    ReconcileItem,
    ReconcileRequest,
    SubnetName,
    SubnetSpec,
)
from podpool.ledger.storage.sqlite.store import InlineSqliteStore
from podpool.runtime.accepted_connections import ServerLimits
from podpool.runtime.http_client import HttpTransport
from podpool.runtime.http_server import serving
from podpool.runtime.transport import Request
from tests.ledger.harness import InProcessTransport, ManualClock

T = TypeVar("T")
SUBNET = SubnetName(network="vnet", name="pods")
CLUSTER = "c1"


class CountingStore(InlineSqliteStore):
    """Counts the transactions."""

    jobs = 0

    async def write(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        self.jobs += 1
        return await super().write(transaction, network=network)

    async def read(self, transaction: Callable[[Repository], T], *, network: str = "") -> T:
        self.jobs += 1
        return await super().read(transaction, network=network)


class HostileLedger:
    """A ledger with one subnet, and a well-behaved cluster on it."""

    def __init__(self, limits: RateLimits | None = None) -> None:
        self.store, self.clock = CountingStore(), ManualClock()
        self.ledger = LedgerService(self.store, clock=self.clock, rng=random.Random(1))  # noqa: S311  reproducible
        self.app = build_app(self.ledger, self.store, clock=self.clock, limits=limits)
        self.port = 0

    async def prepare(self) -> None:
        await self.ledger.admin.create_subnet(SubnetSpec(network="vnet", name="pods", cidr="10.0.0.0/16"))
        self.token = await self.new_token(CLUSTER)
        self.term = (await self.ledger.open_term(OpenTermRequest(cluster=CLUSTER))).term
        self.number = 0

    async def new_token(self, cluster: str) -> str:
        made = await self.ledger.admin.create_token(CreateTokenRequest(name=f"of-{cluster}", cluster=cluster))
        return made.secret or ""

    async def grant(self, node: str = "n1", *, over_http: bool = False) -> NetworkContainerState:
        """Let the well-behaved cluster request one address."""
        transport = HttpTransport(f"http://127.0.0.1:{self.port}") if over_http else None
        client = LedgerClient(transport or InProcessTransport(self.app.api), token=self.token)
        self.number += 1
        item = ReconcileItem(subnet=SUBNET, node=node, node_uid=node, wanted=1, report=DemandReport())
        request = ReconcileRequest(cluster=CLUSTER, term=self.term, number=self.number, items=(item,))
        (result,) = (await client.reconcile(request)).results
        if transport:
            await transport.close()
        assert result.state is not None, result.error
        return result.state

    async def status(self, request: Request) -> int:
        """Send a request in this process; returns its status."""
        response = await self.app.api(request)
        await response.read()
        return response.status


@asynccontextmanager
async def hostile_ledger(
    *, limits: ServerLimits | None = None, rates: RateLimits | None = None
) -> AsyncIterator[HostileLedger]:
    """Serve a ledger over HTTP; every wait ends."""
    made = HostileLedger(rates)
    await made.prepare()
    async with (
        asyncio.timeout(60),
        serving(made.app.api, host="127.0.0.1", port=0, limits=limits, read_bodies=False, grace=0.1) as port,
    ):
        made.port = port
        try:
            yield made
        finally:
            made.ledger.stop()
