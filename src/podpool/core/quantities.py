"""Parsing and formatting of counts, shares and durations.

A share is an integer in hundredths, parsed from decimal text, never from a float: 0.29 is 29, not 28.999999999999996.
A duration is in seconds.
"""

import math
import re
from decimal import Decimal

from podpool.core.errors import InvalidInput

_SHARE = re.compile(r"([0-9]{1,6})(?:\.([0-9]{1,2})0*)?", re.ASCII)
_DURATION = re.compile(r"(?:([0-9]{1,6})h)?(?:([0-9]{1,6})m(?!s))?(?:([0-9]{1,6})s)?(?:([0-9]{1,6})ms)?", re.ASCII)
_MAX_EXPONENT = 5
_MILLISECONDS = (3_600_000, 60_000, 1_000, 1)


def parse_count(text: str, *, what: str) -> int:
    """Parse a whole number."""
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise InvalidInput(what, text, "not a whole number")
    return int(text)


def parse_share(text: str, *, what: str) -> int:
    """Parse `0.5` as 50 hundredths."""
    found = _SHARE.fullmatch(text)
    if not found:
        raise InvalidInput(what, text, "not a number with at most two decimals: write it as 0.5")
    whole, decimals = found.groups("")
    return 100 * int(whole) + int(decimals.ljust(2, "0"))


def hundredths(share: Decimal | None) -> int | None:
    """Return a share as hundredths, rounded up; None if it is no number of at most six digits."""
    if share is None or not share.is_finite() or share.adjusted() > _MAX_EXPONENT:
        return None
    return math.ceil(share * 100)


def show_share(hundredths: int) -> str:
    """Format a share: 50 as `0.5`."""
    if hundredths < 0:
        return f"-{show_share(-hundredths)}"
    return f"{hundredths // 100}.{hundredths % 100:02}".rstrip("0").rstrip(".")


def parse_duration(text: str, *, what: str) -> float:
    """Parse `50ms`, `30s`, `1m30s` or `2h` as seconds; `0` needs no unit."""
    found = _DURATION.fullmatch(text)
    if text != "0" and (not found or not text):
        raise InvalidInput(what, text, "not a duration: write it as 50ms, 30s, 1m30s or 2h")
    counts = found.groups("0") if found else ("0",)
    return sum(int(number) * unit for number, unit in zip(counts, _MILLISECONDS, strict=False)) / 1_000


def show_duration(seconds: float) -> str:
    """Format seconds: 90 as `1m30s`."""
    if not math.isfinite(seconds):
        return str(seconds)
    if seconds < 0:
        return f"-{show_duration(-seconds)}"
    left = round(seconds * 1_000)
    text = ""
    for unit, name in zip(_MILLISECONDS, ("h", "m", "s", "ms"), strict=True):
        number, left = divmod(left, unit)
        text += f"{number}{name}" if number else ""
    return text or "0"
