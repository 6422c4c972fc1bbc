"""A model test: the history of every time equals the state of the database at that time."""

import datetime as dt

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from podpool.ledger.messages import NetworkContainerState, SubnetGrowth
from tests.ledger.harness import SUBNET, Leader, LedgerHarness, ids, item, run

NODES = ("n1", "n2", "n3", "n4")
GROWTHS = ("10.0.0.0/26", "10.1.0.0/28", "10.0.0.0/24")
WISHES = st.dictionaries(st.sampled_from(NODES), st.tuples(st.integers(0, 12), st.integers(0, 9)), min_size=1)
"""Nodes, with how many addresses each wants and releases."""
Owners = dict[str, tuple[str, str, str]]
"""Cluster, node and NC by address."""


class HistoryModel(RuleBasedStateMachine):
    """Two clusters on a subnet that grows, drains and reopens."""

    @initialize()
    def begin(self) -> None:
        self.harness = LedgerHarness()
        self.harness.subnet("10.0.0.0/27", reserved_for_primaries=1, cooldown=10.0, cooldown_exhausted=2.0)
        self.leaders = [Leader(self.harness, cluster) for cluster in ("c1", "c2")]
        self.states: dict[tuple[str, str], NetworkContainerState] = {}
        self.shown: dict[float, Owners] = {}
        self.growths = 0

    @rule(index=st.integers(0, 1), requests=WISHES)
    def reconcile(self, index: int, requests: dict[str, tuple[int, int]]) -> None:
        leader = self.leaders[index]
        items = []
        for node, (wanted, drop) in sorted(requests.items()):
            state = self.states.get((leader.cluster, node))
            items.append(item(node, state, wanted=wanted, released=ids(state)[:drop] if state else ()))
        for node, result in zip(sorted(requests), leader.reconcile(*items).results, strict=True):
            if result.state is not None:
                self.states[leader.cluster, node] = result.state

    @rule(index=st.integers(0, 1), requests=WISHES, seconds=st.sampled_from([1.0, 3.0, 11.0]))
    def reconcile_and_wait(self, index: int, requests: dict[str, tuple[int, int]], seconds: float) -> None:
        """The same again, so that it is chosen more often."""
        self.reconcile(index, requests)
        self.wait(seconds)

    @rule(index=st.integers(0, 1), node=st.sampled_from(NODES))
    def lose(self, index: int, node: str) -> None:
        leader = self.leaders[index]
        state = self.states.get((leader.cluster, node))
        if state is not None and leader.reconcile(item(node, state, node_gone=True)).results[0].error is None:
            del self.states[leader.cluster, node]

    @rule(index=st.integers(0, 5))
    def retire(self, index: int) -> None:
        if index >= len(self.leaders):
            return
        leader = self.leaders[index]
        run(self.harness.client.retire(leader.cluster))
        self.states = {key: state for key, state in self.states.items() if key[0] != leader.cluster}
        leader.lead()

    @rule()
    def grow(self) -> None:
        if self.growths < len(GROWTHS):
            run(self.harness.client.grow_subnet(SUBNET, SubnetGrowth(cidr=GROWTHS[self.growths])))
            self.growths += 1

    @rule(draining=st.sampled_from([False, False, False, True]))
    def drain(self, draining: bool) -> None:
        run(self.harness.client.drain_subnet(SUBNET) if draining else self.harness.client.reopen_subnet(SUBNET))

    @rule(seconds=st.sampled_from([1.0, 3.0, 11.0]))
    def wait(self, seconds: float) -> None:
        self.shown[self.harness.clock.now] = self.held()
        self.harness.advance(seconds)

    @rule()
    def tidy(self) -> None:
        run(self.harness.ledger.maintain_history())

    @invariant()
    def one_owner_and_matching_counters(self) -> None:
        held, state = self.held(), self.harness.state()
        assert state.reserved == len(held) + state.cooling_down
        assert state.reserved <= state.capacity

    def teardown(self) -> None:
        """Query every recorded time."""
        if not hasattr(self, "shown"):
            return
        for time, held in self.shown.items():
            assert held == self.history_at(time), f"at {time}"

    def held(self) -> Owners:
        """Return the owners in the database now."""
        found: Owners = {}
        for leader in self.leaders:
            for record in run(self.harness.client.network_containers(leader.cluster)).network_containers:
                state = record.state
                for address in filter(None, (state.primary, *(grant.address for grant in state.grants))):
                    assert address not in found
                    found[address] = (leader.cluster, record.node, state.nc_id)
        return found

    def history_at(self, time: float) -> Owners:
        """Return the owners at a time, by the history."""
        at = dt.datetime.fromtimestamp(time, dt.UTC).isoformat()
        periods = [
            each for node in NODES for each in run(self.harness.client.history(node=node, at=at, limit=1000)).periods
        ]
        found = {each.address: (each.cluster, each.node, each.nc_id) for each in periods}
        assert len(found) == len(periods), "two owners at one moment"
        return found


def test_history_equals_the_recorded_states(backend: str) -> None:
    share = 2 if backend == "sqlite" else 10
    chosen = settings(stateful_step_count=20, max_examples=max(1, settings().max_examples // share))
    run_state_machine_as_test(HistoryModel, settings=chosen)
