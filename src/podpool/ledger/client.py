"""The ledger's client: one method per call, with typed responses and errors.

Every call may be repeated: after `Unreachable` it is unknown whether it was processed, and the same request with the
same term and number is then processed once, or returns the current state. With `Timeouts` the client sets a deadline,
which it sends to the ledger, and retries what it may; without, both are up to the caller. To the time of a Retry-After
it adds jitter, so that not all clients return together. Errors of the ledger are raised as `LedgerError`.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing, nullcontext
from typing import TypeVar

import msgspec

from podpool.kube.backoff import backoff_delay
from podpool.ledger import admin_messages as am
from podpool.ledger import messages as m
from podpool.ledger.errors import LedgerError, TooManyRequests, Unavailable, error_from
from podpool.runtime.transport import Request, Response, Transport, Unreachable

T = TypeVar("T")

_MAX_EVENT_BYTES = 1 << 20
"""A line of the stream; a subnet with ten thousand waiting NCs is below half of it."""


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """The deadline of a call, and its retries. In seconds."""

    deadline: float = 10.0
    """Of one attempt."""
    attempts: int = 4
    min_delay: float = 0.1
    """Between the first two attempts."""
    max_delay: float = 2.0
    repeat_unanswered: bool = True
    """Whether to repeat idempotent calls of which it is not known whether they were processed."""
    silence: float = 45.0
    """A stream without an event or a heartbeat for so long has ended: three heartbeats."""


class LedgerClient:
    """A client of one ledger; TLS is up to the transport."""

    def __init__(
        self,
        transport: Transport,
        *,
        token: Callable[[], str] | str = "",
        timeouts: Timeouts | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._transport = transport
        self._token = token
        self._timeouts = timeouts
        self._rng = rng or random.Random(0)  # noqa: S311  only for delays

    async def open_term(self, request: m.OpenTermRequest) -> m.Term:
        """Open the next term."""
        return await self._post("/v1/terms", request, m.Term)

    async def reconcile(self, request: m.ReconcileRequest) -> m.ReconcileResponse:
        """Bring NCs to their desired state; raises `StaleTerm` or `InventoryRequired` if the term is not valid."""
        return await self._post("/v1/reconcile", request, m.ReconcileResponse)

    async def send_inventory(self, inventory: m.Inventory) -> m.InventoryResponse:
        """Send the cluster's inventory, after a `Term` or an error that requires it."""
        return await self._post("/v1/inventory", inventory, m.InventoryResponse)

    async def network_containers(self, cluster: str, *, network: str = "") -> m.NetworkContainerList:
        """Return the open NCs of a cluster, in one network or all."""
        query = _cluster_query(cluster, network)
        return await self._get("/v1/network-containers", m.NetworkContainerList, query=query)

    async def report_pods(self, report: am.PodReport) -> am.PodReportResponse:
        """Report the addresses that Pods use or used."""
        return await self._post("/v1/pods", report, am.PodReportResponse)

    async def changes(self, cluster: str, *, network: str = "") -> AsyncGenerator[m.SubnetChange, None]:
        """Yield the state of each subnet of a network or all, then its changes, until the stream ends.

        It may end with `Unreachable`.

        Changes after the end are lost: a new stream begins with the state of all subnets.
        """
        query = _cluster_query(cluster, network)
        request = Request(method="GET", path="/v1/changes", query=query, headers=self._headers())
        try:
            async with asyncio.timeout(self._timeouts.deadline) if self._timeouts else nullcontext():
                response = await self._send(request)
        except TimeoutError:
            raise Unreachable("the ledger", "no response to GET /v1/changes") from None
        try:
            stream = _within(response.stream, self._timeouts.silence) if self._timeouts else response.stream
            async with aclosing(_events(stream)) as events:
                async for event in events:
                    yield _decoded(event, m.SubnetChange, "GET /v1/changes")
        finally:
            await response.close()

    # Subnets

    async def create_subnet(self, spec: m.SubnetSpec) -> m.SubnetState:
        """Create a subnet; one with the same spec is returned, one that differs or overlaps is a `Conflict`."""
        return await self._post("/v1/subnets", spec, m.SubnetState)

    async def subnets(self) -> m.SubnetList:
        """Return all subnets."""
        return await self._get("/v1/subnets", m.SubnetList)

    async def subnet(self, name: m.SubnetName) -> m.SubnetState:
        """Return one subnet."""
        return await self._get(_path(name), m.SubnetState)

    async def utilization(self, name: m.SubnetName) -> list[m.Utilization]:
        """Return the utilization of a subnet, by the call that is compatible with DNC."""
        return await self._get(f"/networks/{name.network}/subnets/{name.name}/utilization", list[m.Utilization])

    async def grow_subnet(self, name: m.SubnetName, growth: m.SubnetGrowth) -> m.SubnetState:
        """Give a subnet a larger or an additional CIDR; a repeated growth changes nothing."""
        return await self._post(f"{_path(name)}/grow", growth, m.SubnetState)

    async def drain_subnet(self, name: m.SubnetName) -> m.SubnetState:
        """Stop granting addresses of a subnet."""
        return await self._post(f"{_path(name)}/drain", None, m.SubnetState)

    async def reopen_subnet(self, name: m.SubnetName) -> m.SubnetState:
        """Grant addresses of a subnet again."""
        return await self._post(f"{_path(name)}/reopen", None, m.SubnetState)

    async def delete_subnet(self, name: m.SubnetName) -> am.DeletedSubnet:
        """Delete a subnet; one that is not empty is a `Conflict`."""
        return await self._call(Request(method="DELETE", path=_path(name)), am.DeletedSubnet, idempotent=False)

    async def details(self, name: m.SubnetName) -> am.SubnetDetails:
        """Return a subnet with its usage per cluster; a cluster sees only its own."""
        return await self._get(f"{_path(name)}/details", am.SubnetDetails)

    async def occupancy(self, name: m.SubnetName) -> am.Occupancy:
        """Return the addresses of a subnet that are not free; a cluster sees the names of its own nodes only."""
        return await self._get(f"{_path(name)}/addresses", am.Occupancy)

    async def networks(self) -> am.NetworkList:
        """Return all networks."""
        return await self._get("/v1/networks", am.NetworkList)

    async def date(self) -> str:
        """Return the Date header with which the ledger answers; empty if it sends none."""
        response = await self._answer(Request(method="GET", path="/v1/networks"))
        await response.read()
        return response.headers.get("date", "")

    # Recovery

    async def recovery(self) -> m.RecoveryStatus:
        """Return the inventories that are missing after a restore, and the ownership conflicts."""
        return await self._get("/v1/recovery", m.RecoveryStatus)

    async def excuse(self, cluster: str, *, network: str = "") -> m.RecoveryStatus:
        """Recover without the inventory of a cluster, in one network or in all that wait for it."""
        request = _post_request("/v1/recovery/excuse", m.ExcuseRequest(cluster=cluster, network=network))
        return await self._call(request, m.RecoveryStatus, idempotent=False)

    async def resolve_conflict(self, request: m.ResolveConflictRequest) -> m.RecoveryStatus:
        """Assign an address with two owners to one of them."""
        return await self._call(_post_request("/v1/recovery/resolve", request), m.RecoveryStatus, idempotent=False)

    # History

    async def history(
        self, *, address: str = "", node: str = "", at: str = "", cluster: str = "", limit: int = 100
    ) -> am.AddressHistory:
        """Return the history of an address or a node, at one time or all."""
        subject = f"addresses/{address}" if address else f"nodes/{node}"
        return await self._history(subject, at=at, cluster=cluster, limit=str(limit))

    async def pod_history(
        self, name: str, *, namespace: str = "", at: str = "", cluster: str = "", limit: int = 100
    ) -> am.AddressHistory:
        """Return the addresses of a Pod, also a deleted one; without a namespace, of all Pods of that name."""
        return await self._history(f"pods/{name}", namespace=namespace, at=at, cluster=cluster, limit=str(limit))

    async def _history(self, subject: str, **options: str) -> am.AddressHistory:
        query = {name: value for name, value in options.items() if value}
        return await self._get(f"/v1/history/{subject}", am.AddressHistory, query=query)

    # Tokens and clusters

    async def create_token(self, request: am.CreateTokenRequest) -> am.TokenInfo:
        """Create a token; the response has the secret, which is returned only now."""
        return await self._call(_post_request("/v1/tokens", request), am.TokenInfo, idempotent=False)

    async def rotate_token(self, name: str, request: am.RotateTokenRequest) -> am.TokenInfo:
        """Create a new token for the cluster of a token; the response has the secret, which is returned only now."""
        return await self._call(_post_request(f"/v1/tokens/{name}/rotate", request), am.TokenInfo, idempotent=False)

    async def revoke_token(self, name: str) -> am.TokenInfo:
        """Revoke a token by its ID, or all tokens of a name."""
        return await self._call(Request(method="DELETE", path=f"/v1/tokens/{name}"), am.TokenInfo, idempotent=False)

    async def tokens(self) -> am.TokenList:
        """Return all tokens."""
        return await self._get("/v1/tokens", am.TokenList)

    async def audit_log(self, *, limit: int = 100) -> am.AuditLog:
        """Return the latest administrative calls."""
        return await self._get("/v1/audit-log", am.AuditLog, query={"limit": str(limit)})

    async def clusters(self) -> am.ClusterList:
        """Return all clusters."""
        return await self._get("/v1/clusters", am.ClusterList)

    async def confirm_loss(self, cluster: str) -> am.ClusterList:
        """Confirm the loss of a cluster's nodes, which closes its circuit breaker."""
        return await self._post(f"/v1/clusters/{cluster}/confirm-loss", None, am.ClusterList)

    async def retire(self, cluster: str) -> am.RetiredCluster:
        """Release everything that a destroyed cluster held."""
        request = _post_request(f"/v1/clusters/{cluster}/retire", None)
        return await self._call(request, am.RetiredCluster, idempotent=False)

    async def _get(self, path: str, response: type[T], *, query: Mapping[str, str] | None = None) -> T:
        return await self._call(Request(method="GET", path=path, query=query or {}), response)

    async def _post(self, path: str, message: msgspec.Struct | None, response: type[T]) -> T:
        return await self._call(_post_request(path, message), response)

    async def _call(self, request: Request, response: type[T], *, idempotent: bool = True) -> T:
        """Send a request, with deadline and retries, and decode the response."""
        timeouts = self._timeouts
        if timeouts is None:
            return await self._attempt(request, response)
        failures = 0
        while True:
            try:
                async with asyncio.timeout(timeouts.deadline):
                    return await self._attempt(request, response)
            except (Unreachable, TimeoutError, TooManyRequests, Unavailable) as error:
                failures += 1
                retry_after = error.retry_after if isinstance(error, LedgerError) else None
                rejected = isinstance(error, TooManyRequests) or retry_after is not None  # so it was not processed
                if failures >= timeouts.attempts or not (rejected or (idempotent and timeouts.repeat_unanswered)):
                    late = Unreachable("the ledger", f"no response within {timeouts.deadline:g} s")
                    raise late if isinstance(error, TimeoutError) else error from None
            delay = backoff_delay(failures, rng=self._rng, base=timeouts.min_delay, maximum=timeouts.max_delay)
            at_least = (retry_after or 0.0) * self._rng.uniform(1.0, 1.5)
            await asyncio.sleep(max(delay, at_least))

    async def _attempt(self, request: Request, response: type[T]) -> T:
        received = await self._answer(request)
        return _decoded(await received.read(), response, f"{request.method} {request.path}")

    async def _answer(self, request: Request) -> Response:
        headers = {**request.headers, **self._headers()}
        if self._timeouts:
            headers[m.TIMEOUT_HEADER] = f"{self._timeouts.deadline:g}"
        return await self._send(msgspec.structs.replace(request, headers=headers))

    def _headers(self) -> dict[str, str]:
        token = self._token if isinstance(self._token, str) else self._token()
        return {"authorization": f"Bearer {token}"} if token else {}

    async def _send(self, request: Request) -> Response:
        """Send a request; an error response is raised."""
        response = await self._transport.send(request)
        if response.status >= 300:
            error = _error(request, response.status, await response.read())
            error.retry_after = _retry_after(response)
            raise error
        return response


def _cluster_query(cluster: str, network: str) -> dict[str, str]:
    return {"cluster": cluster, "network": network} if network else {"cluster": cluster}


def _path(name: m.SubnetName) -> str:
    return f"/v1/networks/{name.network}/subnets/{name.name}"


def _post_request(path: str, message: msgspec.Struct | None) -> Request:
    if message is None:
        return Request(method="POST", path=path)
    headers = {"content-type": "application/json"}
    return Request(method="POST", path=path, headers=headers, body=msgspec.json.encode(message))


def _decoded(body: bytes, type_: type[T], operation: str) -> T:
    try:
        return msgspec.json.decode(body, type=type_)
    except (ValueError, RecursionError) as error:  # another server answers under this URL
        raise LedgerError(f"{operation} returned no response of a ledger: {error}") from None


def _error(request: Request, status: int, body: bytes) -> LedgerError:
    try:
        return error_from(msgspec.json.decode(body, type=m.ErrorResponse))
    except (ValueError, RecursionError):  # the page of a proxy
        return LedgerError(f"{request.method} {request.path} returned status {status}")


def _retry_after(response: Response) -> float | None:
    """Return the seconds of Retry-After; a date, which proxies may send, counts as none."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() and len(text) < 5 else None


async def _within(stream: AsyncIterator[bytes], seconds: float) -> AsyncGenerator[bytes, None]:
    """Yield the chunks of a stream; one that is silent for too long is `Unreachable`."""
    while True:
        try:
            async with asyncio.timeout(seconds):
                chunk = await anext(stream)
        except StopAsyncIteration:
            return
        except TimeoutError:
            raise Unreachable("the ledger", f"its stream was silent for {seconds:g} s") from None
        yield chunk


async def _events(stream: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
    """Yield the data of server-sent events; other lines are names or heartbeats."""
    incomplete = b""
    async for chunk in stream:
        *lines, incomplete = (incomplete + chunk).split(b"\n")
        if len(incomplete) > _MAX_EVENT_BYTES:
            raise LedgerError(f"the stream of changes has a line of more than {_MAX_EVENT_BYTES} bytes")
        for line in lines:
            if line.startswith(b"data:"):
                yield line.removeprefix(b"data:").strip()
