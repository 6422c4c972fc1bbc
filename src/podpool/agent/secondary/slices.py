"""The node's slices, and who has which address of them.

| state | what it is | leaves it |
|---|---|---|
| free | never used, or long ago | to held |
| held | a sandbox has it, by our journal or by another hand's entry in the IPPool | to used, when it is given back |
| used | given back: rests, and is known until the IPPool shows it no more | to held or free, when it has rested |

What must hold: an address has one holder, also across the Leases that a slice had; a sandbox that asks again gets the
same; nothing is given from a slice that is not taken, or that is closed. Of those that may be given the lowest free one
is, else the one that was used longest ago. `apply` is the only way in which anything changes, as with the pool.
"""

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from podpool.agent.records import (
    AnyRecord,
    CooldownForced,
    PastUse,
    SliceAcquired,
    SliceAddress,
    SliceAssigned,
    SliceClosed,
    SliceCooledDown,
    SliceHolder,
    SliceLeaseSigned,
    SliceRangeChanged,
    SliceRecovered,
    SliceRemoved,
    SliceState,
    SliceUnassigned,
    Snapshot,
    Started,
    Stopped,
)
from podpool.cni.protocol import Attachment
from podpool.core.addresses import Address, parse_address
from podpool.core.bitmap import Bitmap
from podpool.core.ranges import Prefix, Range, RangeSet, parse_prefix

FREE_INDEXES = 8
"""Configurations with different exclusions whose free addresses are remembered, for each slice."""


class Slice:
    """One slice: the addresses of a prefix, under one Lease."""

    def __init__(self, state: SliceState) -> None:
        self.lease = state.lease
        self.name = state.name
        self.network = state.network
        self.range = parse_prefix(state.range)
        self.prefix = parse_prefix(state.slice)
        self.closed = state.closed
        self.signed = state.signed
        """Its Lease names this boot: whoever finds no journal finds it there that sandboxes may have addresses."""
        self.unsure = state.unsure
        """Sandboxes may have addresses of it that the journal knows nothing of."""
        self._doubted_at = state.doubted_at
        self._held = {parse_address(each).value: tenant for each, tenant in state.held.items()}
        self._used = {parse_address(each).value: past for each, past in state.used.items()}
        self._views: dict[RangeSet, Bitmap] = {}

    @property
    def held(self) -> Mapping[int, SliceHolder]:
        """Who has what."""
        return self._held

    @property
    def doubted_at(self) -> float | None:
        """Until when any address may have been used without our knowing."""
        return self._doubted_at

    @property
    def used(self) -> Mapping[int, PastUse]:
        """What was given back, in the order of the last use."""
        return self._used

    def address(self, value: int) -> Address:
        """Write a number as an address of this slice."""
        return Address(self.prefix.family, value)

    def slot(self, value: int) -> SliceAddress:
        """Name an address as records do."""
        return SliceAddress(lease=self.lease, address=str(self.address(value)))

    def next_free(self, members: RangeSet, *, now: float, rests: Iterable[float]) -> int | None:
        """Find an address among the members that has rested, by the first of the rests that leaves any."""
        if self.unsure or not self.signed:
            return None
        lowest, oldest = self._lowest(members), self._oldest(members)
        for rest in rests:
            if lowest is not None and (self._doubted_at is None or self._doubted_at + rest <= now):
                return lowest
            if oldest is not None and self._used[oldest].since + rest <= now:
                return oldest
        return None

    def rested_at(self, members: RangeSet, *, rest: float) -> float | None:
        """Tell when the next of the members has rested; None when all have a holder, or may have."""
        if self.unsure or not self.signed:
            return None
        lowest, oldest = self._lowest(members), self._oldest(members)
        times = [self._doubted_at or 0.0] if lowest is not None else []
        times += [self._used[oldest].since] if oldest is not None else []
        return min(times) + rest if times else None

    def in_use(self, *, now: float, rest: float) -> bool:
        """Tell whether a Pod has an address of it, or one rests, or may have been used unknown to us."""
        return bool(self._held or self._used or self.unsure) or (
            self._doubted_at is not None and self._doubted_at + rest > now
        )

    def rests_until(self, *, rest: float) -> float | None:
        """Tell when the next of what rests has rested; None when nothing does."""
        doubted = () if self._doubted_at is None else (self._doubted_at,)
        since = min((*(past.since for past in self._used.values()), *doubted), default=None)
        return None if since is None else since + rest

    def resting(self, *, now: float, rest: float) -> int:
        """Count what was given back and rests."""
        return sum(past.since + rest > now for past in self._used.values())

    def settled(self, shown: Iterable[int], *, now: float, rest: float) -> tuple[SliceAddress, ...]:
        """Find what has rested, and is not among those that the IPPool shows."""
        rested = [value for value, past in self._used.items() if past.since + rest <= now]
        seen = frozenset(shown) if rested else frozenset()
        return tuple(self.slot(value) for value in rested if value not in seen)

    def state(self) -> SliceState:
        """Write it down."""
        return SliceState(
            lease=self.lease,
            name=self.name,
            network=self.network,
            range=str(self.range),
            slice=str(self.prefix),
            closed=self.closed,
            signed=self.signed,
            unsure=self.unsure,
            doubted_at=self._doubted_at,
            held={str(self.address(value)): tenant for value, tenant in self._held.items()},
            used={str(self.address(value)): past for value, past in self._used.items()},
        )

    # What changes it

    def hold(self, value: int, tenant: SliceHolder) -> None:
        """Let somebody have an address that nobody has."""
        if self._used.pop(value, None) is None:
            self._track(value)
        self._held[value] = tenant

    def let_go(self, value: int, *, at: float) -> SliceHolder:
        """Take it back: it rests from now on."""
        tenant = self._held.pop(value)
        self._used[value] = PastUse(tenant=tenant, since=at)
        return tenant

    def forget(self, value: int) -> None:
        """Let it be as if it had never been used."""
        del self._used[value]
        for members, view in self._views.items():
            if value in members:
                view.discard(value - self.prefix.range.first)

    def inherit(self, earlier: "Slice") -> list[tuple[int, SliceHolder]]:
        """Take over what an earlier Lease gave of our addresses, and what rests of them; tells what has a holder."""
        ours = self.prefix.range
        moved = [(value, tenant) for value, tenant in earlier.held.items() if value in ours]
        self._held.update(moved)
        pasts = {**self._used, **{value: past for value, past in earlier.used.items() if value in ours}}
        self._used = dict(sorted(pasts.items(), key=lambda each: each[1].since))
        if earlier.prefix.range.overlaps(ours):
            doubts = [each for each in (self._doubted_at, earlier.doubted_at) if each is not None]
            self._doubted_at = max(doubts, default=None)
            self.unsure = self.unsure or earlier.unsure
        earlier.retain(but=ours)
        self._views.clear()
        return moved

    def retain(self, *, but: Range) -> None:
        """Keep what is not of this range."""
        self._held = {value: tenant for value, tenant in self._held.items() if value not in but}
        self._used = {value: past for value, past in self._used.items() if value not in but}

    def doubt(self, *, at: float) -> None:
        """Any address may have been used until now."""
        self._doubted_at = at
        self._used = {value: msgspec.structs.replace(past, since=at) for value, past in self._used.items()}

    def reboot(self, *, at: float) -> None:
        """Count anew: no sandbox has survived, and nobody knows for how long anything has rested."""
        self._doubted_at = None if self._doubted_at is None else at
        self.signed = self.unsure = False
        pasts = {value: past.tenant for value, past in self._used.items()} | self._held
        self._used = {value: PastUse(tenant=tenant, since=at) for value, tenant in pasts.items()}
        self._held = {}

    def distrust(self) -> None:
        """Know nothing for sure: who has an address may have given it back, and others may have any."""
        self.unsure = True
        self._held = {value: msgspec.structs.replace(tenant, found=True) for value, tenant in self._held.items()}

    def close(self) -> None:
        """Give nothing any more; who has an address keeps it."""
        self.closed = True

    def _lowest(self, members: RangeSet) -> int | None:
        view = self._views.get(members)
        if view is None:
            view = self._view(members)
        found = view.first_absent()
        return None if found is None else self.prefix.range.first + found

    def _oldest(self, members: RangeSet) -> int | None:
        return next((value for value in self._used if value in members), None)

    def _view(self, members: RangeSet) -> Bitmap:
        """Mark what cannot be given: what is no member, and what is held or used."""
        whole = self.prefix.range
        gaps = (RangeSet((whole,)) - members).ranges
        view = Bitmap(whole.size, full=[(gap.first - whole.first, gap.last - whole.first) for gap in gaps])
        for value in (*self._held, *self._used):
            if value in members:
                view.add(value - whole.first)
        if len(self._views) >= FREE_INDEXES:
            self._views.pop(next(iter(self._views)))
        self._views[members] = view
        return view

    def _track(self, value: int) -> None:
        for members, view in self._views.items():
            if value in members:
                view.add(value - self.prefix.range.first)


class Slices:
    """All slices that this node has, and those it had as long as a Pod has an address of them."""

    def __init__(self) -> None:
        self._boot_id = ""
        self._stopped = False
        self._slices: dict[str, Slice] = {}
        self._by_owner: dict[Attachment, tuple[SliceAddress, ...]] = {}

    def __iter__(self) -> Iterator[Slice]:
        return iter(self._slices.values())

    def get(self, lease: str) -> Slice | None:
        """Find a slice by its Lease's UID."""
        return self._slices.get(lease)

    def of(self, network: str, range_: Prefix) -> Iterator[Slice]:
        """Go through what is open of a network's range, the newest first."""
        for each in reversed(self._slices.values()):
            if not each.closed and each.network == network and each.range == range_:
                yield each

    def slots_of(self, owner: Attachment) -> tuple[SliceAddress, ...]:
        """Find what a sandbox has."""
        return self._by_owner.get(owner, ())

    def holds(self, owner: Attachment, *, network: str, range_: Prefix) -> Address | None:
        """Find what a sandbox has of a network's range, whatever range its slice was of at the time, or is by now."""
        for slot in self.slots_of(owner):
            address = parse_address(slot.address)
            if self._slices[slot.lease].network == network and address in range_:
                return address
        return None

    def tenants(self) -> Iterator[tuple[SliceAddress, SliceHolder]]:
        """Go through everything that is held."""
        for slice_ in self._slices.values():
            for value, tenant in slice_.held.items():
                yield slice_.slot(value), tenant

    def snapshot(self) -> tuple[SliceState, ...]:
        """Write down everything as it is."""
        return tuple(each.state() for each in self._slices.values())

    def apply(self, record: AnyRecord) -> None:
        """Change as the record says."""
        self._stopped = isinstance(record, Stopped) or (isinstance(record, Started) and self._stopped)
        match record:
            case Started():
                self._start(record)
            case CooldownForced():
                self._doubt(at=record.at)
            case SliceAcquired():
                self._take(record)
            case SliceAssigned():
                self._give(record.slots, record.tenant)
            case SliceUnassigned():
                self._return(record.slots, at=record.at)
            case SliceCooledDown():
                self._settle(record.slots)
            case SliceClosed() | SliceRecovered() | SliceLeaseSigned() | SliceRangeChanged() | SliceRemoved():
                self._turn(self._slices[record.lease], record)
            case Snapshot():
                self._restore(record)

    def _restore(self, record: Snapshot) -> None:
        self._boot_id, self._stopped = record.boot_id, record.stopped
        self._slices = {each.lease: Slice(each) for each in record.slices}
        self._by_owner = {}
        for slot, tenant in self.tenants():
            self._by_owner[tenant.owner] = (*self._by_owner.get(tenant.owner, ()), slot)

    def _start(self, record: Started) -> None:
        first, rebooted = not self._boot_id, record.boot_id != self._boot_id
        self._boot_id, clean, self._stopped = record.boot_id, self._stopped, False
        if rebooted:
            self._by_owner = {}
            for each in self._slices.values():
                each.reboot(at=record.boot)
        if record.damaged or (rebooted and not clean and not first):
            self._doubt(at=record.boot)
        for each in self._slices.values() if record.damaged else ():
            each.distrust()  # in whichever boot: what is left may end before this one began

    def _doubt(self, *, at: float) -> None:
        for each in self._slices.values():
            if not each.closed:  # nothing was given of a closed one since, and that it is closed was synced
                each.doubt(at=at)

    def _take(self, record: SliceAcquired) -> None:
        taken = Slice(
            SliceState(
                lease=record.lease,
                name=record.name,
                network=record.network,
                range=record.range,
                slice=record.slice,
                closed=record.closed,
                unsure=record.unsure,
                doubted_at=record.at if record.doubted else None,
            )
        )
        self._slices[record.lease] = taken
        before = [each for each in self._slices.values() if each is not taken and each.network == taken.network]
        for lost in [each for each in before if each.closed]:
            for value, tenant in taken.inherit(lost):
                others = (each for each in self._by_owner[tenant.owner] if each != lost.slot(value))
                self._by_owner[tenant.owner] = (*others, taken.slot(value))
        for address, tenant in record.found.items():
            if parse_address(address).value not in taken.held:
                self._give((SliceAddress(lease=record.lease, address=address),), tenant)

    def _give(self, slots: tuple[SliceAddress, ...], tenant: SliceHolder) -> None:
        for slot in slots:
            self._slices[slot.lease].hold(parse_address(slot.address).value, tenant)
        self._by_owner[tenant.owner] = (*self._by_owner.get(tenant.owner, ()), *slots)

    def _return(self, slots: tuple[SliceAddress, ...], *, at: float) -> None:
        for slot in slots:
            tenant = self._slices[slot.lease].let_go(parse_address(slot.address).value, at=at)
            left = tuple(each for each in self._by_owner.pop(tenant.owner) if each != slot)
            if left:
                self._by_owner[tenant.owner] = left

    def _turn(
        self, slice_: Slice, record: SliceClosed | SliceRecovered | SliceLeaseSigned | SliceRangeChanged | SliceRemoved
    ) -> None:
        match record:
            case SliceClosed():
                slice_.close()
            case SliceRecovered():
                slice_.unsure = False
                slice_.doubt(at=record.at)
            case SliceLeaseSigned():
                slice_.signed = True
            case SliceRangeChanged():
                slice_.range = parse_prefix(record.range)
            case SliceRemoved():
                del self._slices[record.lease]

    def _settle(self, slots: tuple[SliceAddress, ...]) -> None:
        for slot in slots:
            self._slices[slot.lease].forget(parse_address(slot.address).value)
