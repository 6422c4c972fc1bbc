"""The reconcile call against plain Python: every address in a dictionary, and nothing clever.

What the plain books cannot predict, which addresses and how many when others wait, they bound; all else they know.
Times are whole seconds and the cooldown is 64 of them, so that no rest is rounded.
"""

import ipaddress
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from podpool.ledger.domain.circuit_breaker import BreakerSettings
from podpool.ledger.domain.service import LedgerSettings
from podpool.ledger.errors import StaleTerm
from podpool.ledger.messages import (
    DemandReport,
    InventoryItem,
    NetworkContainerResult,
    NetworkContainerState,
    ReconcileItem,
    ReconcileRequest,
)
from tests.ledger.harness import Leader, LedgerHarness, inventory_item, item, run

COOLDOWN = 64.0
KEPT = 2
MEMBERS = frozenset(str(each) for each in ipaddress.ip_network("10.0.0.0/27").hosts()) - {
    "10.0.0.1",
    "10.0.0.8",
    "10.0.0.9",
}
PATIENT = 30.0
CLUSTERS = ("c1", "c2")
NODES = ("n1", "n2", "n3")


@dataclass
class Plain:
    """One container, as plain Python knows it."""

    state: NetworkContainerState
    short: dict[str, int] = field(default_factory=lambda: {"pods": 0, "buffer": 0})
    since: dict[str, float | None] = field(default_factory=lambda: {"pods": None, "buffer": None})
    asked: float = 0.0

    def held(self) -> dict[str, str]:
        """Address to grant; the primary has none."""
        return {self.state.primary: ""} | {grant.address: grant.id for grant in self.state.grants}


request_fields = st.fixed_dictionaries(
    {
        "cluster": st.sampled_from(CLUSTERS),
        "node": st.sampled_from(NODES),
        "wanted": st.integers(0, 14),
        "release": st.integers(0, 1 << 14),
        "stale": st.booleans(),
        "cooled_seconds": st.sampled_from([0.0, 20.0, 64.0, 100.0]),
        "waiting": st.integers(0, 4),
        "gone": st.sampled_from([False, False, False, True]),
    }
)


class Model(RuleBasedStateMachine):
    """Clusters that ask, let go, repeat, come late, restart and restore."""

    @initialize()
    def begin(self) -> None:
        self.harness = LedgerHarness(
            settings=LedgerSettings(breaker=BreakerSettings(min_lost=1_000))
        )  # plain Python never brakes
        self.harness.subnet(
            "10.0.0.0/27",
            gateway="10.0.0.1",
            excluded_ranges=("10.0.0.8/31",),
            reserved_for_primaries=KEPT,
            cooldown=COOLDOWN,
            cooldown_exhausted=COOLDOWN,
        )
        self.leaders = {cluster: Leader(self.harness, cluster) for cluster in CLUSTERS}
        self.open: dict[tuple[str, str], Plain] = {}
        self.closed: dict[tuple[str, str], NetworkContainerState] = {}
        self.freed: dict[str, float] = {}
        self.names: set[str] = set()
        self.stale: list[str] = []
        self.copy = self.harness.store.image()

    # what plain Python knows

    @property
    def now(self) -> float:
        return self.harness.clock.now

    def holders(self) -> dict[str, tuple[str, str]]:
        return {address: key for key, plain in self.open.items() for address in plain.held()}

    def cooling(self) -> set[str]:
        return {each for each, since in self.freed.items() if self.now - since < COOLDOWN}

    def free(self) -> int:
        return len(MEMBERS) - len(self.holders()) - len(self.cooling())

    def make(self, request: dict[str, object], cluster: str) -> ReconcileItem:
        key = (cluster, str(request["node"]))
        plain = self.open.get(key)
        grants = plain.state.grants if plain else ()
        released = [grant.id for at, grant in enumerate(grants) if int(str(request["release"])) >> at & 1]
        if request["stale"]:
            released += self.stale[-5:]
        return item(
            key[1],
            plain.state if plain else None,
            wanted=int(str(request["wanted"])),
            released=released,
            cooled_seconds=float(str(request["cooled_seconds"])),
            report=DemandReport(waiting=int(str(request["waiting"]))),
            node_gone=bool(request["gone"]) and plain is not None,
        )

    # what happens

    @rule(requests=st.lists(request_fields, min_size=1, max_size=3, unique_by=lambda request: request["node"]))
    def reconcile(self, requests: list[dict[str, object]]) -> None:
        cluster = str(requests[0]["cluster"])
        items = [self.make(request, cluster) for request in requests]
        self.check(cluster, items, list(self.leaders[cluster].reconcile(*items).results))

    def check(self, cluster: str, items: list[ReconcileItem], results: list[NetworkContainerResult]) -> None:
        keys = [(cluster, each.node) for each in items]
        before = {key: self.open[key].state for key in keys if key in self.open}
        for key, each in zip(keys, items, strict=True):
            self.let_go(key, each)
        for key, result in zip(keys, results, strict=True):
            self.take_primary(key, result)
        self.top_up([each for each in zip(keys, items, results, strict=True) if each[0] in self.open])
        for key, each, result in zip(keys, items, results, strict=True):
            self.compare_version(before.get(key), each, result)

    def let_go(self, key: tuple[str, str], each: ReconcileItem) -> None:
        plain = self.open.get(key)
        if plain is None:
            return
        going = [grant for grant in plain.state.grants if each.node_gone or grant.id in each.released]
        for grant in going:
            self.freed[grant.address] = self.now - each.cooled_seconds
            self.stale.append(grant.id)
        left = tuple(grant for grant in plain.state.grants if grant not in going)
        plain.state = NetworkContainerState(
            nc_id=plain.state.nc_id,
            subnet=plain.state.subnet,
            version=plain.state.version,
            primary=plain.state.primary,
            grants=left,
        )
        if each.node_gone:
            self.freed[plain.state.primary] = self.now - each.cooled_seconds
            self.closed[key] = plain.state
            del self.open[key]

    def take_primary(self, key: tuple[str, str], result: NetworkContainerResult) -> None:
        if key in self.open or (result.state and result.state.closed):
            return
        if self.free() <= 0:
            assert result.error is not None
            assert "subnet-full" == result.error.error
            return
        assert result.state is not None
        self.take(result.state.primary)
        bare = NetworkContainerState(
            nc_id=result.state.nc_id, subnet=result.state.subnet, version=0, primary=result.state.primary
        )
        self.open[key] = Plain(bare)

    def take(self, address: str) -> None:
        """An address is given: it is a member, nobody has it, and its rest is over."""
        assert address in MEMBERS
        assert address not in self.holders()
        assert address not in self.cooling()
        self.freed.pop(address, None)

    def top_up(self, asks: list[tuple[tuple[str, str], ReconcileItem, NetworkContainerResult]]) -> None:
        spare = max(0, self.free() - KEPT)
        here = {key for key, _, _ in asks}
        others = [plain for key, plain in self.open.items() if key not in here]
        wanted = granted = 0
        for key, each, result in asks:
            plain = self.open[key]
            assert result.state is not None
            short = max(0, each.wanted - len(plain.state.grants))
            got = len(result.state.grants) - len(plain.state.grants)
            assert 0 <= got <= short
            assert set(plain.state.grants) <= set(result.state.grants)
            self.queue(plain, short, each.report.waiting if each.report else 0)
            wanted, granted = wanted + short, granted + got
        assert granted <= spare
        assert granted >= min(wanted, spare - sum(sum(plain.short.values()) for plain in others))
        for key, _, result in asks:
            self.receive(key, result, others, left=spare - granted)

    def queue(self, plain: Plain, short: int, waiting: int) -> None:
        for_pods = min(short, waiting)
        for kind, amount in (("pods", for_pods), ("buffer", short - for_pods)):
            plain.short[kind] = amount
            since = plain.since[kind]
            plain.since[kind] = (self.now if since is None else since) if amount else None
        plain.asked = self.now

    def receive(self, key: tuple[str, str], result: NetworkContainerResult, others: list[Plain], *, left: int) -> None:
        plain, state = self.open[key], result.state
        assert state is not None
        new = [grant for grant in state.grants if grant not in plain.state.grants]
        for grant in new:
            self.take(grant.address)
            assert grant.id not in self.names
            self.names.add(grant.id)
        if new:
            kind = "pods" if len(new) <= plain.short["pods"] else "buffer"
            assert left >= sum(ahead(other, plain, kind, self.now) for other in others)
        for kind in ("pods", "buffer"):
            served = min(len(new), plain.short[kind])
            plain.short[kind] -= served
            new = new[served:]
            if not plain.short[kind]:
                plain.since[kind] = None
        assert state.shortage == sum(plain.short.values())
        plain.state = state

    def compare_version(
        self, before: NetworkContainerState | None, each: ReconcileItem, result: NetworkContainerResult
    ) -> None:
        if result.state is None:
            return
        if before is None:
            assert result.state.version == (result.state.version if result.state.closed else 1)
            return
        same = (before.primary, before.grants) == (result.state.primary, result.state.grants)
        assert result.state.version == before.version + (0 if same else 1), each

    @rule(seconds=st.integers(0, 40))
    def wait(self, seconds: int) -> None:
        self.harness.advance(float(seconds))

    @rule(cluster=st.sampled_from(CLUSTERS), back=st.integers(0, 3), request=request_fields)
    def late_or_repeated_call(self, cluster: str, back: int, request: dict[str, object]) -> None:
        leader = self.leaders[cluster]
        each = self.make(request, cluster)
        call = ReconcileRequest(cluster=cluster, term=leader.term, number=max(0, leader.number - back), items=(each,))
        answer = run(self.harness.client.reconcile(call))
        assert not answer.changed
        (result,) = answer.results
        plain = self.open.get((cluster, each.node))
        if plain is not None:
            assert result.state is not None
            assert plain.state.grants == result.state.grants
        else:
            assert result.error is not None
            assert "superseded" == result.error.error

    @rule(cluster=st.sampled_from(CLUSTERS), request=request_fields)
    def new_leader(self, cluster: str, request: dict[str, object]) -> None:
        old = self.leaders[cluster]
        self.leaders[cluster] = Leader(self.harness, cluster, known_term=old.term, known_revision=old.known_revision)
        with pytest.raises(StaleTerm):
            old.reconcile(self.make(request, cluster))

    @rule()
    def restart(self) -> None:
        self.move(self.harness.restore(self.harness.store.image()))

    @rule()
    def back_up(self) -> None:
        self.copy = self.harness.store.image()

    @precondition(lambda self: any(self.open))
    @rule(named=st.integers(0, 3))
    def restore(self, named: int) -> None:
        """Exchange the books for an older copy; the clusters list, and what the old copy revived is closed again."""
        self.move(self.harness.restore(self.copy))
        for cluster, leader in self.leaders.items():
            leader.lead()
            mine = {key: plain for key, plain in self.open.items() if key[0] == cluster}
            answer = leader.send_inventory(*(self.listing(key, plain, named) for key, plain in mine.items()))
            assert () == answer.conflicts
            for (key, plain), result in zip(mine.items(), answer.results, strict=True):
                assert result.state is not None
                assert result.state.version > plain.state.version or not leader.inventory_required
                released = {grant.id for grant in plain.state.grants[:named]}
                left = tuple(grant for grant in plain.state.grants if grant.id not in released)
                assert left == result.state.grants or not leader.inventory_required
                self.open[key] = Plain(result.state)
        self.tidy()

    def listing(self, key: tuple[str, str], plain: Plain, named: int) -> InventoryItem:
        released = tuple(grant.id for grant in plain.state.grants[:named])
        return inventory_item(key[1], plain.state, released=released)

    def tidy(self) -> None:
        """Do what a controller does next: compare each container with the ledger."""
        for cluster, leader in self.leaders.items():
            ours = {plain.state.nc_id: plain for key, plain in self.open.items() if key[0] == cluster}
            for record in run(self.harness.client.network_containers(cluster)).network_containers:
                plain = ours.get(record.state.nc_id)
                if plain is None:
                    leader.reconcile_one(item(record.node, record.state, node_gone=True))
                else:
                    plain.state = leader.reconcile_one(item(record.node, record.state, wanted=0))
        self.freed.clear()
        self.harness.advance(COOLDOWN + 1)
        self.copy = self.harness.store.image()

    def move(self, harness: LedgerHarness) -> None:
        self.harness = harness
        for leader in self.leaders.values():
            leader.move_to(harness)

    # what must always hold

    @invariant()
    def one_owner_and_the_count_is_right(self) -> None:
        if not hasattr(self, "open"):
            return
        held = [address for plain in self.open.values() for address in plain.held()]
        assert len(held) == len(set(held))
        assert set(held) <= MEMBERS
        assert len(held) + len(self.cooling()) == self.harness.reserved()

    @invariant()
    def the_books_show_what_was_answered(self) -> None:
        if not hasattr(self, "open"):
            return
        for cluster in CLUSTERS:
            shown = {
                each.node: each.state
                for each in run(self.harness.client.network_containers(cluster)).network_containers
            }
            assert {key[1]: plain.state for key, plain in self.open.items() if key[0] == cluster} == shown


def ahead(other: Plain, plain: Plain, kind: str, now: float) -> int:
    """Count what must be left for another: for its Pods, and for what has waited longer; unless it may have passed."""
    if now - other.asked >= PATIENT:
        return 0
    ours = plain.since[kind]
    amount = 0
    for theirs in ("pods", "buffer"):
        since = other.since[theirs]
        if since is not None and ours is not None and ((theirs, since) < (kind, ours)):
            amount += other.short[theirs]
    return amount


def test_the_ledger_does_what_plain_python_does(backend: str) -> None:
    """On a real server a history takes a second, so that there are fewer."""
    share = 1 if backend == "sqlite" else 4
    examples = settings().max_examples // share
    chosen = settings(stateful_step_count=25, max_examples=examples)
    run_state_machine_as_test(Model, settings=chosen)
