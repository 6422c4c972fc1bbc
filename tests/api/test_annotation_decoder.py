"""Text whose author need not be an administrator is decoded to a value or to nothing."""

import msgspec
import pytest

from podpool.api.annotation_decoder import MAX_ANNOTATION_BYTES, decode_annotation, parse_number
from podpool.api.meta import is_older, version_number

DECODER = msgspec.json.Decoder(dict[str, str])


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{",
        "[" * 5000,
        '{"a":' + "[" * 5000,
        '{"a":' + "9" * 5000 + "}",
        '{"a":"\0"}',
        r'{"a":"\u0000"}',
        r'{"a":"\ud800x"}',
        '{"a":"\ud800"}',
        '{"a":"' + "x" * MAX_ANNOTATION_BYTES + '"}',
        "[]",
    ],
    ids=lambda text: repr(text)[:20],
)
def test_what_cannot_be_decoded_is_absent(text: str | None) -> None:
    assert decode_annotation(DECODER, text) is None


def test_what_can_be_decoded_is_returned() -> None:
    assert {"a": "ä"} == decode_annotation(DECODER, '{"a":"ä"}')


@pytest.mark.parametrize("text", [None, "", "-1", "+1", " 1", "1.0", "0x1", "٣", "9" * 21, "9" * 5000])
def test_only_a_bounded_number_is_a_number(text: str | None) -> None:
    assert parse_number(text) is None
    assert 0 == version_number(text or "")
    assert not is_older("1", text or "")


def test_the_largest_version_is_a_number() -> None:
    assert 2**64 - 1 == parse_number(str(2**64 - 1))
