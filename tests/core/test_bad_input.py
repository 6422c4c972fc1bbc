"""Whatever a parser is fed, it answers, or raises `InvalidInput` that names the input and the reason."""

import pickle
from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from podpool.core.addresses import parse_address
from podpool.core.errors import InvalidInput
from podpool.core.pool import Order, Pool, PoolSnapshot
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
    "stretch": lambda text: parse_range(text, what="stretch"),
    "range_start": lambda text: parse_range_spec("10.0.0.0/8", start=text).members,
    "range_end": lambda text: parse_range_spec("10.0.0.0/8", end=text).members,
    "node_slice_size": lambda text: parse_slice_size(text, of=RANGE),
    "count": lambda text: parse_count(text, what="count"),
    "share": lambda text: parse_share(text, what="share"),
    "duration": lambda text: parse_duration(text, what="duration"),
    "span": lambda text: Pool.restore(PoolSnapshot(text, Order.LOWEST)),
}
"""By the name that the error gives to the input."""
OTHERS: dict[str, Callable[[str], object]] = {
    "sloppy address": lambda text: parse_address(text, leading_zeros=True),
    "usable addresses": lambda text: parse_prefix(text).usable,
    "allocation": lambda text: parse_range_spec(text).members,
    "excluding": lambda text: parse_range_spec("10.0.0.0/8", exclude=[text]).members,
    "number's name": lambda text: settings_from_strings({text: "1"}),
    "line of settings": parse_settings,
    "snapshot": lambda text: Pool.restore(PoolSnapshot("10.0.0.0-10.0.0.9", Order.LOWEST, taken=(text,))),
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
def test_so_does_what_builds_on_parsers(parser: str, text: str) -> None:
    try:
        OTHERS[parser](text)
    except InvalidInput as error:
        check(error)


def check(error: InvalidInput) -> None:
    assert error.reason
    assert str(error).startswith(f"{error.what} ")
    assert len(str(error)) < 1500


@given(st.dictionaries(st.sampled_from(sorted(FORMATS)), st.integers().map(str) | words, max_size=4))
def test_numbers_are_valid_or_refused(given_words: dict[str, str]) -> None:
    try:
        settings = settings_from_strings(given_words)
    except InvalidInput as error:
        assert error.what in FORMATS
    else:
        assert settings.node_gc_delay > settings.fence


def test_a_long_input_is_shown_in_short() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address("9" * 1000)
    assert len(str(caught.value)) < 200
    assert "9" * 1000 == caught.value.value


@pytest.mark.parametrize(("length", "shown"), [(98, 100), (99, 100), (1000, 100)])
def test_what_is_shown_of_an_input_ends_at_100_characters(length: int, shown: int) -> None:
    error = InvalidInput("x", "9" * length, "y")
    assert len("x : y") + shown == len(str(error))
    assert (length == 98) == ("..." not in str(error))


def test_an_error_survives_the_way_between_processes() -> None:
    packed = pickle.dumps(InvalidInput("range", "foo", "not in CIDR notation"))
    error = pickle.loads(packed)  # noqa: S301  our own bytes
    assert ("range", "foo", "not in CIDR notation") == (error.what, error.value, error.reason)


def test_a_number_too_long_for_python_is_told_all_the_same() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address("10.0.0.1").plus(10**5000)
    assert str(caught.value).startswith("offset a number that is too long to be shown: leads from 10.0.0.1")
