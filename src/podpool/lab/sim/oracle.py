"""What really happens to addresses: who uses which, since when, and until when. Only the simulator knows.

A sandbox uses its address from the moment that the runtime has heard of it until the sandbox ends, whatever the agent,
the API server or the ledger believe meanwhile. What is found wrong is a `Violation`, at once.
"""

from typing import TYPE_CHECKING

import msgspec

from podpool.core.errors import PodpoolError
from podpool.core.settings import Settings
from podpool.lab.sim.event_loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Callable


class Violation(PodpoolError):
    """Something that must never be true is true."""

    def __init__(self, invariant: str, story: str) -> None:
        super().__init__(f"{invariant}: {story}")
        self.invariant = invariant


class Use(msgspec.Struct, frozen=True):
    """One sandbox with its address."""

    address: str
    machine: str
    sandbox: str
    pod: str
    since: float


class Truth:
    """Addresses in use, and when each was last."""

    def __init__(self, loop: VirtualLoop, *, settings: Settings) -> None:
        self._loop = loop
        self._settings = settings
        self._uses: dict[str, Use] = {}
        self._ended: dict[str, tuple[float, Use]] = {}
        self.exhausted: list[Callable[[Use, float], bool]] = []
        """Who tells whether whoever gave an address may have known the subnet to be exhausted, since some moment.

        Without anybody who tells, it may have been.
        """
        self.restless: Callable[[str], bool] = lambda _address: False
        """Which addresses need not rest;"""
        self.excused: Callable[[str], bool] = lambda _address: False
        """and which may have two owners for now."""
        self.given: list[Callable[[Use], None]] = []
        """Whom to tell of each address that is given."""

    def begin(self, use: Use) -> None:
        """A runtime got an address for a sandbox."""
        other = self._uses.get(use.address)
        another = other is not None and (other.machine, other.sandbox) != (use.machine, use.sandbox)
        if other is not None and another and not self.excused(use.address):
            story = (
                f"{use.address} was given to {use.pod} on {use.machine} while {other.pod} on {other.machine} uses it"
            )
            raise Violation("one owner", f"{story} since {other.since:.3f}")
        self._rested(use)
        self._uses[use.address] = use
        for tell in self.given:
            tell(use)

    def _rested(self, use: Use) -> None:
        """Whoever used the address before let go of it a cooldown ago; the floor, if the subnet was exhausted since."""
        ended, before = self._ended.get(use.address, (None, None))
        if ended is None or before is None or self.restless(use.address):
            return
        rest, same = use.since - ended, (before.machine, before.sandbox) == (use.machine, use.sandbox)
        enough = self._settings.cooldown
        if rest < enough and (not self.exhausted or any(tell(use, ended) for tell in self.exhausted)):
            enough = self._settings.cooldown_exhausted
        if rest < enough and not same:
            story = f"{use.address} was given to {use.pod} on {use.machine} {rest:.3f} s after"
            raise Violation("rest", f"{story} {before.pod} on {before.machine} let go of it")

    def end(self, machine: str, sandbox: str) -> None:
        """A sandbox is no more."""
        for address, use in list(self._uses.items()):
            if (use.machine, use.sandbox) == (machine, sandbox):
                del self._uses[address]
                self._ended[address] = (self._loop.time(), use)

    def end_machine(self, machine: str) -> None:
        """A machine lost power: all of its sandboxes are no more."""
        for use in list(self._uses.values()):
            if use.machine == machine:
                self.end(machine, use.sandbox)

    def uses(self) -> tuple[Use, ...]:
        """List who uses what now."""
        return tuple(self._uses.values())

    def of_machine(self, machine: str) -> dict[str, Use]:
        """List a machine's uses by Pod."""
        return {use.pod: use for use in self._uses.values() if use.machine == machine}
