"""What the agent asks for next: pure, from what it sees.

One patch says everything: the request, every name that is pending, and the report. Growth waits for a moment of quiet,
and whatever else there is to say waits with it; less is asked for when the wish has lasted (`core.pacing`). What the
status shows beyond the request goes back, as far as it has rested. An edit by another hand looks like a request that is
not ours, and is answered like any other difference.
"""

import math

import msgspec

from podpool.agent.report import Statement
from podpool.agent.scaling_modes import Mode, Terms, wanted
from podpool.api.azure import AgentReport, NetworkConfigSpec
from podpool.core.debounce import Pace, Rhythm, look
from podpool.core.scaling import Holding, surplus


class View(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that a decision depends on."""

    spec: NetworkConfigSpec
    reported: AgentReport
    """The annotation as it is."""
    terms: Terms
    primaries: int
    listed: int
    """Grants that the last accepted status lists."""
    named: tuple[str, ...]
    """Those among them that were named for release."""
    releasable: tuple[str, ...]
    """Those that may be named, the most dispensable first."""
    assigned: int
    resting: int
    unserved: int
    """Pods without an address,"""
    lanes: int = 1
    """and how many addresses each of them gets."""
    mode: Mode = Mode.PODS
    used_lately: int
    """Addresses used within the full cooldown, here and gone."""
    answered_short: bool | None
    """Whether a status answered the last request with less; None before it was answered."""
    boot_id: str
    """What the annotation should say."""
    version: int
    """The highest version that was accepted,"""
    told_version: int
    """and the highest that the annotation ever told: less in it now means that the API server was restored."""
    statement: Statement
    """Who we are, and what we hold where that is asked."""

    @property
    def foreseen(self) -> int:
        """What Pods that have no address yet add to the demand: nothing, for monitors that do not look at Pods."""
        return self.unserved * self.lanes if self.mode is Mode.PODS else 0

    @property
    def demand(self) -> int:
        """U, by the cooldown in force."""
        return self.assigned + self.resting + self.foreseen

    @property
    def waiting(self) -> int:
        """Pods that wait for what the subnet does not have."""
        if self.answered_short is None:
            return self.reported.waiting
        missing = self.assigned + self.resting + self.unserved * self.lanes - (self.listed - len(self.named))
        return min(self.unserved, -(-max(0, missing) // self.lanes)) if self.answered_short else 0

    @property
    def holding(self) -> Holding:
        """What the node has."""
        in_use = self.assigned + self.resting
        return Holding(requested=self.spec.requested, held=self.listed, named=len(self.named), assigned=in_use)

    @property
    def wanted(self) -> int:
        """What it should have."""
        return wanted(
            self.mode,
            self.terms,
            self.holding,
            demand=self.demand,
            primaries=self.primaries,
            releasable=len(self.releasable),
        )


class Wish(msgspec.Struct, frozen=True, kw_only=True):
    """What one patch says."""

    request: int
    release: tuple[str, ...]
    """Grants that are named for the first time."""
    waiting: int


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What to ask for now, if anything; the pace to keep when it was asked; and when to look again."""

    pace: Pace
    wish: Wish | None = None
    again_at: float | None = None


def decide(view: View, pace: Pace, *, now: float, rhythm: Rhythm) -> Decision:
    """Decide whether there is anything to say now."""
    goal = view.wanted
    verdict = look(pace, now=now, wanted=goal, requested=view.spec.requested, rhythm=rhythm)
    growing = verdict.request is None and verdict.pace.above_since is not None
    if growing:
        return Decision(pace=verdict.pace, again_at=verdict.again_at)
    request = view.spec.requested if verdict.request is None else verdict.request
    release = view.releasable[: surplus(view.holding, wanted=max(request, goal))]
    names_differ = sorted(view.spec.released) != sorted((*view.named, *release))
    waiting_differs = bool(view.waiting) != bool(view.reported.waiting)
    report_lost = view.boot_id != view.reported.boot_id or view.reported.version < view.told_version
    report_lost = report_lost or view.statement.into(view.reported) != view.reported
    if request != view.spec.requested or names_differ or waiting_differs or report_lost:
        wish = Wish(request=request, release=release, waiting=view.waiting)
        return Decision(pace=verdict.pace, wish=wish, again_at=verdict.again_at)
    return Decision(pace=verdict.pace, again_at=verdict.again_at)


def report(view: View, wish: Wish, *, named_for: float) -> AgentReport:
    """Tell what the wire format cannot; `named_for` is how long the most recently used of the named has rested."""
    told = AgentReport(
        demand=view.assigned + view.used_lately + view.foreseen,
        waiting=wish.waiting,
        batch=view.terms.scaler.batch,
        rested_seconds=math.floor(named_for * 1000) / 1000,
        boot_id=view.boot_id,
        version=max(view.version, 0),
    )
    return view.statement.into(told)
