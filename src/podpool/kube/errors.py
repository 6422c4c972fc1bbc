"""Errors of the API server, typed by what a caller can do about them.

Every error names the operation and the object. If the server does not answer, `runtime.transport.Unreachable` is raised
instead: then it is unknown whether the request took effect.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from podpool.api.annotation_decoder import parse_number
from podpool.core.errors import PodpoolError


class ApiError(PodpoolError):
    """The API server rejected a request."""

    def __init__(
        self, operation: str, *, status: int = 0, reason: str = "", message: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(f"cannot {operation}: {message or reason or 'no reason given'} ({status} {reason})")
        self.operation = operation
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class ApiNotFound(ApiError):
    """The object, namespace or kind does not exist."""


class ApiAlreadyExists(ApiError):
    """An object of this name exists."""


class ApiConflict(ApiError):
    """The object does not match the precondition: read it again."""


class ApiExpired(ApiError):
    """The resourceVersion is no longer, or not yet, available: list again."""


class ApiForbidden(ApiError):
    """The account lacks the permission, or its credentials were rejected."""


class ApiInvalid(ApiError):
    """The object or the request is invalid."""


class ApiTooManyRequests(ApiError):
    """The server is overloaded; `retry_after` is the requested delay in seconds, if it sent one."""


class ApiServerError(ApiError):
    """The server failed (5xx)."""


class ApiDecodeError(ApiError):
    """The response cannot be decoded as its kind."""


class ApiStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The used fields of a `Status`, the body of an error response."""

    code: int = 0
    reason: str = ""
    message: str = ""


_BY_REASON: Mapping[str, type[ApiError]] = {
    "AlreadyExists": ApiAlreadyExists,
    "Expired": ApiExpired,
    "Gone": ApiExpired,
    "NotFound": ApiNotFound,
}
_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: ApiInvalid,
    401: ApiForbidden,
    403: ApiForbidden,
    404: ApiNotFound,
    409: ApiConflict,
    410: ApiExpired,
    422: ApiInvalid,
    429: ApiTooManyRequests,
}
_STATUS = msgspec.json.Decoder(ApiStatus)
MAX_RETRY_AFTER = 600
"""Seconds; a proxy that asks for more gets the next request then."""


def api_error(
    operation: str, status: int, body: bytes | msgspec.Raw, headers: Mapping[str, str] | None = None
) -> ApiError:
    """Return the error of an error response."""
    try:
        answer = _STATUS.decode(body)
    except (ValueError, RecursionError):  # a proxy may answer with a page
        answer = ApiStatus(message=bytes(body)[:200].decode(errors="replace"))
    code = status if status >= 400 else answer.code
    error = _BY_REASON.get(answer.reason) or _BY_STATUS.get(code) or (ApiServerError if code >= 500 else ApiError)
    retry_after = _seconds(headers or {}, "retry-after")
    return error(operation, status=code, reason=answer.reason, message=answer.message, retry_after=retry_after)


def _seconds(headers: Mapping[str, Any], name: str) -> float | None:
    seconds = parse_number(str(headers.get(name, "")))
    return None if seconds is None else float(min(seconds, MAX_RETRY_AFTER))
