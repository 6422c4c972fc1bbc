"""The node's grants by state, with the state machine of a grant.

| state | meaning | left |
|---|---|---|
| Available | can be assigned | when a sandbox gets it, or it is released |
| Assigned | in use by one sandbox | when the sandbox is deleted |
| CoolingDown | used recently | when the cooldown in force has passed |
| PendingRelease | released for good | never; it leaves the pool when a newer status no longer lists it |
| PendingProgramming | not programmed by the underlay | when the underlay has programmed it |

Stored are only Available for a grant that was never used, CoolingDown for one that was used, Assigned and
PendingRelease. Time and underlay decide the others: for `Pool.state_of` a used grant that has cooled down is Available,
and a free grant that is not programmed is PendingProgramming.
"""

import enum
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain

import msgspec

from podpool.agent.records import GrantAssignment, PoolGrant, Snapshot
from podpool.cni.protocol import Attachment
from podpool.core.errors import PodpoolError


class GrantState(enum.Enum):
    """The state of a grant, with the names of the design."""

    AVAILABLE = "Available"
    ASSIGNED = "Assigned"
    COOLING_DOWN = "CoolingDown"
    PENDING_RELEASE = "PendingRelease"
    PENDING_PROGRAMMING = "PendingProgramming"


AVAILABLE, ASSIGNED, COOLING_DOWN, PENDING_RELEASE, PENDING_PROGRAMMING = GrantState
TRANSITIONS: Mapping[GrantState, frozenset[GrantState]] = {
    # to CoolingDown: use without a record became possible; to PendingProgramming: after a reboot on another host
    AVAILABLE: frozenset({ASSIGNED, COOLING_DOWN, PENDING_RELEASE, PENDING_PROGRAMMING}),
    PENDING_PROGRAMMING: frozenset({AVAILABLE, COOLING_DOWN, PENDING_RELEASE}),
    COOLING_DOWN: frozenset({AVAILABLE, PENDING_PROGRAMMING, ASSIGNED, PENDING_RELEASE}),  # callers check the cooldown
    ASSIGNED: frozenset({COOLING_DOWN, PENDING_RELEASE}),
    PENDING_RELEASE: frozenset(),
}


class InvalidTransition(PodpoolError):
    """A record makes a transition that the table does not have."""

    def __init__(self, grant: str, state: GrantState | None, to: GrantState) -> None:
        now = state.value if state else "not in the pool"
        super().__init__(f"grant {grant} is {now} and cannot become {to.value}")


class GrantTable:
    """Grants by stored state. The caller journals a change before it makes it here."""

    def __init__(self) -> None:
        self.unused: dict[str, PoolGrant] = {}
        """Never used, in the order in which they were granted."""
        self.used: dict[str, PoolGrant] = {}
        """Used before, in the order of their last use."""
        self.assigned: dict[str, GrantAssignment] = {}
        self.pending_release: dict[str, PoolGrant] = {}
        self._by_attachment: dict[Attachment, tuple[str, ...]] = {}

    def stored_state(self, grant: str) -> GrantState | None:
        """Return the stored state of a grant; None when it is not in the pool."""
        if grant in self.assigned:
            return ASSIGNED
        if grant in self.unused:
            return AVAILABLE
        if grant in self.used:
            return COOLING_DOWN
        return PENDING_RELEASE if grant in self.pending_release else None

    def free(self) -> Iterator[PoolGrant]:
        """Return the grants that are neither assigned nor pending release."""
        return chain(self.unused.values(), self.used.values())

    def all(self) -> Iterator[PoolGrant]:
        """Return all grants."""
        assigned = (each.grant for each in self.assigned.values())
        return chain(self.free(), self.pending_release.values(), assigned)

    def split_used(self, *, now: float, cooldown: float) -> tuple[list[PoolGrant], list[PoolGrant]]:
        """Return the used grants that have cooled down, and those that cool down, in the order of their last use."""
        used = list(self.used.values())
        cooled = bisect_right(used, now, key=lambda each: each.since + cooldown)
        return used[:cooled], used[cooled:]

    def assignments_of(self, attachment: Attachment) -> tuple[GrantAssignment, ...]:
        """Return what a sandbox uses."""
        return tuple(self.assigned[grant] for grant in self._by_attachment.get(attachment, ()))

    def add(self, grants: Iterable[PoolGrant]) -> None:
        """Add new grants; used ones are sorted in by their last use."""
        added = list(grants)
        self.unused |= by_id(grant for grant in added if not grant.used)
        used = [grant for grant in added if grant.used]
        if used:
            self.used = by_id(sorted((*self.used.values(), *used), key=lambda each: each.since))

    def assign(self, assignments: Iterable[GrantAssignment]) -> None:
        """Assign free grants to a sandbox."""
        for each in assignments:
            self._take(each.grant.id, to=ASSIGNED)
            self._insert(each)

    def unassign(self, grant: str, *, at: float, to: GrantState | None) -> PoolGrant:
        """Remove an assignment; its grant becomes CoolingDown or PendingRelease, or with None leaves the pool."""
        if to is not None:
            self._check(grant, to)
        assignment = self.assigned.pop(grant)
        left = tuple(each for each in self._by_attachment.pop(assignment.attachment) if each != grant)
        if left:
            self._by_attachment[assignment.attachment] = left
        used = msgspec.structs.replace(assignment.grant, since=at, used=True, use_assumed=False)
        if to is COOLING_DOWN:
            self.used[grant] = used
        elif to is PENDING_RELEASE:
            self.pending_release[grant] = used
        return used

    def release(self, grant: str) -> None:
        """Make a free grant PendingRelease; an assigned one follows when its sandbox is deleted."""
        if grant in self.assigned:
            self._revoke(grant)
        elif grant not in self.pending_release and self.stored_state(grant):
            self.pending_release[grant] = self._take(grant, to=PENDING_RELEASE)

    def remove_unlisted(self, nc: str, *, listed: frozenset[str]) -> list[PoolGrant]:
        """Remove and return the grants of an NC that are not listed; those in use are revoked and kept."""
        removed = []
        for grants in (self.unused, self.used, self.pending_release):
            gone = [each.id for each in grants.values() if each.nc == nc and each.id not in listed]
            removed += [grants.pop(each) for each in gone]
        for grant, assignment in self.assigned.items():
            if assignment.grant.nc == nc and grant not in listed:
                self._revoke(grant)
        return removed

    def assume_used(self, *, at: float, grants: Iterable[str] | None = None) -> None:
        """Let these used grants cool down from `at`; without `grants`, all free ones and those pending release."""
        if grants is not None:
            for grant in [each for each in grants if each in self.used]:
                self.used[grant] = self.used.pop(grant).assume_used(at=at)
            return
        free = (*self.used.values(), *self.unused.values())
        self.unused, self.used = {}, by_id(grant.assume_used(at=at) for grant in free)
        self.pending_release = by_id(grant.assume_used(at=at) for grant in self.pending_release.values())

    def restart_clock(self, *, at: float) -> None:
        """Start all cooldowns at `at`: the clock of a new boot does not have the time before it."""
        self.unused = by_id(msgspec.structs.replace(grant, since=at) for grant in self.unused.values())
        self.used = by_id(grant.assume_used(at=at) for grant in self.used.values())
        pending = self.pending_release.values()
        self.pending_release = by_id(msgspec.structs.replace(grant, since=at) for grant in pending)

    def restore(self, record: Snapshot) -> None:
        """Replace everything by the contents of a snapshot."""
        self.unused, self.used = by_id(record.unused), by_id(sorted(record.used, key=lambda each: each.since))
        self.pending_release = by_id(record.pending_release)
        self.assigned, self._by_attachment = {}, {}
        for each in record.assigned:
            self._insert(each)

    def _insert(self, assignment: GrantAssignment) -> None:
        grant, attachment = assignment.grant.id, assignment.attachment
        self.assigned[grant] = assignment
        self._by_attachment[attachment] = (*self._by_attachment.get(attachment, ()), grant)

    def _revoke(self, grant: str) -> None:
        self.assigned[grant] = msgspec.structs.replace(self.assigned[grant], revoked=True)

    def _check(self, grant: str, to: GrantState) -> None:
        state = self.stored_state(grant)
        if state is None or to not in TRANSITIONS[state]:
            raise InvalidTransition(grant, state, to)

    def _take(self, grant: str, *, to: GrantState) -> PoolGrant:
        self._check(grant, to)
        return self.unused.pop(grant, None) or self.used.pop(grant)


def by_id(grants: Iterable[PoolGrant]) -> dict[str, PoolGrant]:
    """Return the grants by ID."""
    return {grant.id: grant for grant in grants}


def rank_by_surplus(grants: Iterable[PoolGrant]) -> list[PoolGrant]:
    """Sort grants so that those of the NC and family with most of them come first; otherwise the order stays."""
    grants = list(grants)
    left = Counter(grant.nc_family for grant in grants)
    ranks: list[tuple[int, PoolGrant]] = []
    for grant in grants:
        ranks.append((-left[grant.nc_family], grant))
        left[grant.nc_family] -= 1
    return [grant for _, grant in sorted(ranks, key=lambda each: each[0])]
