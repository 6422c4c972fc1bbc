"""Settings of the daemons, with defaults and rules.

A `Settings` that exists is valid: a value outside its rule raises `InvalidInput` with field, value and rule. The
docstrings are the descriptions in docs/settings.md.
"""

import difflib
import math
import typing
from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec

from podpool.core.batch_ladder import BatchRules
from podpool.core.cooldown_levels import CooldownLevels
from podpool.core.debounce import DebounceTiming
from podpool.core.errors import InvalidInput, quoted
from podpool.core.quantities import parse_count, parse_duration, parse_share, show_duration, show_share
from podpool.core.scaling import Scaler


class ValueFormat(msgspec.Struct, frozen=True):
    """How a value is parsed and shown."""

    parse: Callable[..., int | float]
    show: Callable[..., str]


Count = Annotated[int, ValueFormat(parse_count, str)]
Share = Annotated[int, ValueFormat(parse_share, show_share)]
Seconds = Annotated[float, ValueFormat(parse_duration, show_duration)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Counts, shares in hundredths, durations in seconds."""

    batch: Count = 16
    """B: nodes request addresses in multiples of it."""
    buffer: Share = 50
    """mf: minimum free addresses of a node, as a share of the batch."""
    max_buffer: Share | None = None
    """Mf, reactive mode only: free addresses, as a share of the batch, from which a node releases a batch."""
    node_maximum: Count = 250
    """Maximum addresses of a node."""
    upper_threshold: Share = 90
    """T: reserved share of a subnet above which it becomes exhausted."""
    lower_threshold: Share = 80
    """t: reserved share of a subnet below which exhaustion clears."""
    utilization_poll: Seconds = 15.0
    """Interval at which a controller polls a subnet's utilisation, besides the ledger's change stream."""
    growth_quiet: Seconds = 0.05
    """A node requests more when its target has not changed for this long."""
    growth_max_delay: Seconds = 0.25
    """Longest delay of a request for more, however its target changes."""
    shrink_hold: Seconds = 30.0
    """A node requests less when its target has been lower for this long; at once while the subnet is exhausted."""
    shrink_spread_per_node: Seconds = 0.01
    """Releases of the nodes of a subnet are spread over this time per node."""
    shrink_spread_max: Seconds = 30.0
    """Longest time over which releases are spread."""
    step_up_margin: Share = 5
    """The batch of a subnet steps up when the higher one leaves this share free below `upper_threshold`."""
    step_up_hold: Seconds = 60.0
    """Time for which the higher batch must fit before the step."""
    cooldown_roomy: Seconds = 130.0
    """Time after use before which an address is not assigned to another Pod while its subnet or slice is roomy."""
    cooldown_filling: Seconds = 30.0
    """The same while the subnet has a smaller batch, or a quarter of the slice or less is unassigned."""
    cooldown_exhausted: Seconds = 5.0
    """The same while the subnet is exhausted or the slice nearly full; the least time if no other address is left."""
    fence: Seconds = 600.0
    """An agent that has not confirmed its Node for this long assigns no new address."""
    confirmation_interval: Seconds = 180.0
    """Interval at which an agent confirms its Node."""
    node_gc_delay: Seconds = 660.0
    """Time for which a Node must be gone before its addresses are released."""
    sandbox_gc_delay: Seconds = 60.0
    """Time for which a sandbox must be seen to have ended, without a DEL, before its addresses are released."""
    clock_error: Seconds = 30.0
    """Largest difference between two machines' clocks within the node GC delay."""
    relist_interval: Seconds = 1800.0
    """Interval at which informers list all objects again although no watch failed."""
    inventory_timeout: Seconds = 600.0
    """Time for which an inventory after a ledger restore waits for agents before it uses their NNCs as they are."""
    reserved_for_primaries: Count = 4
    """Addresses of a subnet granted only as primaries, so that a node can start when all others are taken."""
    add_timeout: Seconds = 10.0
    """Time for which an ADD waits for requested addresses."""
    plugin_timeout: Seconds = 5.0
    """Time for which the CNI plugin waits for its agent."""

    def __post_init__(self) -> None:
        for name in FORMATS:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidInput(name, value, "must be a finite duration")
        for name, holds, rule in RULES:
            if not holds(self):
                raise InvalidInput(name, FORMATS[name].show(getattr(self, name)), rule)

    @property
    def scaler(self) -> Scaler:
        """The scaler of a subnet that is not short of addresses."""
        return Scaler(self.batch, self.buffer)

    @property
    def shrink_buffer(self) -> int:
        """`max_buffer`, or its default `buffer` + 1."""
        return self.buffer + 100 if self.max_buffer is None else self.max_buffer

    @property
    def sandbox_gc_interval(self) -> float:
        """Seconds between two observations of sandboxes."""
        return self.sandbox_gc_delay / 2

    @property
    def batch_rules(self) -> BatchRules:
        """The rules of the graded batch."""
        return BatchRules(upper=self.upper_threshold, margin=self.step_up_margin, hold=self.step_up_hold)

    @property
    def cooldown_levels(self) -> CooldownLevels:
        """The three cooldowns."""
        return CooldownLevels(self.cooldown_roomy, self.cooldown_filling, self.cooldown_exhausted)

    def debounce_timing(self, *, exhausted: bool, nodes: int | None, position: float) -> DebounceTiming:
        """Return the delays of a node's requests.

        `position` is its random place in the spread, from 0 to 1. If the number of nodes is not known, it may be large.
        """
        longest = self.shrink_spread_max
        return DebounceTiming(
            quiet=self.growth_quiet,
            max_delay=self.growth_max_delay,
            hold=0.0 if exhausted else self.shrink_hold,
            spread=position * (longest if nodes is None else min(nodes * self.shrink_spread_per_node, longest)),
        )


def settings_from_strings(texts: Mapping[str, str]) -> Settings:
    """Parse settings by name: `{"batch": "8", "buffer": "0.25", "shrink_hold": "1m"}`."""
    values: dict[str, int | float] = {}
    for name, text in texts.items():
        members = SHORTHANDS.get(name, (name,))
        if members[0] not in FORMATS:
            known = (*FORMATS, *SHORTHANDS)
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(known)}"
            raise InvalidInput("setting", name, f"unknown; {hint}")
        value = FORMATS[members[0]].parse(text, what=name)
        values |= {each: value for each in members if each == name or each not in texts}
    return Settings(**values)  # type: ignore[arg-type]  # each format parses to the type that it annotates


def parse_settings(text: str) -> Settings:
    """Parse one line: `batch=8,shrink_hold=1m`; an empty one is the defaults."""
    texts: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidInput("settings", text, f"{quoted(pair)} has no value: write it as batch=8,shrink_hold=1m")
        if name in texts:
            raise InvalidInput("settings", text, f"{quoted(name)} is given twice")
        texts[name] = value
    return settings_from_strings(texts)


def _not_negative(name: str) -> tuple[str, Callable[[Settings], bool], str]:
    return name, lambda settings: getattr(settings, name) >= 0, "must not be negative"


def _format(hint: object) -> ValueFormat:
    """Return the format in an annotation: `Share`, or `Share | None`."""
    parts = (hint, *typing.get_args(hint))
    formats: list[ValueFormat] = [each for part in parts for each in getattr(part, "__metadata__", ())]
    return formats[0]


SHORTHANDS = {"cooldown": ("cooldown_roomy", "cooldown_filling", "cooldown_exhausted")}
"""Names that set several settings, except those that are given too."""
FORMATS = {name: _format(hint) for name, hint in typing.get_type_hints(Settings, include_extras=True).items()}
RULES: tuple[tuple[str, Callable[[Settings], bool], str], ...] = (
    ("batch", lambda n: 1 <= n.batch <= 256, "must be from 1 to 256"),
    ("buffer", lambda n: 0 <= n.buffer <= 400, "must be from 0 to 4"),
    ("max_buffer", lambda n: n.shrink_buffer >= n.buffer + 100, "must be at least 1 above buffer"),
    ("node_maximum", lambda n: n.node_maximum >= 1, "must be at least 1"),
    ("upper_threshold", lambda n: 0 < n.upper_threshold <= 100, "must be above 0 and at most 1"),
    (
        "lower_threshold",
        lambda n: 0 < n.lower_threshold < n.upper_threshold,
        "must be above 0 and below upper_threshold",
    ),
    ("utilization_poll", lambda n: n.utilization_poll > 0, "must be longer than 0"),
    _not_negative("growth_quiet"),
    ("growth_max_delay", lambda n: n.growth_max_delay >= n.growth_quiet, "must not be shorter than growth_quiet"),
    _not_negative("shrink_hold"),
    _not_negative("shrink_spread_per_node"),
    _not_negative("shrink_spread_max"),
    (
        "step_up_margin",
        lambda n: 0 <= n.step_up_margin < n.upper_threshold,
        "must be at least 0 and below upper_threshold",
    ),
    _not_negative("step_up_hold"),
    _not_negative("cooldown_exhausted"),
    (
        "cooldown_filling",
        lambda n: n.cooldown_filling >= n.cooldown_exhausted,
        "must not be shorter than cooldown_exhausted",
    ),
    (
        "cooldown_roomy",
        lambda n: n.cooldown_roomy >= n.cooldown_filling,
        "must not be shorter than cooldown_filling",
    ),
    ("fence", lambda n: n.fence > 0, "must be longer than 0"),
    (
        "confirmation_interval",
        lambda n: 0 < n.confirmation_interval < n.fence,
        "must be longer than 0 and shorter than fence",
    ),
    _not_negative("clock_error"),
    (
        "node_gc_delay",
        lambda n: n.node_gc_delay > n.fence + n.clock_error,
        "must be longer than fence and clock_error together",
    ),
    ("sandbox_gc_delay", lambda n: n.sandbox_gc_delay >= 1, "must be at least 1s"),
    ("relist_interval", lambda n: n.relist_interval > 0, "must be longer than 0"),
    _not_negative("inventory_timeout"),
    _not_negative("reserved_for_primaries"),
    _not_negative("add_timeout"),
    _not_negative("plugin_timeout"),
)
