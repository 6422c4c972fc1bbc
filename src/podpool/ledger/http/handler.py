"""Handles HTTP requests to the ledger, whatever carries them. Authorization happens before, in `auth`.

An error is JSON: a code for programs, a message for people, and the field at fault.
"""

import math
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from podpool.ledger.domain.deadline import within
from podpool.ledger.domain.service import LedgerService
from podpool.ledger.errors import Invalid, LedgerError, RequestTimeout, RequestTooLarge
from podpool.ledger.http.routes import Route, find_route
from podpool.ledger.messages import TIMEOUT_HEADER, SubnetChange
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import BodyTimeout, BodyTooLarge, Request, Response, with_body

log = get_logger(__name__)
_JSON = {"content-type": "application/json"}
_EVENTS = {"content-type": "text/event-stream", "cache-control": "no-store"}
_DEFAULT_DEADLINE = 30.0
"""Seconds that a caller waits if it does not state it."""
_MAX_DEADLINE = 120.0
_FIELD_PATH = re.compile(r" - at `\$?\.?(.*)`")
"""The path of the field in msgspec's error messages."""


class LedgerHandler:
    """Calls the ledger service."""

    def __init__(self, ledger: LedgerService) -> None:
        self._ledger = ledger

    async def __call__(self, request: Request) -> Response:
        """Return the response to a request, or an error."""
        try:
            return await self._handle(request)
        except LedgerError as error:
            return error_response(error)
        except Exception:
            log.exception("internal error, request answered with 500", method=request.method, path=request.path)
            message = "internal error, see the ledger's log; the request may have been processed"
            return error_response(LedgerError(message))

    async def _handle(self, request: Request) -> Response:
        route, parameters = find_route(request.method, request.path)
        parameters |= _checked_query(route, request.query)
        request = await receive_body(request, route)
        _reject_nul(request)
        message = _decode(request.body, route.request) if route.request else None
        seconds = _deadline(request)
        result = route.handler(self._ledger, parameters, message)
        if route.stream:
            stream = _events(result)
            return Response(200, headers=_EVENTS, stream=stream, close=stream.aclose)
        with within(seconds):
            return Response(200, msgspec.json.encode(await result), headers=_JSON)


async def receive_body(request: Request, route: Route) -> Request:
    """Return a request with its body, within the limit of its route."""
    try:
        return await with_body(request, max_bytes=route.max_body)
    except BodyTooLarge as error:
        raise RequestTooLarge(f"{error}, which {route.path} accepts") from None
    except BodyTimeout as error:
        raise RequestTimeout(str(error)) from None


def error_response(error: LedgerError) -> Response:
    """Return the response for an error."""
    headers = _JSON | ({"www-authenticate": "Bearer"} if error.status == 401 else {})
    if error.retry_after is not None:
        headers["retry-after"] = str(math.ceil(error.retry_after))
    return Response(error.status, msgspec.json.encode(error.response), headers=headers)


async def _events(changes: AsyncGenerator[SubnetChange | None, None]) -> AsyncGenerator[bytes, None]:
    try:
        async for change in changes:
            yield b": heartbeat\n\n" if change is None else b"data: " + msgspec.json.encode(change) + b"\n\n"
    finally:
        await changes.aclose()


def _deadline(request: Request) -> float:
    """Return for how many seconds the caller waits."""
    text = request.headers.get(TIMEOUT_HEADER)
    if text is None:
        return _DEFAULT_DEADLINE
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise Invalid(f"header {TIMEOUT_HEADER} is not a number of seconds", field=TIMEOUT_HEADER)
    return min(seconds, _MAX_DEADLINE)


def _checked_query(route: Route, query: Mapping[str, str]) -> dict[str, str]:
    for name in route.query:
        if not query.get(name):
            raise Invalid(f"the query lacks {name}", field=name)
    for name, value in query.items():
        if name not in route.query and name not in route.optional:
            raise Invalid(f"{route.path} has no query parameter {name}", field=name)
        if not value:
            raise Invalid(f"the query parameter {name} is empty: omit it", field=name)
    return dict(query)


def _reject_nul(request: Request) -> None:
    """Reject the NUL character, which no name contains and PostgreSQL cannot store."""
    if any("\0" in text for text in (request.path, *request.query.values())) or rb"\u0000" in request.body:
        raise Invalid("the request contains a NUL character")


def _decode(body: bytes, type_: Any) -> object:  # noqa: ANN401  any type of the route table
    try:
        return msgspec.json.decode(body, type=type_)
    except msgspec.ValidationError as error:
        where = _FIELD_PATH.search(str(error))
        raise Invalid(str(error), field=where[1] if where else None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the body is not valid JSON: {error}") from None
