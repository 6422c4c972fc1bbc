"""Slices against a model: in any order of events no address has two holders or too short a cooldown.

No request is sent: the transport of the agent raises.
"""

import random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from podpool.agent.deps import AgentDeps
from podpool.agent.records import (
    NodeConfirmed,
    SliceAcquired,
    SliceClosed,
    SliceConfirmed,
    SliceCooledDown,
    SliceHolder,
    SliceSuspended,
)
from podpool.agent.secondary.node_slices_reconciler import SliceReconciler
from podpool.agent.secondary.router import AddressRequest
from podpool.agent.secondary.shared_range_journal import SharedRangeLog
from podpool.agent.secondary.slice_ipam import SliceIPAM
from podpool.agent.secondary.slice_ippool_writer import IPPoolWriter
from podpool.agent.secondary.slices import Slice
from podpool.agent.state import AgentState
from podpool.cni.protocol import Attachment
from podpool.core.addresses import Address, parse_address
from podpool.core.ranges import parse_prefix
from podpool.core.settings import Settings
from podpool.kube.client import KubeClient
from podpool.runtime.transport import Request, Response
from podpool.whereabouts.slice_assignment import usable_addresses
from tests.agent.clocks import SetClock
from tests.agent.disks import DiskDied, MemoryDisk
from tests.agent.secondary.slice_env import address_request

V4, V6 = "10.0.0.0/24", "fd00::/120"
SLICES = {V4: "10.0.0.16/29", V6: "fd00::10/125"}
SETTINGS = Settings(fence=3600.0, confirmation_interval=600.0, node_gc_delay=7200.0)
RANGES = st.sampled_from([(V4,), (V6,), (V4, V6), (V4, V4)])
EXCLUDES = st.sampled_from([[], ["10.0.0.18/31"], ["10.0.0.16/30", "fd00::14"]])
sandboxes = st.sampled_from("abcdefghij")


class NoTransport:
    """Fails every request."""

    async def send(self, request: Request) -> Response:
        raise AssertionError(request)


class NoPools(IPPoolWriter):
    """Writes nothing."""

    def assignments_changed(self, _slice: Slice) -> None:
        return


class UsableSlices(SliceReconciler):
    """Every slice may be used, whatever NodeSlices lists."""

    def __init__(self, deps: AgentDeps, state: AgentState) -> None:
        super().__init__(deps, state, "kube-system", on_change=lambda: None)
        self.pools = NoPools(deps, state, "kube-system", node_uid=str, on_write=lambda: None)

    def is_usable(self, _slice: Slice) -> bool:
        return True


class SlicesAgainstModel(RuleBasedStateMachine):
    """The model: the holder and the last use of each address, and whether the Node is confirmed."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.disk, self.boot, self.assignments = SetClock(), MemoryDisk(), 1, 0
        self.held_slices: dict[str, str] = {}
        self.holders: dict[Address, str] = {}
        self.last_use: dict[Address, float] = {}
        self.all_used: dict[str, float] = {}
        self.confirmed = False
        self.usable: set[str] = set()
        """The ranges whose slices are confirmed, in this boot and since the fence was closed."""
        self.start()

    def start(self) -> None:
        self.state = AgentState(self.disk, self.clock, fence_limit=SETTINGS.fence)
        self.state.open(boot_id=f"boot-{self.boot}")
        deps = AgentDeps(
            node="one",
            boot_id=f"boot-{self.boot}",
            kube=KubeClient(NoTransport()),
            disk=self.disk,
            clock=self.clock,
            rng=random.Random(1),  # noqa: S311  seeded
            settings=SETTINGS,
        )
        self.ipam = SliceIPAM(deps, self.state, UsableSlices(deps, self.state), SharedRangeLog(deps))

    @property
    def now(self) -> float:
        return self.clock.boot()

    @rule(seconds=st.sampled_from([0.0, 1.0, 4.0, 6.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.pass_time(seconds)

    @rule(reopened=st.booleans())
    def the_node_is_confirmed(self, reopened: bool) -> None:
        """After the fence was closed every slice has to be confirmed anew."""
        reopened = reopened or not self.confirmed
        self.state.write(NodeConfirmed(boot=self.now, wall=self.clock.wall(), node_only=True, reopened=reopened))
        self.confirmed = True
        if reopened:
            self.usable.clear()

    @rule(range_=st.sampled_from([V4, V6]), third_party=st.booleans())
    def a_slice_is_acquired(self, range_: str, third_party: bool) -> None:
        if range_ in self.held_slices:
            return
        self.assignments += 1
        first = parse_prefix(SLICES[range_]).at(1)
        entries = {}
        if third_party and first not in self.holders:
            entries = {
                str(first): SliceHolder(attachment=Attachment(container_id="third-party", ifname=range_), inferred=True)
            }
            self.holders[first] = "third-party"
        self.held_slices[range_] = f"assignment-{self.assignments}"
        self.usable.add(range_)
        self.state.write(
            SliceAcquired(
                assignment=self.held_slices[range_],
                name=range_,
                network="",
                range=range_,
                slice=SLICES[range_],
                at=self.now,
                holders=entries,
                confirmed=True,
            )
        )

    @rule()
    def slices_are_confirmed(self) -> None:
        for range_, assignment in self.held_slices.items():
            self.state.write(SliceConfirmed(assignment=assignment))
            self.usable.add(range_)

    @rule(range_=st.sampled_from([V4, V6]))
    def a_slice_is_suspended(self, range_: str) -> None:
        if range_ in self.held_slices:
            self.state.write(SliceSuspended(assignment=self.held_slices[range_]))
            self.usable.discard(range_)

    @rule(range_=st.sampled_from([V4, V6]))
    def a_slice_is_closed(self, range_: str) -> None:
        if range_ in self.held_slices:
            self.state.write(SliceClosed(assignment=self.held_slices.pop(range_)))

    @rule(box=sandboxes, ranges=RANGES, exclude=EXCLUDES)
    def a_sandbox_is_added(self, box: str, ranges: tuple[str, ...], exclude: list[str]) -> None:
        request = self.request(box, ranges, exclude)
        before = dict(self.holders)
        self.record(request, self.ipam.try_assign(request), before)

    @rule(box=sandboxes, ranges=RANGES, bytes_=st.integers(0, 400))
    def the_agent_is_killed_during_an_add(self, box: str, ranges: tuple[str, ...], bytes_: int) -> None:
        """The ADD was not answered: a repeated one gets all or nothing, and no other holder loses its address."""
        request = self.request(box, ranges, [])
        before, self.disk.budget = dict(self.holders), bytes_
        try:
            answer = self.ipam.try_assign(request)
        except DiskDied:
            answer = None
        else:
            self.record(request, answer, before)
        self.disk = self.disk.after_kill()
        self.start()
        if answer is None and self.state.slices.addresses_of(request.attachment):
            self.record(request, self.ipam.try_assign(request), before)

    @rule(box=sandboxes)
    def a_sandbox_is_deleted(self, box: str) -> None:
        self.ipam.schedule_release(Attachment(container_id=box, ifname="net1"))
        self.forget(box)

    @rule(range_=st.sampled_from([V4, V6]))
    def the_third_party_sandbox_is_deleted(self, range_: str) -> None:
        owner = Attachment(container_id="third-party", ifname=range_)
        gone = {parse_address(each.address) for each in self.state.slices.addresses_of(owner)}
        self.ipam.schedule_release(owner)
        self.last_use |= dict.fromkeys(gone, self.now)
        self.holders = {address: by for address, by in self.holders.items() if address not in gone}

    @rule()
    def pools_are_written(self) -> None:
        """An address that has cooled down counts as never used, also after a reboot."""
        for slice_ in self.state.slices:
            addresses = slice_.cooled_down((), now=self.now, cooldown=SETTINGS.cooldown_roomy)
            if addresses:
                self.state.write(SliceCooledDown(addresses=addresses))
            for each in addresses:
                self.last_use.pop(parse_address(each.address), None)

    @rule()
    def the_agent_restarts(self) -> None:
        self.disk = self.disk.after_kill()
        self.start()

    @rule()
    def the_journal_is_compacted(self) -> None:
        again = AgentState(MemoryDisk(), self.clock, fence_limit=SETTINGS.fence)
        again.write(self.state.snapshot())
        assert self.state.snapshot() == again.snapshot()

    @precondition(lambda self: self.held_slices)
    @rule(clean=st.booleans())
    def the_machine_reboots(self, clean: bool) -> None:
        """Used addresses cool down again; without a clean shutdown every address does."""
        if clean:
            coroutine = self.state.stop()
            try:
                while True:
                    coroutine.send(None)
            except StopIteration:
                pass
        used = {*self.holders, *self.last_use}
        self.disk = self.disk.after_kill()
        self.boot, self.clock, self.confirmed = self.boot + 1, SetClock(), False
        self.usable.clear()
        self.holders, self.last_use = {}, dict.fromkeys(used, 0.0)
        if not clean:
            self.all_used = dict.fromkeys(self.held_slices, 0.0)
        self.start()

    @invariant()
    def holders_agree(self) -> None:
        actual = {parse_address(each.address): by.attachment.container_id for each, by in self.state.slices.holders()}
        assert self.holders == actual

    def request(self, box: str, ranges: tuple[str, ...], exclude: list[str]) -> AddressRequest:
        sizes = {each: slice_.partition("/")[2] for each, slice_ in SLICES.items()}
        ranges_json = [{"range": each, "exclude": exclude, "node_slice_size": sizes[each]} for each in ranges]
        return address_request(box, ipRanges=ranges_json)

    def record(self, request: AddressRequest, answer: tuple[Address, ...] | None, before: dict[Address, str]) -> None:
        if answer is None:
            return
        assert len(request.ranges) == len(answer)
        for range_, address in zip(request.ranges, answer, strict=True):
            if before.get(address) == request.owner.container_id:
                continue
            assert self.confirmed, "assigned while fenced"
            assert address not in before, f"{address} has a holder"
            members = usable_addresses(range_.spec, parse_prefix(SLICES[str(range_.prefix)]))
            assert address.value in members
            assert str(range_.prefix) in self.held_slices
            assert str(range_.prefix) in self.usable, "assigned although it is not confirmed"
            listed = [each for run in members.ranges for each in range(run.first, run.last + 1)]
            self.check_cooldown(address, [Address(address.family, each) for each in listed], str(range_.prefix), before)
            self.holders[address] = request.owner.container_id

    def check_cooldown(self, address: Address, members: list[Address], range_: str, before: dict[Address, str]) -> None:
        """The cooldown has passed; or the shortest one, if every other address is assigned or cooling down too."""

        def cooled_down(each: Address, cooldown: float) -> bool:
            since = max(self.last_use.get(each, -1e9), self.all_used.get(range_, -1e9))
            return since + cooldown <= self.now

        assert cooled_down(address, SETTINGS.cooldown_exhausted)
        free = [each for each in members if each not in before]
        assigned = sum(each in parse_prefix(SLICES[range_]) for each in before)
        unassigned, size = len(members) - assigned, len(members)
        level = 130.0 if unassigned > size / 4 else 30.0 if unassigned >= size / 20 else 5.0
        if not cooled_down(address, level):
            assert not any(cooled_down(each, level) for each in free)

    def forget(self, box: str) -> None:
        gone = [address for address, by in self.holders.items() if by == box]
        for address in gone:
            del self.holders[address]
            self.last_use[address] = self.now


TestSlicesAgainstModel = SlicesAgainstModel.TestCase
TestSlicesAgainstModel.settings = settings(stateful_step_count=50)
