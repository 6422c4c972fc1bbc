"""The ledger as other rooms see it: one method per call, typed answers, typed errors.

Every call may be sent again: `Unreachable` says that nobody knows whether it was done, and the same call with the same
term and number then does it once or shows what is. With a `Timeouts` the client sets a deadline, and repeats what it
may; without, both belong to the caller, who knows what else it has to do. What the ledger refuses is a `LedgerError`.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from typing import TypeVar

import msgspec

from podpool.kube.backoff import backoff_delay
from podpool.ledger import admin_messages as f
from podpool.ledger.errors import LedgerError, TooManyRequests, Unavailable, error_from
from podpool.ledger.messages import (
    ErrorResponse,
    ExcuseRequest,
    Inventory,
    InventoryResponse,
    NetworkContainerList,
    OpenTermRequest,
    ReconcileRequest,
    ReconcileResponse,
    RecoveryStatus,
    ResolveConflictRequest,
    SubnetChange,
    SubnetGrowth,
    SubnetList,
    SubnetName,
    SubnetSpec,
    SubnetState,
    Term,
    Utilization,
)
from podpool.runtime.transport import Request, Response, Transport, Unreachable

T = TypeVar("T")

_LONGEST_EVENT = 1 << 20
"""A line of the stream; a subnet with ten thousand waiting containers is below half of it."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for an answer, and how often to ask again."""

    deadline: float = 10.0
    """Seconds for one attempt,"""
    attempts: int = 4
    """of which there are so many."""
    base: float = 0.1
    most: float = 2.0
    """Seconds between two attempts, at first and at the longest."""


class LedgerClient:
    """The road to one ledger; TLS is the transport's business."""

    def __init__(
        self,
        transport: Transport,
        *,
        token: Callable[[], str] | str = "",
        patience: Timeouts | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._transport = transport
        self._token = token
        self._patience = patience
        self._rng = rng or random.Random(0)  # noqa: S311  only for waiting

    async def open_term(self, opening: OpenTermRequest) -> Term:
        """Take the next term; raises nothing but `Unreachable` for a well-formed call."""
        return await self._post("/v1/terms", opening, Term)

    async def reconcile(self, call: ReconcileRequest) -> ReconcileResponse:
        """Bring containers to what they should be; raises `StaleTerm` or `InventoryRequired` when the term is not good."""
        return await self._post("/v1/reconcile", call, ReconcileResponse)

    async def send_listing(self, listing: Inventory) -> InventoryResponse:
        """Tell what the cluster has, after a `Term` or an error that says that a listing is wanted."""
        return await self._post("/v1/listings", listing, InventoryResponse)

    async def ncs(self, cluster: str) -> NetworkContainerList:
        """Show every container of a cluster that is not closed."""
        return await self._get("/v1/containers", NetworkContainerList, query={"cluster": cluster})

    async def create_subnet(self, subnet: SubnetSpec) -> SubnetState:
        """Make a subnet; the same again is no error, another of the same name or place is a `Conflict`."""
        return await self._post("/v1/subnets", subnet, SubnetState)

    async def subnets(self) -> SubnetList:
        """Show all subnets."""
        return await self._get("/v1/subnets", SubnetList)

    async def subnet(self, name: SubnetName) -> SubnetState:
        """Show one subnet."""
        return await self._get(_path(name), SubnetState)

    async def utilization(self, name: SubnetName) -> list[Utilization]:
        """Ask how full a subnet is, in the words of the call that DNC has for it."""
        return await self._get(f"/networks/{name.network}/subnets/{name.name}/utilization", list[Utilization])

    async def recovery(self) -> RecoveryStatus:
        """Show whom the ledger waits for after a restore, and which addresses have two owners."""
        return await self._get("/v1/recovery", RecoveryStatus)

    async def excuse(self, cluster: str) -> RecoveryStatus:
        """Say, as a person, that a cluster need not be waited for."""
        request = _posted("/v1/recovery/excuse", ExcuseRequest(cluster=cluster))
        return await self._ask(request, RecoveryStatus, repeat=False)

    async def settle(self, decision: ResolveConflictRequest) -> RecoveryStatus:
        """Say, as a person, which of two owners has an address."""
        return await self._ask(_posted("/v1/recovery/settle", decision), RecoveryStatus, repeat=False)

    async def changes(self, cluster: str) -> AsyncGenerator[SubnetChange, None]:
        """Follow all subnets: each as it is, then as it changes. Ends, or raises `Unreachable`, when the stream does.

        A stream that ended says nothing about what was missed: open it again, and it begins with everything.
        """
        request = Request(method="GET", path="/v1/changes", query={"cluster": cluster}, headers=self._headers())
        response = await self._checked(request)
        try:
            async with aclosing(_events(response.stream)) as events:
                async for event in events:
                    yield msgspec.json.decode(event, type=SubnetChange)
        finally:
            await response.close()

    async def grow_subnet(self, name: SubnetName, growth: SubnetGrowth) -> SubnetState:
        """Give a subnet a larger CIDR, or a further one; the same again changes nothing."""
        return await self._post(f"{_path(name)}/grow", growth, SubnetState)

    async def drain_subnet(self, name: SubnetName) -> SubnetState:
        """Grant nothing in a subnet any more."""
        return await self._post(f"{_path(name)}/drain", None, SubnetState)

    async def reopen_subnet(self, name: SubnetName) -> SubnetState:
        """Grant in a subnet again."""
        return await self._post(f"{_path(name)}/reopen", None, SubnetState)

    async def delete_subnet(self, name: SubnetName) -> f.DeletedSubnet:
        """Forget a subnet; one that is not empty is a `Conflict`."""
        return await self._ask(Request(method="DELETE", path=_path(name)), f.DeletedSubnet, repeat=False)

    async def details(self, name: SubnetName) -> f.SubnetDetails:
        """Show a subnet as it was made, and who holds it: a cluster sees itself alone."""
        return await self._get(f"{_path(name)}/details", f.SubnetDetails)

    async def occupancy(self, name: SubnetName) -> f.Occupancy:
        """Show a subnet address by address: a cluster sees its own nodes, and of others only what is taken."""
        return await self._get(f"{_path(name)}/addresses", f.Occupancy)

    async def networks(self) -> f.NetworkList:
        """Show all networks."""
        return await self._get("/v1/networks", f.NetworkList)

    async def report_pods(self, report: f.PodReport) -> f.PodReportResponse:
        """Tell which Pods have, or had, which addresses."""
        return await self._post("/v1/pods", report, f.PodReportResponse)

    async def history(
        self, *, address: str = "", node: str = "", at: str = "", cluster: str = "", limit: int = 100
    ) -> f.AddressHistory:
        """Tell who held an address, or what a node held: at a moment, or ever."""
        where = f"addresses/{address}" if address else f"nodes/{node}"
        return await self._past(where, at=at, cluster=cluster, limit=str(limit))

    async def pod_history(
        self, name: str, *, namespace: str = "", at: str = "", cluster: str = "", limit: int = 100
    ) -> f.AddressHistory:
        """Tell which addresses a Pod had, also one that is gone; without a namespace, Pods of that name."""
        return await self._past(f"pods/{name}", namespace=namespace, at=at, cluster=cluster, limit=str(limit))

    async def _past(self, where: str, **asked: str) -> f.AddressHistory:
        said = {name: value for name, value in asked.items() if value}
        return await self._get(f"/v1/history/{where}", f.AddressHistory, query=said)

    async def create_token(self, new: f.CreateTokenRequest) -> f.TokenInfo:
        """Let somebody call; the answer has the secret, which nobody is told again."""
        request = _posted("/v1/tokens", new)
        return await self._ask(request, f.TokenInfo, repeat=False)

    async def revoke_token(self, name: str) -> f.TokenInfo:
        """Let somebody call no longer."""
        return await self._ask(Request(method="DELETE", path=f"/v1/tokens/{name}"), f.TokenInfo, repeat=False)

    async def tokens(self) -> f.TokenList:
        """Show all tokens."""
        return await self._get("/v1/tokens", f.TokenList)

    async def clusters(self) -> f.ClusterList:
        """Show all clusters."""
        return await self._get("/v1/clusters", f.ClusterList)

    async def confirm_loss(self, cluster: str) -> f.ClusterList:
        """Agree that the nodes which a cluster lost are lost."""
        return await self._post(f"/v1/clusters/{cluster}/confirm-loss", None, f.ClusterList)

    async def retire(self, cluster: str) -> f.RetiredCluster:
        """Take back what a destroyed cluster held."""
        request = _posted(f"/v1/clusters/{cluster}/retire", None)
        return await self._ask(request, f.RetiredCluster, repeat=False)

    async def _get(self, path: str, answer: type[T], *, query: Mapping[str, str] | None = None) -> T:
        return await self._ask(Request(method="GET", path=path, query=query or {}), answer)

    async def _post(self, path: str, message: msgspec.Struct | None, answer: type[T]) -> T:
        return await self._ask(_posted(path, message), answer)

    async def _ask(self, request: Request, answer: type[T], *, repeat: bool = True) -> T:
        """Send a request until it is answered, and read the answer."""
        patience = self._patience
        if patience is None:
            return await self._once(request, answer)
        failures = 0
        while True:
            try:
                async with asyncio.timeout(patience.deadline):
                    return await self._once(request, answer)
            except (Unreachable, TimeoutError, TooManyRequests, Unavailable) as error:
                failures += 1
                refused = isinstance(error, TooManyRequests)  # it was not done, so it may always be sent again
                if failures >= patience.attempts or not (repeat or refused):
                    raise _late(patience) if isinstance(error, TimeoutError) else error from None
            await asyncio.sleep(backoff_delay(failures, rng=self._rng, base=patience.base, maximum=patience.most))

    async def _once(self, request: Request, answer: type[T]) -> T:
        headers = {**request.headers, **self._headers()}
        response = await self._checked(msgspec.structs.replace(request, headers=headers))
        return msgspec.json.decode(await response.read(), type=answer)

    def _headers(self) -> dict[str, str]:
        token = self._token if isinstance(self._token, str) else self._token()
        return {"authorization": f"Bearer {token}"} if token else {}

    async def _checked(self, request: Request) -> Response:
        response = await self._transport.send(request)
        if response.status >= 300:
            raise _refusal(request, response.status, await response.read())
        return response


def _path(name: SubnetName) -> str:
    return f"/v1/networks/{name.network}/subnets/{name.name}"


def _posted(path: str, message: msgspec.Struct | None) -> Request:
    if message is None:
        return Request(method="POST", path=path)
    headers = {"content-type": "application/json"}
    return Request(method="POST", path=path, headers=headers, body=msgspec.json.encode(message))


def _late(patience: Timeouts) -> Unreachable:
    return Unreachable("the ledger", f"no answer within {patience.deadline:g} s")


def _refusal(request: Request, status: int, body: bytes) -> LedgerError:
    try:
        return error_from(msgspec.json.decode(body, type=ErrorResponse))
    except msgspec.DecodeError:  # a proxy's page, not ours
        return LedgerError(f"{request.method} {request.path} was answered with status {status}")


async def _events(stream: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Read server-sent events: the text behind `data:`; every other line is a name or keeps the connection awake."""
    rest = b""
    async for piece in stream:
        *lines, rest = (rest + piece).split(b"\n")
        if len(rest) > _LONGEST_EVENT:
            raise LedgerError(f"the stream of changes has a line of more than {_LONGEST_EVENT} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()
