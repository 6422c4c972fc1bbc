"""The scaling decision: which patch the NNC needs next. Pure, from `ScalingInputs`.

| mode | demand | requests |
|---|---|---|
| reactive | addresses assigned or cooling down | a batch more or less when too few or too many are free |
| idempotent | the same | what that demand needs, in one step |
| pods | also Pods without an address | the same, before the sandboxes start |

The first two are Azure's earlier monitors, kept for comparison and for migration in steps. In them a buffer of less
than one address counts as one, or a node without a free address would never request the next. In reactive mode no ADD
waits.

One patch contains everything: the request, all grants pending release, and the report. Growth waits for a short quiet
period, and everything else waits with it; a smaller request is sent when it has held (`core.debounce`). Grants beyond
the request are released after their retention. A third party's edit is a difference like any other, and corrected.
"""

import enum
import math

import msgspec

from podpool.agent.pool import Pool
from podpool.api.annotation_decoder import parse_number
from podpool.api.azure import INVENTORY_ANNOTATION, AgentReport, NetworkConfigSpec, NetworkContainer, NodeNetworkConfig
from podpool.core.cooldown_levels import CooldownInForce
from podpool.core.debounce import DebounceState, DebounceTiming, debounce
from podpool.core.scaling import NodeHoldings, Scaler, reactive_step, surplus, target


class ScalingMode(enum.Enum):
    """How the request is computed."""

    REACTIVE = "reactive"
    IDEMPOTENT = "idempotent"
    PODS = "pods"


class ScalingParameters(msgspec.Struct, frozen=True, kw_only=True):
    """What the subnet prescribes to its nodes."""

    scaler: Scaler
    max_buffer: int
    """Free addresses, as hundredths of the batch, from which the reactive mode releases a batch."""
    exhausted: bool
    maximum: int
    cooldown: CooldownInForce
    nodes: int | None = None
    """About how many nodes share the subnet; None where that is not published."""


class InventoryReport(msgspec.Struct, frozen=True, kw_only=True):
    """The part of `AgentReport` that identifies NC and journal and, on request, has the grants that the agent holds.

    An API server restored from an older copy shows less than the agent holds, or another node's NC; if the ledger was
    restored too, only the agent has it. The controller requests it with a number in an annotation of the NNC.
    """

    nc: str
    journal: str
    inventory: int
    """The inventory request that is answered; 0 for none."""
    known: NetworkContainer | None = None
    """The NC as the agent knows it, where the NNC shows less."""

    def into(self, report: AgentReport) -> AgentReport:
        """Return a report with this part replaced."""
        return msgspec.structs.replace(
            report, network_container=self.nc, journal=self.journal, inventory=self.inventory, known=self.known
        )


class ScalingInputs(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a decision depends on."""

    spec: NetworkConfigSpec
    reported: AgentReport
    """The annotation as the NNC has it."""
    parameters: ScalingParameters
    primaries: int
    granted: int
    """Grants in the last accepted status."""
    pending_release: tuple[str, ...]
    releasable: tuple[str, ...]
    """Grants that may be released, in the order of release."""
    assigned: int
    cooling_down: int
    """Addresses that are kept after use."""
    cooling_briefly: int
    """Those of them that no ADD may get yet."""
    unserved: int
    """Pods without an address."""
    withheld: int = 0
    """Addresses that are not assigned because a sandbox without a Pod may use them."""
    addresses_per_pod: int = 1
    mode: ScalingMode = ScalingMode.PODS
    recently_used: int
    """Addresses that would be kept with the longest retention, those that left the node included."""
    answered_short: bool | None
    """Whether the status granted less than the last request; None before it was answered."""
    boot_id: str
    """The boot ID for the annotation."""
    version: int
    """The highest version accepted."""
    reported_version: int
    """The highest version ever seen in the annotation; a lower one there means a restored API server."""
    inventory: InventoryReport

    @property
    def expected(self) -> int:
        """Demand of Pods that have no address yet; the older modes do not count it."""
        return self.unserved * self.addresses_per_pod if self.mode is ScalingMode.PODS else 0

    @property
    def demand(self) -> int:
        """Demand U, with the cooldown in force."""
        return self.assigned + self.cooling_down + self.withheld + self.expected

    @property
    def demand_to_report(self) -> int:
        """Demand as if the retention were the longest, whatever is in force: the level must not depend on itself."""
        return self.assigned + self.recently_used + self.withheld + self.expected

    @property
    def overstated(self) -> bool:
        """Whether the annotation counts uses that are not recent any more, and no smaller request follows."""
        scaler, maximum = self.parameters.scaler, self.parameters.maximum
        projected, needed = (
            target(demand=each, scaler=scaler, primaries=self.primaries, maximum=maximum)
            for each in (self.reported.demand, self.demand_to_report)
        )
        return not self.recently_used and projected > needed >= self.spec.requested

    @property
    def waiting(self) -> int:
        """Pods that wait for addresses which the subnet does not have."""
        if self.answered_short is None:
            return self.reported.waiting
        needed = self.assigned + self.cooling_briefly + self.withheld + self.unserved * self.addresses_per_pod
        missing = needed - (self.granted - len(self.pending_release))
        return min(self.unserved, -(-max(0, missing) // self.addresses_per_pod)) if self.answered_short else 0

    @property
    def holding(self) -> NodeHoldings:
        """The node's addresses, as `core.scaling` counts them."""
        in_use = self.assigned + self.cooling_down + self.withheld
        return NodeHoldings(
            requested=self.spec.requested, held=self.granted, pending_release=len(self.pending_release), assigned=in_use
        )

    @property
    def target(self) -> int:
        """The number of addresses that the node should have."""
        counts = {"demand": self.demand, "primaries": self.primaries, "releasable": len(self.releasable)}
        return target_count(self.mode, self.parameters, self.holding, **counts)


class NNCPatch(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of one patch of the NNC."""

    request: int
    release: tuple[str, ...]
    """Grants to release now, in addition to those pending."""
    waiting: int


class ScalingDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The patch to send, if any; the debounce state once it is sent; when to decide again."""

    state: DebounceState
    patch: NNCPatch | None = None
    next_at: float | None = None


def target_count(
    mode: ScalingMode, subnet: ScalingParameters, holding: NodeHoldings, *, demand: int, primaries: int, releasable: int
) -> int:
    """Return the number of addresses that a node should have."""
    scaler, maximum = subnet.scaler, subnet.maximum
    if mode is not ScalingMode.PODS:
        scaler = Scaler(scaler.batch, max(scaler.buffer, -(-100 // scaler.batch)))
    if mode is not ScalingMode.REACTIVE:
        return target(demand=demand, scaler=scaler, primaries=primaries, maximum=maximum)
    most = max(subnet.max_buffer, scaler.buffer + 100)
    return reactive_step(  # the scaler has exhaustion already
        holding, scaler=scaler, max_buffer=most, maximum=maximum, exhausted=False, releasable=releasable
    ).request


def decide(inputs: ScalingInputs, state: DebounceState, *, now: float, timing: DebounceTiming) -> ScalingDecision:
    """Return the patch that the NNC needs now, if any."""
    wanted = inputs.target
    result = debounce(state, now=now, wanted=wanted, requested=inputs.spec.requested, timing=timing)
    growing = result.request is None and result.state.above_since is not None
    if growing:
        return ScalingDecision(state=result.state, next_at=result.next_at)
    request = inputs.spec.requested if result.request is None else result.request
    release = inputs.releasable[: surplus(inputs.holding, wanted=max(request, wanted))]
    if request == inputs.spec.requested and not _differs(inputs, release):
        return ScalingDecision(state=result.state, next_at=result.next_at)
    patch = NNCPatch(request=request, release=release, waiting=inputs.waiting)
    return ScalingDecision(state=result.state, patch=patch, next_at=result.next_at)


def _differs(inputs: ScalingInputs, release: tuple[str, ...]) -> bool:
    """Return whether releases or report of the NNC are not what they should be."""
    reported = inputs.reported
    return (
        sorted(inputs.spec.pending_release) != sorted((*inputs.pending_release, *release))
        or bool(inputs.waiting) != bool(reported.waiting)
        or inputs.overstated
        or inputs.boot_id != reported.boot_id
        or reported.version < inputs.reported_version
        or inputs.inventory.into(reported) != reported
    )


def agent_report(inputs: ScalingInputs, patch: NNCPatch, *, cooled: float) -> AgentReport:
    """Return the annotation; `cooled` is the time since the last use of any grant pending release."""
    report = AgentReport(
        demand=inputs.demand_to_report,
        waiting=patch.waiting,
        batch=inputs.parameters.scaler.batch,
        cooled_seconds=math.floor(cooled * 1000) / 1000,
        boot_id=inputs.boot_id,
        version=max(inputs.version, 0),
    )
    return inputs.inventory.into(report)


def inventory_report(nnc: NodeNetworkConfig, pool: Pool, *, journal: str, requested: int) -> InventoryReport:
    """Return what the annotation should have; grants only if an inventory is requested and the NNC shows fewer.

    The request is taken from the watch alone: once the watch shows it, no event of an older server can follow.
    """
    known = pool.nc
    shown = next((each.version for each in nnc.status.network_containers if each.id == pool.adopted_nc), -1)
    if not requested or known is None or shown >= pool.version:
        return InventoryReport(nc=pool.adopted_nc, journal=journal, inventory=requested)
    released = {*pool.pending_release, *(grant for grant, each in pool.assigned.items() if each.revoked)}
    kept = tuple(each for each in known.ip_assignments if each.name not in released)
    known = msgspec.structs.replace(known, ip_assignments=kept)
    return InventoryReport(nc=pool.adopted_nc, journal=journal, inventory=requested, known=known)


def requested_inventory(nnc: NodeNetworkConfig | None) -> int:
    """Return the number of the controller's inventory request; 0 for none."""
    return 0 if nnc is None else parse_number(nnc.metadata.annotations.get(INVENTORY_ANNOTATION)) or 0
