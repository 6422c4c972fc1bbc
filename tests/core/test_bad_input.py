"""Whatever a parser is fed, it answers, or raises `InvalidInput` that names the input and the reason."""

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from podpool.core.addresses import parse_address
from podpool.core.allocation import parse_allocation
from podpool.core.errors import InvalidInput
from podpool.core.numbers import KINDS, parse_numbers
from podpool.core.pool import Order, Pool, PoolSnapshot
from podpool.core.quantities import parse_count, parse_duration, parse_share
from podpool.core.ranges import parse_exclusion, parse_prefix, parse_stretch
from podpool.core.slices import parse_slice_size

RANGE = parse_prefix("10.0.0.0/8")
PARSERS: dict[str, Callable[[str], object]] = {
    "address": parse_address,
    "sloppy address": lambda text: parse_address(text, leading_zeros=True),
    "prefix": parse_prefix,
    "prefix usable": lambda text: parse_prefix(text).usable,
    "exclusion": parse_exclusion,
    "stretch": parse_stretch,
    "allocation": lambda text: parse_allocation(text).members,
    "range_start": lambda text: parse_allocation("10.0.0.0/8", start=text).members,
    "range_end": lambda text: parse_allocation("10.0.0.0/8", end=text).members,
    "exclude": lambda text: parse_allocation("10.0.0.0/8", exclude=[text]).members,
    "slice size": lambda text: parse_slice_size(text, of=RANGE),
    "count": lambda text: parse_count(text, what="count"),
    "share": lambda text: parse_share(text, what="share"),
    "duration": lambda text: parse_duration(text, what="duration"),
    "number's name": lambda text: parse_numbers({text: 1}),
    "snapshot": lambda text: Pool.restore(PoolSnapshot(text, Order.LOWEST)),
    "snapshot taken": lambda text: Pool.restore(PoolSnapshot("10.0.0.0-10.0.0.9", Order.LOWEST, taken=(text,))),
}

# mostly made of what the grammars are made of, so that the search gets past the first character
plausible = st.text(st.sampled_from("0123456789abcdef.:/-% hms"), max_size=40)
nearly = st.tuples(
    st.ip_addresses().map(str), st.sampled_from(["", "/", "-", "/24", "-::1/64", "/-1", "%eth0"]), plausible
)
words = st.one_of(st.text(), plausible, nearly.map("".join))


@pytest.mark.parametrize("parser", PARSERS)
@given(text=words)
@example(text="0" * 5000)
@example(text="1/" + "9" * 5000)
@example(text="\x00")
@example(text="\ud800")
@example(text="²/²")
def test_a_parser_raises_one_typed_error(parser: str, text: str) -> None:
    try:
        PARSERS[parser](text)
    except InvalidInput as error:
        assert error.what
        assert error.reason
        assert str(error).startswith(error.what)
        assert len(str(error)) < 1500


@given(st.dictionaries(st.sampled_from(sorted(KINDS)), st.integers() | words, max_size=4))
def test_numbers_are_valid_or_refused(given_words: dict[str, str | int]) -> None:
    try:
        numbers = parse_numbers(given_words)
    except InvalidInput as error:
        assert error.what in KINDS
    else:
        assert numbers.gone > numbers.fence


def test_a_long_input_is_shown_in_short() -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_address("9" * 1000)
    assert len(str(caught.value)) < 200
    assert "9" * 1000 == caught.value.value
