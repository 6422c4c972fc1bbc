"""The true use of addresses: which sandbox has which, since when and until when. Only the simulator knows it.

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
        self.preferences: list[Callable[[AddressUse, float], str | None]] = []
        """Return an address that must be assigned before one that the node used so many seconds ago, if there is."""
        self.needs_no_cooldown: Callable[[str], bool] = lambda _address: False
        """Whether an address may be reused at once."""
        self.may_be_shared: Callable[[str], bool] = lambda _address: False
        """Whether an address may have two owners for now."""
        self.on_assign: list[Callable[[AddressUse], None]] = []
        """Called for each assigned address."""
        self.on_refuse: list[Callable[[str, str], None]] = []
        """Called for each refused ADD, with the machine and the reason."""

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
        """Check that the last use ended a shortest cooldown ago, and before the longest that there was no other."""
        ended, before = self._ended.get(use.address, (None, None))
        if ended is None or before is None or self.needs_no_cooldown(use.address):
            return
        elapsed, same = use.since - ended, (before.machine, before.sandbox) == (use.machine, use.sandbox)
        if same or elapsed >= self._settings.cooldown_roomy:
            return
        detail = f"{use.address} was assigned to {use.pod} on {use.machine} {elapsed:.3f} s after"
        detail = f"{detail} {before.pod} on {before.machine} released it"
        if elapsed < self._settings.cooldown_exhausted:
            raise Violation("cooldown", detail)
        for preferred in self.preferences if before.machine == use.machine else ():
            other = preferred(use, elapsed)
            if other:
                raise Violation("cooldown", f"{detail}, while {other} was free for longer")

    def refuse(self, machine: str, reason: str) -> None:
        """Record that a runtime got no address."""
        for callback in self.on_refuse:
            callback(machine, reason)

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

    def rename(self, machine: str, name: str) -> None:
        """Give a machine another name."""
        for address, use in self._uses.items():
            if use.machine == machine:
                self._uses[address] = msgspec.structs.replace(use, machine=name)

    def uses(self) -> tuple[AddressUse, ...]:
        """Return the addresses in use."""
        return tuple(self._uses.values())

    def uses_on(self, machine: str) -> dict[str, AddressUse]:
        """Return a machine's uses by Pod."""
        return {use.pod: use for use in self._uses.values() if use.machine == machine}
