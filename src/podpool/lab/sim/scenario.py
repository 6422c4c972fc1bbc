"""What will happen: a list of events with their times, drawn from a seed before anything runs.

A plan that leads to a violation can be made shorter by leaving events out and running it again: each stands for itself,
and one that makes no sense any more (a Pod of a node that never joined) does nothing.
"""

import random

import msgspec

from podpool.controller.settings import Scarcity
from podpool.core.settings import Settings
from podpool.kube.leader_election import DEFAULT_TIMING, LeaseTiming


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


BRISK = Settings(fence=120.0, confirmation_interval=40.0, node_gc_delay=160.0, clock_error=10.0, relist_interval=120.0, inventory_timeout=3600.0)
"""The usual settings, but for the longest waits: a run need not be an hour for a node to be gone."""
HASTY = Settings(
    batch=4,
    shrink_hold=5.0,
    step_up_hold=10.0,
    cooldown=8.0,
    cooldown_exhausted=2.0,
    fence=10.0,
    confirmation_interval=3.0,
    node_gc_delay=14.0,
    clock_error=3.0,
    relist_interval=20.0,
    inventory_timeout=3600.0,
    reserved_for_primaries=2,
)
"""Everything in a few seconds, in batches of four."""
BRIEF = LeaseTiming(duration=5.0, renew_deadline=3.0, retry=1.0)
"""A lead that is lost in seconds, too."""


class Shape(msgspec.Struct, frozen=True, kw_only=True):
    """How large a world is."""

    cidr: str = "10.0.0.0/25"
    gateway: str = "10.0.0.1"
    clusters: int = 1
    controllers: int = 2
    """In each cluster."""
    replicas: int = 1
    """Of the ledger."""
    settings: Settings = BRISK
    election: LeaseTiming = DEFAULT_TIMING
    scarcity: Scarcity = "graded"
    slices: bool = False
    """Whether Pods have their addresses from node slices; there is no ledger then that anybody asks."""
    networks: int = 1
    """Of each Pod, with slices: the second is shared by all nodes, the others are cut."""
    shown: bool = False
    """Whether Pods show their addresses, as kubelets have them do once all images are there."""
    underlay: bool = False
    """Whether hosts must program an address before it works."""
    pod_history: bool = False
    """Whether the ledger is told which Pods have which addresses."""


class Climate(msgspec.Struct, frozen=True, kw_only=True):
    """How often what happens: weights of the events, and how bad the network is, in a world of some shape."""

    nodes: int = 4
    seconds: float = 500.0
    quiet: float = 60.0
    """Seconds for which all must stay well in the end, and nobody write anything but the leader its Lease."""
    events: int = 100
    burst: int = 12
    """Pods that are bound at once."""
    longest: float = 40.0
    """Seconds that a fault lasts at the most; ten times that, while a node is cut off."""
    weights: dict[str, int]
    lost: float = 0.02
    repeated: float = 0.02
    slow: float = 0.02
    shape: Shape = Shape()


WORKLOAD = {
    "bind": 40,
    "burst": 4,
    "delete-pod": 25,
    "finish-pod": 4,
    "edit-request": 2,
    "edit-scaler": 1,
}
FAULTS = {
    "kill-agent": 6,
    "kill-controller": 4,
    "kill-ledger": 3,
    "kill-api": 2,
    "pause-controller": 3,
    "pause-machine": 3,
    "reboot": 4,
    "set-clock": 1,
    "cut-api": 4,
    "cut-controller": 3,
    "cut-ledger": 3,
    "delete-and-register": 2,
    "stale-lists": 2,
    "leave": 1,
    "replace": 2,
}
MEDDLING = {"delete-config": 4, "strip-status": 4, "strip-config": 4, "delete-subnet": 2}
SLICED = {
    "bind": 40,
    "burst": 4,
    "delete-pod": 25,
    "finish-pod": 4,
    "kill-agent": 6,
    "kill-controller": 5,
    "kill-api": 2,
    "pause-controller": 3,
    "pause-machine": 3,
    "reboot": 4,
    "set-clock": 1,
    "cut-api": 4,
    "cut-controller": 3,
    "delete-and-register": 3,
    "stale-lists": 2,
    "leave": 2,
    "replace": 3,
    "delete-attachment": 3,
    "resize": 2,
    "change-range": 3,
    "share": 2,
    "foreign-entry": 3,
    "foreign-removal": 3,
    "foreign-pod": 3,
    "delete-pool": 1,
    "delete-table": 1,
    "refuse-writes": 2,
}
LEDGER_RESTORED = {"back-up": 4, "restore-ledger": 2}
API_RESTORED = {"back-up": 4, "restore-api": 2}
BOTH_RESTORED = {"back-up": 6, "restore-ledger": 1, "restore-api": 1, "restore-both": 2}
OFTEN_RESTORED = {"back-up": 16, "restore-ledger": 8, "restore-api": 8, "restore-both": 4}
API_OFTEN_RESTORED = {"back-up": 16, "restore-api": 12}
SPOILT = {"lose-journal": 2, "damage-journal": 2}
"""Not where the API server is restored: nobody knows what was given when the journal is gone too."""
CALM = Climate(weights=WORKLOAD, lost=0.0, repeated=0.0, slow=0.0)
STORMY = Climate(weights=WORKLOAD | FAULTS)
NARROW = Climate(
    nodes=2,
    seconds=40.0,
    quiet=8.0,
    events=20,
    burst=5,
    longest=8.0,
    weights=WORKLOAD | FAULTS,
    lost=0.04,
    repeated=0.04,
    slow=0.04,
    shape=Shape(cidr="10.0.0.0/27", settings=HASTY, election=BRIEF),
)
"""Two nodes, thirty addresses, a fault every few seconds: many short schedules see more than few long ones."""
SLICES = msgspec.structs.replace(
    NARROW,
    nodes=3,
    seconds=60.0,
    events=40,
    weights=SLICED,
    shape=Shape(cidr="10.0.0.0/27", settings=HASTY, election=BRIEF, slices=True, networks=3),
)
"""Three nodes on four slices of six addresses each, so that what one lets go of is soon another's."""


def _with(climate: Climate, events: dict[str, int]) -> Climate:
    return msgspec.structs.replace(climate, weights=climate.weights | events)


CLIMATES = {
    "calm": CALM,
    "storm": STORMY,
    "restore-ledger": _with(STORMY, LEDGER_RESTORED),
    "restore-api": _with(STORMY, API_RESTORED),
    "restore-both": _with(STORMY, BOTH_RESTORED),
    "shared": msgspec.structs.replace(
        _with(STORMY, BOTH_RESTORED), nodes=2, shape=Shape(clusters=2, controllers=2, replicas=2)
    ),
    "narrow": NARROW,
    "narrow-tight": msgspec.structs.replace(NARROW, shape=msgspec.structs.replace(NARROW.shape, cidr="10.0.0.0/28")),
    "narrow-spoilt": msgspec.structs.replace(
        _with(NARROW, SPOILT), shape=msgspec.structs.replace(NARROW.shape, shown=True)
    ),
    "narrow-underlay": msgspec.structs.replace(NARROW, shape=msgspec.structs.replace(NARROW.shape, underlay=True)),
    "slices": _with(SLICES, SPOILT),
    "slices-restores": _with(SLICES, API_OFTEN_RESTORED),
    "narrow-meddled": _with(NARROW, MEDDLING),
    "narrow-restores": _with(NARROW, OFTEN_RESTORED),
    "narrow-shared": msgspec.structs.replace(
        _with(NARROW, OFTEN_RESTORED), nodes=1, shape=msgspec.structs.replace(NARROW.shape, clusters=2, replicas=2)
    ),
}
"""By the names that a person types."""


def homes(shape: Shape) -> list[str]:
    """List what the names of each cluster's parts begin with."""
    return [f"{chr(ord('a') + number)}-" if number else "" for number in range(shape.clusters)]


def draw(seed: int, climate: Climate) -> list[Event]:
    """Draw a plan."""
    rng = random.Random(f"{seed}/plan")  # noqa: S311  a simulation
    names = [f"{home}node-{number}" for home in homes(climate.shape) for number in range(climate.nodes)]
    joins = [Event(round(rng.uniform(0.0, 0.06 * climate.seconds), 2), "join", name) for name in names]
    kinds, weights = list(climate.weights), list(climate.weights.values())
    happen = [
        Event(
            round(rng.uniform(0.04 * climate.seconds, climate.seconds), 2),
            rng.choices(kinds, weights)[0],
            rng.choice(names),
            round(rng.uniform(1.0, climate.longest), 1),
        )
        for _ in range(climate.events)
    ]
    return sorted(joins + happen, key=lambda event: event.at)
