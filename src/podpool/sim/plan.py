"""What will happen: a list of events with their times, drawn from a seed before anything runs.

A plan that leads to a violation can be made shorter by leaving events out and running it again: each stands for itself,
and one that makes no sense any more (a Pod of a node that never joined) does nothing.
"""

import random

import msgspec


class Event(msgspec.Struct, frozen=True):
    """Something that happens, at a second of the run."""

    at: float
    what: str
    node: str = ""
    amount: float = 0.0

    def __str__(self) -> str:
        return (
            f"{self.at:8.2f} {self.what}"
            + (f" {self.node}" if self.node else "")
            + (f" {self.amount:g}" if self.amount else "")
        )


class Climate(msgspec.Struct, frozen=True, kw_only=True):
    """How often what happens: weights of the events, and how bad the network is."""

    nodes: int = 4
    seconds: float = 500.0
    events: int = 100
    weights: dict[str, int]
    lost: float = 0.02
    repeated: float = 0.02
    slow: float = 0.02


WORKLOAD = {
    "bind": 40,
    "burst": 4,
    "delete-pod": 25,
    "finish-pod": 4,
    "edit-request": 2,
}
FAULTS = {
    "kill-agent": 6,
    "kill-controller": 4,
    "kill-ledger": 3,
    "kill-api": 2,
    "pause-controller": 3,
    "reboot": 4,
    "cut-api": 4,
    "cut-ledger": 3,
    "delete-and-register": 2,
    "stale-lists": 2,
    "leave": 1,
    "replace": 2,
}
LEDGER_RESTORED = {"back-up": 4, "restore-ledger": 2}
API_RESTORED = {"back-up": 4, "restore-api": 2}
CALM = Climate(weights=WORKLOAD, lost=0.0, repeated=0.0, slow=0.0)
STORMY = Climate(weights=WORKLOAD | FAULTS)
CLIMATES = {
    "calm": CALM,
    "storm": STORMY,
    "restore-ledger": Climate(weights=WORKLOAD | FAULTS | LEDGER_RESTORED),
    "restore-api": Climate(weights=WORKLOAD | FAULTS | API_RESTORED),
    "restore-both": Climate(weights=WORKLOAD | FAULTS | LEDGER_RESTORED | API_RESTORED),
}
"""By the names that a person types. What only an agent knows when both were restored is lost: the last one fails."""


def draw(seed: int, climate: Climate) -> list[Event]:
    """Draw a plan."""
    rng = random.Random(f"{seed}/plan")  # noqa: S311  a simulation
    names = [f"node-{number}" for number in range(climate.nodes)]
    joins = [Event(round(rng.uniform(0.0, 30.0), 2), "join", name) for name in names]
    kinds, weights = list(climate.weights), list(climate.weights.values())
    happen = [
        Event(
            round(rng.uniform(20.0, climate.seconds), 2),
            rng.choices(kinds, weights)[0],
            rng.choice(names),
            round(rng.uniform(1.0, 40.0), 1),
        )
        for _ in range(climate.events)
    ]
    return sorted(joins + happen, key=lambda event: event.at)
