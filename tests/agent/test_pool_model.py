"""The pool against a plain model: in any order of events no address has two owners or too short a cooldown."""

from collections.abc import Iterable

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from podpool.agent.grant_table import TRANSITIONS, GrantState
from podpool.agent.pool import Pool
from podpool.agent.records import (
    AnyRecord,
    Assigned,
    CooldownForced,
    LostGrantsCleared,
    NCAccepted,
    NCAdopted,
    ReleasePending,
    Started,
    Stopped,
    Unassigned,
)
from podpool.cni.protocol import Attachment
from podpool.core.cooldown_levels import CooldownInForce
from tests.agent.nc_samples import NC, status

attachments = st.sampled_from([Attachment(container_id=each, ifname="eth0") for each in "abcdef"])
addresses = st.lists(st.integers(1, 8), unique=True, max_size=8)
COOLDOWN, SHORTEST = 30.0, 5.0
NEVER = -1e9
IN_FORCE = CooldownInForce(level=COOLDOWN, retention=COOLDOWN, shortest=SHORTEST)


class PoolAgainstModel(RuleBasedStateMachine):
    """The model has the last use of each address, the grants pending release, and the assignments."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool()
        self.now, self.boot, self.count = 0.0, 1, 0
        self.version = 0
        self.listed: dict[str, str] = {}
        self.assigned: dict[Attachment, tuple[str, str]] = {}
        self.last_use: dict[str, float] = {}
        self.released: set[str] = set()
        self.ever_unlisted: set[str] = set()
        self.lost: set[str] = set()
        self.forced_at: float | None = None
        self.start()
        self.apply(NCAdopted(nc=NC))

    def apply(self, record: AnyRecord) -> None:
        """Apply a record; every grant that stays changes its state by the transition table."""
        before = self.states()
        self.pool.apply(record)
        for grant, state in self.states().items():
            was = before.get(grant, state)
            assert was is state or state in TRANSITIONS[was]

    def states(self) -> dict[str, GrantState]:
        ids = {each.id for each in self.pool.grants.all()}
        states = {each: self.pool.state_of(each, now=self.now, cooldown=COOLDOWN) for each in ids}
        return {grant: state for grant, state in states.items() if state}

    def start(self) -> None:
        self.apply(Started(boot_id=f"boot-{self.boot}", boot=self.now, wall=self.now))

    @rule(seconds=st.sampled_from([0.0, 1.0, 6.0, 29.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(wanted=addresses, consent=st.booleans())
    def a_newer_status_is_accepted(self, wanted: list[int], consent: bool) -> None:
        """With consent only released grants leave; without, the ledger made a mistake. New grants have new IDs."""
        self.version += 1
        kept = {g: a for g, a in self.listed.items() if g not in self.released} if consent else {}
        for each in wanted:
            address = f"10.0.1.{each}"
            if address not in kept.values():
                self.count += 1
                kept[f"g{self.count}"] = address
        self.ever_unlisted |= set(self.listed) - set(kept)
        self.assume_use({*kept.values()} - {*self.listed.values()})
        self.listed = kept
        self.apply(NCAccepted(nc=status(self.version, kept), at=self.now))

    @rule()
    def an_older_status_is_not_accepted(self) -> None:
        assert not self.pool.accepts(status(self.version - 1, {"old": "10.0.1.1"})) or not self.version

    @rule(attachment=attachments)
    def add(self, attachment: Attachment) -> None:
        free = self.pool.next_available(now=self.now, cooldown=IN_FORCE)
        if attachment in self.assigned or free is None:
            return
        assert free.address not in {address for _, address in self.assigned.values()}
        self.check_cooldown(free.address)
        assert free.id in self.listed
        assert free.id not in self.released | self.ever_unlisted | self.lost
        self.assigned[attachment] = (free.id, free.address)
        self.apply(Assigned(grant=free.id, attachment=attachment))

    def check_cooldown(self, address: str) -> None:
        """The cooldown has passed; or the shortest one, if no other address has been unused for longer."""
        assert self.idle(address) >= SHORTEST
        if self.idle(address) < COOLDOWN:
            free = {grant.address for grant in self.pool.grants.free() if grant.id not in self.lost}
            assert self.idle(address) == max(map(self.idle, free))

    def idle(self, address: str) -> float:
        return self.now - self.last_use.get(address, NEVER)

    def assume_use(self, addresses: Iterable[str]) -> None:
        """A forced cooldown counts for all addresses, also those that are listed later."""
        if self.forced_at is not None:
            self.last_use |= {each: max(self.last_use.get(each, NEVER), self.forced_at) for each in addresses}

    @rule(attachment=attachments)
    def delete(self, attachment: Attachment) -> None:
        assignments, expected = self.pool.assignments_of(attachment), self.assigned.get(attachment)
        assert [each.grant.id for each in assignments] == ([expected[0]] if expected else [])
        for assignment in assignments:
            _, address = self.assigned.pop(attachment)
            self.last_use[address] = self.now
            self.apply(Unassigned(grant=assignment.grant.id, at=self.now))

    @rule(count=st.integers(1, 3))
    def some_are_released(self, count: int) -> None:
        chosen = [
            each for each, _ in zip(self.pool.releasable(now=self.now, cooldown=COOLDOWN), range(count), strict=False)
        ]
        for each in chosen:
            assert each.address not in {address for _, address in self.assigned.values()}
            assert self.idle(each.address) >= COOLDOWN
            assert each.id not in self.lost
        self.released |= {each.id for each in chosen}
        self.apply(ReleasePending(grants=tuple(each.id for each in chosen), version=self.version, boot_id="boot"))

    @rule()
    def a_cooldown_is_forced(self) -> None:
        self.lost |= set(self.listed)  # also what is assigned: its recorded user may be an earlier one
        self.forced_at = self.now
        self.assume_use(self.listed.values())
        self.apply(CooldownForced(at=self.now, lost=tuple(self.listed)))

    @rule(count=st.integers(1, 3))
    def some_lost_grants_are_cleared(self, count: int) -> None:
        cleared = [each for each, _ in zip(self.pool.unassigned_lost(), range(count), strict=False)]
        assert {each.id for each in cleared} <= self.lost
        self.lost -= {each.id for each in cleared}
        self.last_use |= {each.address: self.now for each in cleared}
        self.apply(LostGrantsCleared(grants=tuple(each.id for each in cleared), at=self.now))

    @rule(clean=st.booleans())
    def the_machine_reboots(self, clean: bool) -> None:
        if clean:
            self.apply(Stopped())
        self.boot += 1
        used = {address for _, address in self.assigned.values()} | set(self.last_use)
        self.assigned, self.lost, self.now = {}, set(), 0.0
        self.last_use = dict.fromkeys(used, 0.0)
        self.forced_at = None if clean else 0.0
        self.assume_use(self.listed.values())
        self.start()

    @rule()
    def the_agent_restarts_from_a_snapshot(self) -> None:
        again = Pool()
        again.apply(self.pool.snapshot())
        assert self.pool.snapshot() == again.snapshot()
        self.pool = again
        self.start()

    @invariant()
    def assignments_are_those_of_the_model(self) -> None:
        assert {key: grant for key, (grant, _) in self.assigned.items()} == {
            each.attachment: grant for grant, each in self.pool.assigned.items()
        }

    @invariant()
    def releases_stay_while_they_are_listed(self) -> None:
        assert self.released & set(self.listed) <= set(self.pool.pending_release)

    @precondition(lambda self: self.listed)
    @invariant()
    def everything_listed_is_in_the_pool_or_unusable(self) -> None:
        known = {each for each in self.listed if self.pool.holds(each) or each in self.pool.pending_release}
        assert set(self.listed) == known | set(self.pool.unusable)


TestPoolAgainstModel = PoolAgainstModel.TestCase
TestPoolAgainstModel.settings = settings(stateful_step_count=40)
