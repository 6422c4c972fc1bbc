"""Which of the things that were read about the node's own config is believed."""

import msgspec

from podpool.agent.nnc_tracker import NNCTracker
from podpool.agent.records import NCAdopted
from podpool.agent.state import AgentState
from podpool.api.azure import NetworkConfigSpec, NetworkConfigStatus, NodeNetworkConfig
from podpool.api.meta import ObjectMeta
from tests.agent.clocks import SetClock
from tests.agent.disks import MemoryDisk
from tests.agent.statuses import CONTAINER, grants, status


def read(version: str, *, container_version: int = 1, names: tuple[str, ...] = ()) -> NodeNetworkConfig:
    container = status(container_version, grants(1, 2))
    return NodeNetworkConfig(
        metadata=ObjectMeta(resource_version=version),
        spec=NetworkConfigSpec(released=names),
        status=NetworkConfigStatus(network_containers=(container,)),
    )


def own_config() -> tuple[NNCTracker, AgentState, list[str]]:
    told: list[str] = []
    state = AgentState(MemoryDisk(), SetClock(), fence_limit=600.0)
    state.open(boot_id="boot-1")
    state.write(NCAdopted(container=CONTAINER))
    return NNCTracker(state, SetClock(), told.append), state, told


def test_a_watch_that_is_behind_is_not_believed() -> None:
    config, _, _ = own_config()
    newer = read("10")
    config.see(newer)
    config.see(read("9"))
    assert newer is config.newest


def test_a_quorum_read_is_believed_even_when_it_is_older() -> None:
    """Then the API server was restored from a copy."""
    config, _, _ = own_config()
    config.see(read("10"))
    older = read("9")
    config.see(older, believed=True)
    assert older is config.newest


def test_an_older_status_changes_nothing_even_in_a_newer_object() -> None:
    config, state, _ = own_config()
    config.see(read("10", container_version=5))
    config.see(read("11", container_version=4), believed=True)
    assert 5 == state.pool.version


def test_a_status_before_its_container_is_ours_is_not_taken_in() -> None:
    config, state, _ = own_config()
    state.write(NCAdopted(container="another"))
    config.see(read("10"))
    assert None is state.pool.container


def test_what_is_left_out_and_what_is_dropped_is_told_once() -> None:
    config, _, told = own_config()
    bad = status(1, {"bad": "nonsense"})
    base = read("1")
    for version in ("1", "2"):
        container = msgspec.structs.replace(bad, version=int(version))
        config.see(
            msgspec.structs.replace(
                base,
                metadata=ObjectMeta(resource_version=version),
                status=NetworkConfigStatus(network_containers=(container,)),
            )
        )
    assert 1 == len(told)
    assert "nonsense" in told[0]
