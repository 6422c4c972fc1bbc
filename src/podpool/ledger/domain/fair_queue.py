"""Whose turn it is when a subnet is short.

Waiting Pods come before buffers; among equals, who came first. Addresses are only given to those who ask, so what
belongs to somebody who is ahead and not here is set aside, and they are told that they can be served. Somebody who was
told and does not come lets the turn pass after a while, and then nothing is set aside until they ask again: nobody
starves, and no address lies idle for one who is gone.
"""

from collections.abc import Iterable

import msgspec

PATIENCE = 30.0
"""How long something is set aside for one who was told; a controller that lives answers within a second."""

PASSED = float(1 << 53)
"""Since when one waits who let the turn pass: after everybody else."""


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """What one container is short of."""

    container: int
    need: int = 0
    """Addresses that waiting Pods of it need,"""
    need_since: float | None = None
    wish: int = 0
    """and those for its buffer."""
    wish_since: float | None = None
    here: bool = False
    """It asks in this very call; others are only told."""


def shares(asks: Iterable[Ask], free: int) -> dict[int, int]:
    """Divide what is free among those who ask, or would; whoever gets nothing is not in it."""
    given: dict[int, int] = {}
    for container, amount, since, here in _queue(asks):
        share = min(amount, free)
        if share <= 0:
            break
        given[container] = given.get(container, 0) + share
        if here or since < PASSED:
            free -= share
    return given


_Place = tuple[int, int, float, bool]
"""Container, amount, since when, and whether it is here."""


def _queue(asks: Iterable[Ask]) -> list[_Place]:
    needs: list[_Place] = []
    wishes: list[_Place] = []
    passed: list[_Place] = []
    for ask in asks:
        for amount, since, line in ((ask.need, ask.need_since, needs), (ask.wish, ask.wish_since, wishes)):
            if amount and since is not None:
                entry = (ask.container, amount, since, ask.here)
                (passed if since >= PASSED and not ask.here else line).append(entry)
    for line in (needs, wishes):
        line.sort(key=lambda entry: (entry[2], entry[0]))
    return [*needs, *wishes, *passed]
