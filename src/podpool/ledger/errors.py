"""What the ledger refuses, typed: raised by the service's side, sent as a `Problem`, and raised again by the client.

The code names the class on both sides; a code that the client does not know becomes a plain `LedgerError`.
"""

from typing import ClassVar

from podpool.core.errors import PodpoolError
from podpool.ledger.messages import Problem


class LedgerError(PodpoolError):
    """A call, or an item of one, that changed nothing."""

    code: ClassVar[str] = "internal"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.field = field

    @property
    def problem(self) -> Problem:
        """The error as it travels."""
        return Problem(error=self.code, message=self.message, field=self.field)


class Invalid(LedgerError):
    """A field that cannot be meant."""

    code = "invalid"
    status = 400


class NotFound(LedgerError):
    """No such subnet, container, cluster or path."""

    code = "not-found"
    status = 404


class Unauthorized(LedgerError):
    """No token, or none that is good."""

    code = "unauthorized"
    status = 401


class Forbidden(LedgerError):
    """A good token, but not for this."""

    code = "forbidden"
    status = 403


class TooLarge(LedgerError):
    """More bytes than any such call needs."""

    code = "too-large"
    status = 413


class TooMany(LedgerError):
    """Calls come faster, or more at once, than the ledger takes from one caller. Send it again a little later."""

    code = "too-many"
    status = 429


class WrongMethod(LedgerError):
    """The path is there, but not for this method."""

    code = "wrong-method"
    status = 405


class Conflict(LedgerError):
    """It contradicts what is there: a subnet that overlaps another, a container of another node."""

    code = "conflict"
    status = 409


class TermEnded(LedgerError):
    """The caller's term is not the cluster's: there is a newer leader, or the ledger was restored. Open a term."""

    code = "term-ended"
    status = 409


class ListingWanted(LedgerError):
    """The cluster has not listed its containers since the ledger was restored. Open a term, and list."""

    code = "listing-wanted"
    status = 409


class Superseded(LedgerError):
    """A later call came before this one, and what this one asked for was not done."""

    code = "superseded"
    status = 409


class SubnetFull(LedgerError):
    """Not even a primary is left."""

    code = "subnet-full"
    status = 409


class Draining(LedgerError):
    """The subnet is being emptied: nothing is granted in it."""

    code = "draining"
    status = 409


class Braked(LedgerError):
    """Too many nodes of a cluster are lost at once: none is given up before a person has agreed."""

    code = "braked"
    status = 409


class Frozen(LedgerError):
    """The ledger recovers: nothing is granted in this subnet yet."""

    code = "frozen"
    status = 409


class TwoOwners(LedgerError):
    """The container has a part in an alarm; its state is not told before a person has settled it."""

    code = "two-owners"
    status = 409


class Unavailable(LedgerError):
    """The database is away, or went away within a commit. Send the call again: it is done once, or shows what is."""

    code = "unavailable"
    status = 503


def kinds() -> tuple[type[LedgerError], ...]:
    """List every way in which the ledger refuses."""
    return (LedgerError, *LedgerError.__subclasses__())


_KINDS = {kind.code: kind for kind in kinds()}


def error_of(problem: Problem) -> LedgerError:
    """Make the error that a problem tells of."""
    return _KINDS.get(problem.error, LedgerError)(problem.message, field=problem.field)
