"""Allocation in shared ranges, compatible with Whereabouts without slices, also beside its plugins.

Invariants:
- An ADD succeeds only when the IPPool has its entry, and the reservation is stored where one is needed. A sandbox that
  repeats its ADD gets the same address.
- A DEL removes the entries of its own sandbox in every range, and nothing else. It also succeeds while the API server
  is unreachable: the release is logged, and done later.
- A new sandbox of the same Pod takes over the entry, so that a late DEL of the former one finds nothing.
- An ADD during which a DEL of its sandbox arrives fails, and what it stored is released: the runtime has given it up.
- Nothing is stored before it is synced to the log. No sandbox survives a reboot: what those of earlier boots have is
  released after the cooldown, except what the next sandboxes of their Pods have taken over.

There is no fence: a sandbox has an address because the API server stored it, not because the agent remembers it.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

import msgspec

from podpool.agent.deps import AgentDeps, AgentOptions
from podpool.agent.sandbox_gc import SandboxInterface
from podpool.agent.secondary.ippool_batcher import (
    IPPoolBatcher,
    PoolRequest,
    ReleasedWhileWaiting,
    SharedCooldown,
    gather_all,
)
from podpool.agent.secondary.router import AddressRequest
from podpool.agent.secondary.shared_range_client import IPPoolClient
from podpool.agent.secondary.shared_range_journal import ReleasesInProgress, SharedAllocation, SharedRangeLog
from podpool.agent.secondary.shared_range_resync import SharedRangeResync
from podpool.agent.secondary.slices import Slices
from podpool.api.whereabouts import IPPool
from podpool.cni.protocol import Attachment, CniError, ErrorCode
from podpool.core.addresses import Address
from podpool.core.errors import InvalidInput, PodpoolError
from podpool.core.ranges import Prefix, parse_prefix
from podpool.kube.backoff import Backoff
from podpool.kube.errors import ApiError
from podpool.runtime.transport import Unreachable
from podpool.whereabouts.cni_args import PodInterface
from podpool.whereabouts.config import IpamConfig, RangeConfig
from podpool.whereabouts.object_names import PoolIdentifier
from podpool.whereabouts.shared_range import PoolTooLarge, RangeFull, RangeSliced, removals

DEL_TIMEOUT = 10.0
"""Seconds after which a DEL is answered, and released later."""
MAX_RETRY_DELAY = 30.0
"""Seconds between two attempts at pending releases, at most."""

_RETRIED = (ApiError, Unreachable, TimeoutError, InvalidInput)  # an invalid IPPool may be repaired
_NOTHING_STORED = (RangeFull, RangeSliced, PoolTooLarge, InvalidInput)


class RunningAdds:
    """The ADDs in progress, by attachment."""

    def __init__(self) -> None:
        self._running: defaultdict[Attachment, set[asyncio.Event]] = defaultdict(set)

    @contextmanager
    def add(self, attachment: Attachment) -> Iterator[asyncio.Event]:
        """Run an ADD; the event is set when its sandbox is deleted meanwhile."""
        deleted = asyncio.Event()
        self._running[attachment].add(deleted)
        try:
            yield deleted
        finally:
            self._running[attachment].discard(deleted)
            if not self._running[attachment]:
                del self._running[attachment]

    def delete(self, attachment: Attachment) -> None:
        """Record that the sandbox is deleted."""
        for deleted in self._running.get(attachment, ()):
            deleted.set()

    def has_other(self, attachment: Attachment, than: asyncio.Event) -> bool:
        """Return whether another ADD runs whose sandbox is not deleted: the runtime sent it again."""
        return any(each is not than and not each.is_set() for each in self._running.get(attachment, ()))


class SharedRangeIPAM:
    """This node's allocations in shared ranges. `slices` are this node's slices: a sliced range is not shared."""

    def __init__(self, deps: AgentDeps, options: AgentOptions, log: SharedRangeLog, slices: Slices) -> None:
        self._deps = deps
        self._third_party = options.third_party_plugins
        self._slices = slices
        self._client = IPPoolClient(deps, namespace=options.whereabouts_namespace)
        self._log = log
        self._resync = SharedRangeResync(deps, self._client, log)
        self._cooldown = SharedCooldown(deps.clock, cooldown=deps.settings.cooldown_roomy)
        self._batchers: dict[PoolIdentifier, IPPoolBatcher] = {}
        self._adds = RunningAdds()
        self._deleting = ReleasesInProgress()
        self._release_pending = asyncio.Event()
        self._backoff = Backoff(rng=deps.rng, base=1.0, maximum=MAX_RETRY_DELAY)

    async def run(self) -> None:
        """Do pending releases and restore lost entries, until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._log.run())
            group.create_task(self._resync.run())
            group.create_task(self._run_pending_releases())
            group.create_task(self._release_earlier_boots())

    async def _release_earlier_boots(self) -> None:
        """Release what sandboxes of earlier boots have, when the cooldown since the boot has passed."""
        await asyncio.sleep(max(self._deps.settings.cooldown_roomy - self._deps.clock.boot(), 0.0))
        ended = [each for each in self._log.allocations.values() if self._log.is_of_earlier_boot(each)]
        if ended:
            event = "releasing addresses of shared ranges of sandboxes that ended with an earlier boot"
            self._deps.log.info(event, count=len(ended))
        for each in ended:
            self._put_pending(each)

    async def _run_pending_releases(self) -> None:
        while True:
            pending = [each for each in self._log.allocations.values() if each.releasing]
            error = await self._release_all(pending)
            if error:
                reason = _retry_reason(error)
                self._deps.log.warning(
                    "cannot release addresses of shared ranges, retrying", count=len(pending), reason=reason
                )
                await self._backoff.wait()
            else:
                self._backoff.reset()
                self._release_pending.clear()
                if not any(each.releasing for each in self._log.allocations.values()):
                    await self._release_pending.wait()

    async def _release_all(self, pending: Iterable[SharedAllocation]) -> Exception | None:
        """Release what is possible, those of a range with one patch; return why the rest was not."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._try_release(each)) for each in pending]
        return next(filter(None, (each.result() for each in tasks)), None)

    async def _try_release(self, pending: SharedAllocation) -> Exception | None:
        if self._log.allocations.get(pending.attachment) == pending:  # no ADD since
            try:
                await self._release(pending)
            except _RETRIED as error:
                return error
        return None

    async def allocate(self, request: AddressRequest) -> tuple[Address, ...]:
        """Return one address per range, or raise `CniError` with none allocated."""
        self._reject_sliced(request)
        if request.attachment in self._deleting:
            raise _cni_error(ReleasedWhileWaiting())
        before, allocation = self._log.allocations.get(request.attachment), self._put_new(request)
        stored: dict[str, Address] = {}
        with self._adds.add(request.attachment) as deleted:
            await self._sync_log(request, deleted)
            try:
                for range_ in request.ranges:
                    stored[str(range_.prefix)] = await self._allocate_from(range_, request)
                    if deleted.is_set():
                        raise ReleasedWhileWaiting
            except PodpoolError as error:
                if not self._adds.has_other(request.attachment, than=deleted):
                    nothing_stored = isinstance(error, _NOTHING_STORED) and not stored and before is None
                    await self._undo(allocation, error, nothing_stored=nothing_stored)
                raise _cni_error(error) from error
        ranges, addresses = dict.fromkeys((*stored, *allocation.ranges)), map(str, stored.values())
        self._log.put(msgspec.structs.replace(allocation, ranges=tuple(ranges), addresses=tuple(addresses)))
        return tuple(stored[str(each.prefix)] for each in request.ranges)

    async def _sync_log(self, request: AddressRequest, deleted: asyncio.Event) -> None:
        """Sync what an ADD is about to have: after a power failure it is found in the log, and released."""
        try:
            async with asyncio.timeout(self._time_left(request)):
                await self._log.sync()
        except TimeoutError:
            message = "the log of shared ranges could not be synced in time: check the disk of the node"
            raise CniError(ErrorCode.TRY_AGAIN_LATER, message) from None
        if deleted.is_set():
            raise _cni_error(ReleasedWhileWaiting())

    async def _undo(self, allocation: SharedAllocation, error: PodpoolError, *, nothing_stored: bool) -> None:
        """Release what a failed ADD may have stored. What an earlier ADD of the sandbox has stays, until its DEL."""
        known = self._log.allocations.get(allocation.attachment)
        if known and known.addresses:
            return
        if nothing_stored:
            self._log.remove(allocation.attachment)
        else:
            await self._defer_release(allocation, error)

    def _put_new(self, request: AddressRequest) -> SharedAllocation:
        """Log what an interface is about to have, and return it. What an earlier ADD has logged stays in the log."""
        known, boot_id = self._log.allocations.get(request.attachment), self._deps.boot_id
        new = msgspec.structs.replace(_allocation(request), boot_id=boot_id, added=self._deps.clock.boot())
        if known and known.network_name == new.network_name:
            new = _repeated(known, new)
        elif known and known.addresses and not known.releasing:
            return new  # logged when it is allocated: a record is of one network
        self._log.put(new)
        return new

    async def _allocate_from(self, range_: RangeConfig, request: AddressRequest) -> Address:
        prefix, batcher = range_.prefix, self._batcher(range_.prefix, request.config)
        try:
            async with asyncio.timeout(self._time_left(request)):
                address = await self._process(batcher, PoolRequest(request.owner, request.config, range_))
        except TimeoutError:
            reason = batcher.last_error or "too many concurrent writers"
            message = f"the IPPool of {prefix} could not be written in time: {reason}"
            raise CniError(ErrorCode.TRY_AGAIN_LATER, message) from None
        if address is None:
            raise CniError(ErrorCode.TRY_AGAIN_LATER, f"no address of {prefix} was allocated")
        return address

    def _reject_sliced(self, request: AddressRequest) -> None:
        """Reject ranges of which this node has slices, whatever the API server shows; a repeated ADD is served."""
        known = self._log.allocations.get(request.attachment)
        for range_ in () if known and known.addresses else request.ranges:
            slice_ = next(self._slices.overlapping(request.config.network_name, range_.prefix), None)
            if slice_:
                raise _cni_error(RangeSliced(range_.prefix, f"slice {slice_.prefix} of this node"))

    def on_restored(self) -> None:
        """Check for lost entries: the API server was restored from an older backup."""
        self._resync.nudge()

    async def release(self, attachment: Attachment, request: AddressRequest | None = None) -> None:
        """Release what an interface has in every range, now or later."""
        self._adds.delete(attachment)
        allocation = _allocation_to_release(self._log.allocations.get(attachment), request)
        if allocation:
            with self._deleting.mark(attachment):
                await self._release_or_defer(allocation)

    def has_address(self, attachment: Attachment) -> bool:
        """Return whether an interface has, or may have, an entry in any range that is not to be released."""
        allocation = self._log.allocations.get(attachment)
        return bool(allocation and not allocation.releasing)

    def schedule_release(self, attachment: Attachment, request: AddressRequest | None = None) -> None:
        """Log that it is to be released."""
        self._adds.delete(attachment)
        allocation = _allocation_to_release(self._log.allocations.get(attachment), request)
        if allocation:
            self._put_pending(allocation)

    def interfaces(self) -> Iterator[SandboxInterface]:
        """Iterate over the interfaces of this boot that have entries, or may have."""
        for attachment, each in self._log.allocations.items():
            ended = each.releasing or self._log.is_of_earlier_boot(each)
            if not ended and attachment not in self._log.being_released:
                yield SandboxInterface(
                    attachment=attachment,
                    pod=each.podref,
                    pod_uid=each.pod_uid,
                    netns=each.netns,
                    added=each.added,
                    addresses=each.addresses,
                )

    async def check(self, request: AddressRequest) -> tuple[Address, ...]:
        """Return what the interface has in each range; raises `CniError`."""
        try:
            async with asyncio.timeout(self._time_left(request)):
                pools = await self._client.list_pools()
            return tuple(_allocated(pools, each.prefix, request) for each in request.ranges)
        except _RETRIED as error:
            raise _cni_error(error) from error

    async def collect_garbage(self, network: str, valid: frozenset[Attachment]) -> None:
        """Release what this agent allocated to attachments that are not valid any more."""
        for allocation in [each for each in self._log.allocations.values() if each.network == network]:
            if allocation.attachment not in valid:
                event, sandbox = "sandbox is gone, releasing its addresses of shared ranges", allocation.attachment
                self._deps.log.info(event, sandbox=sandbox.container_id, pod=allocation.podref)
                await self.release(allocation.attachment)

    async def _release_or_defer(self, allocation: SharedAllocation) -> None:
        try:
            await self._release(allocation)
        except _RETRIED as error:
            await self._defer_release(allocation, error)

    async def _release(self, allocation: SharedAllocation) -> None:
        """Release in every range, also if one fails; then remove the allocation from the log."""
        attachment = allocation.attachment
        config = IpamConfig(
            name=allocation.network, network_name=allocation.network_name, overlap_checked=allocation.reserved
        )
        owner = PodInterface(podref=allocation.podref, container_id=attachment.container_id, ifname=attachment.ifname)
        known = self._log.allocations.get(attachment)
        with self._log.being_released.mark(attachment):
            async with asyncio.timeout(DEL_TIMEOUT):
                await self._resync.wait_until_written()
                await gather_all(*(self._release_from(each, PoolRequest(owner, config)) for each in allocation.ranges))
        if self._log.allocations.get(attachment) == known:  # no ADD since
            self._log.remove(attachment)

    async def _release_from(self, range_: str, request: PoolRequest) -> None:
        try:
            batcher = self._batcher(parse_prefix(range_), request.config)
        except InvalidInput:
            return  # a pool without a valid name cannot exist
        await self._process(batcher, request)

    async def _defer_release(self, allocation: SharedAllocation, error: Exception) -> None:
        """Log the release durably: it is done later, also after a restart or reboot."""
        sandbox, reason = allocation.attachment.container_id, _retry_reason(error)
        event = "release of addresses of shared ranges deferred"
        self._deps.log.warning(event, sandbox=sandbox, pod=allocation.podref, reason=reason)
        self._put_pending(allocation)
        await self._log.sync()

    def _put_pending(self, allocation: SharedAllocation) -> None:
        self._log.put(msgspec.structs.replace(allocation, releasing=True))
        self._release_pending.set()

    def _batcher(self, prefix: Prefix, config: IpamConfig) -> IPPoolBatcher:
        identifier = PoolIdentifier(range=prefix, network=config.network_name)
        batcher = self._batchers.get(identifier)
        if batcher is None:
            _ = identifier.name  # raises InvalidInput if no object can have this name
            batcher = self._batchers[identifier] = IPPoolBatcher(
                self._deps, identifier, self._client, self._log, self._cooldown, third_party=self._third_party
            )
        return batcher

    async def _process(self, batcher: IPPoolBatcher, request: PoolRequest) -> Address | None:
        """Process a request, then drop idle batchers: a caller awaits nothing between `_batcher` and this."""
        try:
            return await batcher.process(request)
        finally:
            for identifier in [identifier for identifier, each in self._batchers.items() if each.idle]:
                del self._batchers[identifier]

    def _time_left(self, request: AddressRequest) -> float:
        return max(request.deadline - self._deps.clock.boot(), 0.0)


def _allocation(request: AddressRequest) -> SharedAllocation:
    """Return what an interface has, or is about to have."""
    return SharedAllocation(
        attachment=request.attachment,
        podref=request.owner.podref,
        network=request.config.name,
        network_name=request.config.network_name,
        ranges=tuple(dict.fromkeys(str(each.prefix) for each in request.ranges)),
        reserved=request.config.overlap_checked,
        pod_uid=request.pod_uid,
        netns=request.netns,
    )


def _allocation_to_release(known: SharedAllocation | None, request: AddressRequest | None) -> SharedAllocation | None:
    """Return where to release: in the ranges of the ADD, and in those of the present configuration."""
    requested = _allocation(request) if request and request.ranges else None
    if known is None or requested is None or known.network_name != requested.network_name:
        return known or requested
    return _with_ranges(known, known, requested)


def _repeated(known: SharedAllocation, new: SharedAllocation) -> SharedAllocation:
    """Return the allocations of a sandbox whose ADD is repeated: it keeps its addresses until the ADD succeeds."""
    addresses = () if known.releasing else known.addresses
    repeated = msgspec.structs.replace(_with_ranges(new, known, new), addresses=addresses)
    return known if known == msgspec.structs.replace(repeated, added=known.added) else repeated


def _with_ranges(allocation: SharedAllocation, *sources: SharedAllocation) -> SharedAllocation:
    """Return an allocation with the ranges of all sources, in their order."""
    ranges = dict.fromkeys(range_ for each in sources for range_ in each.ranges)
    return msgspec.structs.replace(allocation, ranges=tuple(ranges), reserved=any(each.reserved for each in sources))


def _allocated(pools: Mapping[str, IPPool], prefix: Prefix, request: AddressRequest) -> Address:
    pool = pools.get(PoolIdentifier(range=prefix, network=request.config.network_name).name)
    owner = request.owner
    if pool:
        for change in removals(pool.spec, container_id=owner.container_id, ifname=owner.ifname):
            return change.address
    message = f"interface {owner.ifname} of sandbox {owner.container_id} has no address of {prefix}"
    raise CniError(ErrorCode.CHECK_MISMATCH, message)


def _retry_reason(error: Exception) -> str:
    return str(error) or "the IPPool is busy"


def _cni_error(error: Exception) -> CniError:
    """Return an error for the runtime."""
    if isinstance(error, CniError):
        return error
    if isinstance(error, InvalidInput):
        return CniError(ErrorCode.INVALID_CONFIG, str(error))
    return CniError(ErrorCode.TRY_AGAIN_LATER, str(error) or "the API server did not answer in time")
