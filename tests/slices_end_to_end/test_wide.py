"""64 nodes with ten networks each, all at once, agents killed in between: every address right, none twice, none left.

The API server, the controller and the plugin processes are real; so are the agents, the kills and the disks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parts.polling import until
from tests.slices_end_to_end.wide import LOOK, NETWORKS, NODES, PATIENCE, Wide, faults, owners

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("control-plane"), pytest.mark.timeout(900)]


@pytest.fixture
def wide(control_plane: ControlPlane, tmp_path: Path) -> Iterator[Wide]:
    """The cluster, whose nodes have their slices and no Pods."""
    made = Wide(control_plane, tmp_path)
    try:
        made.begin()
        yield made
    finally:
        made.end()


def test_all_pods_of_all_nodes_at_once_and_then_all_deleted(wide: Wide) -> None:
    mark = wide.plane.audit.mark()
    slices = wide.slices()
    assert len(slices) == len({(network, slice_) for (network, _, _), slice_ in slices.items()})

    given = wide.call("ADD", killing=wide.crews[::2])
    assert len(NODES) * len(NETWORKS) == len(given)
    assert [] == [*faults(given, slices)]
    right = owners(given)
    assert sum(map(len, given.values())) == len(right)
    assert right == wide.journalled()
    eventually(lambda: right == wide.shown(), "the IPPools show who has what")
    assert given == wide.call("ADD")

    wide.call("DEL", killing=wide.crews[1::2])
    eventually(lambda: not wide.left_for_later(), "DELs that were left for later are done")
    assert {} == wide.journalled()
    eventually(lambda: not wide.shown(), "the IPPools are empty")
    assert slices == wide.slices()

    wide.undefine()
    eventually(lambda: not wide.left(), "the slices are handed back, and nothing is left of them")
    asked = [each for each in wide.plane.audit.calls(since=mark) if each.user.endswith(":podpool-agent")]
    assert asked
    assert [] == [each for each in asked if each.status in (401, 403, 422)]


def eventually(holds: Callable[[], bool], what: str) -> None:
    until(holds, what, patience=PATIENCE, between=LOOK)
