"""Who may make which call: a layer before the service, so that the simulator can run with or without it.

What must hold: a cluster speaks for itself alone, and sees nothing of another's. Whatever a call says of a cluster, in
its body or its query, must be the cluster of the caller's token; where a call may leave it out, the guard puts it in.
A person with an admin token manages, and speaks for no cluster.

Tokens are read together and kept for a moment, so a revoked one is good for that long at another replica.
"""

from collections.abc import Awaitable, Callable

import msgspec

from podpool.ledger.domain.admin import Administration
from podpool.ledger.domain.tokens import identify
from podpool.ledger.domain.validation import LONGEST_NAME
from podpool.ledger.errors import Forbidden, Invalid, LedgerError, Unauthorized
from podpool.ledger.http.handler import refuse
from podpool.ledger.http.limits import Gate, Limits
from podpool.ledger.http.routes import Access, Route, find
from podpool.ledger.storage.rows import TokenRow
from podpool.runtime.clock import Clock
from podpool.runtime.transport import Handler, Request, Response

_KEPT = 2.0
"""Seconds for which tokens are believed without being read again."""


class _Speaker(msgspec.Struct, frozen=True):
    """The one field of a body that the guard reads."""

    cluster: str


class Guard:
    """A `Handler` before another."""

    def __init__(
        self, handler: Handler, administration: Administration, *, clock: Clock, limits: Limits | None = None
    ) -> None:
        self._handler = handler
        self._administration = administration
        self._clock = clock
        self._gate = Gate(limits or Limits(), clock=clock)
        self._rows: dict[str, TokenRow] = {}
        self._read_at = float("-inf")

    async def __call__(self, request: Request) -> Response:
        """Let a request through, or refuse it."""
        try:
            route, _ = find(request.method, request.path)
            if route.access is Access.OPEN:
                return await self._handler(request)
            caller = await self._caller(request)
            self._gate.enter(caller.id)
            try:
                response = await self._handler(await self._admitted(route, caller, request))
            except BaseException:
                self._gate.leave(caller.id)
                raise
        except LedgerError as error:
            return refuse(error)
        if route.access is Access.ADMIN and route.method != "GET":
            self._read_at = float("-inf")  # it may have been about tokens
        return Response(
            response.status, headers=response.headers, stream=response.stream, close=self._leaving(caller, response)
        )

    async def _caller(self, request: Request) -> TokenRow:
        scheme, _, secret = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            secret = ""
        caller = identify(await self._tokens(), secret.strip())
        if caller is None:  # it may be a new one, so all are read again; so many times in a second
            self._gate.knock()
            self._read_at = float("-inf")
            caller = identify(await self._tokens(), secret.strip())
        if caller is not None:
            return caller
        raise Unauthorized("there is no good token in the request: send `Authorization: Bearer` and yours")

    async def _tokens(self) -> dict[str, TokenRow]:
        now = self._clock.boot()
        if now - self._read_at >= _KEPT:
            self._rows = {row.id: row for row in await self._administration.token_rows()}
            self._read_at = now
        return self._rows

    async def _admitted(self, route: Route, caller: TokenRow, request: Request) -> Request:
        """Check that a caller may make this call, and limit it to what is the caller's own."""
        if caller.admin:
            if route.access is Access.CLUSTER:
                raise Forbidden(f"an admin token speaks for no cluster: {route.path} is for clusters' tokens")
            return request
        if route.access is Access.ADMIN:
            raise Forbidden(f"{request.method} {route.path} needs an admin token")
        if route.access is Access.READER:
            return request
        named = _speaker(request) if route.access is Access.CLUSTER else request.query.get("cluster")
        if named is None and "cluster" in route.optional:
            named = caller.cluster
        if not named or len(named) > LONGEST_NAME or "\0" in named:
            raise Invalid("the call does not say for which cluster it is, by its UID", field="cluster")
        if named != caller.cluster:
            await self._bind(caller, named)
        if route.access is Access.CLUSTER:
            return request
        return msgspec.structs.replace(request, query={**request.query, "cluster": named})

    async def _bind(self, caller: TokenRow, cluster: str) -> None:
        """Take the first cluster that a token speaks for as its own; refuse any other."""
        if caller.cluster is not None:
            raise Forbidden(f"token {caller.name} does not speak for cluster {cluster}", field="cluster")
        self._rows[caller.id] = await self._administration.bind_token(caller.id, cluster)

    def _leaving(self, caller: TokenRow, response: Response) -> Callable[[], Awaitable[None]]:
        async def close() -> None:
            self._gate.leave(caller.id)
            await response.close()

        return close


def _speaker(request: Request) -> str:
    try:
        return msgspec.json.decode(request.body, type=_Speaker).cluster
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the body does not say for which cluster it is: {error}", field="cluster") from None
