"""Batches the concurrent requests of this node for one shared IPPool into one patch.

There is no background task: one of the waiting requests does the work for all, and if it is cancelled the next one goes
on. Incomplete work is found in the pool and repeated.

The entry is written first, then the reservation, as Whereabouts does, and removed in the other order, so that a crash
leaves an entry that is found again. An address is returned when both are stored. If another owner has reserved it, the
entry is removed and the next address is tried. Entries of overlapping pools also count as taken, because reservations
may be missing. With `enable_overlapping_ranges: false` only the own pool counts.

| other writers | reservations | the `whereabouts` Lease |
|---|---|---|
| podpool agents only | for overlapping ranges, checked after the entry is stored, or if configured | never |
| also third-party plugins | always, unless disabled | for an ADD if ranges overlap |

Overlaps are checked after the entry is stored: a writer that creates an overlapping pool later reads later, and finds
the entry. Third-party plugins read only reservations, and delete any reservation of an address: between their read and
their write no other may reserve. If an overlapping pool appears meanwhile, everything is repeated with the Lease before
a request is answered.

The controller seals the pool of a range that it divides into slices. A sealed pool, or one that overlaps a sealed one,
allocates nothing new. A patch that was decided before the seal fails on its precondition.
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Mapping, Sequence
from contextlib import suppress
from itertools import takewhile

from podpool.agent.deps import AgentDeps
from podpool.agent.secondary.shared_range_client import IPPoolClient, apply_changes, overlapping_pools
from podpool.agent.secondary.shared_range_journal import SharedRangeLog
from podpool.api.whereabouts import SEALED_ANNOTATION, IPPool, IPPoolSpec, ReservationSpec
from podpool.cni.protocol import CniError, ErrorCode
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.kube.backoff import Backoff
from podpool.kube.errors import ApiError, ApiForbidden
from podpool.kube.leader_election import LeadershipLost
from podpool.runtime.clock import Clock
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.config import IpamConfig, LeaderElectionConfig, RangeConfig
from podpool.whereabouts.ippool import AllocationChange, parse_ippool
from podpool.whereabouts.object_names import PoolIdentifier, reservation_name
from podpool.whereabouts.shared_range import RangeFull, RangeSliced, allocate, needs_reservation, removals

BLOCKED_SECONDS = 30.0
"""For how long an address is skipped after a reservation of another owner was found."""
MAX_SLEEP_FOR_RACE = 5
"""Seconds of `sleep_for_race`, a test aid: requests of other networks wait too."""
BLOCKED = ReservationSpec()
"""Blocks an address for every owner."""

Unavailable = Mapping[Address, ReservationSpec]
"""Addresses that are not allocated, except to the owner of the reservation."""


class ReleasedWhileWaiting(PodpoolError):
    """A DEL arrived while an ADD waited."""

    def __init__(self) -> None:
        super().__init__("the sandbox was deleted while it waited for an address")


class PoolRequest:
    """A waiting request: for an address of a range, or without a range to release what the sandbox has."""

    def __init__(self, owner: PodInterface, config: IpamConfig, range_: RangeConfig | None = None) -> None:
        self.owner = owner
        self.config = config
        self.range = range_
        self.outcome: Address | PodpoolError | None = None
        self.done = False
        self.created = False
        """An entry was created for this request, and is not returned yet."""
        self.rejected: Address | None = None
        """The address of an entry that must be removed, because another owner has reserved it."""

    def finish(self, outcome: Address | PodpoolError | None = None) -> None:
        """Set the outcome; a DEL may have set one before."""
        if not self.done:
            self.outcome, self.done = outcome, True


class SharedCooldown:
    """Addresses that this node's sandboxes released recently: others are allocated first, while there are any."""

    def __init__(self, clock: Clock, *, cooldown: float) -> None:
        self._clock = clock
        self._cooldown = cooldown
        self._released: dict[tuple[str, Address], tuple[float, ReservationSpec]] = {}  # the oldest first

    def start(self, network: str, change: AllocationChange) -> None:
        """Record a release; the former owner may get the address again."""
        if change.before:
            owner = ReservationSpec(podref=change.before.podref, ifname=change.before.ifname)
            self.end(network, change.address)
            self._released[network, change.address] = (self._clock.boot(), owner)
            self._expire()

    def end(self, network: str, address: Address) -> None:
        """Record that an address is in use again."""
        self._released.pop((network, address), None)

    def cooling_down(self, network: str) -> dict[Address, ReservationSpec]:
        """Return the addresses that are cooling down, with their former owners."""
        self._expire()
        return {address: owner for (of, address), (_, owner) in self._released.items() if of == network}

    def _expire(self) -> None:
        limit = self._clock.boot() - self._cooldown
        for key, _ in [*takewhile(lambda entry: entry[1][0] <= limit, self._released.items())]:
            del self._released[key]


class IPPoolBatcher:
    """The requests for the pool of one range."""

    def __init__(
        self,
        deps: AgentDeps,
        identifier: PoolIdentifier,
        client: IPPoolClient,
        log: SharedRangeLog,
        cooldown: SharedCooldown,
        *,
        third_party: bool,
    ) -> None:
        self.last_error: PodpoolError | None = None
        """Why the last attempt failed."""
        self._deps = deps
        self._identifier = identifier
        self._client = client
        self._log = log
        self._cooldown = cooldown
        self._third_party = third_party
        self._processing = asyncio.Lock()
        self._requests: list[PoolRequest] = []
        self._blocked: dict[Address, tuple[float, ReservationSpec]] = {}

    @property
    def idle(self) -> bool:
        """Whether it has neither requests nor blocked addresses: a new one would do the same."""
        return not self._requests and not self._still_blocked()

    async def process(self, request: PoolRequest) -> Address | None:
        """Process a request together with all that wait meanwhile; retried until cancelled."""
        if request.range is None:
            self._cancel_adds(request.owner)
        self._requests.append(request)
        try:
            async with self._processing:
                await self._process_until_done(request)
        finally:
            self._requests.remove(request)
        if isinstance(request.outcome, PodpoolError):
            raise request.outcome
        return request.outcome

    def _cancel_adds(self, owner: PodInterface) -> None:
        for each in self._pending():
            same_sandbox = (each.owner.container_id, each.owner.ifname) == (owner.container_id, owner.ifname)
            if each.range and same_sandbox:
                each.finish(ReleasedWhileWaiting())

    async def _process_until_done(self, request: PoolRequest) -> None:
        backoff = Backoff(rng=self._deps.rng, base=0.02, maximum=0.5)
        while not request.done:
            try:
                await self._process_batch()
            except ApiForbidden:
                raise
            except Unreachable as error:
                self.last_error = error
                self._fail_releases(error)
            except (ApiError, LeadershipLost) as error:
                self.last_error = error
            else:
                self.last_error = None
                backoff.reset()
                continue
            if not request.done:
                await backoff.wait()

    def _fail_releases(self, error: Unreachable) -> None:
        """Fail all releases, also those that wait: they are retried later, together."""
        for each in self._pending():
            if each.range is None:
                each.finish(error)

    async def _process_batch(self) -> None:
        requests = self._pending()
        pools = await self._client.list_pools()
        overlaps = self._identifier.name in pools and any(overlapping_pools(pools, self._identifier))
        checked = [each for each in requests if each.range and each.config.overlap_checked]
        times = _lease_times(checked) if self._third_party and overlaps else None
        if times:
            await self._client.run_with_lease(times, self._process_with_lease)
        else:
            await self._try([each for each in requests if not each.done], pools, with_lease=False)

    async def _process_with_lease(self) -> None:
        requests = self._pending()
        await self._try(requests, await self._client.list_pools(), with_lease=True)

    def _pending(self) -> list[PoolRequest]:
        return [each for each in self._requests if not each.done]

    async def _try(self, requests: Sequence[PoolRequest], pools: Mapping[str, IPPool], *, with_lease: bool) -> None:
        """Serve all requests with one patch; what is not done afterwards is tried again."""
        pool = pools.get(self._identifier.name)
        requests = self._reject_if_sealed(requests, pools)
        if pool is None:
            for each in requests:
                if each.range is None:
                    each.finish()
            if self._pending():
                await self._client.create_pool(self._identifier)
            return
        removed, spec = _removals(requests, pool.spec)
        released = {request: changes for request, changes in removed.items() if request.range is None}
        added = self._choose_all(requests, spec, pools, removed)
        reserved = [each for request, changes in released.items() if request.config.overlap_checked for each in changes]
        await gather_all(*map(self._release_reservation, reserved))
        await asyncio.sleep(min(max((each.config.sleep_for_race for each in added), default=0), MAX_SLEEP_FOR_RACE))
        removed_changes = [change for changes in removed.values() for change in changes]
        await self._client.patch_pool(pool, [*removed_changes, *added.values()])
        for request, changes in released.items():
            for change in changes:
                self._cooldown.start(self._identifier.network, change)
            request.finish()
        await self._confirm(added, with_lease=with_lease)

    def _reject_if_sealed(self, requests: Sequence[PoolRequest], pools: Mapping[str, IPPool]) -> list[PoolRequest]:
        """Fail the requests for new addresses of a sealed pool; return the others."""
        pool = pools.get(self._identifier.name)
        candidates = [*filter(None, [pool]), *(other for _, other in overlapping_pools(pools, self._identifier))]
        names = (each.metadata.name for each in candidates if SEALED_ANNOTATION in each.metadata.annotations)
        sealed = next(names, None)
        owners = {entry.owner for entry in parse_ippool(pool.spec).entries} if pool and sealed else set()
        for each in requests if sealed else ():
            if each.range and (each.owner.podref, each.owner.ifname) not in owners:
                each.finish(RangeSliced(self._identifier.range, f"IPPool {sealed}"))
        return [each for each in requests if not each.done]

    async def _confirm(self, stored: Mapping[PoolRequest, AllocationChange], *, with_lease: bool) -> None:
        """Reserve stored addresses where needed, check that no other owner has them, and answer the requests."""
        if not stored:
            return
        for request in stored:
            request.rejected = None
        pools = await self._reserve_all(stored)
        overlapping = self._overlapping_entries(pools) if self._third_party else {}
        unsafe = self._third_party and not with_lease and any(overlapping_pools(pools, self._identifier))
        for request, change in stored.items():
            if request.rejected or (unsafe and request.config.overlap_checked):
                continue  # tried again, or repeated with the Lease
            if request.created and request.config.overlap_checked and change.address in overlapping:
                await self._release_reservation(change)
                request.rejected = change.address
                continue
            self._cooldown.end(self._identifier.network, change.address)
            request.finish(change.address)

    async def _reserve_all(self, stored: Mapping[PoolRequest, AllocationChange]) -> Mapping[str, IPPool]:
        """Reserve where needed; return the pools after the entries were stored."""
        if self._third_party:
            checked = (each for each in stored.items() if each[0].config.overlap_checked)
            await gather_all(*(self._reserve(request, change) for request, change in checked))
            return await self._client.list_pools()
        pools = await self._client.list_pools()
        others = [range_ for range_, _ in overlapping_pools(pools, self._identifier)]
        needed = (each for each in stored.items() if needs_reservation(each[0].config, self._identifier.range, others))
        await gather_all(*(self._reserve(request, change) for request, change in needed))
        return pools

    def _choose_all(
        self,
        requests: Sequence[PoolRequest],
        spec: IPPoolSpec,
        pools: Mapping[str, IPPool],
        removed: Mapping[PoolRequest, Sequence[AllocationChange]],
    ) -> dict[PoolRequest, AllocationChange]:
        """Choose an address for each request. A request that cannot get one fails, unless removals free addresses.

        Requests without overlap check ignore what other ranges have.
        """
        freed = {change.address: BLOCKED for changes in removed.values() for change in changes}
        unavailable = {
            checked: {**self._unavailable(pools, overlap_checked=checked), **freed} for checked in (True, False)
        }
        groups: defaultdict[tuple[RangeConfig, bool], list[PoolRequest]] = defaultdict(list)
        for request in requests:
            if request.range:
                groups[request.range, request.config.overlap_checked].append(request)
        chosen: dict[PoolRequest, AllocationChange] = {}
        for (range_, checked), group in groups.items():
            try:
                changes = self._choose(spec, range_, [each.owner for each in group], unavailable[checked])
            except InvalidInput as error:
                changes = (error,) * len(group)
            for request, change in zip(group, changes, strict=True):
                if isinstance(change, AllocationChange):
                    chosen[request] = change
                    request.created = request.created or change.before is None
                elif not (freed and isinstance(change, RangeFull)):
                    request.finish(change)
            spec = apply_changes(spec, chosen.values())
        return chosen

    def _choose(
        self, spec: IPPoolSpec, range_: RangeConfig, owners: Sequence[PodInterface], unavailable: Unavailable
    ) -> Sequence[AllocationChange | PodpoolError]:
        cooling_down = self._cooldown.cooling_down(self._identifier.network)
        changes = allocate(spec, range_.spec, owners, reserved={**cooling_down, **unavailable})
        if cooling_down and any(isinstance(each, RangeFull) for each in changes):
            return allocate(spec, range_.spec, owners, reserved=unavailable)
        return changes

    def _unavailable(self, pools: Mapping[str, IPPool], *, overlap_checked: bool) -> Unavailable:
        """Return addresses of other owners that the pool does not show; with the check also those of other ranges."""
        network = self._identifier.network
        if not overlap_checked:
            return self._log.live_addresses(network, range_=str(self._identifier.range))
        return {**self._still_blocked(), **self._log.live_addresses(network), **self._overlapping_entries(pools)}

    def _still_blocked(self) -> dict[Address, ReservationSpec]:
        now = self._deps.clock.boot()
        self._blocked = {each: entry for each, entry in self._blocked.items() if entry[0] > now}
        return {each: reservation for each, (_, reservation) in self._blocked.items()}

    def _overlapping_entries(self, pools: Mapping[str, IPPool]) -> dict[Address, ReservationSpec]:
        """Return the entries of overlapping pools: their reservations may be missing."""
        entries = [parse_ippool(other.spec).entries for _, other in overlapping_pools(pools, self._identifier)]
        return {entry.address: BLOCKED for listed in entries for entry in listed}

    async def _reserve(self, request: PoolRequest, change: AllocationChange) -> None:
        name = reservation_name(change.address, network=self._identifier.network)
        other = await self._client.reserve(name, request.owner)
        if other is not None:
            request.rejected = change.address
            self._blocked[change.address] = (self._deps.clock.boot() + BLOCKED_SECONDS, other)

    async def _release_reservation(self, change: AllocationChange) -> None:
        with suppress(InvalidInput):  # an address without a valid reservation name was never reserved
            name = reservation_name(change.address, network=self._identifier.network)
            await self._client.release_reservation(name, self._identifier.name, change)


def _lease_times(requests: Sequence[PoolRequest]) -> LeaderElectionConfig | None:
    """Return the times of the first request whose times are valid; fail the others, each with its own reason."""
    valid: LeaderElectionConfig | None = None
    for each in requests:
        try:
            times = each.config.leader.validated()
        except InvalidInput as error:
            each.finish(CniError(ErrorCode.INVALID_CONFIG, str(error)))  # its entry may be stored already
        else:
            valid = valid or times
    return valid


def _removals(
    requests: Sequence[PoolRequest], spec: IPPoolSpec
) -> tuple[dict[PoolRequest, tuple[AllocationChange, ...]], IPPoolSpec]:
    """Return the entries to remove, released or rejected, and the pool without them."""
    found: dict[PoolRequest, tuple[AllocationChange, ...]] = {}
    for request in requests:
        changes = removals(spec, container_id=request.owner.container_id, ifname=request.owner.ifname)
        found[request] = tuple(each for each in changes if request.range is None or each.address == request.rejected)
        spec = apply_changes(spec, found[request])
    return found, spec


async def gather_all(*operations: Awaitable[object]) -> None:
    """Await all operations, also if one fails; raises the first failure."""
    outcomes = await asyncio.gather(*operations, return_exceptions=True)
    for each in outcomes:
        if isinstance(each, BaseException):
            raise each
