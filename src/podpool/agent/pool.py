"""The node's grants, and who has which.

| state | what it is | leaves it |
|---|---|---|
| Available | never used, or rested | to Assigned, to PendingRelease |
| Assigned | held by one sandbox | to Resting, when the sandbox gives it back |
| Resting | used not long ago | by itself: to Available, when the cooldown in force has passed |
| PendingRelease | named for release | never, but that a newer status no longer lists it |
| PendingProgramming | free, but the underlay does not know it yet | by itself: to Available, when it does |

What must hold: a grant is in one state; an owner has one grant of each lane, which is a container and a family; an
address of a sandbox is given to nobody else, under whatever name it comes again. Resting is not stored: it follows from
when an address was last used. Nor is PendingProgramming: `underlay` tells it. `apply` is the only way in which anything
changes, in the running agent and when the journal is read again.

A node has one container of its own, which the fence is about. Others beside it come and go with the status.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count

import msgspec

from podpool.agent.network_containers import families, interface_of, readable, same_grants
from podpool.agent.records import (
    Accepted,
    Adopted,
    AnyRecord,
    Assigned,
    Doubted,
    Grant,
    Holding,
    Lane,
    Named,
    Owner,
    Parted,
    Recalled,
    Released,
    Snapshot,
    Started,
    Stopped,
)
from podpool.api.azure import NetworkContainer

LONGEST_REST = 3600.0
"""Seconds for which the last use of an address that left is remembered, in case it comes back under another name."""


class Pool:
    """The grants of one node; `programmed` tells whether the underlay knows what a container had at a version."""

    def __init__(self, programmed: Callable[[str, int], bool] = lambda _container, _version: True) -> None:
        self._programmed = programmed
        self.boot_id = ""
        self.adopted = ""
        """The container that is this node's; only a quorum read decides it."""
        self.closed: set[str] = set()
        """Containers that were this node's, and never are again."""
        self.container: NetworkContainer | None = None
        """What the last accepted status said of it."""
        self.beside: dict[str, NetworkContainer] = {}
        """What it said of further containers."""
        self.lanes: tuple[Lane, ...] = ()
        """What a sandbox gets one address of each."""
        self.left_out: dict[str, str] = {}
        """Grants that the status lists and nobody can use, with the reason."""
        self.forgotten: set[str] = set()
        """Grants that sandboxes may have whom the journal has forgotten."""
        self._stopped = False
        self.suspect = False
        """The journal was damaged or knows too little, and what this boot's sandboxes may have is still to be found."""
        self._doubted_at: float | None = None
        self._fresh: dict[str, Grant] = {}
        self._used: dict[str, Grant] = {}  # in the order of their last use
        self._held: dict[str, Holding] = {}
        self._by_owner: dict[Owner, tuple[str, ...]] = {}
        self._named: dict[str, Grant] = {}
        self._gone: dict[str, float] = {}  # addresses that left, and when they were last used

    # What it has

    @property
    def version(self) -> int:
        """The highest version that was accepted; below every version before the first."""
        return self.container.version if self.container else -1

    @property
    def listed(self) -> int:
        """How many grants the last accepted status lists."""
        return sum(len(each.ip_assignments) for each in self.containers)

    @property
    def holdings(self) -> Mapping[str, Holding]:
        """What is in use, by grant."""
        return self._held

    @property
    def named(self) -> Mapping[str, Grant]:
        """What was named for release and is still listed, by grant."""
        return self._named

    def holdings_of(self, owner: Owner) -> tuple[Holding, ...]:
        """Find what a sandbox has."""
        return tuple(self._held[grant] for grant in self._by_owner.get(owner, ()))

    def next_free(self, *, now: float, rest: float, lane: Lane | None = None) -> Grant | None:
        """Find the address that has been free for longest, of a lane or of all."""
        new, old = (
            next((each for each in self._sure(grants) if lane in (None, each.lane) and self._works(each)), None)
            for grants in (self._fresh, self._used)
        )
        if old is None or old.since + rest > now:
            return new
        return old if new is None or old.since + rest < new.since else new

    def next_set(self, *, now: float, rest: float) -> tuple[Grant, ...]:
        """Find what a sandbox would get: one address of each lane, or nothing."""
        found = [self.next_free(now=now, rest=rest, lane=lane) for lane in self.lanes]
        chosen = tuple(each for each in found if each)
        return chosen if len(chosen) == len(found) else ()

    def releasable(self, *, now: float, rest: float) -> Iterator[Grant]:
        """Go through what may be named, of the fullest lane first: never used and newest, then longest rested."""
        rested = [grant for grant in self._sure(self._used) if grant.since + rest <= now]
        free = [*reversed(list(self._sure(self._fresh))), *rested]
        if len(self.lanes) == 1:
            return iter(free)
        ranks = {lane: count(-grants) for lane, grants in Counter(grant.lane for grant in free).items()}
        return iter(sorted(free, key=lambda grant: next(ranks[grant.lane])))

    def resting(self, *, now: float, rest: float) -> int:
        """Count the addresses that rest because they were used, not those that rest because of a doubt."""
        return sum(not grant.doubted for grant in self.not_rested(now=now, rest=rest))

    @property
    def free(self) -> int:
        """How many are neither in use nor named, resting ones too."""
        return len(self._fresh) + len(self._used)

    def unprogrammed(self) -> Iterator[Grant]:
        """Go through the free addresses that the underlay does not know yet."""
        return (grant for grant in (*self._fresh.values(), *self._used.values()) if not self._works(grant))

    def not_rested(self, *, now: float, rest: float) -> Iterator[Grant]:
        """Go through the addresses that rest, for whatever reason."""
        return (grant for grant in self._used.values() if grant.since + rest > now)

    def rested_next(self, *, now: float, rest: float) -> float | None:
        """Tell when the next of them has rested."""
        return min((grant.since + rest for grant in self.not_rested(now=now, rest=rest)), default=None)

    def used_lately(self, *, now: float, cooldown: float) -> int:
        """Count the addresses that were used within the cooldown, those that left since included."""
        listed = (*self._used.values(), *self._named.values())
        here = [each.since for each in listed if each.used and not each.doubted]
        return sum(since + cooldown > now for since in (*here, *self._gone.values()))

    def named_for(self, *, now: float) -> float | None:
        """Tell for how long the most recently used of the named grants has rested; None when none was ever used."""
        return min((now - grant.since for grant in self._named.values() if grant.used), default=None)

    def lost(self) -> Iterator[Grant]:
        """Go through the grants that somebody may have whom nobody remembers."""
        return (each for each in (*self._fresh.values(), *self._used.values()) if each.id in self.forgotten)

    def _works(self, grant: Grant) -> bool:
        return self._programmed(grant.container or self.adopted, grant.version)

    def _sure(self, grants: Mapping[str, Grant]) -> Iterator[Grant]:
        return (each for each in grants.values() if not (self.suspect or each.id in self.forgotten))

    def knows(self, grant: str) -> bool:
        """Tell whether a grant is free or in use here: not named, not unknown."""
        return grant in self._fresh or grant in self._used or grant in self._held

    def accepts(self, container: NetworkContainer) -> bool:
        """Tell whether a status has news: of our own container, and not older than what was accepted."""
        return container.id == self.adopted and self._is_news(container)

    def accepts_beside(self, container: NetworkContainer) -> bool:
        """Tell the same of a container that is shown beside our own."""
        return container.id not in {self.adopted, *self.closed} and self._is_news(container)

    def _is_news(self, container: NetworkContainer) -> bool:
        known = self._known(container.id)
        if known is None or container.version > known.version:
            return True
        return container.version == known.version and same_grants(container, known) != known

    # What changes it

    def apply(self, record: AnyRecord) -> None:
        """Change as the record says."""
        self._stopped = isinstance(record, Stopped) or (isinstance(record, Started) and self._stopped)
        match record:
            case Started():
                self._start(record)
            case Adopted():
                self._adopt(record.container)
                self.suspect = self.suspect or record.suspect
            case Accepted():
                self._accept(record.container, at=record.at)
            case Parted():
                self.beside.pop(record.container, None)
                self._drop(record.container, keeping=frozenset())
                self._look_at_lanes()
            case Assigned() | Released() | Named() | Recalled():
                self._use(record)
            case Doubted():
                self.forgotten |= {*record.forgotten}  # who has one by what is left of a journal may have had it before
                self.suspect = False
                self._doubt(at=record.at)
            case Snapshot():
                self._restore(record)

    def _use(self, record: Assigned | Released | Named | Recalled) -> None:
        match record:
            case Assigned():
                self._assign(record)
            case Released():
                self._release(record.grant, at=record.at)
            case Named():
                for name in record.grants:
                    self._let_go(name)
            case Recalled():
                self._recall(record.grants, at=record.at)

    def snapshot(self) -> Snapshot:
        """Write down everything as it is."""
        return Snapshot(
            boot_id=self.boot_id,
            stopped=self._stopped,
            suspect=self.suspect,
            doubted_at=self._doubted_at,
            adopted=self.adopted,
            closed=tuple(sorted(self.closed)),
            container=self.container,
            beside=tuple(self.beside.values()),
            fresh=tuple(self._fresh.values()),
            used=tuple(self._used.values()),
            held=tuple(self._held.values()),
            named=tuple(self._named.values()),
            gone=dict(self._gone),
            left_out=dict(self.left_out),
            forgotten=tuple(sorted(self.forgotten)),
        )

    def _restore(self, record: Snapshot) -> None:
        self.boot_id, self.adopted, self.closed = record.boot_id, record.adopted, set(record.closed)
        self.container, self.beside = record.container, {each.id: each for each in record.beside}
        self._stopped, self.suspect, self._doubted_at = record.stopped, record.suspect, record.doubted_at
        self._fresh, self._used, self._named = (_by_id(each) for each in (record.fresh, record.used, record.named))
        self._held = {each.grant.id: each for each in record.held}
        self._by_owner = {}
        for each in record.held:
            self._by_owner[each.owner] = (*self._by_owner.get(each.owner, ()), each.grant.id)
        self._gone, self.left_out, self.forgotten = dict(record.gone), dict(record.left_out), set(record.forgotten)
        self._look_at_lanes()

    def _start(self, record: Started) -> None:
        first, rebooted = not self.boot_id, record.boot_id != self.boot_id
        self.boot_id, clean, self._stopped = record.boot_id, self._stopped, False
        if rebooted:
            self._count_anew(at=record.boot)
        self.suspect = self.suspect or record.damaged
        if record.damaged or (rebooted and not clean and not first):
            self._doubt(at=record.boot)  # the tail that was lost may have used any of them
        for grant in list(self._held) if rebooted else ():
            self._release(grant, at=record.boot)  # no sandbox has survived

    def _count_anew(self, *, at: float) -> None:
        """A new boot's clock cannot tell for how long an address has rested in the one before: from now on, then."""
        self._doubted_at, self.forgotten, self.suspect = None, set(), False
        self._fresh = _by_id(msgspec.structs.replace(grant, since=at) for grant in self._fresh.values())
        self._used = _by_id(grant.in_doubt(at=at) for grant in self._used.values())
        self._named = _by_id(msgspec.structs.replace(grant, since=at) for grant in self._named.values())
        self._gone = dict.fromkeys(self._gone, at)

    def _doubt(self, *, at: float) -> None:
        self._doubted_at = at  # what comes later may be what was given and forgotten: it, too, counts as used
        free = (*self._used.values(), *self._fresh.values())
        self._fresh, self._used = {}, _by_id(grant.in_doubt(at=at) for grant in free)
        self._named = _by_id(grant.in_doubt(at=at) for grant in self._named.values())

    def _recall(self, grants: Iterable[str], *, at: float) -> None:
        self.forgotten -= {*grants}
        for grant in [each for each in grants if each in self._used]:
            self._used[grant] = self._used.pop(grant).in_doubt(at=at)

    def _adopt(self, container: str) -> None:
        if container == self.adopted:
            return
        self.closed |= {self.adopted} - {""}
        self.adopted, self.container, self.left_out, self.forgotten = container, None, {}, set()
        for each in ("", *self.beside):
            self._drop(each, keeping=frozenset())
        self.beside.clear()
        self._look_at_lanes()

    def _accept(self, container: NetworkContainer, *, at: float) -> None:
        known, own = self._known(container.id), container.id == self.adopted
        news = known is None or container.version > known.version
        accepted = container if known is None or news else same_grants(container, known)
        if own:
            self.container = accepted
        else:
            self.beside[container.id] = accepted
        if news:
            self._gone = {address: since for address, since in self._gone.items() if at - since < LONGEST_REST}
            keeping = frozenset(each.name for each in container.ip_assignments)
            self.forgotten -= {each.name for each in known.ip_assignments} - keeping if known else set()
            self._drop("" if own else container.id, keeping=keeping)
            self._take_in(at=at)
        self._look_at_lanes()

    def _known(self, container: str) -> NetworkContainer | None:
        return self.container if container == self.adopted else self.beside.get(container)

    @property
    def containers(self) -> tuple[NetworkContainer, ...]:
        """What the last accepted status said of all of the node's containers, its own first."""
        return ((self.container,) if self.container else ()) + tuple(self.beside.values())

    def _look_at_lanes(self) -> None:
        tags = {each.id: "" if each is self.container else each.id for each in self.containers}
        self.lanes = tuple((tags[each.id], family) for each in self.containers for family in families(each))

    def _assign(self, record: Assigned) -> None:
        for name in (record.grant, *record.more):
            grant = self._fresh.pop(name, None) or self._used.pop(name)
            prefix, gateway = interface_of(self.beside.get(grant.container, self.container), grant.address)
            self._held[name] = Holding(
                grant=grant,
                owner=record.owner,
                pod=record.pod,
                network=record.network,
                prefix=prefix,
                gateway=gateway,
            )
        self._by_owner[record.owner] = (record.grant, *record.more)

    def _drop(self, container: str, *, keeping: frozenset[str]) -> None:
        for grants in (self._fresh, self._used, self._named):
            gone = [each.id for each in grants.values() if each.container == container and each.id not in keeping]
            for grant in gone:
                self._leave(grants.pop(grant))
        for grant, holding in self._held.items():
            if holding.grant.container == container and grant not in keeping:
                self._held[grant] = msgspec.structs.replace(holding, dropped=True)

    def _take_in(self, *, at: float) -> None:
        """Take in what the status lists and we do not have."""
        self.left_out = {}
        taken = {grant.address: grant.id for grant in self._all()}
        came_used: dict[str, Grant] = {}
        for new in self._listed(at=at):
            grant, address = new.id, new.address
            if grant in self._named or self.knows(grant):
                continue
            if address in taken:
                self.left_out[grant] = f"{address} is here already, as {taken[address]}"
                continue
            taken[address] = grant
            if address in self._gone:
                came_used[grant] = msgspec.structs.replace(new, since=self._gone.pop(address), used=True)
            elif self._doubted_at is not None:
                came_used[grant] = new.in_doubt(at=self._doubted_at)
            else:
                self._fresh[grant] = new
        if came_used:
            self._used = _by_id(sorted((*self._used.values(), *came_used.values()), key=lambda each: each.since))

    def _listed(self, *, at: float) -> Iterator[Grant]:
        """Go through what the containers list, as far as it can be used."""
        for container in self.containers:
            usable, wrong = readable(container, tag="" if container is self.container else container.id, at=at)
            self.left_out |= wrong
            yield from usable.values()

    def _release(self, grant: str, *, at: float) -> None:
        holding = self._held.pop(grant)
        left = tuple(each for each in self._by_owner.pop(holding.owner) if each != grant)
        if left:
            self._by_owner[holding.owner] = left
        rests = msgspec.structs.replace(holding.grant, since=at, used=True, doubted=False)
        if not holding.dropped:
            self._used[grant] = rests
        elif any(each.name == grant for one in self.containers for each in one.ip_assignments):
            self._named[grant] = rests  # named by another hand, or dropped and listed again: it goes back
        else:
            self._leave(rests)
            self._take_in(at=at)  # its address may be listed under a new name

    def _let_go(self, grant: str) -> None:
        free = self._fresh.pop(grant, None) or self._used.pop(grant, None)
        if free:
            self._named[grant] = free
        elif grant in self._held:
            self._held[grant] = msgspec.structs.replace(self._held[grant], dropped=True)

    def _leave(self, grant: Grant) -> None:
        if grant.used:
            self._gone[grant.address] = grant.since

    def _all(self) -> Iterator[Grant]:
        yield from (*self._fresh.values(), *self._used.values(), *self._named.values())
        yield from (holding.grant for holding in self._held.values())


def _by_id(grants: Iterable[Grant]) -> dict[str, Grant]:
    return {grant.id: grant for grant in grants}
