"""A parser returns a value or raises `InvalidInput` with the input and the reason, whatever its input."""

import pickle
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.core.quantities import parse_count, parse_duration, parse_share
from podpool.core.range_spec import parse_range_spec
from podpool.core.ranges import parse_exclusion, parse_prefix, parse_range
from podpool.core.settings import FORMATS, parse_settings, settings_from_strings
from podpool.core.slice_table import parse_slice_size

RANGE = parse_prefix("10.0.0.0/8")
PARSERS: dict[str, Callable[[str], object]] = {
    "address": parse_address,
    "range": parse_prefix,
    "exclude": parse_exclusion,
    "span": lambda text: parse_range(text, what="span"),
    "range_start": lambda text: parse_range_spec("10.0.0.0/8", start=text).members,
    "range_end": lambda text: parse_range_spec("10.0.0.0/8", end=text).members,
    "node_slice_size": lambda text: parse_slice_size(text, of=RANGE),
    "count": lambda text: parse_count(text, what="count"),
    "share": lambda text: parse_share(text, what="share"),
    "duration": lambda text: parse_duration(text, what="duration"),
}
"""By the name of the input in the error."""
OTHERS: dict[str, Callable[[str], object]] = {
    "address with leading zeros": lambda text: parse_address(text, leading_zeros=True),
    "usable addresses": lambda text: parse_prefix(text).usable,
    "allocation": lambda text: parse_range_spec(text).members,
    "excluding": lambda text: parse_range_spec("10.0.0.0/8", exclude=[text]).members,
    "setting name": lambda text: settings_from_strings({text: "1"}),
    "line of settings": parse_settings,
}

# mostly made of what the grammars are made of, so that the search gets past the first character
plausible = st.text(st.sampled_from("0123456789abcdef.:/-% hms"), max_size=40)
nearly = st.tuples(
    st.ip_addresses().map(str), st.sampled_from(["", "/", "-", "/24", "-::1/64", "/-1", "%eth0"]), plausible
)
words = st.one_of(st.text(), plausible, nearly.map("".join))


@pytest.mark.parametrize("what", PARSERS)
@given(text=words)
@example(text="0" * 5000)
@example(text="1/" + "9" * 5000)
@example(text="\x00")
@example(text="\ud800")
@example(text="²/²")
def test_a_parser_raises_one_typed_error(what: str, text: str) -> None:
    try:
        PARSERS[what](text)
    except InvalidInput as error:
        assert (what, text) == (error.what, error.value)
        check(error)


@pytest.mark.parametrize("parser", OTHERS)
@given(text=words)
def test_callers_of_parsers_raise_the_same_error(parser: str, text: str) -> None:
    try:
        OTHERS[parser](text)
    except InvalidInput as error:
        check(error)


def check(error: InvalidInput) -> None:
    assert error.reason
    assert str(error).startswith(f"{error.what} ")
    assert len(str(error)) < 1500


@given(st.dictionaries(st.sampled_from(sorted(FORMATS)), st.integers().map(str) | words, max_size=4))
def test_settings_are_valid_or_rejected(given_words: dict[str, str]) -> None:
    try:
        settings = settings_from_strings(given_words)
    except InvalidInput as error:
        assert error.what in FORMATS
    else:
        assert settings.node_gc_delay > settings.fence


def test_a_long_input_is_shortened() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address("9" * 1000)
    assert len(str(caught.value)) < 200
    assert "9" * 1000 == caught.value.value


@pytest.mark.parametrize(("length", "shown"), [(98, 100), (99, 100), (1000, 100)])
def test_an_input_in_an_error_has_at_most_100_characters(length: int, shown: int) -> None:
    error = InvalidInput("x", "9" * length, "y")
    assert len("x : y") + shown == len(str(error))
    assert (length == 98) == ("..." not in str(error))


def test_an_error_can_be_pickled() -> None:
    packed = pickle.dumps(InvalidInput("range", "foo", "not in CIDR notation"))
    error = pickle.loads(packed)  # noqa: S301  our own bytes
    assert ("range", "foo", "not in CIDR notation") == (error.what, error.value, error.reason)


def test_a_number_too_long_for_python_is_reported() -> None:
    with pytest.raises(InvalidInput, match=r"^offset \(a number too long to print\): is outside 10.0.0.0/8$"):
        RANGE.at(10**5000)


def test_a_value_nested_too_deep_for_python_is_reported() -> None:
    value: list[object] = []
    for _ in range(5000):
        value = [value]
    assert "ipam (a value nested too deep to print): must be an object" == str(
        InvalidInput("ipam", value, "must be an object")
    )
