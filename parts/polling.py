"""Waits for a condition of another program: polls until it holds or the deadline has passed.

The only place where tests sleep. A deadline bounds a broken program; it is not a requirement on a working one.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

PATIENCE = 60.0
BETWEEN = 0.02


def until(holds: Callable[[], object], what: str, *, patience: float = PATIENCE, between: float = BETWEEN) -> None:
    """Wait until `holds` gives something true; an exception that it raises goes through."""
    deadline = time.monotonic() + patience
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {patience:.0f} s in vain until {what}")
        time.sleep(between)
