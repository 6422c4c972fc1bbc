"""One shared pool, and those on this node who want something of it: whoever waits at one moment shares a patch.

There is no task of its own: one of those who wait does the work for all of them, and when that one is cancelled the
next goes on. What was half done is found in the pool and done again.

Entry first, then reservation, as Whereabouts does it, and back the other way: whoever goes on after a crash finds the
entry. An address is given when both are stored. Where another has reserved it the entry is taken out again, and the
next address is tried. The entries of pools that overlap count as taken too: reservations may be missing. Whoever says
`enable_overlapping_ranges: false` looks at its own pool alone.

| the others are | reservations | the `whereabouts` Lease |
|---|---|---|
| our agents only | where ranges overlap after the entry was stored, or the configuration insists | never |
| also foreign plugins | always, unless the configuration forbids | for an ADD where ranges overlap |

A range that the controller has cut into slices gives nothing new here: its pool, or one that overlaps it, is marked. A
patch that was decided on before the mark does not fit any more.

Why after: whoever makes an overlapping_pools pool later looks later, and finds the entry. Foreign plugins look only at
reservations, and delete whichever has the name: between their look and their write nobody else may reserve. Where such
a pool appears meanwhile, all is looked at again with the Lease before anybody is told.
"""

import asyncio
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from podpool.agent.secondary.ippool_client import IPPoolClient, apply_changes, overlapping_pools
from podpool.api.whereabouts import SEALED_ANNOTATION, IPPool, IPPoolSpec, ReservationSpec
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.kube.backoff import backoff_delay
from podpool.kube.errors import ApiError, ApiForbidden
from podpool.kube.leader_election import LeadershipLost
from podpool.runtime.clock import Clock
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.config import IpamConfig, LeaderElectionConfig, RangeConfig
from podpool.whereabouts.ippool import AllocationChange, parse_ippool
from podpool.whereabouts.object_names import PoolIdentifier, reservation_name
from podpool.whereabouts.shared_range import RangeFull, RangeSliced, allocate, allocations_of, needs_reservation

RESERVED_ELSEWHERE_SECONDS = 30.0
"""Seconds for which an address is left alone that another was seen to have reserved."""
BLOCKED = ReservationSpec()
"""Keeps an address from everybody."""

Lead = Callable[[LeaderElectionConfig, Callable[[], Awaitable[None]]], Awaitable[None]]
Unavailable = Mapping[Address, ReservationSpec]


class Lent(Protocol):
    """What this node's sandboxes have."""

    def __call__(self, place: PoolIdentifier, *, everywhere: bool) -> Unavailable:
        """Find what they have of a pool, or everywhere in its network."""


class SandboxDeleted(PodpoolError):
    """A DEL came while an ADD waited."""


class PoolRequest:
    """One who waits: for an address of a range, or without one for what the sandbox has to be taken back."""

    def __init__(self, owner: PodInterface, config: IpamConfig, wanted: RangeConfig | None = None) -> None:
        self.owner = owner
        self.config = config
        self.wanted = wanted
        self.outcome: Address | PodpoolError | None = None
        self.done = False
        self.made = False
        """Its entry was made for it, and is nobody's yet;"""
        self.refused: Address | None = None
        """or must go again, because another has that address."""

    def finish(self, outcome: Address | PodpoolError | None = None) -> None:
        """Tell what came of it."""
        self.outcome, self.done = outcome, True


class SharedCooldown:
    """The addresses that this node's sandboxes gave back lately: as long as there are others, others are given.

    And those that they have, of a pool or its network, which are given to nobody else even where no pool shows them.
    """

    def __init__(self, clock: Clock, *, cooldown: float, lent: Lent) -> None:
        self.lent = lent
        self._clock = clock
        self._cooldown = cooldown
        self._since: dict[str, dict[Address, tuple[float, ReservationSpec]]] = defaultdict(dict)

    def begin(self, network: str, change: AllocationChange) -> None:
        """Note that one was given back; who had it may have it again."""
        if change.before:
            past = ReservationSpec(podref=change.before.podref, ifname=change.before.ifname)
            self._since[network][change.address] = (self._clock.boot(), past)

    def end(self, network: str, address: Address) -> None:
        """Note that one is in use again."""
        self._since[network].pop(address, None)

    def of(self, network: str) -> dict[Address, ReservationSpec]:
        """Find what rests."""
        limit = self._clock.boot() - self._cooldown
        kept = {each: noted for each, noted in self._since[network].items() if noted[0] > limit}
        self._since[network] = kept
        return {each: past for each, (_, past) in kept.items()}


class IPPoolBatcher:
    """The pool of one range."""

    def __init__(
        self,
        place: PoolIdentifier,
        objects: IPPoolClient,
        *,
        lead: Lead,
        rests: SharedCooldown,
        clock: Clock,
        rng: random.Random,
        foreign: bool,
    ) -> None:
        self.trouble: PodpoolError | None = None
        """Why the last try came to nothing."""
        self._place = place
        self._objects = objects
        self._lead = lead
        self._rests = rests
        self._clock = clock
        self._rng = rng
        self._foreign = foreign
        self._turn = asyncio.Lock()
        self._waiting: list[PoolRequest] = []
        self._clashes: dict[Address, tuple[float, ReservationSpec]] = {}

    async def serve(self, ask: PoolRequest) -> Address | None:
        """Do what is asked, with whatever else is asked by then; tries again for as long as it is let."""
        if ask.wanted is None:
            self._end(ask.owner)
        self._waiting.append(ask)
        try:
            async with self._turn:
                await self._until_done(ask)
        finally:
            self._waiting.remove(ask)
        if isinstance(ask.outcome, PodpoolError):
            raise ask.outcome
        return ask.outcome

    def _end(self, owner: PodInterface) -> None:
        """End the waiting of a sandbox that is deleted."""
        for each in self._pending():
            if each.wanted and (each.owner.container, each.owner.ifname) == (owner.container, owner.ifname):
                each.finish(SandboxDeleted("the sandbox was deleted while it waited for an address"))

    async def _until_done(self, ask: PoolRequest) -> None:
        failures = 0
        while not ask.done:
            try:
                await self._round()
            except ApiForbidden:
                raise
            except Unreachable as error:
                if ask.wanted is None:
                    raise  # it can be done later
                self.trouble = error
            except (ApiError, LeadershipLost) as error:
                self.trouble = error
            else:
                self.trouble = None
                continue
            failures += 1
            await asyncio.sleep(backoff_delay(failures, rng=self._rng, base=0.02, maximum=0.5))

    async def _round(self) -> None:
        asks = self._pending()
        pools = await self._objects.look()
        times = [each.config.leader for each in asks if each.wanted and each.config.overlap_checked]
        if self._foreign and times and self._place.name in pools and any(overlapping_pools(pools, self._place)):
            await self._lead(times[0], self._led)
        else:
            await self._try(asks, pools, led=False)

    async def _led(self) -> None:
        asks = self._pending()
        await self._try(asks, await self._objects.look(), led=True)

    def _pending(self) -> list[PoolRequest]:
        return [each for each in self._waiting if not each.done]

    async def _try(self, asks: Sequence[PoolRequest], pools: Mapping[str, IPPool], *, led: bool) -> None:
        """Serve all of them with one patch; who is not done afterwards is tried again."""
        pool = pools.get(self._place.name)
        asks = self._let_in(asks, pools)
        if pool is None:
            for each in asks:
                if each.wanted is None:
                    each.finish()
            if self._pending():
                await self._objects.make(self._place)
            return
        taken_out, spec = _taken_out(asks, pool.spec)
        going = {change.address: BLOCKED for changes in taken_out.values() for change in changes}
        kept = {checked: {**self._kept(pools, checked=checked), **going} for checked in (True, False)}
        put_in = self._put_in(asks, spec, kept, again=bool(going))
        returned = {ask: changes for ask, changes in taken_out.items() if ask.wanted is None}
        await gather_all(
            *(self._unreserve(each) for ask in returned for each in returned[ask] if ask.config.overlap_checked)
        )
        await asyncio.sleep(max((each.config.sleep_for_race for each in put_in), default=0))
        await self._objects.write(pool, [*(change for each in taken_out.values() for change in each), *put_in.values()])
        for ask, changes in returned.items():
            for change in changes:
                self._rests.begin(self._place.network, change)
            ask.finish()
        await self._settle(put_in, led=led)

    def _let_in(self, asks: Sequence[PoolRequest], pools: Mapping[str, IPPool]) -> list[PoolRequest]:
        """Tell those who want something new of a range that is cut into slices; the others go on."""
        pool = pools.get(self._place.name)
        around = [*filter(None, [pool]), *(other for _, other in overlapping_pools(pools, self._place))]
        shut = next((each.metadata.name for each in around if SEALED_ANNOTATION in each.metadata.annotations), None)
        owned = {entry.owned_by for entry in parse_ippool(pool.spec).listed} if pool and shut else set()
        for each in asks if shut else ():
            if each.wanted and (each.owner.podref, each.owner.ifname) not in owned:
                each.finish(RangeSliced(self._place.range, f"IPPool {shut}"))
        return [each for each in asks if not each.done]

    async def _settle(self, stored: Mapping[PoolRequest, AllocationChange], *, led: bool) -> None:
        """Reserve what was stored, where that is needed, see that it is nobody else's, and tell who asked."""
        if not stored:
            return
        for ask in stored:
            ask.refused = None
        if self._foreign:
            await gather_all(
                *(self._reserve(ask, change) for ask, change in stored.items() if ask.config.overlap_checked)
            )
            pools = await self._objects.look()
        else:
            pools = await self._objects.look()
            others = [range_ for range_, _ in overlapping_pools(pools, self._place)]
            needed = (each for each in stored.items() if needs_reservation(each[0].config, self._place.range, others))
            await gather_all(*(self._reserve(ask, change) for ask, change in needed))
        elsewhere = self._elsewhere(pools) if self._foreign else {}
        unsafe = self._foreign and not led and any(overlapping_pools(pools, self._place))
        for ask, change in stored.items():
            if ask.refused or (unsafe and ask.config.overlap_checked):
                continue  # tried again, or looked at again with the Lease
            if ask.made and ask.config.overlap_checked and change.address in elsewhere:
                await self._unreserve(change)
                ask.refused = change.address
                continue
            self._rests.end(self._place.network, change.address)
            ask.finish(change.address)

    def _put_in(
        self, asks: Sequence[PoolRequest], spec: IPPoolSpec, kept: Mapping[bool, Unavailable], *, again: bool
    ) -> dict[PoolRequest, AllocationChange]:
        """Choose an address for everybody who wants one; who cannot have any is told so, or looks `again`.

        What is `kept` from who looks at overlapping_pools ranges is not all kept from who does not.
        """
        groups: defaultdict[tuple[RangeConfig, bool], list[PoolRequest]] = defaultdict(list)
        for ask in asks:
            if ask.wanted:
                groups[ask.wanted, ask.config.overlap_checked].append(ask)
        chosen: dict[PoolRequest, AllocationChange] = {}
        for (wanted, checked), group in groups.items():
            try:
                changes = self._choose(spec, wanted, [each.owner for each in group], kept[checked])
            except InvalidInput as error:
                changes = (error,) * len(group)
            for ask, change in zip(group, changes, strict=True):
                if isinstance(change, AllocationChange):
                    chosen[ask] = change
                    ask.made = ask.made or change.before is None
                elif not (again and isinstance(change, RangeFull)):
                    ask.finish(change)
            spec = apply_changes(spec, chosen.values())
        return chosen

    def _choose(
        self, spec: IPPoolSpec, wanted: RangeConfig, owners: Sequence[PodInterface], kept: Unavailable
    ) -> Sequence[AllocationChange | PodpoolError]:
        resting = self._rests.of(self._place.network)
        changes = allocate(spec, wanted.allocation, owners, reserved={**resting, **kept})
        if resting and any(isinstance(each, RangeFull) for each in changes):
            return allocate(spec, wanted.allocation, owners, reserved=kept)
        return changes

    def _kept(self, pools: Mapping[str, IPPool], *, checked: bool) -> Unavailable:
        """Find what others have that the pool does not show: through other ranges too, if these are to be checked."""
        lent = self._rests.lent(self._place, everywhere=checked)
        if not checked:
            return lent
        now = self._clock.boot()
        self._clashes = {each: noted for each, noted in self._clashes.items() if noted[0] > now}
        clashes = {each: reservation for each, (_, reservation) in self._clashes.items()}
        return {**clashes, **lent, **self._elsewhere(pools)}

    def _elsewhere(self, pools: Mapping[str, IPPool]) -> dict[Address, ReservationSpec]:
        """Find what pools have that overlap: reservations may be missing."""
        found = [parse_ippool(other.spec).listed for _, other in overlapping_pools(pools, self._place)]
        return {entry.address: BLOCKED for listed in found for entry in listed}

    async def _reserve(self, ask: PoolRequest, change: AllocationChange) -> None:
        name = reservation_name(change.address, network=self._place.network)
        other = await self._objects.reserve(name, ask.owner)
        if other is not None:
            ask.refused = change.address
            self._clashes[change.address] = (self._clock.boot() + RESERVED_ELSEWHERE_SECONDS, other)

    async def _unreserve(self, change: AllocationChange) -> None:
        with suppress(InvalidInput):  # what cannot be named was never reserved
            name = reservation_name(change.address, network=self._place.network)
            await self._objects.unreserve(name, self._place.name, change)


def _taken_out(
    asks: Sequence[PoolRequest], spec: IPPoolSpec
) -> tuple[dict[PoolRequest, tuple[AllocationChange, ...]], IPPoolSpec]:
    """Find what sandboxes give back, and entries that came to nothing; and the pool without them."""
    found: dict[PoolRequest, tuple[AllocationChange, ...]] = {}
    for ask in asks:
        owner = ask.owner
        changes = allocations_of({"": spec}, container=owner.container, ifname=owner.ifname).get("", ())
        found[ask] = tuple(each for each in changes if ask.wanted is None or each.address == ask.refused)
        spec = apply_changes(spec, found[ask])
    return found, spec


async def gather_all(*works: Awaitable[object]) -> None:
    """Do all of them, also when one fails; raises the first failure."""
    outcomes = await asyncio.gather(*works, return_exceptions=True)
    for each in outcomes:
        if isinstance(each, BaseException):
            raise each
