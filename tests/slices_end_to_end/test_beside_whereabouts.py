"""Our agents and the real Whereabouts 0.9.4 at work on the same ranges at the same time, each call a real process.

16 processes of theirs and 16 of ours on four agents, again and again, ADD beside ADD and ADD beside DEL: no address
twice, no entry and no reservation of anybody lost, and when all Pods are gone nothing is left.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import pytest

from parts.polling import until
from parts.whereabouts import POOLS as IP_POOLS
from tests.slices_end_to_end.sharing import Sharing, outcomes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane"), pytest.mark.timeout(600)]

NODES = ("node-0", "node-1", "node-2", "node-3")
EACH = 16
WIDE, NARROW = "10.61.0.0/24", "10.61.0.0/25"
ATTEMPTS, LATER = 5, "'code': 11"
POOLS = {WIDE: "10.61.0.0-24", NARROW: "10.61.0.0-25"}


@pytest.fixture
def sharing(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Sharing]:
    """Four nodes of ours; Whereabouts needs none."""
    made = Sharing(control_plane, tmp_path)
    try:
        made.begin(NODES)
        yield made
    finally:
        made.end()


class Pods:
    """Pods whose addresses are of one range, or in turn of two; even ones are Whereabouts', odd ones ours."""

    def __init__(self, sharing: Sharing, ranges: tuple[str, ...]) -> None:
        self._sharing = sharing
        self._ranges = ranges
        self._configs = {each: sharing.theirs.config(each) for each in ranges}

    def call(self, *, add: Iterable[int] = (), delete: Iterable[int] = ()) -> dict[str, str]:
        """Start a plugin for each at once, and again where it says later, as runtimes do; tells who got what."""
        told: dict[str, str] = {}
        coming, leaving = [*add], [*delete]
        left = [(command, number) for each in zip_longest(coming, leaving) for command, number in _commands(*each)]
        for _ in range(ATTEMPTS):
            told |= outcomes({f"pod-{number}": self._start(command, number) for command, number in left})
            left = [each for each in left if LATER in told[f"pod-{each[1]}"]]
        return {f"pod-{number}": told[f"pod-{number}"] for number in coming}

    def _start(self, command: str, number: int) -> subprocess.Popen[bytes]:
        node = NODES[number // 2 % len(NODES)] if number % 2 else ""
        return self._sharing.start(command, f"pod-{number}", self._configs[self._range(number)], node=node)

    def agree(self, running: Mapping[str, str]) -> None:
        """Every Pod that runs has its entry and its reservation, and nobody else keeps one."""
        assert len(set(running.values())) == len(running)
        until(lambda: self._entries().keys() <= running.keys(), "DELs that found their pool busy are done")
        assert {pod: address.rpartition(".")[2] for pod, address in running.items()} == self._entries()
        reserved = {address: f"default/{pod}" for pod, address in running.items()}
        assert reserved == self._sharing.theirs.reservations()

    def _entries(self) -> dict[str, str]:
        """What the pools say, by the Pod that has it."""
        found = [self._sharing.theirs.entries(POOLS[each]) for each in self._ranges]
        return {each["podref"].partition("/")[2]: key for entries in found for key, each in entries.items()}

    def _range(self, number: int) -> str:
        return self._ranges[number // 2 % len(self._ranges)]


def _commands(add: int | None, delete: int | None) -> Iterator[tuple[str, int]]:
    """An ADD and a DEL in turn, so that neither kind is done before the other begins."""
    if add is not None:
        yield "ADD", add
    if delete is not None:
        yield "DEL", delete


@pytest.mark.parametrize("ranges", [(WIDE,), (WIDE, NARROW)], ids=["one pool", "two pools that overlap"])
def test_everybody_gets_an_address_of_their_own_and_nothing_is_lost(sharing: Sharing, ranges: tuple[str, ...]) -> None:
    pods = Pods(sharing, ranges)
    running = pods.call(add=range(2 * EACH))
    pods.agree(running)
    again = pods.call(add=range(1, 2 * EACH, 2))
    assert again == {pod: running[pod] for pod in again}
    came = pods.call(delete=range(EACH), add=range(2 * EACH, 3 * EACH))
    pods.agree({f"pod-{number}": running[f"pod-{number}"] for number in range(EACH, 2 * EACH)} | came)
    pods.call(delete=range(EACH, 3 * EACH))
    pods.agree({})


def test_a_del_looks_at_every_range_where_theirs_stops_at_the_first_that_has_nothing(sharing: Sharing) -> None:
    other = "10.61.1.0-24"
    config = sharing.theirs.config(WIDE, ipRanges=[{"range": "10.61.1.0/24"}])
    outcomes({"pod": sharing.start("ADD", "pod", config, node=NODES[0])})
    sharing.plane.admin.patch(f"{IP_POOLS}/{POOLS[WIDE]}", {"spec": {"allocations": {"1": None}}})
    outcomes({"pod": sharing.start("DEL", "pod", config, node="")})
    assert ["1"] == [*sharing.theirs.entries(other)]
    outcomes({"pod": sharing.start("DEL", "pod", config, node=NODES[0])})
    assert [] == [*sharing.theirs.entries(other)]
