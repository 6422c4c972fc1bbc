"""The ledger over HTTP: a handler for whatever carries requests. Who may call is decided before, by a `Guard`.

An error is JSON: a code for programs, a sentence for people, and the field that is to blame.
"""

import logging
import re
from collections.abc import AsyncGenerator, Mapping
from typing import Any

import msgspec

from podpool.ledger.domain.service import Ledger
from podpool.ledger.errors import Invalid, LedgerError, TooLarge
from podpool.ledger.http.routes import Route, find
from podpool.ledger.messages import Change
from podpool.runtime.transport import Request, Response

_log = logging.getLogger(__name__)
_JSON = {"content-type": "application/json"}
_EVENTS = {"content-type": "text/event-stream", "cache-control": "no-store"}
_AT = re.compile(r" - at `\$?\.?(.*)`")
"""Where msgspec says that a message is wrong."""


class Service:
    """A `Handler` for one ledger."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def __call__(self, request: Request) -> Response:
        """Answer a request, whatever it is."""
        try:
            return await self._answer(request)
        except LedgerError as error:
            return refuse(error)
        except Exception:  # noqa: BLE001  a caller gets an answer, and the log the reason
            _log.exception("%s %s failed", request.method, request.path)
            return refuse(LedgerError("the ledger failed, and its log says why: nobody knows whether it was done"))

    async def _answer(self, request: Request) -> Response:
        route, parameters = find(request.method, request.path)
        _refuse_nul(request)
        parameters |= _asked(route, request.query)
        if len(request.body) > route.most:
            raise TooLarge(f"{len(request.body)} bytes are more than the {route.most} that {route.path} takes")
        message = _decode(request.body, route.takes) if route.takes else None
        answer = route.answer(self._ledger, parameters, message)
        if route.stream:
            stream = _events(answer)
            return Response(200, headers=_EVENTS, stream=stream, close=stream.aclose)
        return Response(200, msgspec.json.encode(await answer), headers=_JSON)


def refuse(error: LedgerError) -> Response:
    """Answer with an error."""
    headers = _JSON | ({"www-authenticate": "Bearer"} if error.status == 401 else {})
    return Response(error.status, msgspec.json.encode(error.problem), headers=headers)


async def _events(changes: AsyncGenerator[Change | None, None]) -> AsyncGenerator[bytes, None]:
    try:
        async for change in changes:
            yield b": still here\n\n" if change is None else b"data: " + msgspec.json.encode(change) + b"\n\n"
    finally:
        await changes.aclose()


def _asked(route: Route, query: Mapping[str, str]) -> dict[str, str]:
    for name in route.query:
        if not query.get(name):
            raise Invalid(f"the query lacks {name}", field=name)
    for name, value in query.items():
        if name not in route.query and name not in route.optional:
            raise Invalid(f"{route.path} knows no {name} in its query", field=name)
        if not value:
            raise Invalid(f"{name} is empty in the query: leave it out", field=name)
    return dict(query)


def _refuse_nul(request: Request) -> None:
    """Refuse a character that no name has, and that PostgreSQL has no place for."""
    if any("\0" in text for text in (request.path, *request.query.values())) or rb"\u0000" in request.body:
        raise Invalid("the request has a character of code 0, which nothing here is named with")


def _decode(body: bytes, kind: Any) -> object:  # noqa: ANN401  whatever the table says
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.ValidationError as error:
        where = _AT.search(str(error))
        raise Invalid(str(error), field=where[1] if where else None) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the body is not JSON: {error}") from None
