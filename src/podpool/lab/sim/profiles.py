"""Simulation profiles: how large a cluster is, and how often which event happens in it.

A seed draws from the weights in their order: adding, removing or reordering an entry changes every history of the
profile, renaming one does not.
"""

import msgspec

from podpool.controller.settings import Scarcity
from podpool.core.settings import Settings
from podpool.kube.leader_election import DEFAULT_TIMING, LeaseTiming

LONG_RUN_SETTINGS = Settings(
    fence=120.0,
    confirmation_interval=40.0,
    node_gc_delay=160.0,
    clock_error=10.0,
    relist_interval=120.0,
    inventory_timeout=3600.0,
)
"""The defaults, except for the longest waits: node GC must happen within a run of minutes."""
SHORT_RUN_SETTINGS = Settings(
    batch=4,
    shrink_hold=5.0,
    step_up_hold=10.0,
    cooldown_roomy=12.0,
    cooldown_filling=8.0,
    cooldown_exhausted=2.0,
    fence=10.0,
    confirmation_interval=3.0,
    node_gc_delay=14.0,
    clock_error=3.0,
    relist_interval=20.0,
    inventory_timeout=3600.0,
    reserved_for_primaries=2,
)
"""All waits in seconds, and batches of four."""
SLOW_CONFIRMATION_SETTINGS = msgspec.structs.replace(
    SHORT_RUN_SETTINGS, fence=60.0, confirmation_interval=40.0, node_gc_delay=75.0
)
"""Confirmations are further apart than an ADD waits: only one for the ADD itself opens the fence in time."""
SHORT_ELECTION = LeaseTiming(duration=5.0, renew_deadline=3.0, retry=1.0)
"""Leadership is lost within seconds."""


class SimConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The size and the settings of simulated clusters."""

    cidr: str = "10.0.0.0/25"
    gateway: str = "10.0.0.1"
    clusters: int = 1
    controllers: int = 2
    """Per cluster."""
    replicas: int = 1
    """Of the ledger."""
    settings: Settings = LONG_RUN_SETTINGS
    election: LeaseTiming = DEFAULT_TIMING
    scarcity: Scarcity = "graded"
    slices: bool = False
    """Whether Pods get their addresses from node slices; the ledger is not used then."""
    networks: int = 1
    """Networks per Pod, with slices: the second has a shared range, the others have slices."""
    pod_status_ips: bool = False
    """Whether kubelets report Pod addresses in the Pod status."""
    underlay: bool = False
    """Whether hosts must program an address before it works."""
    runtime_socket: bool = True
    """Whether agents can list the sandboxes of the container runtime."""
    pod_history: bool = False
    """Whether the controller reports to the ledger which Pods have which addresses."""


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of events and the network faults, for clusters of a configuration."""

    nodes: int = 4
    """Per cluster."""
    duration: float = 500.0
    """Seconds in which events and faults happen."""
    quiet_seconds: float = 60.0
    """Seconds in the end for which the convergence checks must hold, and nothing may be written."""
    convergence_seconds: float = 300.0
    """Seconds within which the checks must begin to hold."""
    events: int = 100
    burst: int = 12
    """Pods that a `bind-burst` binds."""
    max_fault_seconds: float = 40.0
    """Seconds that a fault lasts at most; a partition of a node lasts ten times as long."""
    outliving_factor: float = 1.0
    """How many times longer than other faults sandboxes outlive their Pods."""
    weights: dict[str, int]
    message_loss: float = 0.02
    message_duplication: float = 0.02
    slow_messages: float = 0.02
    config: SimConfig = SimConfig()


WORKLOAD = {"bind-pod": 40, "bind-burst": 4, "delete-pod": 25, "finish-pod": 4, "edit-request": 2, "edit-scaler": 1}
FAULTS = (
    {"kill-agent": 6, "kill-controller": 4, "kill-ledger": 3, "kill-api": 2, "pause-controller": 3, "pause-machine": 3}
    | {"reboot": 4, "set-clock": 1, "partition-node": 4, "partition-controller": 3, "partition-ledger": 3}
    | {"reregister-node": 2, "stale-lists": 2, "remove-machine": 1, "replace-machine": 2}
    | {"overlap-agents": 3, "fail-sync": 2}
)
MANUAL_EDITS = {"delete-nnc": 4, "clear-nnc-status": 4, "strip-nnc-metadata": 4, "delete-subnet": 2}
SLICE_EVENTS = (
    {"bind-pod": 40, "bind-burst": 4, "delete-pod": 25, "finish-pod": 4}
    | {"kill-agent": 6, "kill-controller": 5, "kill-api": 2, "pause-controller": 3, "pause-machine": 3}
    | {"reboot": 4, "set-clock": 1, "partition-node": 4, "partition-controller": 3}
    | {"reregister-node": 3, "stale-lists": 2, "remove-machine": 2, "replace-machine": 3}
    | {"delete-nad": 3, "resize-slices": 2, "resize-range": 3, "share-range": 2}
    | {"third-party-entry": 3, "third-party-removal": 3, "third-party-pod": 3}
    | {"delete-ippools": 1, "delete-nodeslicepools": 1, "inject-api-errors": 2}
    | {"overlap-agents": 3, "fail-sync": 2}
)
LEDGER_RESTORES = {"back-up": 4, "restore-ledger": 2}
API_RESTORES = {"back-up": 4, "restore-api": 2}
RESTORES = {"back-up": 6, "restore-ledger": 1, "restore-api": 1, "restore-both": 2}
FREQUENT_RESTORES = {"back-up": 16, "restore-ledger": 8, "restore-api": 8, "restore-both": 4}
FREQUENT_API_RESTORES = {"back-up": 16, "restore-api": 12}
LOST_DELS = (
    {"bind-pod": 40, "bind-burst": 3, "bind-static-pod": 6, "delete-pod": 25, "finish-pod": 4}
    | {"lose-dels": 8, "kill-runtime": 6, "delete-deferred-dels": 8, "give-up-adds": 4, "slow-add-chain": 4}
    | {"kill-agent": 10, "kill-api": 2, "pause-machine": 3, "reboot": 2, "stale-lists": 2}
)
OUTLIVING_SANDBOXES = {"outlive-pod": 6}
"""Not in shared ranges, where the controller releases what no Pod has, as Whereabouts does."""
SOCKET_FAULTS = {"wrong-runtime-socket": 4, "close-runtime-socket": 4}
LEDGER_CLOCKS = {"set-ledger-clock": 12, "reboot-ledger": 6}
REPLACEMENTS = {"replace-cut-off": 10}
"""Not together with restores of the API server: a copy may show the Node of the machine that runs on."""
JOURNAL_FAULTS = {"lose-journal": 2, "damage-journal": 2}
"""Not together with restores of the API server: then no component knows what was assigned."""

CLOCK_STEPS = {"bind-pod": 40, "bind-burst": 4, "delete-pod": 25, "step-clock": 12} | {
    "kill-agent": 4,
    "kill-api": 3,
    "pause-machine": 3,
    "reboot": 4,
    "partition-node": 4,
    "reregister-node": 2,
}

_CALM = Profile(weights=WORKLOAD, message_loss=0.0, message_duplication=0.0, slow_messages=0.0)
_STORM = Profile(weights=WORKLOAD | FAULTS)
_NARROW = Profile(
    nodes=2,
    duration=40.0,
    quiet_seconds=8.0,
    events=20,
    burst=5,
    max_fault_seconds=8.0,
    weights=WORKLOAD | FAULTS,
    message_loss=0.04,
    message_duplication=0.04,
    slow_messages=0.04,
    config=SimConfig(cidr="10.0.0.0/27", settings=SHORT_RUN_SETTINGS, election=SHORT_ELECTION),
)
"""Two nodes, thirty addresses, a fault every few seconds: many short runs find more than few long ones."""
_SLICES = msgspec.structs.replace(
    _NARROW,
    nodes=3,
    duration=60.0,
    events=40,
    weights=SLICE_EVENTS,
    config=msgspec.structs.replace(_NARROW.config, slices=True, networks=3),
)
"""Three nodes on four slices of six addresses each, so that a released slice soon gets another owner."""


_LOST_DELS = msgspec.structs.replace(
    _NARROW,
    duration=600.0,
    events=60,
    max_fault_seconds=120.0,
    convergence_seconds=900.0,
    weights=LOST_DELS,
    config=msgspec.structs.replace(_NARROW.config, settings=SLOW_CONFIRMATION_SETTINGS, election=DEFAULT_TIMING),
)
"""Faults of minutes: two observations of a lost DEL are a minute apart, and a slow ADD chain takes ten."""


def _with_events(profile: Profile, weights: dict[str, int]) -> Profile:
    return msgspec.structs.replace(profile, weights=profile.weights | weights)


def _with_config(profile: Profile, **changes: str | int | bool | Settings) -> Profile:  # types of the changed fields
    return msgspec.structs.replace(profile, config=msgspec.structs.replace(profile.config, **changes))


PROFILES = {
    "calm": _CALM,
    "storm": _STORM,
    "restore-ledger": _with_events(_STORM, LEDGER_RESTORES),
    "restore-api": _with_events(_STORM, API_RESTORES),
    "restore-both": _with_events(_STORM, RESTORES),
    "shared-subnet": msgspec.structs.replace(
        _with_events(_STORM, RESTORES), nodes=2, config=SimConfig(clusters=2, replicas=2)
    ),
    "narrow": _NARROW,
    "narrow-tight": _with_config(_NARROW, cidr="10.0.0.0/28"),
    "narrow-damaged-journals": msgspec.structs.replace(
        _with_config(_with_events(_NARROW, JOURNAL_FAULTS | OUTLIVING_SANDBOXES), pod_status_ips=True),
        duration=200.0,
        events=60,
        outliving_factor=20.0,
    ),
    "narrow-underlay": _with_config(_NARROW, underlay=True),
    "narrow-clock-steps": msgspec.structs.replace(
        _with_config(_NARROW, settings=SLOW_CONFIRMATION_SETTINGS),
        duration=120.0,
        events=40,
        weights=CLOCK_STEPS,
        message_loss=0.0,
        message_duplication=0.0,
        slow_messages=0.0,
    ),
    "narrow-ledger-clocks": _with_events(_NARROW, LEDGER_CLOCKS),
    "narrow-lost-dels": _with_events(_LOST_DELS, OUTLIVING_SANDBOXES | SOCKET_FAULTS),
    "narrow-lost-dels-pods-only": _with_config(_with_events(_LOST_DELS, OUTLIVING_SANDBOXES), runtime_socket=False),
    "slices": _with_events(_SLICES, JOURNAL_FAULTS),
    "slices-lost-dels": msgspec.structs.replace(
        _with_events(_LOST_DELS, SOCKET_FAULTS),
        nodes=_SLICES.nodes,
        config=msgspec.structs.replace(_LOST_DELS.config, slices=True, networks=_SLICES.config.networks),
    ),
    "slices-replacements": _with_events(_SLICES, REPLACEMENTS),
    "slices-restores": _with_events(_SLICES, FREQUENT_API_RESTORES),
    "narrow-manual-edits": _with_events(_NARROW, MANUAL_EDITS),
    "narrow-restores": _with_events(_NARROW, FREQUENT_RESTORES),
    "narrow-shared-subnet": msgspec.structs.replace(
        _with_config(_with_events(_NARROW, FREQUENT_RESTORES), clusters=2, replicas=2), nodes=1
    ),
}
"""The profiles of `podpool sim --profile`; docs/simulator.md explains each."""
