"""The reconcile call against a reference model: every address in a dictionary.

The model predicts every result but which addresses are granted, and how many while others wait: those it bounds.
Times are whole seconds and the cooldown is 64 of them, so that no cooldown is rounded.
"""

import ipaddress
from collections.abc import Collection, Mapping
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

from podpool.core.mass_loss import BreakerSettings
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
RESERVED = 2
MEMBERS = frozenset(str(each) for each in ipaddress.ip_network("10.0.0.0/27").hosts()) - {
    "10.0.0.1",
    "10.0.0.8",
    "10.0.0.9",
}
NOTICE_TIMEOUT = 30.0
QUEUE = ("pods", "buffer")
"""Waiting Pods come before buffers."""
CLUSTERS = ("c1", "c2")
NODES = ("n1", "n2", "n3")


@dataclass
class ModelNC:
    """One NC of the reference model."""

    state: NetworkContainerState
    short: dict[str, int] = field(default_factory=lambda: {"pods": 0, "buffer": 0})
    since: dict[str, float | None] = field(default_factory=lambda: {"pods": None, "buffer": None})
    place: dict[str, float | None] = field(default_factory=lambda: {"pods": None, "buffer": None})
    """Since when it waits if it has lost its place whenever a notice may have expired."""
    asked: float = 0.0
    waiting: int | None = None
    """Of the last report: a report that repeats it is the same."""
    served: int = 0
    """Addresses granted since that report."""

    def held(self) -> dict[str, str]:
        """Return the grants by address; the primary has none."""
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
    """Clusters that request, release, repeat, come late, restart and restore."""

    @initialize()
    def begin(self) -> None:
        self.harness = LedgerHarness(
            settings=LedgerSettings(breaker=BreakerSettings(min_lost=1_000))
        )  # the model has no circuit breaker
        self.harness.subnet(
            "10.0.0.0/27",
            gateway="10.0.0.1",
            excluded_ranges=("10.0.0.8/31",),
            reserved_for_primaries=RESERVED,
            cooldown=COOLDOWN,
            cooldown_exhausted=COOLDOWN,
        )
        self.leaders = {cluster: Leader(self.harness, cluster) for cluster in CLUSTERS}
        self.open: dict[tuple[str, str], ModelNC] = {}
        self.closed: dict[tuple[str, str], NetworkContainerState] = {}
        self.freed: dict[str, float] = {}
        self.names: set[str] = set()
        self.stale: list[str] = []
        self.copy = self.harness.store.image()

    # the model

    @property
    def now(self) -> float:
        return self.harness.clock.now

    def holders(self) -> dict[str, tuple[str, str]]:
        return {address: key for key, model_nc in self.open.items() for address in model_nc.held()}

    def cooling(self) -> set[str]:
        return {each for each, since in self.freed.items() if self.now - since < COOLDOWN}

    def free(self) -> int:
        return len(MEMBERS) - len(self.holders()) - len(self.cooling())

    def make(self, request: dict[str, object], cluster: str) -> ReconcileItem:
        key = (cluster, str(request["node"]))
        model_nc = self.open.get(key)
        grants = model_nc.state.grants if model_nc else ()
        released = [grant.id for at, grant in enumerate(grants) if int(str(request["release"])) >> at & 1]
        if request["stale"]:
            released += self.stale[-5:]
        return item(
            key[1],
            model_nc.state if model_nc else None,
            wanted=int(str(request["wanted"])),
            released=released,
            cooled_seconds=float(str(request["cooled_seconds"])),
            report=DemandReport(waiting=int(str(request["waiting"]))),
            node_gone=bool(request["gone"]) and model_nc is not None,
        )

    # rules

    @rule(requests=st.lists(request_fields, min_size=1, max_size=3, unique_by=lambda request: request["node"]))
    def reconcile(self, requests: list[dict[str, object]]) -> None:
        cluster = str(requests[0]["cluster"])
        items = [self.make(request, cluster) for request in requests]
        self.check(cluster, items, list(self.leaders[cluster].reconcile(*items).results))

    def check(self, cluster: str, items: list[ReconcileItem], results: list[NetworkContainerResult]) -> None:
        keys = [(cluster, each.node) for each in items]
        before = {key: self.open[key].state for key in keys if key in self.open}
        for key, each in zip(keys, items, strict=True):
            self.release(key, each)
        for key, result in zip(keys, results, strict=True):
            self.take_primary(key, result)
        self.top_up([each for each in zip(keys, items, results, strict=True) if each[0] in self.open])
        for key, each, result in zip(keys, items, results, strict=True):
            self.compare_version(before.get(key), each, result)

    def release(self, key: tuple[str, str], each: ReconcileItem) -> None:
        model_nc = self.open.get(key)
        if model_nc is None:
            return
        going = [grant for grant in model_nc.state.grants if each.node_gone or grant.id in each.released]
        for grant in going:
            self.freed[grant.address] = self.now - each.cooled_seconds
            self.stale.append(grant.id)
        left = tuple(grant for grant in model_nc.state.grants if grant not in going)
        model_nc.state = NetworkContainerState(
            nc_id=model_nc.state.nc_id,
            subnet=model_nc.state.subnet,
            version=model_nc.state.version,
            primary=model_nc.state.primary,
            grants=left,
        )
        if each.node_gone:
            self.freed[model_nc.state.primary] = self.now - each.cooled_seconds
            self.closed[key] = model_nc.state
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
        self.open[key] = ModelNC(bare)

    def take(self, address: str) -> None:
        """Record a grant: the address is a member, has no owner, and has cooled down."""
        assert address in MEMBERS
        assert address not in self.holders()
        assert address not in self.cooling()
        self.freed.pop(address, None)

    def top_up(self, waiters: list[tuple[tuple[str, str], ReconcileItem, NetworkContainerResult]]) -> None:
        spare = max(0, self.free() - RESERVED)
        here = {key for key, _, _ in waiters}
        others = [model_nc for key, model_nc in self.open.items() if key not in here]
        wanted = granted = 0
        for key, each, result in waiters:
            model_nc = self.open[key]
            assert result.state is not None
            short = max(0, each.wanted - len(model_nc.state.grants))
            got = len(result.state.grants) - len(model_nc.state.grants)
            assert 0 <= got <= short
            assert set(model_nc.state.grants) <= set(result.state.grants)
            self.queue(model_nc, short, each.report.waiting if each.report else 0)
            wanted, granted = wanted + short, granted + got
        assert granted <= spare
        assert granted >= min(wanted, spare - sum(sum(model_nc.short.values()) for model_nc in others))
        held = {cluster: sum(1 for owner, _ in self.holders().values() if owner == cluster) for cluster in CLUSTERS}
        for key, _, result in waiters:
            self.check_turn(key, result, here, held=held, left=spare - granted)
        for key, _, result in waiters:
            self.receive(key, result)

    def queue(self, model_nc: ModelNC, short: int, waiting: int) -> None:
        if waiting != model_nc.waiting:
            model_nc.waiting, model_nc.served = waiting, 0
        for_pods = min(short, max(0, waiting - model_nc.served))
        skipped = self.now - model_nc.asked >= NOTICE_TIMEOUT
        for kind, amount in (("pods", for_pods), ("buffer", short - for_pods)):
            model_nc.short[kind] = amount
            since = model_nc.since[kind]
            place = self.now if since is None or skipped else model_nc.place[kind]
            model_nc.since[kind] = (self.now if since is None else since) if amount else None
            model_nc.place[kind] = place if amount else None
        model_nc.asked = self.now

    def check_turn(
        self,
        key: tuple[str, str],
        result: NetworkContainerResult,
        here: Collection[tuple[str, str]],
        *,
        held: Mapping[str, int],
        left: int,
    ) -> None:
        """Check that enough is left for the NCs ahead in the cluster, and for other clusters up to what it held."""
        model_nc, state = self.open[key], result.state
        assert state is not None
        new = len(state.grants) - len(model_nc.state.grants)
        if not new:
            return
        kind = "pods" if new <= model_nc.short["pods"] else "buffer"
        others = {other: each for other, each in self.open.items() if other not in here}
        own = sum(ahead(each, model_nc, kind, self.now) for other, each in others.items() if other[0] == key[0])
        foreign = 0
        for cluster in set(CLUSTERS) - {key[0]}:
            theirs = [each for other, each in others.items() if other[0] == cluster]
            waiting = sum(in_queue(each, kind, self.now) for each in theirs)
            before = sum(in_queue(each, "pods", self.now) for each in theirs) if kind == "buffer" else 0
            foreign += before + min(waiting, max(0, held[key[0]] - held[cluster] - before))
        assert left >= own + foreign

    def receive(self, key: tuple[str, str], result: NetworkContainerResult) -> None:
        model_nc, state = self.open[key], result.state
        assert state is not None
        new = [grant for grant in state.grants if grant not in model_nc.state.grants]
        for grant in new:
            self.take(grant.address)
            assert grant.id not in self.names
            self.names.add(grant.id)
        model_nc.served += len(new)
        for kind in QUEUE:
            served = min(len(new), model_nc.short[kind])
            model_nc.short[kind] -= served
            new = new[served:]
            if not model_nc.short[kind]:
                model_nc.since[kind] = model_nc.place[kind] = None
        assert state.shortage == sum(model_nc.short.values())
        model_nc.state = state

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
    def late_or_repeated_request(self, cluster: str, back: int, request: dict[str, object]) -> None:
        leader = self.leaders[cluster]
        each = self.make(request, cluster)
        call = ReconcileRequest(cluster=cluster, term=leader.term, number=max(0, leader.number - back), items=(each,))
        response = run(self.harness.client.reconcile(call))
        assert not response.changed
        (result,) = response.results
        model_nc = self.open.get((cluster, each.node))
        if model_nc is not None:
            assert result.state is not None
            assert model_nc.state.grants == result.state.grants
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
        """Restore an older copy; the clusters send inventories, and NCs that the copy revived are closed again."""
        self.move(self.harness.restore(self.copy))
        for cluster, leader in self.leaders.items():
            leader.lead()
            mine = {key: model_nc for key, model_nc in self.open.items() if key[0] == cluster}
            response = leader.send_inventory(*(self.inventory_item(key, each, named) for key, each in mine.items()))
            assert () == response.conflicts
            for (key, model_nc), result in zip(mine.items(), response.results, strict=True):
                assert result.state is not None
                assert result.state.version > model_nc.state.version or not leader.inventory_required
                released = {grant.id for grant in model_nc.state.grants[:named]}
                left = tuple(grant for grant in model_nc.state.grants if grant.id not in released)
                assert left == result.state.grants or not leader.inventory_required
                self.open[key] = ModelNC(result.state)
        self.tidy()

    def inventory_item(self, key: tuple[str, str], model_nc: ModelNC, named: int) -> InventoryItem:
        released = tuple(grant.id for grant in model_nc.state.grants[:named])
        return inventory_item(key[1], model_nc.state, released=released)

    def tidy(self) -> None:
        """Compare each NC with the ledger, as a controller does next."""
        for cluster, leader in self.leaders.items():
            ours = {model_nc.state.nc_id: model_nc for key, model_nc in self.open.items() if key[0] == cluster}
            for record in run(self.harness.client.network_containers(cluster)).network_containers:
                model_nc = ours.get(record.state.nc_id)
                if model_nc is None:
                    leader.reconcile_one(item(record.node, record.state, node_gone=True))
                else:
                    model_nc.state = leader.reconcile_one(item(record.node, record.state, wanted=0))
        self.freed.clear()
        self.harness.advance(COOLDOWN + 1)
        self.copy = self.harness.store.image()

    def move(self, harness: LedgerHarness) -> None:
        self.harness = harness
        for leader in self.leaders.values():
            leader.move_to(harness)

    # invariants

    @invariant()
    def one_owner_and_matching_counters(self) -> None:
        if not hasattr(self, "open"):
            return
        held = [address for model_nc in self.open.values() for address in model_nc.held()]
        assert len(held) == len(set(held))
        assert set(held) <= MEMBERS
        assert len(held) + len(self.cooling()) == self.harness.reserved()

    @invariant()
    def database_equals_the_responses(self) -> None:
        if not hasattr(self, "open"):
            return
        for cluster in CLUSTERS:
            shown = {
                each.node: each.state
                for each in run(self.harness.client.network_containers(cluster)).network_containers
            }
            assert {key[1]: model_nc.state for key, model_nc in self.open.items() if key[0] == cluster} == shown


def ahead(other: ModelNC, model_nc: ModelNC, kind: str, now: float) -> int:
    """Return what must be left for another NC, for its Pods and what has waited longer; 0 if it may be skipped.

    An NC that may have lost its place counts from its next request; this one from its first.
    """
    if now - other.asked >= NOTICE_TIMEOUT:
        return 0
    ours = model_nc.since[kind]
    amount = 0
    for theirs in QUEUE:
        since = other.place[theirs]
        if since is not None and ours is not None and ((QUEUE.index(theirs), since) < (QUEUE.index(kind), ours)):
            amount += other.short[theirs]
    return amount


def in_queue(other: ModelNC, kind: str, now: float) -> int:
    """Return what an NC lacks, if it certainly has its place in the queue."""
    return 0 if now - other.asked >= NOTICE_TIMEOUT or other.place[kind] is None else other.short[kind]


def request_of(cluster: str, node: str, wanted: int, *, waiting: int = 0, release: int = 0) -> dict[str, object]:
    """Return a request; `release` has a bit for each grant, whose cooldown is over."""
    fields = {"cluster": cluster, "node": node, "wanted": wanted, "release": release, "waiting": waiting}
    return fields | {"stale": False, "cooled_seconds": COOLDOWN, "gone": False}


@pytest.mark.parametrize("absent_seconds", [10, 40])
def test_model_follows_the_queue_while_an_nc_does_not_react_to_its_notice(backend: str, absent_seconds: int) -> None:  # noqa: ARG001  selects the database
    """The absent NC keeps its place for a while, then it queues again: random runs reach this too rarely."""
    model = Model()
    model.begin()
    for cluster, node, wanted in (("c1", "n1", 14), ("c1", "n2", 9), ("c1", "n3", 0), ("c1", "n4", 0)):
        model.reconcile([request_of(cluster, node, wanted)])
    model.reconcile([request_of("c1", "n3", 4, waiting=4)])
    model.wait(1)
    model.reconcile([request_of("c1", "n1", 11, release=0b111)])
    model.wait(absent_seconds)
    for cluster, node in (("c1", "n4"), ("c1", "n3")):
        model.reconcile([request_of(cluster, node, 4, waiting=4)])
        model.wait(1)
    model.reconcile([request_of("c1", "n1", 9, release=0b11)])
    for cluster, node in (("c1", "n4"), ("c1", "n3")):
        model.reconcile([request_of(cluster, node, 4, waiting=4)])
    served = {key: len(model.open[key].state.grants) for key in (("c1", "n3"), ("c1", "n4"))}
    assert served == (
        {("c1", "n3"): 3, ("c1", "n4"): 0} if absent_seconds == 10 else {("c1", "n3"): 0, ("c1", "n4"): 3}
    )


def test_ledger_equals_the_reference_model(backend: str) -> None:
    """A run takes a second on PostgreSQL, so there are fewer."""
    share = 1 if backend == "sqlite" else 4
    examples = settings().max_examples // share
    chosen = settings(stateful_step_count=25, max_examples=examples)
    run_state_machine_as_test(Model, settings=chosen)


def test_ledger_equals_the_reference_model_with_random_seeds(backend: str) -> None:
    """CI runs the same examples each time; these are new ones, and a failure prints how to repeat it."""
    examples = settings().max_examples // (4 if backend == "sqlite" else 16)
    chosen = settings(
        stateful_step_count=25, max_examples=max(1, examples), derandomize=False, database=None, print_blob=True
    )
    run_state_machine_as_test(Model, settings=chosen)
