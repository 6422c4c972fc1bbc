"""What really happens to addresses: who uses which, since when, and until when. Only the simulator knows.

A sandbox uses its address from the moment that the runtime has heard of it until the sandbox ends, whatever the agent,
the API server or the ledger believe meanwhile. What is found wrong is a `Violation`, at once.
"""

from typing import TYPE_CHECKING

import msgspec

from podpool.core.errors import PodpoolError
from podpool.sim.loop import VirtualLoop

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

    def __init__(self, loop: VirtualLoop, *, least_rest: float) -> None:
        self._loop = loop
        self._least_rest = least_rest
        self._uses: dict[str, Use] = {}
        self._ended: dict[str, tuple[float, Use]] = {}
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
        ended, before = self._ended.get(use.address, (None, None))
        same = before is not None and (before.machine, before.sandbox) == (use.machine, use.sandbox)
        same = same or self.restless(use.address)
        if ended is not None and before is not None and not same and use.since - ended < self._least_rest:
            story = f"{use.address} was given to {use.pod} on {use.machine} {use.since - ended:.3f} s after"
            raise Violation("rest", f"{story} {before.pod} on {before.machine} let go of it")
        self._uses[use.address] = use
        for tell in self.given:
            tell(use)

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
