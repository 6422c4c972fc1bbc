"""Whose container is whose, when a Node's past is in doubt."""

from typing import Any

import msgspec
import pytest

from podpool.api.azure import AGENT_ANNOTATION, AgentReport, NodeNetworkConfig
from podpool.api.builtin import Node
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.convert import speaks_of
from podpool.ledger.messages import NetworkContainerRecord, NetworkContainerState, SubnetName

SUBNET = SubnetName(network="vnet", name="pods")


def books(**boots: str) -> AllocationCache:
    """Containers of the same Node, each with the boot id that it was last told."""
    made = AllocationCache()
    made.load(
        tuple(
            NetworkContainerRecord(
                state=NetworkContainerState(container=container, subnet=SUBNET, version=1),
                node="n1",
                node_uid="u1",
                boot_id=boot or None,
            )
            for container, boot in boots.items()
        )
    )
    return made


def node(boot_id: str) -> Node:
    return msgspec.convert({"metadata": {"name": "n1", "uid": "u1"}, "status": {"nodeInfo": {"bootID": boot_id}}}, Node)


def config(shows: str, **report: Any) -> NodeNetworkConfig:  # noqa: ANN401  a report's own
    told = msgspec.json.encode(AgentReport(**report)).decode()
    meta = {"name": "n1", "annotations": {AGENT_ANNOTATION: told}}
    status = {"networkContainers": [{"id": shows}] if shows else []}
    return msgspec.convert({"metadata": meta, "status": status}, NodeNetworkConfig)


@pytest.mark.parametrize(
    ("boot", "shown", "found"),
    [
        pytest.param("b2", config("c1", boot_id="b2", container="c2"), "c2", id="its machine claims another"),
        pytest.param("b2", config("c1", boot_id="b1", container="c2"), "c1", id="words of another boot claim nothing"),
        pytest.param("b2", config("c1", boot_id="b2", container="c9"), "c1", id="it claims one that is closed"),
        pytest.param("b9", config("c2", boot_id="b1"), "c2", id="a new boot: what its NNC shows"),
        pytest.param("b9", None, "c1", id="nothing known but the UID"),
    ],
)
def test_a_claim_of_this_very_boot_comes_first(boot: str, shown: NodeNetworkConfig | None, found: str | None) -> None:
    record = books(c1="b1", c2="").of_node(node(boot), shown)
    assert found == (record.state.container if record else None)


def test_the_boot_id_comes_before_what_an_nnc_shows() -> None:
    record = books(c1="b1", c2="b2").of_node(node("b2"), config("c1", boot_id="b1"))
    assert record is not None
    assert "c2" == record.state.container


def test_words_are_about_the_container_that_they_name_else_about_the_one_that_is_shown() -> None:
    named, unnamed = config("c1", container="c2"), config("c1")
    assert [False, True] == [speaks_of(named, each) for each in ("c1", "c2")]
    assert [True, False] == [speaks_of(unnamed, each) for each in ("c1", "c2")]
