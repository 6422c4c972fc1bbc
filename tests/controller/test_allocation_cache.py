"""Which NC belongs to a Node whose identity is uncertain."""

from typing import Any

import msgspec
import pytest

from podpool.api.azure import AGENT_ANNOTATION, AgentReport, NodeNetworkConfig
from podpool.api.builtin import Node
from podpool.controller.allocation_cache import AllocationCache
from podpool.controller.nnc_conversion import report_is_about
from podpool.ledger.messages import NetworkContainerRecord, NetworkContainerState, SubnetName

SUBNET = SubnetName(network="vnet", name="pods")


def cache(**boot_ids: str) -> AllocationCache:
    """NCs of the same Node, each with its last reported boot ID."""
    filled = AllocationCache()
    filled.load(
        tuple(
            NetworkContainerRecord(
                state=NetworkContainerState(nc_id=nc, subnet=SUBNET, version=1),
                node="n1",
                node_uid="u1",
                boot_id=boot_id or None,
            )
            for nc, boot_id in boot_ids.items()
        )
    )
    return filled


def node(boot_id: str) -> Node:
    return msgspec.convert({"metadata": {"name": "n1", "uid": "u1"}, "status": {"nodeInfo": {"bootID": boot_id}}}, Node)


def nnc(in_status: str, **report: Any) -> NodeNetworkConfig:  # noqa: ANN401  fields of AgentReport
    annotation = msgspec.json.encode(AgentReport(**report)).decode()
    meta = {"name": "n1", "annotations": {AGENT_ANNOTATION: annotation}}
    status = {"networkContainers": [{"id": in_status}] if in_status else []}
    return msgspec.convert({"metadata": meta, "status": status}, NodeNetworkConfig)


@pytest.mark.parametrize(
    ("boot_id", "current", "expected"),
    [
        pytest.param("b2", nnc("c1", boot_id="b2", network_container="c2"), "c2", id="claim of another NC"),
        pytest.param("b2", nnc("c1", boot_id="b1", network_container="c2"), "c1", id="claim of another boot"),
        pytest.param("b2", nnc("c1", boot_id="b2", network_container="c9"), "c1", id="claim of a closed NC"),
        pytest.param("b9", nnc("c2", boot_id="b1"), "c2", id="new boot: NC in the status"),
        pytest.param("b9", None, "c1", id="only the UID is known"),
    ],
)
def test_a_claim_of_the_current_boot_comes_first(
    boot_id: str, current: NodeNetworkConfig | None, expected: str | None
) -> None:
    record = cache(c1="b1", c2="").for_node(node(boot_id), current)
    assert expected == (record.state.nc_id if record else None)


def test_the_boot_id_comes_before_the_status() -> None:
    record = cache(c1="b1", c2="b2").for_node(node("b2"), nnc("c1", boot_id="b1"))
    assert record is not None
    assert "c2" == record.state.nc_id


def test_a_report_is_about_the_nc_it_names_else_about_the_one_in_the_status() -> None:
    named, unnamed = nnc("c1", network_container="c2"), nnc("c1")
    assert [False, True] == [report_is_about(named, each) for each in ("c1", "c2")]
    assert [True, False] == [report_is_about(unnamed, each) for each in ("c1", "c2")]
