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

    def __init_subclass__(cls, *, code: str, status: int) -> None:
        cls.code, cls.status = code, status

    def __init__(self, message: str, *, field: str | None = None, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field
        self.retry_after = retry_after
        """Seconds after which to repeat the request, which was not processed; None if nothing is known about it."""

    @property
    def response(self) -> ErrorResponse:
        """The error as it is sent."""
        return ErrorResponse(error=self.code, message=self.message, field=self.field)


class Invalid(LedgerError, code="invalid", status=400):
    """A field has an invalid value."""


class NotFound(LedgerError, code="not-found", status=404):
    """No such subnet, NC, cluster or path."""


class Unauthorized(LedgerError, code="unauthorized", status=401):
    """No token, or an unknown or revoked one."""


class Forbidden(LedgerError, code="forbidden", status=403):
    """The token does not permit this call."""


class RequestTooLarge(LedgerError, code="request-too-large", status=413):
    """The body exceeds the limit of the route."""


class RequestTimeout(LedgerError, code="request-timeout", status=408):
    """The body was not sent in time."""


class TooManyRequests(LedgerError, code="too-many-requests", status=429):
    """The caller's rate or concurrency limit is exceeded. Retry later."""


class MethodNotAllowed(LedgerError, code="method-not-allowed", status=405):
    """The path does not support this method."""


class Conflict(LedgerError, code="conflict", status=409):
    """It contradicts the current state: a subnet overlaps another, an NC belongs to another node."""


class StaleTerm(LedgerError, code="stale-term", status=409):
    """The caller's term has ended: there is a newer leader, or the ledger was restored. Open a new term."""


class InventoryRequired(LedgerError, code="inventory-required", status=409):
    """The cluster has not sent its inventory since the ledger was restored. Open a term, and send it."""


class Superseded(LedgerError, code="superseded", status=409):
    """A later request was processed before this one, which was dropped."""


class SubnetFull(LedgerError, code="subnet-full", status=409):
    """No address is left, not even for a primary."""


class QuotaReached(LedgerError, code="quota-reached", status=409):
    """The cluster holds as much as its token permits: nothing more is granted to it."""


class SubnetDraining(LedgerError, code="subnet-draining", status=409):
    """The subnet is draining: nothing is granted in it."""


class BreakerOpen(LedgerError, code="breaker-open", status=409):
    """Too many nodes of a cluster are gone at once: none is released before an operator confirms."""


class SubnetFrozen(LedgerError, code="subnet-frozen", status=409):
    """The ledger recovers: nothing is granted in this subnet yet."""


class OwnershipDisputed(LedgerError, code="ownership-disputed", status=409):
    """The NC has an ownership conflict; its state is not returned before an operator resolves it."""


class Unavailable(LedgerError, code="unavailable", status=503):
    """The database is unreachable, or was lost within a commit. Retry: a request is processed once."""


def error_classes() -> tuple[type[LedgerError], ...]:
    """Return all error classes."""
    return (LedgerError, *LedgerError.__subclasses__())


_BY_CODE = {each.code: each for each in error_classes()}


def error_from(response: ErrorResponse) -> LedgerError:
    """Return the error of a response."""
    return _BY_CODE.get(response.error, LedgerError)(response.message, field=response.field)
