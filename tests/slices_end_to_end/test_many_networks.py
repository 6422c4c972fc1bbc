"""64 nodes with ten networks each and killed agents: every address is correct, none is used twice, none is left.

API server, controller, agents, plugin processes and disks are real.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from parts.polling import until
from tests.slices_end_to_end.many_networks import (
    INTERVAL,
    NETWORKS,
    NODES,
    TIMEOUT,
    ManyNetworks,
    address_errors,
    owners_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from parts.control_plane import ControlPlane

pytestmark = [pytest.mark.real, pytest.mark.xdist_group("installation"), pytest.mark.timeout(900)]


@pytest.fixture
def cluster(control_plane: ControlPlane, tmp_path: Path) -> Iterator[ManyNetworks]:
    """The cluster, whose nodes hold their slices and have no Pods."""
    instance = ManyNetworks(control_plane, tmp_path)
    try:
        instance.begin()
        yield instance
    finally:
        instance.end()


def test_all_pods_are_added_and_deleted_concurrently(cluster: ManyNetworks) -> None:
    mark = cluster.plane.audit.mark()
    slices = cluster.slices()
    assert len(slices) == len({(network, slice_) for (network, _, _), slice_ in slices.items()})

    addresses = cluster.call("ADD", killing=cluster.agent_processes[::2])
    assert len(NODES) * len(NETWORKS) == len(addresses)
    assert [] == [*address_errors(addresses, slices)]
    expected = owners_of(addresses)
    assert sum(map(len, addresses.values())) == len(expected)
    assert expected == cluster.journalled()
    eventually(lambda: expected == cluster.listed(), "the IPPools have all assignments")
    assert addresses == cluster.call("ADD")

    cluster.call("DEL", killing=cluster.agent_processes[1::2])
    eventually(lambda: not cluster.deferred_deletes(), "deferred DELs are processed")
    assert {} == cluster.journalled()
    eventually(lambda: not cluster.listed(), "the IPPools are empty")
    assert slices == cluster.slices()

    cluster.delete_nads()
    eventually(lambda: not cluster.left(), "the slices are returned, and nothing is left of them")
    requests = [each for each in cluster.plane.audit.calls(since=mark) if each.user.endswith(":podpool-agent")]
    assert requests
    assert [] == [each for each in requests if each.status in (401, 403, 422)]


def eventually(holds: Callable[[], bool], what: str) -> None:
    until(holds, what, timeout=TIMEOUT, interval=INTERVAL)
