"""Settings: defaults, rules and parsing."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podpool.core.cooldown_levels import CooldownLevels
from podpool.core.errors import InvalidInput
from podpool.core.quantities import parse_count, parse_duration, parse_share, show_duration, show_share
from podpool.core.scaling import Scaler
from podpool.core.settings import Settings, parse_settings, settings_from_strings


def test_the_defaults_are_valid_and_as_documented() -> None:
    settings = Settings()
    assert Scaler(16, 50) == settings.scaler
    assert 150 == settings.shrink_buffer
    assert (90, 80, 15.0) == (settings.upper_threshold, settings.lower_threshold, settings.utilization_poll)
    assert (600.0, 180.0, 660.0) == (settings.fence, settings.confirmation_interval, settings.node_gc_delay)
    assert (60.0, 30.0) == (settings.sandbox_gc_delay, settings.sandbox_gc_interval)
    assert settings == settings_from_strings({})


def test_settings_are_parsed_from_text() -> None:
    settings = settings_from_strings(
        {"batch": "8", "buffer": "0.25", "max_buffer": "1.5", "shrink_hold": "1m", "utilization_poll": "250ms"}
    )
    assert (8, 25, 150, 60.0, 0.25) == (
        settings.batch,
        settings.buffer,
        settings.shrink_buffer,
        settings.shrink_hold,
        settings.utilization_poll,
    )


def test_settings_are_parsed_from_one_line() -> None:
    assert settings_from_strings({"batch": "8", "shrink_hold": "1m"}) == parse_settings("batch=8, shrink_hold=1m")
    assert Settings() == parse_settings("")
    with pytest.raises(
        InvalidInput, match="settings 'batch': 'batch' has no value: write it as batch=8,shrink_hold=1m"
    ):
        parse_settings("batch")
    with pytest.raises(InvalidInput, match="'batch' is given twice"):
        parse_settings("batch=8,batch=9")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"buffer": -1}, "buffer '-0.01': must be from 0 to 4"),
        ({"add_timeout": -0.5}, "add_timeout '-500ms': must not be negative"),
        ({"utilization_poll": float("nan")}, "utilization_poll nan: must be a finite duration"),
        ({"node_gc_delay": float("inf")}, "node_gc_delay inf: must be a finite duration"),
    ],
)
def test_values_without_text_form_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Settings(**settings)
    assert message == str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"batch": "0"}, "batch '0': must be from 1 to 256"),
        ({"batch": "257"}, "batch '257': must be from 1 to 256"),
        ({"batch": "many"}, "batch 'many': not a whole number"),
        ({"buffer": "4.01"}, "buffer '4.01': must be from 0 to 4"),
        ({"buffer": "0.333"}, "at most two decimals"),
        ({"max_buffer": "1.49"}, "max_buffer '1.49': must be at least 1 above buffer"),
        ({"node_maximum": "0"}, "at least 1"),
        ({"upper_threshold": "1.01"}, "at most 1"),
        ({"upper_threshold": "0"}, "above 0"),
        ({"lower_threshold": "0.9"}, "lower_threshold '0.9': must be above 0 and below upper_threshold"),
        ({"lower_threshold": "0"}, "above 0 and below upper_threshold"),
        ({"utilization_poll": "0"}, "utilization_poll '0': must be longer than 0"),
        ({"growth_quiet": "300ms"}, "growth_max_delay '250ms': must not be shorter than growth_quiet"),
        ({"step_up_margin": "0.9"}, "below upper_threshold"),
        ({"cooldown_filling": "4s"}, "cooldown_filling '4s': must not be shorter than cooldown_exhausted"),
        ({"cooldown_roomy": "29s"}, "cooldown_roomy '29s': must not be shorter than cooldown_filling"),
        ({"cooldown": "4s", "cooldown_exhausted": "5s"}, "cooldown_filling '4s': must not be shorter"),
        ({"cooldown": "long"}, "cooldown 'long': not a duration"),
        ({"cooldwn": "1s"}, "did you mean cooldown?"),
        ({"fence": "0"}, "fence '0': must be longer than 0"),
        ({"confirmation_interval": "10m"}, "shorter than fence"),
        ({"confirmation_interval": "0"}, "longer than 0"),
        ({"node_gc_delay": "10m30s"}, "node_gc_delay '10m30s': must be longer than fence and clock_error together"),
        ({"sandbox_gc_delay": "900ms"}, "sandbox_gc_delay '900ms': must be at least 1s"),
        ({"bach": "1"}, "setting 'bach': unknown; did you mean batch?"),
        ({"zzz": "1"}, "use one of batch, buffer"),
    ],
)
def test_a_value_outside_its_rule_is_rejected_with_the_rule(words: dict[str, str], message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        settings_from_strings(words)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "name",
    [
        "growth_quiet",
        "shrink_hold",
        "shrink_spread_per_node",
        "shrink_spread_max",
        "step_up_hold",
        "cooldown_exhausted",
        "clock_error",
        "reserved_for_primaries",
        "add_timeout",
        "plugin_timeout",
    ],
)
def test_negative_values_are_rejected(name: str) -> None:
    with pytest.raises(InvalidInput, match="must not be negative"):
        Settings(**{name: -1})


def test_cooldown_sets_all_levels_that_are_not_given() -> None:
    assert CooldownLevels(130.0, 30.0, 5.0) == Settings().cooldown_levels
    assert CooldownLevels(2.0, 2.0, 2.0) == parse_settings("cooldown=2s").cooldown_levels
    for line in ("cooldown=2s,cooldown_exhausted=1s", "cooldown_exhausted=1s,cooldown=2s"):
        assert CooldownLevels(2.0, 2.0, 1.0) == parse_settings(line).cooldown_levels


def test_5000_nodes_do_not_release_within_a_second() -> None:
    """Also if their number is not published; and two nodes do not wait."""
    settings = Settings()
    for nodes in (5_000, None):
        timings = (settings.debounce_timing(exhausted=True, nodes=nodes, position=n / 5_000) for n in range(5_000))
        seconds = Counter(int(each.spread) for each in timings)
        assert (30, 167) == (len(seconds), max(seconds.values()))
    assert settings.debounce_timing(exhausted=True, nodes=2, position=1.0).spread <= 0.02


def test_exhausted_nodes_spread_releases() -> None:
    settings = Settings()
    assert 30.0 == settings.debounce_timing(exhausted=False, nodes=100, position=0.5).hold
    assert (0.0, 0.5) == (
        settings.debounce_timing(exhausted=True, nodes=100, position=0.5).hold,
        settings.debounce_timing(exhausted=True, nodes=100, position=0.5).spread,
    )
    assert 15.0 == settings.debounce_timing(exhausted=True, nodes=1_000_000, position=0.5).spread
    assert (0.05, 0.25) == (
        settings.debounce_timing(exhausted=True, nodes=1, position=0.0).quiet,
        settings.debounce_timing(exhausted=True, nodes=1, position=0.0).max_delay,
    )


def test_batch_rules_follow_the_settings() -> None:
    rules = settings_from_strings(
        {"upper_threshold": "0.95", "step_up_margin": "0.1", "step_up_hold": "2m"}
    ).batch_rules
    assert (95, 10, 120.0) == (rules.upper, rules.margin, rules.hold)


@pytest.mark.parametrize(("text", "refused"), [("999999999", False), ("1000000000", True)])
def test_a_count_has_nine_digits_at_most(text: str, refused: bool) -> None:
    if refused:
        with pytest.raises(InvalidInput, match="batch '1000000000': not a whole number"):
            parse_count(text, what="batch")
    else:
        assert 999_999_999 == parse_count(text, what="batch")


@pytest.mark.parametrize(("hundredths", "text"), [(1000, "10"), (50, "0.5"), (0, "0"), (5, "0.05"), (400, "4")])
def test_a_share_is_formatted_without_trailing_zeros(hundredths: int, text: str) -> None:
    assert text == show_share(hundredths)


@given(st.integers(0, 99_999_999))
def test_a_share_round_trips(hundredths: int) -> None:
    assert hundredths == parse_share(show_share(hundredths), what="share")


@pytest.mark.parametrize(("text", "hundredths"), [("0.29", 29), ("0.5", 50), ("4", 400), ("1.00", 100), ("0.2500", 25)])
def test_a_share_is_never_a_float(text: str, hundredths: int) -> None:
    assert hundredths == parse_share(text, what="share")


@given(st.integers(0, 10**9))
def test_a_duration_round_trips(milliseconds: int) -> None:
    assert milliseconds / 1000 == parse_duration(show_duration(milliseconds / 1000), what="hold")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("0", 0.0), ("50ms", 0.05), ("30s", 30.0), ("1m30s", 90.0), ("2h", 7200.0), ("1h2m3s4ms", 3723.004)],
)
def test_durations_are_parsed(text: str, seconds: float) -> None:
    assert seconds == parse_duration(text, what="hold")


@pytest.mark.parametrize("text", ["", "1", "s", "-1s", "1.5s", "30 s", "1s1m", "1d", "٣s"])
def test_an_invalid_duration_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="hold .* not a duration"):
        parse_duration(text, what="hold")


@pytest.mark.parametrize("text", ["", ".5", "0.", "1e3", "-1", "0,5", "50%", "nan", "٣"])
def test_an_invalid_share_is_rejected(text: str) -> None:
    with pytest.raises(InvalidInput, match="buffer .* two decimals"):
        parse_share(text, what="buffer")
