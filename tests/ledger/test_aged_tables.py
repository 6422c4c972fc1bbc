"""Allocation in a table that has been used for long: the addresses of a network container stay together."""

import random

from podpool.ledger.messages import NetworkContainerState
from tests.ledger.harness import Leader, LedgerHarness, ids, item

NODES = 24
HELD = 80
BATCH = 16
TURNOVERS = 3


def blocks_of(state: NetworkContainerState) -> int:
    """Count the blocks of 64 addresses that an NC has part of."""
    texts = [state.primary, *(grant.address for grant in state.grants)]
    return len(
        {tuple(int(part) // size for part, size in zip(each.split("."), (1, 1, 1, 64), strict=True)) for each in texts}
    )


def age(leader: Leader, states: dict[str, NetworkContainerState], rng: random.Random) -> None:
    """Replace as many addresses as there are, a batch at a time, while other nodes take what was released."""
    for _ in range(HELD // BATCH):
        for node in rng.sample(sorted(states), len(states)):
            released = rng.sample(ids(states[node]), BATCH)
            states[node] = leader.reconcile_one(item(node, states[node], wanted=HELD - BATCH, released=released))
            other = rng.choice(sorted(states))
            states[other] = leader.reconcile_one(item(other, states[other], wanted=HELD))
            leader.harness.clock.now += 1.0
        for node, state in states.items():
            states[node] = leader.reconcile_one(item(node, state, wanted=HELD))


def test_addresses_of_a_network_container_stay_in_few_blocks() -> None:
    """Fresh, they are in two or three; taken from any block they would be in eighteen by now."""
    harness = LedgerHarness()
    harness.subnet("10.0.0.0/21", reserved_for_primaries=0, cooldown=5.0, cooldown_exhausted=5.0)
    leader, rng = Leader(harness), random.Random(1)  # noqa: S311  reproducible
    states = {f"n{number}": leader.node(f"n{number}", wanted=HELD) for number in range(NODES)}
    assert all(blocks_of(state) <= 3 for state in states.values())
    for _ in range(TURNOVERS):
        age(leader, states, rng)
    assert sum(map(blocks_of, states.values())) / NODES <= 8
