"""What the API server refuses, typed by what a caller can do about it.

Every error says which verb on which object. That the server did not answer is not among them: that is `Unreachable`,
after which nobody knows whether the server acted.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from podpool.core.errors import PodpoolError


class ApiError(PodpoolError):
    """The API server said no."""

    def __init__(
        self, doing: str, *, status: int = 0, reason: str = "", message: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(f"cannot {doing}: {message or reason or 'no reason given'} ({status} {reason})")
        self.doing = doing
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after


class ApiNotFound(ApiError):
    """There is no such object, namespace or kind."""


class ApiAlreadyExists(ApiError):
    """The name is taken."""


class ApiConflict(ApiError):
    """The object is not the one that the precondition named: read it again."""


class ApiExpired(ApiError):
    """The version is no longer, or not yet, remembered: list again."""


class ApiForbidden(ApiError):
    """The account lacks the right, or is not known at all."""


class ApiInvalid(ApiError):
    """The object, or the request, breaks a rule of its kind."""


class ApiTooManyRequests(ApiError):
    """The server asks for patience; `retry_after` tells for how many seconds, when it says so."""


class ApiServerError(ApiError):
    """The server is in trouble of its own."""


class ApiDecodeError(ApiError):
    """The server's answer is not what its kind looks like."""


class ApiStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a refusal, as far as we read it."""

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


def api_error(doing: str, status: int, body: bytes | msgspec.Raw, headers: Mapping[str, str] | None = None) -> ApiError:
    """Make the error of a refused request from its status, its body and its headers."""
    try:
        said = _STATUS.decode(body)
    except msgspec.DecodeError:  # a proxy in between answers with a page
        said = ApiStatus(message=bytes(body)[:200].decode(errors="replace"))
    code = status if status >= 400 else said.code
    made = _BY_REASON.get(said.reason) or _BY_STATUS.get(code) or (ApiServerError if code >= 500 else ApiError)
    return made(
        doing, status=code, reason=said.reason, message=said.message, retry_after=_seconds(headers or {}, "retry-after")
    )


def _seconds(headers: Mapping[str, Any], name: str) -> float | None:
    value = str(headers.get(name, ""))
    return float(value) if value.isdecimal() else None
