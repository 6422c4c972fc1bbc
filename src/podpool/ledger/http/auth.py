"""Authentication and authorization: middleware, so that the simulator can run with or without it.

Invariants: a cluster acts for itself only, and sees nothing of another. The cluster in the body or the query of a
request must be that of the caller's token; where it is optional, the middleware adds it. It uses only the networks and
subnets in the scope of its token. An admin token manages the
ledger, and acts for no cluster. Without a valid token no body is read, and no transaction is queued.
"""

from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec

from podpool.ledger.domain.admin import AdminService
from podpool.ledger.domain.item_validation import MAX_NAME_LENGTH
from podpool.ledger.domain.rows import TokenRow
from podpool.ledger.domain.token_scope import TokenScope, limited_to
from podpool.ledger.errors import Forbidden, Invalid, LedgerError, Unauthorized, Unavailable
from podpool.ledger.http.audit import is_audited, record_call, result_of
from podpool.ledger.http.handler import error_response, receive_body
from podpool.ledger.http.rate_limit import RateLimiter, RateLimits
from podpool.ledger.http.routes import Access, Route, find_route
from podpool.ledger.http.token_cache import TokenCache
from podpool.runtime.clock import Clock
from podpool.runtime.transport import Handler, Request, Response


class _ClusterField(msgspec.Struct, frozen=True):
    """The one field of a body that is read here."""

    cluster: str


class AuthMiddleware:
    """Passes authorized requests to the next handler, within their rate limits."""

    def __init__(
        self, handler: Handler, admin: AdminService, *, clock: Clock, limits: RateLimits | None = None
    ) -> None:
        self._handler = handler
        self._admin = admin
        self._limiter = RateLimiter(limits or RateLimits(), clock=clock)
        self._tokens = TokenCache(admin, clock=clock)

    async def __call__(self, request: Request) -> Response:
        """Authorize and handle a request."""
        try:
            route, parameters = find_route(request.method, request.path)
            caller = await self._authenticate(request)
            size = _body_bytes(request, route)
            self._limiter.enter(caller.id, body_bytes=size)
            try:
                request = await receive_body(request, route)
                request = await self._authorize(route, caller, request)
                with limited_to(TokenScope(caller.name, caller.scope)):
                    response = await self._handler(request)
                if is_audited(route):
                    result, response = await result_of(response)
                    await record_call(self._admin, caller, route, request, parameters, result)
            except BaseException:
                self._limiter.leave(caller.id, body_bytes=size)
                raise
        except LedgerError as error:
            return error_response(error)
        if is_audited(route):
            self._tokens.invalidate()  # it may have changed tokens
        close = self._on_close(caller, response, body_bytes=size)
        stream = self._while_valid(request, response.stream) if route.stream else response.stream
        return Response(response.status, headers=response.headers, stream=stream, close=close)

    async def _while_valid(self, request: Request, stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """Yield a stream until its token was revoked or has expired: heartbeats pass here too."""
        async for chunk in stream:
            try:
                valid = await self._tokens.identify(_secret(request)) is not None
            except Unavailable:  # the next chunk shows it
                valid = True
            if not valid:
                return
            yield chunk

    async def _authenticate(self, request: Request) -> TokenRow:
        caller = await self._tokens.identify(_secret(request))
        if caller is None:
            raise Unauthorized("the request has no valid token: send it as `Authorization: Bearer TOKEN`")
        return caller

    async def _authorize(self, route: Route, caller: TokenRow, request: Request) -> Request:
        """Check that a caller may make this call; returns the request, limited to the caller's cluster."""
        if caller.admin:
            if route.access is Access.CLUSTER:
                raise Forbidden(f"{request.method} {route.path} needs the token of a cluster, not an admin token")
            return request
        if route.access is Access.ADMIN:
            raise Forbidden(f"{request.method} {route.path} needs an admin token")
        if route.access is Access.AUTHENTICATED:
            return request
        cluster = _body_cluster(request) if route.access is Access.CLUSTER else request.query.get("cluster")
        if cluster is None and "cluster" in route.optional:
            cluster = caller.cluster
        if not cluster or len(cluster) > MAX_NAME_LENGTH or "\0" in cluster:
            raise Invalid("the request lacks the UID of its cluster", field="cluster")
        if cluster != caller.cluster:
            await self._bind(caller, cluster)
        if route.access is Access.CLUSTER:
            return request
        return msgspec.structs.replace(request, query={**request.query, "cluster": cluster})

    async def _bind(self, caller: TokenRow, cluster: str) -> None:
        """Bind a token to the cluster of its first request; reject any other."""
        if caller.cluster is not None:
            bound = f"token {caller.name} is bound to cluster {caller.cluster}, and not to {cluster}"
            remedy = f"use the token of cluster {cluster}, or `podpool ledger token create NAME --cluster {cluster}`"
            raise Forbidden(f"{bound}: {remedy}", field="cluster")
        await self._admin.bind_token(caller.id, cluster)
        self._tokens.invalidate()

    def _on_close(self, caller: TokenRow, response: Response, *, body_bytes: int) -> Callable[[], Awaitable[None]]:
        async def close() -> None:
            self._limiter.leave(caller.id, body_bytes=body_bytes)
            await response.close()

        return close


def _secret(request: Request) -> str:
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else ""


def _body_bytes(request: Request, route: Route) -> int:
    """Return the size of the body, as far as the head announces it; never more than what is read."""
    if request.receive is None:
        return len(request.body)
    announced = request.headers.get("content-length", "")
    return min(int(announced[:12]), route.max_body) if announced.isdecimal() else route.max_body


def _body_cluster(request: Request) -> str:
    try:
        return msgspec.json.decode(request.body, type=_ClusterField).cluster
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the body lacks the UID of its cluster: {error}", field="cluster") from None
