"""Every number that somebody may want to change, with its default and its rule, in one position.

A `Settings` that exists is valid: making one outside the rules raises `InvalidInput` with the field, the value and the
rule. `settings_from_strings` reads them from the words of a file, the environment or a command line.
"""

import difflib
import math
import typing
from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec

from podpool.core.batch_policy import BatchRules
from podpool.core.debounce import DebounceTiming
from podpool.core.errors import InvalidInput, quoted
from podpool.core.quantities import parse_count, parse_duration, parse_share, show_duration, show_share
from podpool.core.scaling import Scaler


class ValueFormat(msgspec.Struct, frozen=True):
    """How a number is read and written."""

    parse: Callable[..., int | float]
    show: Callable[..., str]


Count = Annotated[int, ValueFormat(parse_count, str)]
Share = Annotated[int, ValueFormat(parse_share, show_share)]
Seconds = Annotated[float, ValueFormat(parse_duration, show_duration)]


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """Counts as they are, shares in hundredths, durations in seconds."""

    batch: Count = 16
    """B: addresses move in multiples of it."""
    buffer: Share = 50
    """mf: the share of a batch that a node keeps free."""
    max_buffer: Share | None = None
    """Mf, reactive mode only: the share of a batch from which on one is given back; without it `buffer` + 1."""
    node_maximum: Count = 250
    """The most addresses of a node."""
    upper_threshold: Share = 90
    """T: the share of a subnet above which it is exhausted."""
    lower_threshold: Share = 80
    """t: the share of a subnet below which it is all clear."""
    utilization_poll: Seconds = 15.0
    """How often a subnet's utilisation is asked for by those who do not follow the ledger's stream."""
    growth_quiet: Seconds = 0.05
    """A node asks for more when its target has not changed for this long."""
    growth_max_delay: Seconds = 0.25
    """It asks for more after this long at the latest, however its target changes."""
    shrink_hold: Seconds = 30.0
    """A node asks for less when its target has been lower for this long; at once while the subnet is exhausted."""
    shrink_spread_per_node: Seconds = 0.01
    """While exhausted, nodes give back one after the other: how long each."""
    shrink_spread_max: Seconds = 30.0
    """How long that takes altogether at the most."""
    step_up_margin: Share = 5
    """The batch of a subnet goes up when the higher one leaves this share of the subnet free below `upper_threshold`."""
    step_up_hold: Seconds = 60.0
    """For how long it must do so."""
    cooldown: Seconds = 30.0
    """How long an address rests after a Pod used it."""
    cooldown_exhausted: Seconds = 5.0
    """How long it rests while the subnet is exhausted."""
    fence: Seconds = 600.0
    """An agent that has not confirmed its Node for this long gives no new address."""
    confirmation_interval: Seconds = 180.0
    """How often an agent confirms its Node."""
    node_gc_delay: Seconds = 660.0
    """How long a Node must have been away before its addresses are given to others."""
    clock_error: Seconds = 30.0
    """How far two machines' clocks may run apart within the gone time."""
    relist_interval: Seconds = 1800.0
    """How long a cache of the API server is trusted before everything is listed again, however well its watch goes."""
    inventory_timeout: Seconds = 600.0
    """How long a listing after a restore of the ledger waits for the agents' own words, before it believes the NNCs."""
    reserved_for_primaries: Count = 4
    """Addresses of a subnet that only serve as primaries, so that a node can start when all others are taken."""
    add_timeout: Seconds = 10.0
    """How long an ADD waits for addresses on their way."""
    plugin_timeout: Seconds = 5.0
    """How long the plugin waits for its agent."""

    def __post_init__(self) -> None:
        for name in FORMATS:
            value = getattr(self, name)
            if isinstance(value, float) and not math.isfinite(value):
                raise InvalidInput(name, value, "must be a length of time")
        for name, holds, rule in RULES:
            if not holds(self):
                raise InvalidInput(name, FORMATS[name].show(getattr(self, name)), rule)

    @property
    def scaler(self) -> Scaler:
        """The scaler of a subnet that has room."""
        return Scaler(self.batch, self.buffer)

    @property
    def shrink_buffer(self) -> int:
        """The reactive monitor's upper share of a batch."""
        return self.buffer + 100 if self.max_buffer is None else self.max_buffer

    @property
    def batch_rules(self) -> BatchRules:
        """When the batch of a subnet changes."""
        return BatchRules(upper=self.upper_threshold, margin=self.step_up_margin, hold=self.step_up_hold)

    def debounce_timing(self, *, exhausted: bool, nodes: int, position: float) -> DebounceTiming:
        """Tell when a node may ask; `position` is its random position in the queue, from 0 up to 1."""
        return DebounceTiming(
            quiet=self.growth_quiet,
            max_delay=self.growth_max_delay,
            hold=0.0 if exhausted else self.shrink_hold,
            spread=position * min(nodes * self.shrink_spread_per_node, self.shrink_spread_max),
        )

    def cooldown_in_force(self, *, exhausted: bool) -> float:
        """Tell how long an address rests now."""
        return self.cooldown_exhausted if exhausted else self.cooldown


def settings_from_strings(words: Mapping[str, str]) -> Settings:
    """Read settings as people write them: `{"batch": "8", "buffer": "0.25", "shrink_hold": "1m"}`."""
    values: dict[str, int | float] = {}
    for name, word in words.items():
        if name not in FORMATS:
            near = difflib.get_close_matches(name, FORMATS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"use one of {', '.join(FORMATS)}"
            raise InvalidInput("number", name, f"there is none of this name; {hint}")
        values[name] = FORMATS[name].parse(word, what=name)
    return Settings(**values)  # type: ignore[arg-type]  # each kind parses to the type that it annotates


def parse_settings(text: str) -> Settings:
    """Read them from one line: `batch=8,shrink_hold=1m`; an empty one is the defaults."""
    words: dict[str, str] = {}
    for pair in filter(None, text.split(",")):
        name, equals, word = (part.strip() for part in pair.partition("="))
        if not equals:
            raise InvalidInput("settings", text, f"{quoted(pair)} has no value: write it as batch=8,shrink_hold=1m")
        if name in words:
            raise InvalidInput("settings", text, f"{quoted(name)} is given twice")
        words[name] = word
    return settings_from_strings(words)


def _not_negative(name: str) -> tuple[str, Callable[[Settings], bool], str]:
    return name, lambda settings: getattr(settings, name) >= 0, "must not be negative"


def _kind(hint: object) -> ValueFormat:
    """Find the kind in a type: `Share`, or `Share | None`."""
    kinds: list[ValueFormat] = [
        kind for part in (hint, *typing.get_args(hint)) for kind in getattr(part, "__metadata__", ())
    ]
    return kinds[0]


FORMATS = {name: _kind(hint) for name, hint in typing.get_type_hints(Settings, include_extras=True).items()}
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
    ("cooldown", lambda n: n.cooldown >= n.cooldown_exhausted, "must not be shorter than cooldown_exhausted"),
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
    ("relist_interval", lambda n: n.relist_interval > 0, "must be longer than 0"),
    _not_negative("inventory_timeout"),
    _not_negative("reserved_for_primaries"),
    _not_negative("add_timeout"),
    _not_negative("plugin_timeout"),
)
