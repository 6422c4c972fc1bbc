"""Slices against a plain model: whatever happens in whatever order, no address has two holders or too little rest.

And none of it asks anybody: the road to the API server of this agent leads nowhere.
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
    SliceCooledDown,
    SliceHolder,
    SliceLeaseSigned,
)
from podpool.agent.secondary.address_source import AddressRequest
from podpool.agent.secondary.slice_ipam import SliceIPAM
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
from tests.agent.secondary.wants import want

V4, V6 = "10.0.0.0/24", "fd00::/120"
SLICES = {V4: "10.0.0.16/29", V6: "fd00::10/125"}
SETTINGS = Settings(
    cooldown=30.0, cooldown_exhausted=5.0, fence=3600.0, confirmation_interval=600.0, node_gc_delay=7200.0
)
RANGES = st.sampled_from([(V4,), (V6,), (V4, V6), (V4, V4)])
EXCLUDES = st.sampled_from([[], ["10.0.0.18/31"], ["10.0.0.16/30", "fd00::14"]])
sandboxes = st.sampled_from("abcdefghij")


class Nowhere:
    """A road that nobody may take."""

    async def send(self, request: Request) -> Response:
        raise AssertionError(request)


class SlicesAgainstModel(RuleBasedStateMachine):
    """The model knows who has which address, when each was last in a Pod's hands, and whether the Node is confirmed."""

    def __init__(self) -> None:
        super().__init__()
        self.clock, self.disk, self.boot, self.leases = SetClock(), MemoryDisk(), 1, 0
        self.taken: dict[str, str] = {}
        self.held: dict[Address, str] = {}
        self.last_use: dict[Address, float] = {}
        self.all_used: dict[str, float] = {}
        self.confirmed = False
        self.signed: set[str] = set()
        """The ranges whose Leases name this boot."""
        self.start()

    def start(self) -> None:
        self.state = AgentState(self.disk, self.clock, fence_limit=SETTINGS.fence)
        self.state.open(boot_id=f"boot-{self.boot}")
        deps = AgentDeps(
            node="one",
            kube=KubeClient(Nowhere()),
            clock=self.clock,
            rng=random.Random(1),  # noqa: S311  seeded
            settings=SETTINGS,
            tell=lambda _sentence: None,
        )
        self.source = SliceIPAM(
            deps, self.state, usable=lambda _slice: True, why=lambda _net, _range: "none", touched=lambda _slice: None
        )

    @property
    def now(self) -> float:
        return self.clock.boot()

    @rule(seconds=st.sampled_from([0.0, 1.0, 4.0, 6.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.clock.pass_time(seconds)

    @rule()
    def the_node_is_confirmed(self) -> None:
        self.state.write(NodeConfirmed(boot=self.now, wall=self.clock.wall(), node_only=True))
        self.confirmed = True

    @rule(range_=st.sampled_from([V4, V6]), found=st.booleans())
    def a_slice_is_taken(self, range_: str, found: bool) -> None:
        if range_ in self.taken:
            return
        self.leases += 1
        first = parse_prefix(SLICES[range_]).at(1)
        entries = {}
        if found and first not in self.held:
            entries = {str(first): SliceHolder(owner=Attachment(container_id="foreign", ifname=range_), found=True)}
            self.held[first] = "foreign"
        self.taken[range_] = f"lease-{self.leases}"
        self.signed.add(range_)
        self.state.write(
            SliceAcquired(
                lease=self.taken[range_],
                name=range_,
                network="",
                range=range_,
                slice=SLICES[range_],
                at=self.now,
                found=entries,
            )
        )

    @rule()
    def leases_are_signed_in_this_boot(self) -> None:
        for range_, lease in self.taken.items():
            self.state.write(SliceLeaseSigned(lease=lease))
            self.signed.add(range_)

    @rule(range_=st.sampled_from([V4, V6]))
    def a_lease_is_lost(self, range_: str) -> None:
        if range_ in self.taken:
            self.state.write(SliceClosed(lease=self.taken.pop(range_)))

    @rule(box=sandboxes, ranges=RANGES, exclude=EXCLUDES)
    def a_sandbox_asks(self, box: str, ranges: tuple[str, ...], exclude: list[str]) -> None:
        asked = self.want(box, ranges, exclude)
        before = dict(self.held)
        self.believe(asked, self.source.try_give(asked), before)

    @rule(box=sandboxes, ranges=RANGES, bytes_=st.integers(0, 400))
    def the_agent_dies_while_it_gives(self, box: str, ranges: tuple[str, ...], bytes_: int) -> None:
        """Nothing was answered: when it asks again it gets everything or nothing, and nobody loses what he has."""
        asked = self.want(box, ranges, [])
        before, self.disk.budget = dict(self.held), bytes_
        try:
            answer = self.source.try_give(asked)
        except DiskDied:
            answer = None
        else:
            self.believe(asked, answer, before)
        self.disk = self.disk.after_kill()
        self.start()
        if answer is None and self.state.slices.slots_of(asked.sandbox):
            self.believe(asked, self.source.try_give(asked), before)

    @rule(box=sandboxes)
    def a_sandbox_ends(self, box: str) -> None:
        self.source.release(Attachment(container_id=box, ifname="net1"))
        self.ended(box)

    @rule(range_=st.sampled_from([V4, V6]))
    def the_foreign_one_ends(self, range_: str) -> None:
        owner = Attachment(container_id="foreign", ifname=range_)
        gone = {parse_address(each.address) for each in self.state.slices.slots_of(owner)}
        self.source.release(owner)
        self.last_use |= dict.fromkeys(gone, self.now)
        self.held = {address: by for address, by in self.held.items() if address not in gone}

    @rule()
    def pools_are_brought_behind(self) -> None:
        """What has rested is as if it had never been used, also after a reboot."""
        for slice_ in self.state.slices:
            slots = slice_.settled((), now=self.now, rest=SETTINGS.cooldown)
            if slots:
                self.state.write(SliceCooledDown(slots=slots))
            for slot in slots:
                self.last_use.pop(parse_address(slot.address), None)

    @rule()
    def the_agent_restarts(self) -> None:
        self.disk = self.disk.after_kill()
        self.start()

    @rule()
    def the_journal_is_made_short(self) -> None:
        again = AgentState(MemoryDisk(), self.clock, fence_limit=SETTINGS.fence)
        again.write(self.state.snapshot())
        assert self.state.snapshot() == again.snapshot()

    @precondition(lambda self: self.taken)
    @rule(clean=st.booleans())
    def the_machine_reboots(self, clean: bool) -> None:
        """What was used rests anew; without a clean stop, every address does."""
        if clean:
            coroutine = self.state.stop()
            try:
                while True:
                    coroutine.send(None)
            except StopIteration:
                pass
        used = {*self.held, *self.last_use}
        self.disk = self.disk.after_kill()
        self.boot, self.clock, self.confirmed = self.boot + 1, SetClock(), False
        self.signed.clear()
        self.held, self.last_use = {}, dict.fromkeys(used, 0.0)
        if not clean:
            self.all_used = dict.fromkeys(self.taken, 0.0)
        self.start()

    @invariant()
    def every_holder_is_known_to_both(self) -> None:
        shown = {parse_address(slot.address): by.owner.container_id for slot, by in self.state.slices.tenants()}
        assert self.held == shown

    def want(self, box: str, ranges: tuple[str, ...], exclude: list[str]) -> AddressRequest:
        sizes = {each: slice_.partition("/")[2] for each, slice_ in SLICES.items()}
        written = [{"range": each, "exclude": exclude, "node_slice_size": sizes[each]} for each in ranges]
        return want(box, ipRanges=written)

    def believe(self, asked: AddressRequest, answer: tuple[Address, ...] | None, before: dict[Address, str]) -> None:
        if answer is None:
            return
        assert len(asked.ranges) == len(answer)
        for wanted, address in zip(asked.ranges, answer, strict=True):
            if before.get(address) == asked.owner.container:
                continue
            assert self.confirmed, "given behind the fence"
            assert address not in before, f"{address} has a holder"
            members = usable_addresses(wanted.allocation, parse_prefix(SLICES[str(wanted.prefix)]))
            assert address.value in members
            assert str(wanted.prefix) in self.taken
            assert str(wanted.prefix) in self.signed, "given in a boot that its Lease does not name"
            listed = [each for stretch in members.ranges for each in range(stretch.first, stretch.last + 1)]
            self.look_at_rest(address, [Address(address.family, each) for each in listed], str(wanted.prefix), before)
            self.held[address] = asked.owner.container

    def look_at_rest(self, address: Address, members: list[Address], range_: str, before: dict[Address, str]) -> None:
        """An address has rested for the cooldown; for the floor, when every other has a holder or rests, too."""

        def rested(each: Address, rest: float) -> bool:
            since = max(self.last_use.get(each, -1e9), self.all_used.get(range_, -1e9))
            return since + rest <= self.now

        assert rested(address, SETTINGS.cooldown_exhausted)
        if not rested(address, SETTINGS.cooldown):
            free = [each for each in members if each not in before]
            assert not any(rested(each, SETTINGS.cooldown) for each in free)

    def ended(self, box: str) -> None:
        gone = [address for address, by in self.held.items() if by == box]
        for address in gone:
            del self.held[address]
            self.last_use[address] = self.now


TestSlicesAgainstModel = SlicesAgainstModel.TestCase
TestSlicesAgainstModel.settings = settings(stateful_step_count=50)
