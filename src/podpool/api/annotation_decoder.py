"""Text in annotations and labels, whose author need not be an administrator: decoded within bounds, without exceptions.

Every decoder of such text is called through this module. What cannot be decoded counts as absent.
"""

from typing import TypeVar

import msgspec

MAX_ANNOTATION_BYTES = 256 << 10
"""What the API server allows for all annotations of an object together."""
MAX_DIGITS = 20
"""Digits of an unsigned number of 64 bits."""

T = TypeVar("T")


def decode_annotation(decoder: msgspec.json.Decoder[T], text: str | None) -> T | None:
    r"""Decode JSON; None if it is too long, too deep, not of the type, or contains NUL.

    No name contains NUL, and PostgreSQL cannot store it. An escaped backslash before `u0000` is refused as well.
    """
    if not text or len(text) > MAX_ANNOTATION_BYTES or "\0" in text or r"\u0000" in text:
        return None
    try:
        return decoder.decode(text)
    except (ValueError, RecursionError):  # msgspec's errors and those of Unicode are ValueErrors
        return None


def parse_number(text: str | None) -> int | None:
    """Parse a number of at most `MAX_DIGITS` ASCII digits; None for anything else."""
    if not text or len(text) > MAX_DIGITS or not (text.isascii() and text.isdigit()):
        return None
    return int(text)
