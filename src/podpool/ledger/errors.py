"""The ledger's errors: raised by the service, sent as an `ErrorResponse`, and raised again by the client.

The code selects the class on both sides; an unknown code becomes a plain `LedgerError`.
"""

from typing import ClassVar

from podpool.core.errors import PodpoolError
from podpool.ledger.messages import ErrorResponse


class LedgerError(PodpoolError):
    """A request, or an item of one, failed and changed nothing."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field

    @property
    def response(self) -> ErrorResponse:
        """The error as it is sent."""
        return ErrorResponse(error=self.code, message=self.message, field=self.field)


class Invalid(LedgerError):
    """A field has an invalid value."""

    code = "invalid"
    status = 400


class NotFound(LedgerError):
    """No such subnet, NC, cluster or path."""

    code = "not-found"
    status = 404


class Unauthorized(LedgerError):
    """No token, or an unknown or revoked one."""

    code = "unauthorized"
    status = 401


class Forbidden(LedgerError):
    """The token does not permit this call."""

    code = "forbidden"
    status = 403


class RequestTooLarge(LedgerError):
    """The body exceeds the limit of the route."""

    code = "request-too-large"
    status = 413


class TooManyRequests(LedgerError):
    """The caller's rate or concurrency limit is exceeded. Retry later."""

    code = "too-many-requests"
    status = 429


class MethodNotAllowed(LedgerError):
    """The path does not support this method."""

    code = "method-not-allowed"
    status = 405


class Conflict(LedgerError):
    """It contradicts the current state: a subnet overlaps another, an NC belongs to another node."""

    code = "conflict"
    status = 409


class StaleTerm(LedgerError):
    """The caller's term has ended: there is a newer leader, or the ledger was restored. Open a new term."""

    code = "stale-term"
    status = 409


class InventoryRequired(LedgerError):
    """The cluster has not sent its inventory since the ledger was restored. Open a term, and send it."""

    code = "inventory-required"
    status = 409


class Superseded(LedgerError):
    """A later request was processed before this one, which was dropped."""

    code = "superseded"
    status = 409


class SubnetFull(LedgerError):
    """No address is left, not even for a primary."""

    code = "subnet-full"
    status = 409


class SubnetDraining(LedgerError):
    """The subnet is draining: nothing is granted in it."""

    code = "subnet-draining"
    status = 409


class BreakerOpen(LedgerError):
    """Too many nodes of a cluster are gone at once: none is released before an operator confirms."""

    code = "breaker-open"
    status = 409


class SubnetFrozen(LedgerError):
    """The ledger recovers: nothing is granted in this subnet yet."""

    code = "subnet-frozen"
    status = 409


class OwnershipDisputed(LedgerError):
    """The NC has an ownership conflict; its state is not returned before an operator resolves it."""

    code = "ownership-disputed"
    status = 409


class Unavailable(LedgerError):
    """The database is unreachable, or was lost within a commit. Retry: a request is processed once."""

    code = "unavailable"
    status = 503


def error_classes() -> tuple[type[LedgerError], ...]:
    """Return all error classes."""
    return (LedgerError, *LedgerError.__subclasses__())


_BY_CODE = {each.code: each for each in error_classes()}


def error_from(response: ErrorResponse) -> LedgerError:
    """Return the error of a response."""
    return _BY_CODE.get(response.error, LedgerError)(response.message, field=response.field)
