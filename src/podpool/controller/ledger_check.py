"""Start-up check of the ledger: it answers, accepts the token and has the subnet.

Every replica makes it, also a standby, which calls the ledger for nothing else. It ends when it has passed: a later
outage is reported by `LedgerHealth`, and does not make a replica unready.
"""

import random
from collections.abc import Sequence

from podpool.controller.ledger_health import LedgerHealth
from podpool.core.errors import PodpoolError
from podpool.kube.backoff import Backoff
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import Forbidden, LedgerError, NotFound, Unauthorized
from podpool.ledger.messages import SubnetName
from podpool.runtime.logging import get_logger
from podpool.runtime.process import HealthCheck
from podpool.runtime.transport import Unreachable

BACKOFF_BASE, BACKOFF_MAX = 0.2, 15.0
MAX_LISTED = 20
"""Subnets named in a message."""
_PENDING = "no response yet"

log = get_logger(__name__)


class LedgerCheck:
    """Reads the controller's subnet until that succeeds once."""

    def __init__(self, ledger: LedgerClient, subnet: SubnetName, health: LedgerHealth, *, rng: random.Random) -> None:
        self._ledger = ledger
        self._subnet = subnet
        self._health = health
        self._rng = rng
        self._ledger_failure = self._subnet_failure = _PENDING

    def checks(self) -> Sequence[HealthCheck]:
        """Return the checks of `/readyz`."""
        return HealthCheck("ledger", self._ledger_failure), HealthCheck("subnet", self._subnet_failure)

    async def run(self) -> None:
        """Check until it passes."""
        backoff = Backoff(rng=self._rng, base=BACKOFF_BASE, maximum=BACKOFF_MAX)
        logged = ""
        while True:
            await self._check()
            failure = self._ledger_failure or self._subnet_failure
            if not failure:
                log.info("ledger and subnet found", subnet=str(self._subnet))
                return
            if failure != logged:
                log.error("start-up check failed, retrying", reason=failure)
            logged = failure
            await backoff.wait()

    async def _check(self) -> None:
        try:
            await self._health.call(self._ledger.subnet(self._subnet))
        except NotFound:
            self._ledger_failure, self._subnet_failure = "", await self._no_such_subnet()
        except PodpoolError as error:
            self._ledger_failure, self._subnet_failure = with_flag(error), _PENDING
        else:
            self._ledger_failure = self._subnet_failure = ""

    async def _no_such_subnet(self) -> str:
        try:
            found = (await self._health.call(self._ledger.subnets())).subnets
        except PodpoolError:
            existing = "unknown"
        else:
            names = sorted(str(each.subnet) for each in found)
            more = [f"and {len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else []
            existing = ", ".join([*names[:MAX_LISTED], *more]) or "none"
        name = self._subnet
        action = f"correct --subnet, or `podpool ledger subnet create {name} CIDR`"
        return f"the ledger has no subnet {name} (existing: {existing}): {action}"


def with_flag(error: PodpoolError) -> str:
    """Return an error of the ledger with the option of the controller that it depends on."""
    match error:
        case Unreachable():
            return f"{error}: check --ledger, and that the ledger runs"
        case Unauthorized():
            return (
                "the ledger rejects the token: check --ledger-token-file; `podpool ledger token create` makes a token"
            )
        case Forbidden():
            return f"{error}: check --ledger-token-file, it must have the token of this cluster"
        case LedgerError(code=LedgerError.code):
            return f"{error}: check --ledger, and the ledger's log"
        case _:
            return str(error)
