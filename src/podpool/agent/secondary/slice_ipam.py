"""Assigns addresses of the node's slices from the journal alone: an ADD makes no call to the API server.

Invariants: one record assigns all addresses of an interface, so that after a crash it has all or none. An address cools
down after use; the level depends on how full its slice is, and if a slice has no other address left, the shortest level
applies, first come, first served. While the Node is not confirmed, nothing new is assigned. An ADD waits for what is
missing, and then fails with the reason.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import lru_cache

from podpool.agent.demand import AddQueue, SandboxDeleted
from podpool.agent.deps import MIN_WAIT, AgentDeps, event_or_timeout
from podpool.agent.records import SliceAddress, SliceAssigned, SliceHolder, SliceUnassigned
from podpool.agent.refusal_reasons import fenced_reason
from podpool.agent.sandbox_gc import SandboxInterface
from podpool.agent.secondary.node_slices_reconciler import SliceReconciler
from podpool.agent.secondary.router import AddressRequest
from podpool.agent.secondary.shared_range_journal import SharedRangeLog
from podpool.agent.secondary.slice_ippool_writer import allocation_from_holder
from podpool.agent.secondary.slices import Slice
from podpool.agent.state import AgentState
from podpool.cni.protocol import Attachment, CniError, ErrorCode
from podpool.core.addresses import Address, parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import Prefix, RangeSet
from podpool.whereabouts.config import RangeConfig
from podpool.whereabouts.ippool import allocation_for
from podpool.whereabouts.shared_range import ALWAYS_FITS, allocation_bytes, remaining_bytes
from podpool.whereabouts.slice_assignment import usable_addresses


class SliceIPAM:
    """Assigns addresses of slices. A slice with an address that a sandbox has from the shared range is not used."""

    def __init__(
        self, deps: AgentDeps, state: AgentState, reconciler: SliceReconciler, shared_log: SharedRangeLog
    ) -> None:
        self.queue: AddQueue[AddressRequest, tuple[Address, ...]] = AddQueue()
        self._deps = deps
        self._state = state
        self._reconciler = reconciler
        self._shared_log = shared_log
        self._changed = asyncio.Event()
        self.waiting_pods: set[str] = set()
        """Pods whose ADD found no address: their former sandboxes have none any more."""

    async def allocate(self, request: AddressRequest) -> tuple[Address, ...]:
        """Return one address per range; waits for slices that are being acquired and for cooldowns to end."""
        _check_ranges(request)
        self.serve()
        addresses = self.try_assign(request)
        if addresses is None:
            self.waiting_pods.add(request.owner.podref)
            self._changed.set()
            timeout = min(self._deps.settings.add_timeout, request.deadline - self._deps.clock.boot())
            answer = await self.queue.wait(request.attachment, request, timeout=max(timeout, 0.0))
            if answer is None:
                raise CniError(ErrorCode.TRY_AGAIN_LATER, self._no_address_reason(request))
            if isinstance(answer, SandboxDeleted) or answer != self._assigned(request):
                message = "the sandbox was deleted while it waited for an address"
                raise CniError(ErrorCode.TRY_AGAIN_LATER, message)
            addresses = answer
        self.waiting_pods.discard(request.owner.podref)
        return addresses

    async def release(self, attachment: Attachment, request: AddressRequest | None = None) -> None:
        """Release what an interface has."""
        self.schedule_release(attachment, request)

    def has_address(self, attachment: Attachment) -> bool:
        """Return whether an interface has an address in any range."""
        return bool(self._state.slices.addresses_of(attachment))

    def schedule_release(self, attachment: Attachment, _request: AddressRequest | None = None) -> None:
        """Release what an interface has in any range, and cancel its waiting ADD."""
        self.unassign(self._state.slices.addresses_of(attachment))
        self.queue.cancel(attachment)

    def interfaces(self) -> Iterator[SandboxInterface]:
        """Iterate over the interfaces with addresses by an ADD of this agent."""
        addresses: defaultdict[SliceHolder, list[str]] = defaultdict(list)
        for each, holder in self._state.slices.holders():
            addresses[holder].append(each.address)
        for holder, found in addresses.items():
            if not holder.inferred:
                yield SandboxInterface(
                    attachment=holder.attachment,
                    pod=holder.podref,
                    pod_uid=holder.pod_uid,
                    netns=holder.netns,
                    added=holder.added,
                    addresses=tuple(found),
                )

    async def check(self, request: AddressRequest) -> tuple[Address, ...]:
        """Return what the interface has; raises `CniError`."""
        assigned = self._assigned(request)
        missing = [str(each.prefix) for each, address in zip(request.ranges, assigned, strict=True) if address is None]
        if missing:
            interface = f"interface {request.owner.ifname} of sandbox {request.owner.container_id}"
            raise CniError(ErrorCode.CHECK_MISMATCH, f"{interface} has no address of {', '.join(missing)}")
        return tuple(filter(None, assigned))

    async def collect_garbage(self, network: str, valid: frozenset[Attachment]) -> None:
        """Release what attachments that are not valid have in a CNI network."""
        attachments = [holder.attachment for _, holder in self._state.slices.holders() if holder.network == network]
        for attachment in dict.fromkeys(each for each in attachments if each not in valid):
            event = "sandbox is gone, releasing its addresses of slices"
            self._deps.log.info(event, sandbox=attachment.container_id)
            self.schedule_release(attachment)

    def unassign(self, addresses: tuple[SliceAddress, ...]) -> None:
        """Release addresses, which cool down."""
        if addresses:
            self._state.write(SliceUnassigned(addresses=addresses, at=self._deps.clock.boot()))
            self._notify_reconciler(addresses)

    def try_assign(self, request: AddressRequest) -> tuple[Address, ...] | None:
        """Return what the interface has, and assign what it lacks; None if a range has no address for it."""
        assigned = self._assigned(request)
        if None not in assigned:
            return tuple(filter(None, assigned))
        chosen: dict[str, SliceAddress] = {}
        for range_, address in zip(request.ranges, assigned, strict=True):
            if address is None and str(range_.prefix) not in chosen:
                slice_address = self._choose(request, range_)
                if slice_address is None:
                    return None
                chosen[str(range_.prefix)] = slice_address
        holder = SliceHolder(
            attachment=request.attachment,
            podref=request.owner.podref,
            network=request.config.name,
            pod_uid=request.pod_uid,
            netns=request.netns,
            added=self._deps.clock.boot(),
        )
        self._state.write(SliceAssigned(holder=holder, addresses=tuple(chosen.values())))
        self._notify_reconciler(chosen.values())
        return tuple(
            address or parse_address(chosen[str(range_.prefix)].address)
            for range_, address in zip(request.ranges, assigned, strict=True)
        )

    def serve(self) -> None:
        """Serve waiting requests in their order."""
        for attachment, request in self.queue.waiting().items():
            addresses = self.try_assign(request)
            if addresses is not None:
                self.queue.serve(attachment, addresses)
            self._changed.set()

    async def run(self) -> None:
        """Notify when a cooldown ends that requests wait for, until cancelled; changes call `serve`."""
        while True:
            self._changed.clear()
            now, due = self._deps.clock.boot(), min(self._cooldown_ends(), default=None)
            timeout = asyncio.timeout(None if due is None else max(due - now, MIN_WAIT))
            if not await event_or_timeout(self._changed, timeout):
                self._deps.changes.notify()

    def _cooldown_ends(self) -> Iterator[float]:
        now, shortest = self._deps.clock.boot(), self._deps.settings.cooldown_exhausted
        for request in self.queue.waiting().values():
            for range_ in request.ranges:
                for slice_, members in self._usable_slices(request, range_):
                    at = slice_.next_cooled_down_at(members, cooldown=shortest)
                    if at is not None and at > now:
                        yield at

    def _assigned(self, request: AddressRequest) -> tuple[Address | None, ...]:
        slices, network = self._state.slices, request.config.network_name
        return tuple(
            slices.assigned_to(request.attachment, network=network, range_=each.prefix) for each in request.ranges
        )

    def _choose(self, request: AddressRequest, range_: RangeConfig) -> SliceAddress | None:
        if not self._state.node_fence.is_open():
            return None
        settings, now = self._deps.settings, self._deps.clock.boot()
        for slice_, members in self._usable_slices(request, range_):
            value = slice_.next_free(members, now=now, levels=settings.cooldown_levels)
            if value is not None and _fits_into_pool(slice_, request):
                return slice_.slice_address(value)
        return None

    def _usable_slices(self, request: AddressRequest, range_: RangeConfig) -> Iterator[tuple[Slice, RangeSet]]:
        """Iterate over the slices of a range that may be used, with the addresses that the configuration allows."""
        try:
            for slice_ in self._state.slices.of(request.config.network_name, range_.prefix):
                if self._reconciler.is_usable(slice_) and not self._has_shared_address(slice_):
                    yield slice_, _members(range_, slice_.prefix)
        except InvalidInput as error:
            raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error

    def _has_shared_address(self, slice_: Slice) -> bool:
        return any(address in slice_.prefix for address in self._shared_log.live_addresses(slice_.network))

    def _notify_reconciler(self, addresses: Iterable[SliceAddress]) -> None:
        for assignment in dict.fromkeys(each.assignment for each in addresses):
            slice_ = self._state.slices.get(assignment)
            if slice_:
                self._reconciler.pools.assignments_changed(slice_)

    # Reasons

    def _no_address_reason(self, request: AddressRequest) -> str:
        node, fence = self._deps.node, self._state.node_fence
        if not fence.is_open():
            return fenced_reason(node, fence, self._deps.settings)
        assigned = self._assigned(request)
        lacking = [each for each, address in zip(request.ranges, assigned, strict=True) if address is None]
        return "; ".join(self._range_reason(request, each) for each in lacking if self._choose(request, each) is None)

    def _range_reason(self, request: AddressRequest, range_: RangeConfig) -> str:
        """Return why no slice has an address of a range."""
        network, node = request.config.network_name, self._deps.node
        usable = list(self._usable_slices(request, range_))
        if not usable:
            blocked = next(filter(self._has_shared_address, self._state.slices.of(network, range_.prefix)), None)
            return (
                f"slice {blocked.prefix} is not used yet: a Pod of this node has an address of it from before the "
                "range was divided into slices; it is used when that Pod is deleted"
                if blocked
                else no_slice_reason(node, self._reconciler, network=network, range_=range_)
            )
        slice_, members = usable[0]
        what = f"slice {slice_.prefix} of node {node}"
        if slice_.recovering:
            return (
                f"{what} is being recovered: the agent's journal was lost, and nothing is assigned until the addresses "
                "of all Pods of the node are known"
            )
        if not slice_.confirmed:
            return f"{what} is not confirmed yet: check that podpool's controller is running, and NodeSlices {node}"
        if not _fits_into_pool(slice_, request):
            return f"IPPool {slice_.name} has as many allocations as fit into one object: use a smaller node_slice_size"
        if not members.size:
            return (
                f"{what} has no usable address: all are excluded or outside range_start and range_end: change these, "
                "or node_slice_size"
            )
        shortest = self._deps.settings.cooldown_exhausted
        cooling_down = slice_.cooling_down(now=self._deps.clock.boot(), cooldown=shortest)
        return (
            f"{what} has no free address: {len(slice_.assigned)} assigned, {cooling_down} cooling down, of "
            f"{members.size}: run fewer Pods on this node, or use larger slices (node_slice_size)"
        )


def no_slice_reason(node: str, reconciler: SliceReconciler, *, network: str, range_: RangeConfig) -> str:
    """Return why a node has no slice of a range, and where to look."""
    what = f"node {node} has no slice of {range_.prefix}" + (f" in network {network}" if network else "")
    if not reconciler.informers.synced:
        return (
            f"{what} yet: its agent has not read NodeSlices {node}: check that it can reach the API server, and that "
            "the CRDs are installed (podpool controller install-crds)"
        )
    own = reconciler.informers.own
    assigned = [each for each in own.spec.assignments if each.network == network] if own else []
    for each in [each for each in assigned if each.range == str(range_.prefix)]:
        if each.return_reason:
            return (
                f"{what} any more: {each.slice} is being returned ({each.return_reason}), and no other is assigned yet"
            )
        return f"{what} yet: {each.slice} is assigned, but the controller has not confirmed that the node may use it"
    return (
        f"{what}: if the network's NodeSlicePool in {reconciler.pools.namespace} lacks it, there are more nodes "
        "than slices: use a larger range or smaller slices; if there is no such object, check that podpool's "
        "controller is running, and the Events of the NetworkAttachmentDefinition"
    )


def _check_ranges(request: AddressRequest) -> None:
    """Raise `CniError` for invalid ranges before they wait: `serve` must not fail on one of many requests."""
    try:
        for each in request.ranges:
            _ = each.spec.members
    except InvalidInput as error:
        raise CniError(ErrorCode.INVALID_CONFIG, str(error)) from error


@lru_cache(maxsize=64)
def _members(range_: RangeConfig, slice_: Prefix) -> RangeSet:
    """Return what a configuration allows in a slice; raises `InvalidInput`."""
    return usable_addresses(range_.spec, slice_)


def _fits_into_pool(slice_: Slice, request: AddressRequest) -> bool:
    """Return whether the IPPool can hold one more allocation."""
    if len(slice_.assigned) < ALWAYS_FITS:
        return True
    whole = slice_.prefix.range
    allocations = {str(value - whole.first): allocation_from_holder(each) for value, each in slice_.assigned.items()}
    return allocation_bytes(str(whole.size), allocation_for(request.owner)) <= remaining_bytes(allocations)
