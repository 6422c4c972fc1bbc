"""Waits for a condition of another program: polls until it holds or the deadline has passed.

The only place where tests sleep. A deadline bounds a broken program; it is not a requirement on a working one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

TIMEOUT = 60.0
INTERVAL = 0.02


def until(holds: Callable[[], object], what: str, *, timeout: float = TIMEOUT, interval: float = INTERVAL) -> None:
    """Wait until `holds` returns true; its exceptions are raised."""
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"timed out after {timeout:.0f} s waiting until {what}")
        time.sleep(interval)
