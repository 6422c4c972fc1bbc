"""podpool and the real Whereabouts 0.9.4 on the same ranges at the same time, each call a real process.

16 processes of Whereabouts and 16 of podpool on four agents, ADDs and DELs concurrently: no address is used twice, no
entry and no reservation is lost, and when all Pods are deleted nothing is left.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import TYPE_CHECKING

import pytest

from parts.polling import until
from parts.whereabouts import POOLS as IP_POOLS
from tests.slices_end_to_end.shared_range_installation import SharedRangeInstallation, outcomes

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation"), pytest.mark.timeout(600)]

NODES = ("node-0", "node-1", "node-2", "node-3")
PODS_EACH = 16
WIDE, NARROW = "10.61.0.0/24", "10.61.0.0/25"
ATTEMPTS, LATER = 5, "'code': 11"
LEADER_TIMES = {"leader_lease_duration": 5_000, "leader_renew_deadline": 4_000}
"""On a busy machine Whereabouts loses its lock after 1.5 s, the default, and two of its processes take one address."""
POOLS = {WIDE: "10.61.0.0-24", NARROW: "10.61.0.0-25"}


@pytest.fixture
def installation(control_plane: ControlPlane, tmp_path: Path) -> Iterator[SharedRangeInstallation]:
    """Four podpool nodes; Whereabouts needs none."""
    made = SharedRangeInstallation(control_plane, tmp_path)
    try:
        made.begin(NODES)
        yield made
    finally:
        made.end()


class Pods:
    """Pods with addresses of one range, or alternately of two; even ones use Whereabouts, odd ones podpool."""

    def __init__(self, installation: SharedRangeInstallation, ranges: tuple[str, ...]) -> None:
        self._sharing = installation
        self._ranges = ranges
        self._configs = {each: installation.whereabouts.config(each, **LEADER_TIMES) for each in ranges}

    def call(self, *, add: Iterable[int] = (), delete: Iterable[int] = ()) -> dict[str, str]:
        """Run all plugins concurrently, and repeat on code 11, as runtimes do; return the address of each Pod."""
        outcome: dict[str, str] = {}
        added, deleted = [*add], [*delete]
        left = [(command, number) for each in zip_longest(added, deleted) for command, number in _commands(*each)]
        for _ in range(ATTEMPTS):
            outcome |= outcomes({f"pod-{number}": self._start(command, number) for command, number in left})
            left = [each for each in left if LATER in outcome[f"pod-{each[1]}"]]
        return {f"pod-{number}": outcome[f"pod-{number}"] for number in added}

    def _start(self, command: str, number: int) -> subprocess.Popen[bytes]:
        node = NODES[number // 2 % len(NODES)] if number % 2 else ""
        return self._sharing.start(command, f"pod-{number}", self._configs[self._range(number)], node=node)

    def check(self, running: Mapping[str, str]) -> None:
        """Every running Pod has its entry and its reservation, and no other Pod has one."""
        assert len(set(running.values())) == len(running)
        until(lambda: self._entries().keys() <= running.keys(), "deferred releases are done")
        assert {pod: address.rpartition(".")[2] for pod, address in running.items()} == self._entries()
        reserved = {address: f"default/{pod}" for pod, address in running.items()}
        assert reserved == self._sharing.whereabouts.reservations()

    def _entries(self) -> dict[str, str]:
        """Return the keys of the pools' entries by Pod."""
        found = [self._sharing.whereabouts.entries(POOLS[each]) for each in self._ranges]
        return {each["podref"].partition("/")[2]: key for entries in found for key, each in entries.items()}

    def _range(self, number: int) -> str:
        return self._ranges[number // 2 % len(self._ranges)]


def _commands(add: int | None, delete: int | None) -> Iterator[tuple[str, int]]:
    """Alternate ADDs and DELs, so that both run concurrently."""
    if add is not None:
        yield "ADD", add
    if delete is not None:
        yield "DEL", delete


@pytest.mark.parametrize("ranges", [(WIDE,), (WIDE, NARROW)], ids=["one pool", "two pools that overlap"])
def test_every_pod_gets_its_own_address_and_nothing_is_lost(
    installation: SharedRangeInstallation, ranges: tuple[str, ...]
) -> None:
    pods = Pods(installation, ranges)
    running = pods.call(add=range(2 * PODS_EACH))
    pods.check(running)
    again = pods.call(add=range(1, 2 * PODS_EACH, 2))
    assert again == {pod: running[pod] for pod in again}
    added = pods.call(delete=range(PODS_EACH), add=range(2 * PODS_EACH, 3 * PODS_EACH))
    pods.check({f"pod-{number}": running[f"pod-{number}"] for number in range(PODS_EACH, 2 * PODS_EACH)} | added)
    pods.call(delete=range(PODS_EACH, 3 * PODS_EACH))
    pods.check({})


def test_a_del_releases_every_range_where_whereabouts_stops_at_the_first_without_an_entry(
    installation: SharedRangeInstallation,
) -> None:
    other = "10.61.1.0-24"
    config = installation.whereabouts.config(WIDE, ipRanges=[{"range": "10.61.1.0/24"}])
    outcomes({"pod": installation.start("ADD", "pod", config, node=NODES[0])})
    installation.plane.admin.patch(f"{IP_POOLS}/{POOLS[WIDE]}", {"spec": {"allocations": {"1": None}}})
    outcomes({"pod": installation.start("DEL", "pod", config, node="")})
    assert ["1"] == [*installation.whereabouts.entries(other)]
    outcomes({"pod": installation.start("DEL", "pod", config, node=NODES[0])})
    assert [] == [*installation.whereabouts.entries(other)]
