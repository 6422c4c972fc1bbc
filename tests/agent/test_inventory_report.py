"""The identity and inventory part of the report, whatever the NNC shows."""

import asyncio

import pytest

from podpool.agent.pool import Pool
from podpool.agent.records import NCAccepted, NCAdopted, ReleasePending, Started
from podpool.agent.scaling_decision import InventoryReport, inventory_report, requested_inventory
from podpool.api.azure import (
    INVENTORY_ANNOTATION,
    NODE_NETWORK_CONFIGS,
    NetworkConfigStatus,
    NetworkContainer,
    NodeNetworkConfig,
    agent_report,
)
from podpool.api.meta import ObjectMeta
from tests.agent.nc_samples import NC, grants, status
from tests.agent.node_env import NODE, SETTLE_TIME, SYSTEM, NodeEnv, in_node_env

JOURNAL = "2026-01-01T00:00:00.000000Z"


def pool() -> Pool:
    """Return a pool at version 7 with three grants, one of them pending release."""
    made = Pool()
    made.apply(Started(boot_id="boot-1", boot=0.0, wall=0.0))
    made.apply(NCAdopted(nc=NC))
    made.apply(NCAccepted(nc=status(7, grants(1, 2, 3)), at=0.0))
    made.apply(ReleasePending(grants=("g2",), version=7, boot_id="boot-1"))
    return made


def nnc(shown: NetworkContainer, *, requested: str = "") -> NodeNetworkConfig:
    annotations = {INVENTORY_ANNOTATION: requested} if requested else {}
    return NodeNetworkConfig(
        metadata=ObjectMeta(name="n1", annotations=annotations), status=NetworkConfigStatus(network_containers=(shown,))
    )


def test_without_a_request_only_the_nc_is_reported() -> None:
    assert InventoryReport(nc=NC, journal=JOURNAL, inventory=0) == inventory_report(
        nnc(status(3, {})), pool(), journal=JOURNAL, requested=0
    )


def test_no_grants_are_reported_that_the_nnc_shows() -> None:
    shown = nnc(status(7, grants(1, 2, 3)))
    assert InventoryReport(nc=NC, journal=JOURNAL, inventory=9) == inventory_report(
        shown, pool(), journal=JOURNAL, requested=9
    )


def test_an_older_nnc_gets_the_known_grants_without_released_ones() -> None:
    reported = inventory_report(nnc(status(6, grants(1))), pool(), journal=JOURNAL, requested=9)
    assert reported.known == status(7, grants(1, 3))


def test_another_nc_is_older_than_anything() -> None:
    reported = inventory_report(nnc(status(99, {}, nc="nc-2")), pool(), journal=JOURNAL, requested=9)
    assert reported.known is not None
    assert NC == reported.nc == reported.known.id


@pytest.mark.parametrize(("requested", "number"), [("9", 9), ("soon", 0), ("", 0)])
def test_a_request_is_a_number(requested: str, number: int) -> None:
    assert number == requested_inventory(nnc(status(3, {}), requested=requested))


def test_without_an_nnc_nothing_is_requested() -> None:
    assert 0 == requested_inventory(None)


@in_node_env
async def test_the_present_request_is_answered_whatever_was_requested_before(env: NodeEnv) -> None:
    await env.start()
    for number in (12, 11):
        request = {"metadata": {"annotations": {INVENTORY_ANNOTATION: str(number)}}}
        await env.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, request, namespace=SYSTEM)
        await asyncio.sleep(SETTLE_TIME)
        reported = agent_report(await env.kube.get(NODE_NETWORK_CONFIGS, NODE, namespace=SYSTEM))
        assert reported
        assert number == reported.inventory
