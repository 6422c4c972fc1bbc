"""A scenario: events with their times, drawn from a seed before anything runs.

A scenario that leads to a violation can be shrunk by omitting events: each is independent, and one that cannot apply
any more (a Pod of a node that never joined) has no effect.
"""

import random

import msgspec

from podpool.lab.sim.profiles import Profile, SimConfig


class ScenarioEvent(msgspec.Struct, frozen=True):
    """An action at a second of the run; the amount is mostly the duration of a fault."""

    at: float
    action: str
    node: str = ""
    amount: float = 0.0

    def __str__(self) -> str:
        details = (self.action, self.node, f"{self.amount:g}" if self.amount else "")
        return " ".join((f"{self.at:8.2f}", *filter(None, details)))


def cluster_prefixes(config: SimConfig) -> list[str]:
    """Return the prefix of each cluster's names; the first cluster has none."""
    return [f"{chr(ord('a') + number)}-" if number else "" for number in range(config.clusters)]


def draw(seed: int, profile: Profile) -> list[ScenarioEvent]:
    """Return the scenario of a seed."""
    rng = random.Random(f"{seed}/plan")  # noqa: S311  a simulation
    names = [f"{prefix}node-{number}" for prefix in cluster_prefixes(profile.config) for number in range(profile.nodes)]
    joins = [ScenarioEvent(round(rng.uniform(0.0, 0.06 * profile.duration), 2), "join", name) for name in names]
    actions, weights = list(profile.weights), list(profile.weights.values())
    drawn = [
        ScenarioEvent(
            round(rng.uniform(0.04 * profile.duration, profile.duration), 2),
            rng.choices(actions, weights)[0],
            rng.choice(names),
            round(rng.uniform(1.0, profile.max_fault_seconds), 1),
        )
        for _ in range(profile.events)
    ]
    return sorted(joins + drawn, key=lambda event: event.at)
