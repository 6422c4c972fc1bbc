"""Start-up check of the ledger: it answers, accepts the token and has the default subnet.

Every replica makes it, also a standby, which calls the ledger for nothing else. It ends when it has passed: a later
outage is reported by `LedgerHealth`, and does not make a replica unready. In a cluster all of whose Nodes have another
subnet by their label, a missing default subnet is only noted.
"""

import random
from collections.abc import Sequence

from podpool.api.builtin import Node
from podpool.controller.ledger_health import LedgerHealth
from podpool.controller.nnc_conversion import subnet_of
from podpool.controller.settings import ControllerSettings
from podpool.core.errors import PodpoolError
from podpool.kube.backoff import Backoff
from podpool.kube.cache import ObjectCache
from podpool.ledger.client import LedgerClient
from podpool.ledger.errors import Forbidden, LedgerError, NotFound, Unauthorized
from podpool.runtime.logging import get_logger
from podpool.runtime.process import HealthCheck
from podpool.runtime.transport import Unreachable

BACKOFF_BASE, BACKOFF_MAX = 0.2, 15.0
MAX_LISTED = 20
"""Subnets named in a message."""
_PENDING = "no response yet"

log = get_logger(__name__)


class LedgerCheck:
    """Reads the default subnet until that succeeds once, or no Node needs it."""

    def __init__(
        self,
        ledger: LedgerClient,
        nodes: ObjectCache[Node],
        health: LedgerHealth,
        *,
        settings: ControllerSettings,
        rng: random.Random,
    ) -> None:
        self._ledger = ledger
        self._nodes = nodes
        self._health = health
        self._settings = settings
        self._rng = rng
        self._ledger_failure = self._subnet_failure = _PENDING
        self._subnet_note = ""

    def checks(self) -> Sequence[HealthCheck]:
        """Return the checks of `/readyz`."""
        subnet = HealthCheck("subnet", self._subnet_failure, self._subnet_note)
        return HealthCheck("ledger", self._ledger_failure), subnet

    async def run(self) -> None:
        """Check until it passes."""
        backoff = Backoff(rng=self._rng, base=BACKOFF_BASE, maximum=BACKOFF_MAX)
        logged = ""
        while True:
            await self._check()
            failure = self._ledger_failure or self._subnet_failure
            if not failure:
                if self._subnet_note:
                    log.warning("default subnet not found, no Node uses it yet", reason=self._subnet_note)
                else:
                    log.info("ledger and subnet found", subnet=str(self._settings.subnet))
                return
            if failure != logged:
                log.error("start-up check failed, retrying", reason=failure)
            logged = failure
            await backoff.wait()

    async def _check(self) -> None:
        try:
            await self._health.call(self._ledger.subnet(self._settings.subnet))
        except NotFound:
            self._ledger_failure = ""
            missing = await self._no_such_subnet()
            if await self._is_needed():
                self._subnet_failure = missing
            else:
                self._subnet_failure, self._subnet_note = "", f"no Node uses it, but {missing}"
        except PodpoolError as error:
            self._ledger_failure, self._subnet_failure = with_flag(error), _PENDING
        else:
            self._ledger_failure = self._subnet_failure = ""

    async def _is_needed(self) -> bool:
        """Return whether a Node has the default subnet; the first Node may, too."""
        await self._nodes.synced.wait()
        default = self._settings.subnet
        return not self._nodes or any(subnet_of(each, self._settings) == default for each in self._nodes.values())

    async def _no_such_subnet(self) -> str:
        try:
            found = (await self._health.call(self._ledger.subnets())).subnets
        except PodpoolError:
            existing = "unknown"
        else:
            names = sorted(str(each.subnet) for each in found)
            more = [f"and {len(names) - MAX_LISTED} more"] if len(names) > MAX_LISTED else []
            existing = ", ".join([*names[:MAX_LISTED], *more]) or "none"
        name = self._settings.subnet
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
