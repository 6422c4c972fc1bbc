"""Addresses of ranges that all nodes share: Whereabouts without slices, beside its plugins if need be.

What must hold: an ADD succeeds only when the IPPool has its entry, and the reservation is stored where one is needed;
a sandbox that asks again gets the same. A DEL looks at every range, removes what is its own sandbox's and nothing else,
and succeeds also while the API server is away: then it is kept, and done later. A new sandbox of the same Pod takes the
entry over, so that an old DEL finds nothing.

Without a fence: an address is the sandbox's because the API server stored it, not because this agent remembers it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress

import msgspec

from podpool.agent.deps import AgentDeps
from podpool.agent.records import Attachment
from podpool.agent.secondary.address_source import AddressRequest
from podpool.agent.secondary.ippool_batcher import IPPoolBatcher, PoolRequest, SharedCooldown, gather_all
from podpool.agent.secondary.ippool_client import IPPoolClient
from podpool.agent.secondary.shared_range_log import SharedAllocation, SharedRangeLog
from podpool.agent.secondary.shared_range_resync import SharedRangeResync
from podpool.api.whereabouts import IPPool
from podpool.cni.protocol import CniError, ErrorCode
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.ranges import Prefix, parse_prefix
from podpool.kube.backoff import backoff_delay
from podpool.kube.errors import ApiError
from podpool.kube.leader_election import LeaderElector, LeaseTiming
from podpool.runtime.disk import Disk
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.config import IpamConfig, LeaderElectionConfig
from podpool.whereabouts.object_names import SHARED_RANGE_LEASE, PoolIdentifier
from podpool.whereabouts.shared_range import PoolTooLarge, RangeFull, RangeSliced, allocations_of

DEL_TIMEOUT = 10.0
"""Seconds after which a DEL that finds the pool busy is kept for later instead."""
MAX_RETRY_DELAY = 30.0
"""Seconds between two looks at what was kept, at most."""

_AWAY = (ApiError, Unreachable, TimeoutError)
_LATER = (*_AWAY, InvalidInput)  # an IPPool that cannot be read may be mended
_NOTHING_STORED = (RangeFull, RangeSliced, PoolTooLarge, InvalidInput)

Sliced = Callable[[str, Prefix], str]
"""Tell which slice of this node has addresses of a network's range; empty when none does."""


class SharedRangeIPAM:
    """One node's part in the ranges that all share. `foreign` when plugins of Whereabouts itself may write them too."""

    def __init__(
        self,
        deps: AgentDeps,
        disk: Disk,
        *,
        namespace: str,
        foreign: bool = True,
        boot_id: str = "",
        sliced: Sliced = lambda *_: "",
    ) -> None:
        self._deps = deps
        self._namespace = namespace
        self._foreign = foreign
        self._sliced = sliced
        self._objects = IPPoolClient(deps.kube, namespace=namespace)
        self._lendings = SharedRangeLog(disk, tell=deps.tell)
        self._boot_id = boot_id
        self._back = SharedRangeResync(deps, self._objects, self._lendings, boot_id=boot_id)
        self._rests = SharedCooldown(deps.clock, cooldown=deps.settings.cooldown, lent=self._back.lent)
        self._lanes: dict[PoolIdentifier, IPPoolBatcher] = {}
        self._leading = asyncio.Lock()
        self._kept = asyncio.Event()

    async def run(self) -> None:
        """Do what was kept for later, as soon as the API server is there, for ever."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._lendings.run())
            group.create_task(self._back.run())
            group.create_task(self._do_later())

    async def _do_later(self) -> None:
        failures = 0
        while True:
            leaving = [each for each in self._lendings.all.values() if each.leaving]
            error = await self._take_all_back(leaving)
            if error:
                failures += 1
                told = f"{len(leaving)} sandboxes' addresses of shared ranges are given back later"
                self._deps.tell(f"{told}: {_why_later(error)}")
                await asyncio.sleep(backoff_delay(failures, rng=self._deps.rng, base=1.0, maximum=MAX_RETRY_DELAY))
            else:
                failures = 0
                self._kept.clear()
                if not any(each.leaving for each in self._lendings.all.values()):
                    await self._kept.wait()

    async def _take_all_back(self, leaving: Iterable[SharedAllocation]) -> Exception | None:
        """Take back what can be; gives what stood in the way of the rest."""
        unread: InvalidInput | None = None
        for each in leaving:
            if self._lendings.all.get(each.sandbox) == each:  # no ADD came in between
                try:
                    await self._take_back(each)
                except InvalidInput as error:
                    unread = error
                except _AWAY as error:
                    return error
        return unread

    async def give(self, want: AddressRequest) -> tuple[Address, ...]:
        """Give one address of each range, or nothing; raises `CniError`."""
        self._refuse_sliced(want)
        lending = _lending(want)
        self._lendings.keep(lending)
        given: list[Address] = []
        try:
            for wanted in want.ranges:
                lane = self._lane(wanted.prefix, want.config)
                given.append(await self._given(lane, want, PoolRequest(want.owner, want.config, wanted)))
        except PodpoolError as error:
            if isinstance(error, _NOTHING_STORED) and not given:
                self._lendings.end(want.sandbox)
            else:
                await self._keep(lending, error)
            raise _told(error) from error
        addresses = {str(each.prefix): str(address) for each, address in zip(want.ranges, given, strict=True)}
        given_now = msgspec.structs.replace(lending, addresses=tuple(addresses.values()), boot_id=self._boot_id)
        self._lendings.keep(given_now)
        return tuple(given)

    def _refuse_sliced(self, want: AddressRequest) -> None:
        """Refuse what this node has slices of, whatever the API server shows; who has an address gets it again."""
        known = self._lendings.all.get(want.sandbox)
        for wanted in () if known and known.addresses else want.ranges:
            slice_ = self._sliced(want.config.network_name, wanted.prefix)
            if slice_:
                raise _told(RangeSliced(wanted.prefix, f"slice {slice_} of this node"))

    def has_of(self, network: str, prefix: Prefix) -> bool:
        """Tell whether a sandbox of this node has an address of a prefix through a range that all share."""
        return any(
            each in prefix for each in self._back.lent(PoolIdentifier(range=prefix, network=network), everywhere=True)
        )

    def restored(self) -> None:
        """See that the API server knows what it has given, now that it went back to an older copy."""
        self._back.nudge()

    async def give_back(self, sandbox: Attachment, want: AddressRequest | None = None) -> None:
        """Take back what the sandbox has in every range, now or later."""
        lending = _leaving(self._lendings.all.get(sandbox), want)
        if lending:
            await self._take_back_or_keep(lending)

    def release(self, sandbox: Attachment, want: AddressRequest | None = None) -> None:
        """Write down that it is to be taken back."""
        lending = _leaving(self._lendings.all.get(sandbox), want)
        if lending:
            self._leave(lending)

    async def check(self, want: AddressRequest) -> tuple[Address, ...]:
        """Tell what the sandbox has in each range; raises `CniError`."""
        try:
            async with asyncio.timeout(self._patience(want)):
                pools = await self._objects.look()
            return tuple(_held(pools, each.prefix, want) for each in want.ranges)
        except _LATER as error:
            raise _told(error) from error

    async def collect(self, network: str, valid: frozenset[Attachment]) -> None:
        """Take back what this agent gave to sandboxes that the runtime does not list any more."""
        for lending in [each for each in self._lendings.all.values() if each.network == network]:
            if lending.sandbox not in valid:
                told = f"sandbox {lending.sandbox.container_id} is not listed by the runtime any more"
                self._deps.tell(f"{told}: its addresses of shared ranges are given back")
                await self._take_back_or_keep(lending)

    async def _given(self, lane: IPPoolBatcher, want: AddressRequest, ask: PoolRequest) -> Address:
        try:
            async with asyncio.timeout(self._patience(want)):
                address = await lane.serve(ask)
        except TimeoutError:
            why = lane.trouble or "too many write it at once"
            told = f"the IPPool of {ask.wanted and ask.wanted.prefix} could not be written in time: {why}"
            raise CniError(ErrorCode.TRY_AGAIN_LATER, told) from None
        if address is None:
            raise CniError(ErrorCode.TRY_AGAIN_LATER, "no address was given")
        return address

    async def _take_back_or_keep(self, lending: SharedAllocation) -> None:
        try:
            await self._take_back(lending)
        except _LATER as error:
            await self._keep(lending, error)

    async def _take_back(self, lending: SharedAllocation) -> None:
        """Look at every range, whatever goes wrong with another; then forget the sandbox."""
        config = IpamConfig(name=lending.network, network_name=lending.network_name, overlap_checked=lending.reserved)
        owner = PodInterface(
            podref=lending.podref, container=lending.sandbox.container_id, ifname=lending.sandbox.ifname
        )
        known = self._lendings.all.get(lending.sandbox)
        lanes = []
        for each in lending.ranges:
            with suppress(InvalidInput):  # a pool that no object can be has nothing
                lanes.append(self._lane(parse_prefix(each), config))
        self._back.leaving.add(lending.sandbox)
        try:
            async with asyncio.timeout(DEL_TIMEOUT):
                await self._back.settled()
                await gather_all(*(lane.serve(PoolRequest(owner, config)) for lane in lanes))
        finally:
            self._back.leaving.discard(lending.sandbox)
        if self._lendings.all.get(lending.sandbox) == known:  # no ADD came in between
            self._lendings.end(lending.sandbox)

    async def _keep(self, lending: SharedAllocation, error: Exception) -> None:
        """Write down what is to be given back: from here on it will be, whatever becomes of the machine."""
        sandbox = f"sandbox {lending.sandbox.container_id}"
        self._deps.tell(f"{sandbox} gives its addresses of shared ranges back later: {_why_later(error)}")
        self._leave(lending)
        await self._lendings.sync()

    def _leave(self, lending: SharedAllocation) -> None:
        self._lendings.keep(msgspec.structs.replace(lending, leaving=True))
        self._kept.set()

    def _lane(self, prefix: Prefix, config: IpamConfig) -> IPPoolBatcher:
        place = PoolIdentifier(range=prefix, network=config.network_name)
        lane = self._lanes.get(place)
        if lane is None:
            deps = self._deps
            _ = place.name  # refused here when no object can have it
            lane = self._lanes[place] = IPPoolBatcher(
                place,
                self._objects,
                lead=self._lead,
                rests=self._rests,
                clock=deps.clock,
                rng=deps.rng,
                foreign=self._foreign,
            )
        return lane

    async def _lead(self, times: LeaderElectionConfig, work: Callable[[], Awaitable[None]]) -> None:
        """Hold the Lease that foreign plugins take turns with, as they hold it; one at a time on this node."""
        told = times.checked()
        timing = LeaseTiming(duration=told.duration / 1e3, renew_deadline=told.renew / 1e3, retry=told.retry / 1e3)
        deps = self._deps
        async with self._leading:
            await LeaderElector(
                deps.kube,
                name=SHARED_RANGE_LEASE,
                namespace=self._namespace,
                identity=f"podpool/{deps.node}",
                clock=deps.clock,
                rng=deps.rng,
                timing=timing,
            ).run(work)

    def _patience(self, want: AddressRequest) -> float:
        return max(want.deadline - self._deps.clock.boot(), 0.0)


def _lending(want: AddressRequest) -> SharedAllocation:
    """Write down what a sandbox has, or is about to have."""
    return SharedAllocation(
        sandbox=want.sandbox,
        podref=want.owner.podref,
        network=want.config.name,
        network_name=want.config.network_name,
        ranges=tuple(dict.fromkeys(str(each.prefix) for each in want.ranges)),
        reserved=want.config.overlap_checked,
    )


def _leaving(known: SharedAllocation | None, want: AddressRequest | None) -> SharedAllocation | None:
    """Tell where to look for what a sandbox has: where it was given, and where its configuration has it by now."""
    asked = _lending(want) if want and want.ranges else None
    if known is None or asked is None or known.network_name != asked.network_name:
        return known or asked
    return msgspec.structs.replace(
        known,
        ranges=tuple(dict.fromkeys((*known.ranges, *asked.ranges))),
        reserved=known.reserved or asked.reserved,
    )


def _held(pools: Mapping[str, IPPool], prefix: Prefix, want: AddressRequest) -> Address:
    pool = pools.get(PoolIdentifier(range=prefix, network=want.config.network_name).name)
    owner = want.owner
    found = allocations_of({"": pool.spec}, container=owner.container, ifname=owner.ifname) if pool else {}
    for change in found.get("", ()):
        return change.address
    told = f"interface {owner.ifname} of sandbox {owner.container} has no address of {prefix}"
    raise CniError(ErrorCode.CHECK_MISMATCH, told)


def _why_later(error: Exception) -> str:
    return str(error) or "the pool is busy"


def _told(error: Exception) -> CniError:
    """Word an error for the runtime."""
    if isinstance(error, CniError):
        return error
    if isinstance(error, InvalidInput):
        return CniError(ErrorCode.INVALID_CONFIG, str(error))
    return CniError(ErrorCode.TRY_AGAIN_LATER, str(error) or "the API server did not answer in time")
