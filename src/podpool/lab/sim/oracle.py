"""The oracle: which sandbox really uses which address, since when and until when. Only the simulator knows it.

A sandbox uses its address from the moment in which the runtime gets it until the sandbox ends, whatever the agent, the
API server or the ledger assume meanwhile. A violation is raised at once.
"""

from typing import TYPE_CHECKING

import msgspec

from podpool.core.errors import PodpoolError
from podpool.core.settings import Settings
from podpool.lab.sim.event_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable


class Violation(PodpoolError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, detail: str) -> None:
        super().__init__(f"{invariant}: {detail}")
        self.invariant = invariant


class AddressUse(msgspec.Struct, frozen=True):
    """A sandbox with its address."""

    address: str
    machine: str
    sandbox: str
    pod: str
    since: float


class AddressOracle:
    """The addresses in use, and when each was last in use."""

    def __init__(self, loop: VirtualLoop, *, settings: Settings) -> None:
        self._loop = loop
        self._settings = settings
        self._uses: dict[str, AddressUse] = {}
        self._ended: dict[str, tuple[float, AddressUse]] = {}
        self.exhaustion_checks: list[Callable[[AddressUse, float], bool]] = []
        """Return whether the assigner may have known the subnet as exhausted since a time; without one it may."""
        self.needs_no_cooldown: Callable[[str], bool] = lambda _address: False
        """Whether an address may be reused at once."""
        self.may_be_shared: Callable[[str], bool] = lambda _address: False
        """Whether an address may have two owners for now."""
        self.on_assign: list[Callable[[AddressUse], None]] = []
        """Called for each assigned address."""

    def assign(self, use: AddressUse) -> None:
        """Record that a runtime got an address for a sandbox; checks one owner and cooldown."""
        other = self._uses.get(use.address)
        differs = other is not None and (other.machine, other.sandbox) != (use.machine, use.sandbox)
        if other is not None and differs and not self.may_be_shared(use.address):
            detail = f"{use.address} was assigned to {use.pod} on {use.machine}, but {other.pod} on {other.machine}"
            raise Violation("one owner", f"{detail} uses it since {other.since:.3f}")
        self._check_cooldown(use)
        self._uses[use.address] = use
        for callback in self.on_assign:
            callback(use)

    def _check_cooldown(self, use: AddressUse) -> None:
        """Check that the last use ended a cooldown ago; the shortest one, if the subnet was exhausted since."""
        ended, before = self._ended.get(use.address, (None, None))
        if ended is None or before is None or self.needs_no_cooldown(use.address):
            return
        elapsed, same = use.since - ended, (before.machine, before.sandbox) == (use.machine, use.sandbox)
        required = self._settings.cooldown
        if elapsed < required and (not self.exhaustion_checks or any(f(use, ended) for f in self.exhaustion_checks)):
            required = self._settings.cooldown_exhausted
        if elapsed < required and not same:
            detail = f"{use.address} was assigned to {use.pod} on {use.machine} {elapsed:.3f} s after"
            raise Violation("cooldown", f"{detail} {before.pod} on {before.machine} released it")

    def release(self, machine: str, sandbox: str) -> None:
        """Record that a sandbox ended."""
        for address, use in list(self._uses.items()):
            if (use.machine, use.sandbox) == (machine, sandbox):
                del self._uses[address]
                self._ended[address] = (self._loop.time(), use)

    def release_machine(self, machine: str) -> None:
        """Record that a machine lost power: all its sandboxes ended."""
        for use in list(self._uses.values()):
            if use.machine == machine:
                self.release(machine, use.sandbox)

    def uses(self) -> tuple[AddressUse, ...]:
        """Return the addresses in use."""
        return tuple(self._uses.values())

    def uses_on(self, machine: str) -> dict[str, AddressUse]:
        """Return a machine's uses by Pod."""
        return {use.pod: use for use in self._uses.values() if use.machine == machine}
