"""The pool against a plain model: whatever happens in whatever order, no address has two owners or too little rest."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from podpool.agent.pool import Pool
from podpool.agent.records import (
    Accepted,
    Adopted,
    AnyRecord,
    Assigned,
    Doubted,
    Named,
    Owner,
    Recalled,
    Released,
    Started,
    Stopped,
)
from tests.agent.statuses import CONTAINER, status

owners = st.sampled_from([Owner(container_id=each, ifname="eth0") for each in "abcdef"])
addresses = st.lists(st.integers(1, 8), unique=True, max_size=8)
REST = 30.0


class PoolAgainstModel(RuleBasedStateMachine):
    """The model knows when each address was last in a Pod's hands, which grants were named, and who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool()
        self.now, self.boot, self.count = 0.0, 1, 0
        self.version = 0
        self.listed: dict[str, str] = {}
        self.held: dict[Owner, tuple[str, str]] = {}
        self.last_use: dict[str, float] = {}
        self.named: set[str] = set()
        self.ever_dropped: set[str] = set()
        self.forgotten: set[str] = set()
        self.start()
        self.apply(Adopted(container=CONTAINER))

    def apply(self, record: AnyRecord) -> None:
        self.pool.apply(record)

    def start(self) -> None:
        self.apply(Started(boot_id=f"boot-{self.boot}", boot=self.now, wall=self.now))

    @rule(seconds=st.sampled_from([0.0, 1.0, 29.0, 31.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds

    @rule(wanted=addresses, consent=st.booleans())
    def a_newer_status_comes(self, wanted: list[int], consent: bool) -> None:
        """With consent only named grants leave; without, the ledger made a mistake. New grants have new names."""
        self.version += 1
        kept = {g: a for g, a in self.listed.items() if g not in self.named} if consent else {}
        for each in wanted:
            address = f"10.0.1.{each}"
            if address not in kept.values():
                self.count += 1
                kept[f"g{self.count}"] = address
        self.ever_dropped |= set(self.listed) - set(kept)
        self.listed = kept
        self.apply(Accepted(container=status(self.version, kept), at=self.now))

    @rule()
    def an_older_status_comes(self) -> None:
        assert not self.pool.accepts(status(self.version - 1, {"old": "10.0.1.1"})) or not self.version

    @rule(owner=owners)
    def a_sandbox_asks(self, owner: Owner) -> None:
        free = self.pool.next_free(now=self.now, rest=REST)
        if owner in self.held or free is None:
            return
        assert free.address not in {address for _, address in self.held.values()}
        assert self.last_use.get(free.address, -REST) + REST <= self.now
        assert free.id in self.listed
        assert free.id not in self.named | self.ever_dropped | self.forgotten
        self.held[owner] = (free.id, free.address)
        self.apply(Assigned(grant=free.id, owner=owner))

    @rule(owner=owners)
    def a_sandbox_ends(self, owner: Owner) -> None:
        holdings = self.pool.holdings_of(owner)
        assert [each.grant.id for each in holdings] == ([self.held[owner][0]] if owner in self.held else [])
        for holding in holdings:
            _, address = self.held.pop(owner)
            self.last_use[address] = self.now
            self.apply(Released(grant=holding.grant.id, at=self.now))

    @rule(count=st.integers(1, 3))
    def some_are_named(self, count: int) -> None:
        chosen = [each for each, _ in zip(self.pool.releasable(now=self.now, rest=REST), range(count), strict=False)]
        for each in chosen:
            assert each.address not in {address for _, address in self.held.values()}
            assert self.last_use.get(each.address, -REST) + REST <= self.now
            assert each.id not in self.forgotten
        self.named |= {each.id for each in chosen}
        self.apply(Named(grants=tuple(each.id for each in chosen), version=self.version, boot_id="boot"))

    @rule()
    def the_journal_is_in_doubt(self) -> None:
        held = {grant for grant, _ in self.held.values()}
        self.forgotten |= set(self.listed) - held
        self.last_use |= {address: self.now for grant, address in self.listed.items() if grant not in held}
        self.apply(Doubted(at=self.now, forgotten=tuple(self.listed)))

    @rule(count=st.integers(1, 3))
    def nobody_has_some_of_the_forgotten(self, count: int) -> None:
        recalled = [each for each, _ in zip(self.pool.lost(), range(count), strict=False)]
        assert {each.id for each in recalled} <= self.forgotten
        self.forgotten -= {each.id for each in recalled}
        self.last_use |= {each.address: self.now for each in recalled}
        self.apply(Recalled(grants=tuple(each.id for each in recalled), at=self.now))

    @rule(clean=st.booleans())
    def the_machine_reboots(self, clean: bool) -> None:
        if clean:
            self.apply(Stopped())
        self.boot += 1
        used = {address for _, address in self.held.values()} | set(self.last_use)
        used |= set() if clean else set(self.listed.values())
        self.held, self.forgotten, self.now = {}, set(), 0.0
        self.last_use = dict.fromkeys(used, 0.0)
        self.start()

    @rule()
    def the_agent_restarts_from_a_snapshot(self) -> None:
        again = Pool()
        again.apply(self.pool.snapshot())
        assert self.pool.snapshot() == again.snapshot()
        self.pool = again
        self.start()

    @invariant()
    def who_holds_what_is_known(self) -> None:
        assert {o: g for o, (g, _) in self.held.items()} == {h.owner: g for g, h in self.pool.holdings.items()}

    @invariant()
    def names_stay_while_they_are_listed(self) -> None:
        assert self.named & set(self.listed) <= set(self.pool.named)

    @precondition(lambda self: self.listed)
    @invariant()
    def nothing_listed_is_lost(self) -> None:
        known = {each for each in self.listed if self.pool.knows(each) or each in self.pool.named}
        assert set(self.listed) == known | set(self.pool.left_out)


TestPoolAgainstModel = PoolAgainstModel.TestCase
TestPoolAgainstModel.settings = settings(stateful_step_count=40)
