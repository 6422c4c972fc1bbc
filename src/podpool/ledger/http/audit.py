"""Records administrative calls: as a log line with the field `audit`, and in the audit log of the database.

The line is written even if the database is not available. An entry names the caller's token and the object of the call,
of which only fields without secrets are read.
"""

from collections.abc import Mapping

import msgspec

from podpool.ledger.domain.admin import AdminService
from podpool.ledger.domain.rows import TokenRow
from podpool.ledger.errors import LedgerError
from podpool.ledger.http.routes import Access, Route
from podpool.ledger.messages import ErrorResponse, SubnetName
from podpool.runtime.logging import get_logger
from podpool.runtime.transport import Request, Response

log = get_logger(__name__)

_MAX_OBJECT_LENGTH = 256
_MAX_ERROR_BYTES = 1 << 16


class _Named(msgspec.Struct, frozen=True):
    """The fields of bodies that name the object of a call."""

    network: str = ""
    name: str = ""
    cluster: str | None = None
    subnet: SubnetName | None = None
    address: str = ""
    nc_id: str = ""


def is_audited(route: Route) -> bool:
    """Return whether calls of a route are recorded."""
    return route.access is Access.ADMIN and route.method != "GET"


async def record_call(
    admin: AdminService, caller: TokenRow, route: Route, request: Request, parameters: Mapping[str, str], result: str
) -> None:
    """Record a call of an administrator."""
    subject = object_of(request, parameters)
    fields = {"token": caller.name, "token_id": caller.id, "action": route.pattern, "object": subject}
    log.info("administrative call", audit="admin", **fields, result=result)
    try:
        await admin.record(token=caller, action=route.pattern, subject=subject, result=result)
    except LedgerError as error:
        log.warning("administrative call not in the audit log of the database", audit="admin", error=error, **fields)


def object_of(request: Request, parameters: Mapping[str, str]) -> str:
    """Return what a call is about: from its path and the fields of its body that name something."""
    words = [".".join(parameters[name] for name in ("network", "subnet") if name in parameters)]
    words += [value for name, value in parameters.items() if name not in ("network", "subnet")]
    try:
        named = msgspec.json.decode(request.body, type=_Named) if request.body else _Named()
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        named = _Named()
    words += [".".join(filter(None, (named.network, named.name))), str(named.subnet or ""), named.address, named.nc_id]
    words += [f"cluster {named.cluster}"] if named.cluster else []
    return " ".join(filter(None, words)).replace("\0", "")[:_MAX_OBJECT_LENGTH]


async def result_of(response: Response) -> tuple[str, Response]:
    """Return `ok` or the code of the error in a response, and the response, which can be read again."""
    if response.status < 300:
        return "ok", response
    body = await response.read()
    try:
        code = msgspec.json.decode(body[:_MAX_ERROR_BYTES], type=ErrorResponse).error
    except msgspec.DecodeError:
        code = str(response.status)
    return code, Response(response.status, body, headers=response.headers)
