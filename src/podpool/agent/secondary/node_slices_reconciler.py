"""Reconciles the slices of this node with its NodeSlices: acknowledges, acquires, suspends and returns them.

Invariants:
- The status is written only while NodeSlices is of the Node that reports this boot: whatever a machine of the same name
  wrote stays as it is until the controller has found out which Node it is.
- What the status reports is synced to the journal before. The journal counts: a restored API server gets the whole
  status again.
- An inventory request is answered after a quorum read, and ends every acknowledgement that is not confirmed yet.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from podpool.agent import records
from podpool.agent.deps import AgentDeps, event_or_timeout
from podpool.agent.secondary.node_slices_informer import InventoryRequest, SliceInformers
from podpool.agent.secondary.slice_ippool_writer import IPPoolWriter
from podpool.agent.secondary.slice_lifecycle import (
    Action,
    Facts,
    Listing,
    StatusInputs,
    build_status,
    decide,
    former_ids,
    is_urgent,
    state_of,
    status_patch,
)
from podpool.agent.secondary.slices import Slice
from podpool.agent.state import AgentState
from podpool.api.meta import is_older
from podpool.api.node_slices import NODE_SLICES, Assignment, NodeSlices
from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.core.ranges import parse_prefix
from podpool.kube.backoff import Backoff
from podpool.kube.errors import ApiConflict, ApiError
from podpool.runtime.entropy import new_uuid
from podpool.runtime.logging import OnceLogger
from podpool.runtime.transport import Unreachable

ANSWER_JITTER = 2.0
"""Seconds within which an inventory request is answered: all nodes receive it at once."""
USE_DELAY = 5.0
"""Seconds for which changes of `held` and `inUse` are collected."""
MAX_STEPS = 4
"""Steps of a slice before they are reported: from held over suspended and closed to returned it takes three."""


class Acknowledgement(msgspec.Struct, frozen=True, kw_only=True):
    """The last acknowledgement of an assignment."""

    id: str
    epoch: int
    """How often the fence had opened by then."""
    used_before: bool
    """The controller had confirmed it before: addresses may be in use although the journal lacks the slice."""
    same_boot: bool
    """And in this boot, or in an unknown one."""


class SliceReconciler:
    """Reconciles all slices. `on_change` is called when more addresses may be assignable."""

    def __init__(self, deps: AgentDeps, state: AgentState, namespace: str, *, on_change: Callable[[], None]) -> None:
        self.informers = SliceInformers(deps, namespace, on_change=self._on_object)
        self.pools = IPPoolWriter(
            deps, state, namespace, node_uid=lambda: self.informers.node_uid, on_write=self._nudge
        )
        self._deps = deps
        self._state = state
        self._on_change = on_change
        self._once_log = OnceLogger(deps.log)
        self._acknowledgements: dict[str, Acknowledgement] = {}
        self._request = self._due = InventoryRequest()
        """The last inventory request, and the one that is to be answered now."""
        self._answered = ""
        """The last request for which NodeSlices was read."""
        self._epoch = 0
        self._labelled = ""
        """The UID with which IPPools and Leases are labelled."""
        self._use_changed: float | None = None
        self._changed = asyncio.Event()
        self._backoff = Backoff(rng=deps.rng, base=0.1, maximum=15.0)

    def follow(self, uid: str) -> None:
        """Use NodeSlices of the Node with this UID; empty: no Node reports this boot."""
        if uid != self.informers.uid:
            self.informers.uid = uid
            self._on_object()
        if uid and uid != self._labelled:
            self._labelled = uid
            self.pools.verify()

    def is_usable(self, slice_: Slice) -> bool:
        """Return whether new addresses of a slice may be assigned, as far as NodeSlices is known.

        A slice that is to be returned is used while there is no other one: it is returned when it is not in use.
        """
        if self.informers.own is None:
            return True
        listed = self.informers.assignment(slice_.assignment)
        if listed is None or not listed.confirmed or not listed.return_reason:
            return listed is not None and bool(listed.confirmed)
        others = self._state.slices.of(slice_.network, slice_.range)
        return all(self._is_to_be_returned(each) for each in others)

    def _is_to_be_returned(self, slice_: Slice) -> bool:
        listed = self.informers.assignment(slice_.assignment)
        return listed is None or bool(listed.return_reason)

    async def confirms(self, uid: str) -> bool:
        """Return whether a quorum read shows that the slices of this node are of the Node with this UID.

        Without slices the Node alone is enough.
        """
        found, held = await self.informers.read(), any(not each.closed for each in self._state.slices)
        self._nudge()  # it may show a restore that no watch noticed
        has_slices = held or (found is not None and found.spec.assignments)
        return not has_slices or (found is not None and found.spec.node_uid == uid)

    def on_fence_change(self) -> None:
        """Acknowledge what is suspended, or was not acknowledged while the fence was closed."""
        if self._state.node_fence.is_open() and self._epoch != self._state.slices.epoch:
            self._nudge()

    async def run(self) -> None:
        """Reconcile until cancelled."""
        async with asyncio.TaskGroup() as group:
            for part in (self.informers, self.pools):
                group.create_task(part.run())
            group.create_task(self._run())

    def _nudge(self) -> None:
        self._changed.set()

    def _on_object(self) -> None:
        request = self.informers.request
        if request != self._request:
            self._request = request
            jitter = self._deps.rng.uniform(0.0, ANSWER_JITTER)
            asyncio.get_running_loop().call_later(jitter, self._make_due)
        self._nudge()
        self._on_change()

    def _make_due(self) -> None:
        self._due = self._request
        self._nudge()

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            try:
                wait = await self._reconcile()
            except (ApiError, Unreachable) as error:
                if not isinstance(error, ApiConflict):
                    event = "cannot reconcile NodeSlices, retrying"
                    self._once_log.warning(event, key=NODE_SLICES.plural, error=error)
                await self._backoff.wait()
                continue
            self._once_log.reset(NODE_SLICES.plural)
            self._backoff.reset()
            await event_or_timeout(self._changed, asyncio.timeout(wait))

    async def _reconcile(self) -> float | None:
        """Take all steps and report them; return after how many seconds to do it again."""
        self._epoch = self._state.slices.epoch
        if not (self.informers.synced and self.informers.uid):
            return None
        node_slices = await self._verified() if self.informers.newest else NodeSlices()
        for _ in range(MAX_STEPS):
            if node_slices is None or not await self._step(node_slices):
                break
            node_slices = self.informers.own
        return await self._report(node_slices) if node_slices and node_slices.metadata.name else None

    # Read

    async def _verified(self) -> NodeSlices | None:
        """Return NodeSlices of this Node; by a quorum read if an inventory is due, or if it seems rolled back."""
        found, due, slices = self.informers.own, self._due, self._state.slices
        if found is None:
            return None
        if due.id and due.id not in (self._answered, found.status.inventory):
            await self.informers.read()
            self._acknowledgements = {
                each: msgspec.structs.replace(last, id="") for each, last in self._acknowledgements.items()
            }
            self._answered = due.id
            if due.restored:
                self.pools.verify()
        elif is_older(found.metadata.resource_version, slices.observed.version):
            await self.informers.read()
        found, before = self.informers.own, slices.observed
        if found is None or found.metadata.resource_version == before.version:
            return found
        version, rolled_back = found.metadata.resource_version, before.rolled_back
        if is_older(version, before.version):
            rolled_back = before.version
            event = "NodeSlices is older than before, the API server was restored"
            self._deps.log.warning(event, resource_version=version, previous=before.version)
            self.pools.verify()
        self._state.write(records.NodeSlicesObserved(version=version, rolled_back=rolled_back))
        return found

    # Steps

    async def _step(self, node_slices: NodeSlices) -> bool:
        """Take the next step of every slice; return whether others may follow."""
        listed = {each.id: each for each in node_slices.spec.assignments}
        ids = {**listed, **{each.assignment: None for each in self._state.slices}}
        self._acknowledgements = {each: last for each, last in self._acknowledgements.items() if each in ids}
        stepped, acquired = False, []
        for id_ in ids:
            slice_, assignment = self._state.slices.get(id_), listed.get(id_)
            if slice_ is None and assignment and not self._is_valid(assignment):
                continue
            action = decide(self._facts(id_, node_slices, listed))
            if assignment and action in (Action.ACQUIRE, Action.ACQUIRE_SUSPENDED):
                acquired.append((assignment, action is Action.ACQUIRE))
            elif action is Action.ACKNOWLEDGE:
                self._acknowledge(id_, assignment, node_slices)
            elif slice_:
                self._follow_range(slice_, assignment)
                stepped = await self._change(slice_, action) or stepped
        acquiring = (self._acquire(each, node_slices, confirmed=confirmed) for each, confirmed in acquired)
        results = await asyncio.gather(*acquiring, return_exceptions=True)
        stepped = stepped or True in results
        if stepped:
            self._on_change()
        for each in results:
            if isinstance(each, BaseException):
                raise each
        return stepped

    def _is_valid(self, assignment: Assignment) -> bool:
        try:
            parse_prefix(assignment.range)
            return bool(self.pools.name_of(assignment))
        except InvalidInput as error:
            event = "assignment is invalid, it is ignored"
            self._once_log.warning(event, key=f"{assignment.id} {error}", assignment=assignment.id, error=error)
            return False

    def _facts(self, id_: str, node_slices: NodeSlices, listed: Mapping[str, Assignment]) -> Facts:
        slice_, assignment, slices = self._state.slices.get(id_), listed.get(id_), self._state.slices
        in_use = slice_ is not None and self._in_use(slice_)
        returned = id_ in slices.returned or any(each.id == id_ and each.returned for each in node_slices.status.slices)
        if assignment:
            listing = Listing.RETURNING if assignment.return_reason else Listing.LISTED
        elif id_ in former_ids(node_slices):
            listing = Listing.FORMER
        else:
            replaced = slice_ and any(self._is_new(each) and _overlap(each, slice_) for each in listed.values())
            listing = Listing.REPLACED if replaced else Listing.UNLISTED
        return Facts(
            state=state_of(slice_, returned=returned),
            listing=listing,
            in_use=in_use,
            acknowledgement=self._valid_acknowledgements().get(id_, ""),
            confirmed=assignment.confirmed if assignment else "",
            fence_open=self._state.node_fence.is_open(),
            overlaps=bool(assignment and (not slice_ or slice_.closed) and self._open_overlapping(assignment)),
        )

    def _is_new(self, assignment: Assignment) -> bool:
        slices = self._state.slices
        known = slices.get(assignment.id) or assignment.id in slices.returned
        return not (assignment.return_reason or known) and self._is_valid(assignment)

    def _open_overlapping(self, assignment: Assignment) -> list[Slice]:
        """Return the open slices with some of these addresses: they have the holders."""
        found = self._state.slices.overlapping(assignment.network, parse_prefix(assignment.slice))
        return [each for each in found if not each.closed and each.assignment != assignment.id]

    def _in_use(self, slice_: Slice) -> bool:
        return slice_.in_use(now=self._deps.clock.boot(), cooldown=self._deps.settings.cooldown_roomy)

    def _valid_acknowledgements(self) -> dict[str, str]:
        epoch = self._state.slices.epoch
        return {each: last.id for each, last in self._acknowledgements.items() if last.id and last.epoch == epoch}

    def _acknowledge(self, id_: str, assignment: Assignment | None, node_slices: NodeSlices) -> None:
        before = self._acknowledgements.get(id_) or _history(assignment, node_slices, boot_id=self._deps.boot_id)
        self._acknowledgements[id_] = msgspec.structs.replace(
            before, id=new_uuid(self._deps.rng), epoch=self._state.slices.epoch
        )

    async def _change(self, slice_: Slice, action: Action) -> bool:
        """Change the state of a slice of the journal; return whether it was changed."""
        id_ = slice_.assignment
        match action:
            case Action.RESUME:
                self._deps.log.info("slice is confirmed, its addresses are assigned again", slice=slice_.prefix)
                self._state.write(records.SliceConfirmed(assignment=id_))
                self._acknowledgements.pop(id_, None)
            case Action.SUSPEND:
                event = "NodeSlices does not confirm a slice, Pods keep their addresses, no new ones until it does"
                self._deps.log.warning(event, slice=slice_.prefix)
                self._state.write(records.SliceSuspended(assignment=id_))
            case Action.CLOSE:
                event = "slice is not this Node's any more, Pods keep their addresses, no new ones"
                self._deps.log.warning(event, slice=slice_.prefix)
                self._state.write(records.SliceClosed(assignment=id_))
            case Action.RETURN_IF_UNUSED:
                if not slice_.closed:
                    await self.pools.adopt(slice_)
                if self._in_use(slice_):
                    return False
                self._state.write(records.SliceRemoved(assignment=id_))
                self._deps.log.info("unused slice given back to the controller", slice=slice_.prefix)
                self.pools.delete(slice_.name)
            case _:
                return False
        return True

    def _follow_range(self, slice_: Slice, assignment: Assignment | None) -> None:
        """Record the range that spec names: a range that became larger or smaller may keep its slices."""
        if assignment and assignment.range != str(slice_.range) and self._is_valid(assignment):
            self._state.write(records.SliceRangeChanged(assignment=slice_.assignment, range=assignment.range))
            self.pools.assignments_changed(slice_)
            self._on_change()

    async def _acquire(self, assignment: Assignment, node_slices: NodeSlices, *, confirmed: bool) -> bool:
        """Write a slice to the journal, unless its acknowledgement became invalid meanwhile."""
        id_, prefix, name = assignment.id, parse_prefix(assignment.slice), self.pools.name_of(assignment)
        last = self._acknowledgements.get(id_) or _history(assignment, node_slices, boot_id=self._deps.boot_id)
        same_boot = last.same_boot if last.used_before else None
        holders = await self.pools.take_over(assignment, same_boot=same_boot)
        overlapping = self._open_overlapping(assignment)
        valid = self._state.node_fence.is_open() and self._valid_acknowledgements().get(id_) == assignment.confirmed
        if self._state.slices.get(id_) or (confirmed and (overlapping or not valid)):
            return False
        if last.used_before:
            event = "journal lacks a slice that may be in use, its addresses cool down"
            if last.same_boot:
                event += ", and none is assigned before those of all Pods are known"
            self._deps.log.warning(event, slice=prefix)
        self._state.write(
            records.SliceAcquired(
                assignment=id_,
                name=name,
                network=assignment.network,
                range=assignment.range,
                slice=str(prefix),
                at=self._deps.clock.boot(),
                holders={at: holder for at, holder in holders.items() if not _contains(overlapping, at)},
                confirmed=confirmed,
                closed=bool(overlapping),
                force_cooldown=last.used_before,
                recovering=last.used_before and last.same_boot,
            )
        )
        self._acknowledgements.pop(id_, None)
        return True

    # Report

    async def _report(self, node_slices: NodeSlices) -> float | None:
        """Write the status; return after how many seconds it may differ."""
        inputs = StatusInputs(
            node_uid=self.informers.uid,
            boot_id=self._deps.boot_id,
            inventory=self._answered or node_slices.status.inventory,
            acknowledgements=self._valid_acknowledgements(),
            in_use=self._in_use,
        )
        status = build_status(self._state.slices, node_slices, inputs)
        before, now = node_slices.status, self._deps.clock.boot()
        waits = [each - now for each in self._forced_cooldowns() if each > now]
        if status == before:
            self._use_changed = None
            return min(waits, default=None)
        self._use_changed = now if self._use_changed is None else self._use_changed
        if not is_urgent(before, status) and now < self._use_changed + USE_DELAY:
            return min([*waits, self._use_changed + USE_DELAY - now])
        await self._state.sync()
        try:
            written = await self.informers.write_status(status_patch(status), over=node_slices)
        except ApiConflict:
            await self.informers.read()
            raise
        self._use_changed = None
        if status.rolled_back and status.inventory != before.inventory:
            self._state.write(records.NodeSlicesObserved(version=written.metadata.resource_version))
            self._nudge()
        return min(waits, default=None)

    def _forced_cooldowns(self) -> Iterator[float]:
        """Iterate over the times at which forced cooldowns end."""
        for each in self._state.slices:
            if each.cooldown_forced_at is not None:
                yield each.cooldown_forced_at + self._deps.settings.cooldown_roomy


def _contains(slices: Iterable[Slice], address: str) -> bool:
    return any(parse_address(address) in each.prefix for each in slices)


def _overlap(assignment: Assignment, slice_: Slice) -> bool:
    return assignment.network == slice_.network and parse_prefix(assignment.slice).range.overlaps(slice_.prefix.range)


def _history(assignment: Assignment | None, node_slices: NodeSlices, *, boot_id: str) -> Acknowledgement:
    """Return what NodeSlices shows about the use of a slice before this agent acknowledges it."""
    held = assignment and any(each.held for each in node_slices.status.slices if each.id == assignment.id)
    return Acknowledgement(
        id="",
        epoch=0,
        used_before=bool(assignment and (assignment.confirmed or held)),
        same_boot=node_slices.status.boot_id in ("", boot_id),
    )
