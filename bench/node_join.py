"""Nodes joining at once, beside a bare loop with the same writes; each on a new API server and database.

Nodes exist before the controller starts, so that all join at that moment. Time runs from the first NNC write to the
last; the bare loop makes the same two writes per node, sixteen nodes at once.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from bench.controller_cluster import WRITES, is_status, site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from parts.audit import Call
    from parts.postgres import Postgres

KINDS = frozenset({"nodes", "nodenetworkconfigs"})
"""Resources whose calls count per node; lists and watches are for all nodes together."""


class Join(Struct, frozen=True, kw_only=True):
    """Result of one join."""

    seconds: float
    writes_per_second: float
    calls_per_node: float
    memory: float


class Joins:
    """Joins by size and turn; each runs once for all figures taken from it."""

    def __init__(self, server: Postgres) -> None:
        self._server = server
        self._template: dict[str, Any] = {}
        self.of = cache(self._join)
        self.bare = cache(self._bare)

    def _join(self, nodes: int, turn: int) -> Join:
        """Have nodes join."""
        del turn
        with site(self._server, nodes) as place:
            calls = place.join(nodes)
            self._template = self._template or place.template()
            return _read(calls, nodes, memory=place.memory())

    def _bare(self, nodes: int, turn: int) -> float:
        """Write what a controller writes for so many nodes; writes per second."""
        if not self._template:
            self.of(nodes, turn)
        with site(self._server, nodes) as place:
            return place.crowd.run(place.crowd.write_like(self._template, range(nodes)))


def _read(calls: Sequence[Call], nodes: int, *, memory: float) -> Join:
    about = [each for each in calls if each.resource.partition("/")[0] in KINDS and each.verb not in {"list", "watch"}]
    writes = [each for each in about if each.verb in WRITES]
    seconds = max(each.ended for each in writes if is_status(each)) - min(each.began for each in writes)
    return Join(
        seconds=seconds,
        writes_per_second=len([each for each in writes if each.status < 300]) / seconds,
        calls_per_node=len(about) / nodes,
        memory=memory,
    )
