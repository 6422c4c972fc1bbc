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


class NotFound(ApiError):
    """There is no such object, namespace or kind."""


class AlreadyExists(ApiError):
    """The name is taken."""


class Conflict(ApiError):
    """The object is not the one that the precondition named: read it again."""


class Gone(ApiError):
    """The version is no longer, or not yet, remembered: list again."""


class Forbidden(ApiError):
    """The account lacks the right, or is not known at all."""


class Invalid(ApiError):
    """The object, or the request, breaks a rule of its kind."""


class TooMany(ApiError):
    """The server asks for patience; `retry_after` tells for how many seconds, when it says so."""


class ServerError(ApiError):
    """The server is in trouble of its own."""


class Unreadable(ApiError):
    """The server's answer is not what its kind looks like."""


class Status(msgspec.Struct, frozen=True, kw_only=True):
    """The body of a refusal, as far as we read it."""

    code: int = 0
    reason: str = ""
    message: str = ""


_BY_REASON: Mapping[str, type[ApiError]] = {
    "AlreadyExists": AlreadyExists,
    "Expired": Gone,
    "Gone": Gone,
    "NotFound": NotFound,
}
_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: Invalid,
    401: Forbidden,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
    422: Invalid,
    429: TooMany,
}
_STATUS = msgspec.json.Decoder(Status)


def refusal(doing: str, status: int, body: bytes | msgspec.Raw, headers: Mapping[str, str] | None = None) -> ApiError:
    """Make the error of a refused request from its status, its body and its headers."""
    try:
        said = _STATUS.decode(body)
    except msgspec.DecodeError:  # a proxy in between answers with a page
        said = Status(message=bytes(body)[:200].decode(errors="replace"))
    code = status if status >= 400 else said.code
    made = _BY_REASON.get(said.reason) or _BY_STATUS.get(code) or (ServerError if code >= 500 else ApiError)
    return made(
        doing, status=code, reason=said.reason, message=said.message, retry_after=_seconds(headers or {}, "retry-after")
    )


def _seconds(headers: Mapping[str, Any], name: str) -> float | None:
    value = str(headers.get(name, ""))
    return float(value) if value.isdecimal() else None
