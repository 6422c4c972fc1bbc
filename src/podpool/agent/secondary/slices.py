"""The slices of this node, and the state of each address.

| state | meaning | next |
|---|---|---|
| free | never used, or long ago | assigned |
| assigned | a sandbox has it, by the journal or by a third-party entry in the IPPool | used, when it is released |
| used | released: cools down, and is kept until the IPPool has no entry for it | assigned or free, after that |

Invariants: an address has one holder, also across successive assignments of a slice. A sandbox that repeats its ADD
gets the same address. Nothing is assigned from a slice that is closed, or that is not confirmed in this boot and since
the fence was last closed. The lowest free address is assigned first, else the one that was used longest ago. State
changes only by `apply`, as in the pool.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from podpool.agent import records
from podpool.cni.protocol import Attachment
from podpool.core.addresses import Address, parse_address
from podpool.core.bitmap import Bitmap
from podpool.core.cooldown_levels import CooldownLevels
from podpool.core.ranges import Prefix, Range, RangeSet, parse_prefix

FREE_INDEXES = 8
"""Configurations with different exclusions whose free addresses are indexed, per slice."""
KEPT_RETURNED = 100
"""Returned slices whose IDs are kept, in case a restored API server shows them again."""


class Slice:
    """One slice: the addresses of a prefix, under one assignment."""

    def __init__(self, state: records.SliceSnapshot) -> None:
        self.assignment = state.assignment
        self.name = state.name
        self.network = state.network
        self.range = parse_prefix(state.range)
        self.prefix = parse_prefix(state.slice)
        self.closed = state.closed
        self.confirmed = state.confirmed
        """Confirmed in this boot and since the fence was last closed; else the slice is suspended."""
        self.recovering = state.recovering
        """Sandboxes may have addresses of it that the journal does not contain."""
        self.cooldown_forced_at = state.cooldown_forced_at
        """Until when any address may have been used without a record."""
        self._assigned = {parse_address(each).value: holder for each, holder in state.assigned.items()}
        self._used = {parse_address(each).value: past for each, past in state.used.items()}
        self._unavailable: dict[RangeSet, Bitmap] = {}

    @property
    def assigned(self) -> Mapping[int, records.SliceHolder]:
        """The holder of each assigned address."""
        return self._assigned

    @property
    def used(self) -> Mapping[int, records.PastUse]:
        """The released addresses, in the order of their last use."""
        return self._used

    @property
    def assignable(self) -> bool:
        """Whether it is confirmed, and it is known which addresses are assigned."""
        return self.confirmed and not self.recovering

    def address(self, value: int) -> Address:
        """Return the address with this value."""
        return Address(self.prefix.family, value)

    def slice_address(self, value: int) -> records.SliceAddress:
        """Return the address as records contain it."""
        return records.SliceAddress(assignment=self.assignment, address=str(self.address(value)))

    def next_free(self, members: RangeSet, *, now: float, levels: CooldownLevels) -> int | None:
        """Return an address among the members: by the level of the slice, or if there is none by the shortest."""
        if not self.assignable:
            return None
        lowest, oldest = self._lowest_free(members), self._oldest_used(members)
        size = members.size
        level = levels.of_slice(unassigned=size - len(self._assigned), size=size)
        for cooldown in (level, levels.exhausted):
            if lowest is not None and (self.cooldown_forced_at is None or self.cooldown_forced_at + cooldown <= now):
                return lowest
            if oldest is not None and self._used[oldest].since + cooldown <= now:
                return oldest
        return None

    def next_cooled_down_at(self, members: RangeSet, *, cooldown: float) -> float | None:
        """Return when the next of the members has cooled down; None if all are assigned, or may be."""
        if not self.assignable:
            return None
        lowest, oldest = self._lowest_free(members), self._oldest_used(members)
        times = [self.cooldown_forced_at or 0.0] if lowest is not None else []
        times += [self._used[oldest].since] if oldest is not None else []
        return min(times) + cooldown if times else None

    def in_use(self, *, now: float, cooldown: float) -> bool:
        """Return whether an address is assigned or cooling down, or may be without a record."""
        forced = self.cooldown_forced_at
        return bool(self._assigned or self._used or self.recovering) or (forced is not None and forced + cooldown > now)

    def cooldown_ends_at(self, *, cooldown: float) -> float | None:
        """Return when the first address has cooled down; None if none is cooling down."""
        forced = () if self.cooldown_forced_at is None else (self.cooldown_forced_at,)
        since = min((*(past.since for past in self._used.values()), *forced), default=None)
        return None if since is None else since + cooldown

    def cooling_down(self, *, now: float, cooldown: float) -> int:
        """Return how many released addresses are cooling down."""
        return sum(past.since + cooldown > now for past in self._used.values())

    def cooled_down(self, listed: Iterable[int], *, now: float, cooldown: float) -> tuple[records.SliceAddress, ...]:
        """Return the addresses that have cooled down and are not listed in the IPPool."""
        over = [value for value, past in self._used.items() if past.since + cooldown <= now]
        in_pool = frozenset(listed) if over else frozenset()
        return tuple(self.slice_address(value) for value in over if value not in in_pool)

    def state(self) -> records.SliceSnapshot:
        """Return the slice as a snapshot contains it."""
        return records.SliceSnapshot(
            assignment=self.assignment,
            name=self.name,
            network=self.network,
            range=str(self.range),
            slice=str(self.prefix),
            confirmed=self.confirmed,
            closed=self.closed,
            recovering=self.recovering,
            cooldown_forced_at=self.cooldown_forced_at,
            assigned={str(self.address(value)): holder for value, holder in self._assigned.items()},
            used={str(self.address(value)): past for value, past in self._used.items()},
        )

    # Changes

    def assign(self, value: int, holder: records.SliceHolder) -> None:
        """Assign an address."""
        if self._used.pop(value, None) is None:
            self._mark_unavailable(value)
        self._assigned[value] = holder

    def unassign(self, value: int, *, at: float) -> records.SliceHolder:
        """Release an address, which cools down from now on."""
        holder = self._assigned.pop(value)
        self._used[value] = records.PastUse(holder=holder, since=at)
        return holder

    def free(self, value: int) -> None:
        """Remove the record of the last use."""
        del self._used[value]
        for members, unavailable in self._unavailable.items():
            if value in members:
                unavailable.discard(value - self.prefix.range.first)

    def inherit(self, earlier: "Slice") -> list[tuple[int, records.SliceHolder]]:
        """Take over the addresses of this prefix from an earlier assignment; return the assigned ones."""
        own = self.prefix.range
        moved = [(value, holder) for value, holder in earlier.assigned.items() if value in own]
        self._assigned.update(moved)
        used = {**self._used, **{value: past for value, past in earlier.used.items() if value in own}}
        self._used = dict(sorted(used.items(), key=lambda each: each[1].since))
        if earlier.prefix.range.overlaps(own):
            forced = [each for each in (self.cooldown_forced_at, earlier.cooldown_forced_at) if each is not None]
            self.cooldown_forced_at = max(forced, default=None)
            self.recovering = self.recovering or earlier.recovering
        earlier.drop(own)
        self._unavailable.clear()
        return moved

    def drop(self, range_: Range) -> None:
        """Remove everything in this range."""
        self._assigned = {value: holder for value, holder in self._assigned.items() if value not in range_}
        self._used = {value: past for value, past in self._used.items() if value not in range_}

    def force_cooldown(self, *, at: float) -> None:
        """Let every address cool down from now on: any may have been used without a record."""
        self.cooldown_forced_at = at
        self._used = {value: msgspec.structs.replace(past, since=at) for value, past in self._used.items()}

    def reboot(self, *, at: float) -> None:
        """Start a new boot: no sandbox has survived, and every cooldown starts again."""
        self.cooldown_forced_at = None if self.cooldown_forced_at is None else at
        self.confirmed = self.recovering = False
        holders = {value: past.holder for value, past in self._used.items()} | self._assigned
        self._used = {value: records.PastUse(holder=holder, since=at) for value, holder in holders.items()}
        self._assigned = {}

    def start_recovery(self) -> None:
        """Treat all assignments as inferred: records of releases and of further assignments may be lost."""
        self.recovering = True
        self._assigned = {
            value: msgspec.structs.replace(holder, inferred=True) for value, holder in self._assigned.items()
        }

    def finish_recovery(self, *, at: float) -> None:
        """Record that all users are known; all other addresses cool down."""
        self.recovering = False
        self.force_cooldown(at=at)

    # Free addresses

    def _lowest_free(self, members: RangeSet) -> int | None:
        unavailable = self._unavailable.get(members)
        if unavailable is None:
            unavailable = self._index(members)
        found = unavailable.first_absent()
        return None if found is None else self.prefix.range.first + found

    def _oldest_used(self, members: RangeSet) -> int | None:
        return next((value for value in self._used if value in members), None)

    def _index(self, members: RangeSet) -> Bitmap:
        """Mark the addresses that are not members, assigned or used."""
        whole = self.prefix.range
        gaps = (RangeSet((whole,)) - members).ranges
        unavailable = Bitmap(whole.size, full=[(gap.first - whole.first, gap.last - whole.first) for gap in gaps])
        for value in (*self._assigned, *self._used):
            if value in members:
                unavailable.add(value - whole.first)
        if len(self._unavailable) >= FREE_INDEXES:
            self._unavailable.pop(next(iter(self._unavailable)))
        self._unavailable[members] = unavailable
        return unavailable

    def _mark_unavailable(self, value: int) -> None:
        for members, unavailable in self._unavailable.items():
            if value in members:
                unavailable.add(value - self.prefix.range.first)


class Slices:
    """The slices that this node holds, and closed ones while a Pod has an address of them."""

    def __init__(self) -> None:
        self._boot_id = ""
        self._stopped = False
        self._slices: dict[str, Slice] = {}
        self._by_attachment: dict[Attachment, tuple[records.SliceAddress, ...]] = {}
        self.returned: dict[str, str] = {}
        """The last slices that were returned, with the names of their IPPools."""
        self.observed = records.NodeSlicesObserved(version="")
        """The version at which NodeSlices was last read."""
        self.epoch = 0
        """How often the fence was opened, since this agent started."""

    def __iter__(self) -> Iterator[Slice]:
        return iter(self._slices.values())

    def get(self, assignment: str) -> Slice | None:
        """Return a slice by the ID of its assignment."""
        return self._slices.get(assignment)

    def named(self, name: str) -> list[Slice]:
        """Return the slices with the same IPPool, the newest last: of one prefix, under successive assignments."""
        return [each for each in self._slices.values() if each.name == name]

    def of(self, network: str, range_: Prefix) -> Iterator[Slice]:
        """Iterate over the open slices of a network's range, the newest first."""
        for each in reversed(self._slices.values()):
            if not each.closed and each.network == network and each.range == range_:
                yield each

    def overlapping(self, network: str, prefix: Prefix) -> Iterator[Slice]:
        """Iterate over the slices of a network, open or closed, that overlap a prefix."""
        for each in self._slices.values():
            if each.network == network and each.prefix.range.overlaps(prefix.range):
                yield each

    def addresses_of(self, attachment: Attachment) -> tuple[records.SliceAddress, ...]:
        """Return the addresses of a sandbox's interface."""
        return self._by_attachment.get(attachment, ())

    def assigned_to(self, attachment: Attachment, *, network: str, range_: Prefix) -> Address | None:
        """Return the address of an interface in a range, also if its slice was of another range at that time."""
        for each in self.addresses_of(attachment):
            address = parse_address(each.address)
            if self._slices[each.assignment].network == network and address in range_:
                return address
        return None

    def holders(self) -> Iterator[tuple[records.SliceAddress, records.SliceHolder]]:
        """Iterate over all assigned addresses."""
        for slice_ in self._slices.values():
            for value, holder in slice_.assigned.items():
                yield slice_.slice_address(value), holder

    def snapshot(self) -> tuple[records.SliceSnapshot, ...]:
        """Return the state of all slices."""
        return tuple(each.state() for each in self._slices.values())

    def apply(self, record: records.AnyRecord) -> None:
        """Apply a record of the journal."""
        self._stopped = isinstance(record, records.Stopped) or (isinstance(record, records.Started) and self._stopped)
        match record:
            case records.Started():
                self._start(record)
            case records.NodeConfirmed() | records.CooldownForced() | records.NodeSlicesObserved():
                self._apply_to_all(record)
            case records.SliceAcquired():
                self._acquire(record)
            case records.SliceAssigned():
                self._assign(record.addresses, record.holder)
            case records.SliceUnassigned():
                self._unassign(record.addresses, at=record.at)
            case records.SliceCooledDown():
                for each in record.addresses:
                    self._slices[each.assignment].free(parse_address(each.address).value)
            case _ if isinstance(record, records.SliceChange):
                self._change(self._slices[record.assignment], record)
            case records.Snapshot():
                self._restore(record)

    def _restore(self, record: records.Snapshot) -> None:
        self._boot_id, self._stopped = record.boot_id, record.stopped
        self._slices = {each.assignment: Slice(each) for each in record.slices}
        self.returned = dict(record.returned_slices)
        self.observed = record.node_slices or records.NodeSlicesObserved(version="")
        self._by_attachment = {}
        for address, holder in self.holders():
            self._by_attachment[holder.attachment] = (*self.addresses_of(holder.attachment), address)

    def _start(self, record: records.Started) -> None:
        first, rebooted = not self._boot_id, record.boot_id != self._boot_id
        self._boot_id, clean, self._stopped = record.boot_id, self._stopped, False
        if rebooted:
            self._by_attachment = {}
            for each in self._slices.values():
                each.reboot(at=record.boot)
        if record.damaged or (rebooted and not clean and not first):
            self._force_cooldown(at=record.boot)
        for each in self._slices.values() if record.damaged else ():
            each.start_recovery()  # also after a reboot: the readable records may end before this boot began

    def _apply_to_all(
        self, record: records.NodeConfirmed | records.CooldownForced | records.NodeSlicesObserved
    ) -> None:
        match record:
            case records.CooldownForced():
                self._force_cooldown(at=record.at)
            case records.NodeSlicesObserved():
                self.observed = record
            case records.NodeConfirmed() if record.node_only and record.reopened:
                self.epoch += 1
                for each in self._slices.values():
                    each.confirmed = False

    def _force_cooldown(self, *, at: float) -> None:
        for each in self._slices.values():
            if not each.closed:  # closing is synced, and nothing of a closed slice is assigned
                each.force_cooldown(at=at)

    def _acquire(self, record: records.SliceAcquired) -> None:
        acquired = Slice(
            records.SliceSnapshot(
                assignment=record.assignment,
                name=record.name,
                network=record.network,
                range=record.range,
                slice=record.slice,
                confirmed=record.confirmed,
                closed=record.closed,
                recovering=record.recovering,
                cooldown_forced_at=record.at if record.force_cooldown else None,
            )
        )
        self._slices[record.assignment] = acquired
        before = [each for each in self._slices.values() if each is not acquired and each.network == acquired.network]
        for closed in [each for each in before if each.closed]:
            for value, holder in acquired.inherit(closed):
                kept = (each for each in self.addresses_of(holder.attachment) if each != closed.slice_address(value))
                self._by_attachment[holder.attachment] = (*kept, acquired.slice_address(value))
        for address, holder in record.holders.items():
            if parse_address(address).value not in acquired.assigned:
                self._assign((records.SliceAddress(assignment=record.assignment, address=address),), holder)

    def _assign(self, addresses: tuple[records.SliceAddress, ...], holder: records.SliceHolder) -> None:
        for each in addresses:
            self._slices[each.assignment].assign(parse_address(each.address).value, holder)
        self._by_attachment[holder.attachment] = (*self.addresses_of(holder.attachment), *addresses)

    def _unassign(self, addresses: tuple[records.SliceAddress, ...], *, at: float) -> None:
        for address in addresses:
            holder = self._slices[address.assignment].unassign(parse_address(address.address).value, at=at)
            left = tuple(each for each in self._by_attachment.pop(holder.attachment) if each != address)
            if left:
                self._by_attachment[holder.attachment] = left

    def _change(self, slice_: Slice, record: records.SliceChange) -> None:
        match record:
            case records.SliceClosed():
                slice_.closed = True
            case records.SliceRecovered():
                slice_.finish_recovery(at=record.at)
            case records.SliceConfirmed():
                slice_.confirmed, slice_.closed = True, False
            case records.SliceSuspended():
                slice_.confirmed = False
            case records.SliceRangeChanged():
                slice_.range = parse_prefix(record.range)
            case records.SliceRemoved():
                del self._slices[record.assignment]
                self.returned = dict([*self.returned.items(), (record.assignment, slice_.name)][-KEPT_RETURNED:])
