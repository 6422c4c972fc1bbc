"""What an agent tells of itself, whatever its NNC shows."""

import asyncio

import pytest

from podpool.agent.inventory_report import InventoryReport, listing_of, statement
from podpool.agent.pool import Pool
from podpool.agent.records import NCAccepted, NCAdopted, ReleasePending, Started
from podpool.api.azure import (
    INVENTORY_ANNOTATION,
    NODE_NETWORK_CONFIGS,
    NetworkConfigStatus,
    NetworkContainer,
    NodeNetworkConfig,
    agent_report,
)
from podpool.api.meta import ObjectMeta
from tests.agent.statuses import CONTAINER, grants, status
from tests.agent.worlds import NODE, SETTLED, SYSTEM, World, in_world


def pool() -> Pool:
    """A pool at version 7 with three grants, one of them let go."""
    made = Pool()
    made.apply(Started(boot_id="boot-1", boot=0.0, wall=0.0))
    made.apply(NCAdopted(container=CONTAINER))
    made.apply(NCAccepted(container=status(7, grants(1, 2, 3)), at=0.0))
    made.apply(ReleasePending(grants=("g2",), version=7, boot_id="boot-1"))
    return made


def config(shown: NetworkContainer, *, asked: str = "") -> NodeNetworkConfig:
    annotations = {INVENTORY_ANNOTATION: asked} if asked else {}
    return NodeNetworkConfig(
        metadata=ObjectMeta(name="n1", annotations=annotations), status=NetworkConfigStatus(network_containers=(shown,))
    )


def test_who_is_not_asked_tells_only_who_it_is() -> None:
    assert InventoryReport(container=CONTAINER, listed=0) == statement(config(status(3, {})), pool(), asked=0)


def test_an_nnc_that_shows_everything_needs_no_more_than_an_answer() -> None:
    shown = config(status(7, grants(1, 2, 3)))
    assert InventoryReport(container=CONTAINER, listed=9) == statement(shown, pool(), asked=9)


def test_what_an_older_nnc_does_not_show_is_told_without_what_was_let_go() -> None:
    told = statement(config(status(6, grants(1))), pool(), asked=9)
    assert told.knows == status(7, grants(1, 3))


def test_another_container_is_older_than_anything() -> None:
    told = statement(config(status(99, {}, container="nc-2")), pool(), asked=9)
    assert told.knows is not None
    assert CONTAINER == told.container == told.knows.id


@pytest.mark.parametrize(("asked", "number"), [("9", 9), ("soon", 0), ("", 0)])
def test_a_question_is_a_number(asked: str, number: int) -> None:
    assert number == listing_of(config(status(3, {}), asked=asked))


def test_who_sees_no_nnc_is_not_asked() -> None:
    assert 0 == listing_of(None)


@in_world
async def test_the_question_that_stands_is_answered_whatever_was_asked_before(world: World) -> None:
    await world.start()
    for asked in (12, 11):
        question = {"metadata": {"annotations": {INVENTORY_ANNOTATION: str(asked)}}}
        await world.kube.merge(NODE_NETWORK_CONFIGS, NODE, question, namespace=SYSTEM)
        await asyncio.sleep(SETTLED)
        told = agent_report(await world.kube.get(NODE_NETWORK_CONFIGS, NODE, namespace=SYSTEM))
        assert told
        assert asked == told.listed
