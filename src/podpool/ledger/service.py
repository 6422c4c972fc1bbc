"""The ledger over HTTP: a handler for whatever carries requests, with its routes in one table.

An error is JSON: a code for programs, a sentence for people, and the field that is to blame. The table names the type
of each request and answer, so that a description of the whole interface can be made from it.
"""

import logging
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from typing import Any

import msgspec

from podpool.ledger import messages as m
from podpool.ledger.authority import Ledger
from podpool.ledger.errors import Invalid, LedgerError, NotFound, WrongMethod
from podpool.runtime.transport import Request, Response

_log = logging.getLogger(__name__)
_JSON = {"content-type": "application/json"}
_AT = re.compile(r" - at `\$?\.?(.*)`")
"""Where msgspec says that a message is wrong."""

Answer = Callable[[Ledger, Mapping[str, str], Any], Awaitable[object]]


class Route(msgspec.Struct, frozen=True, kw_only=True):
    """One call: where it is, what it takes, what it gives, and who answers."""

    method: str
    path: str
    """Parts in braces are parameters."""
    query: tuple[str, ...] = ()
    """Parameters that must be in the query."""
    takes: Any = None
    gives: Any
    answer: Answer

    @property
    def pattern(self) -> re.Pattern[str]:
        """What its paths look like."""
        return re.compile(re.sub(r"{(\w+)}", r"(?P<\1>[^/]+)", self.path))


def _subnet(parameters: Mapping[str, str]) -> m.SubnetName:
    return m.SubnetName(network=parameters["network"], name=parameters["subnet"])


async def _fine(_ledger: Ledger, _parameters: Mapping[str, str], _message: object) -> object:
    return {"status": "ok"}


async def _ready(ledger: Ledger, _parameters: Mapping[str, str], _message: object) -> object:
    await ledger.subnets()  # the store answers
    return {"status": "ok"}


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path="/v1/reconcile",
        takes=m.Reconcile,
        gives=m.ReconcileAnswer,
        answer=lambda ledger, _, message: ledger.reconcile(message),
    ),
    Route(
        method="POST",
        path="/v1/terms",
        takes=m.OpenTerm,
        gives=m.Term,
        answer=lambda ledger, _, message: ledger.open_term(message),
    ),
    Route(
        method="POST",
        path="/v1/listings",
        takes=m.Listing,
        gives=m.ListingAnswer,
        answer=lambda ledger, _, message: ledger.take_listing(message),
    ),
    Route(
        method="GET",
        path="/v1/containers",
        query=("cluster",),
        gives=m.Containers,
        answer=lambda ledger, parameters, _: ledger.containers(parameters["cluster"]),
    ),
    Route(
        method="POST",
        path="/v1/subnets",
        takes=m.NewSubnet,
        gives=m.SubnetState,
        answer=lambda ledger, _, message: ledger.create_subnet(message),
    ),
    Route(method="GET", path="/v1/subnets", gives=m.Subnets, answer=lambda ledger, *_: ledger.subnets()),
    Route(
        method="GET",
        path="/v1/networks/{network}/subnets/{subnet}",
        gives=m.SubnetState,
        answer=lambda ledger, parameters, _: ledger.subnet(_subnet(parameters)),
    ),
    Route(
        method="GET",
        path="/networks/{network}/subnets/{subnet}/utilization",
        gives=list[m.Utilization],
        answer=lambda ledger, parameters, _: ledger.utilization(_subnet(parameters)),
    ),
    Route(method="GET", path="/v1/recovery", gives=m.Recovery, answer=lambda ledger, *_: ledger.recovery()),
    Route(
        method="POST",
        path="/v1/recovery/excuse",
        takes=m.Excuse,
        gives=m.Recovery,
        answer=lambda ledger, _, message: ledger.excuse(message),
    ),
    Route(
        method="POST",
        path="/v1/recovery/settle",
        takes=m.Settle,
        gives=m.Recovery,
        answer=lambda ledger, _, message: ledger.settle(message),
    ),
    Route(method="GET", path="/healthz", gives=dict[str, str], answer=_fine),
    Route(method="GET", path="/readyz", gives=dict[str, str], answer=_ready),
)
CHANGES = "/v1/changes"
"""`GET`, with `cluster` in the query: server-sent events, each a `Change`. A stream, so not in the table."""


class Service:
    """A `Handler` for one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._routes = [(route, route.pattern) for route in ROUTES]

    async def __call__(self, request: Request) -> Response:
        """Answer a request, whatever it is."""
        try:
            if (request.method, request.path) == ("GET", CHANGES):
                return self._follow(_required(request.query, "cluster"))
            return await self._answer(request)
        except LedgerError as error:
            return _refusal(error)
        except Exception:  # noqa: BLE001  a caller gets an answer, and the log the reason
            _log.exception("%s %s failed", request.method, request.path)
            return _refusal(LedgerError("the ledger failed, and its log says why: nobody knows whether it was done"))

    async def _answer(self, request: Request) -> Response:
        route, parameters = self._route(request)
        for name in route.query:
            parameters[name] = _required(request.query, name)
        message = _decode(request.body, route.takes) if route.takes else None
        answer = await route.answer(self._ledger, parameters, message)
        return Response(200, msgspec.json.encode(answer), headers=_JSON)

    def _route(self, request: Request) -> tuple[Route, dict[str, str]]:
        found = [(route, match) for route, path in self._routes if (match := path.fullmatch(request.path))]
        for route, match in found:
            if route.method == request.method:
                return route, match.groupdict()
        if found:
            raise WrongMethod(f"{request.path} is for {found[0][0].method}, not {request.method}", field="method")
        raise NotFound(f"there is nothing at {request.path}", field="path")

    def _follow(self, cluster: str) -> Response:
        stream = self._events(cluster)
        headers = {"content-type": "text/event-stream", "cache-control": "no-store"}
        return Response(200, headers=headers, stream=stream, close=stream.aclose)

    async def _events(self, cluster: str) -> AsyncGenerator[bytes, None]:
        changes = self._ledger.changes(cluster)
        try:
            async for change in changes:
                yield b": still here\n\n" if change is None else b"data: " + msgspec.json.encode(change) + b"\n\n"
        finally:
            await changes.aclose()


def _required(query: Mapping[str, str], name: str) -> str:
    if not query.get(name):
        raise Invalid(f"the query lacks {name}", field=name)
    return query[name]


def _decode(body: bytes, kind: Any) -> object:  # noqa: ANN401  whatever the table says
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        where = _AT.search(str(error))
        raise Invalid(str(error), field=where[1] if where else None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the body is not JSON: {error}") from None


def _refusal(error: LedgerError) -> Response:
    return Response(error.status, msgspec.json.encode(error.problem), headers=_JSON)
