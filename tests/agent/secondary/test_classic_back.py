"""Shared ranges of an API server that was restored from an older copy: what sandboxes have is put back."""

import asyncio

from tests.agent.secondary.commons import Commons, network, played_in, sandbox
from tests.agent.secondary.test_classic import holders

ONE = network("10.0.0.0/24")
SOON = 5.0
"""Seconds in which what is noticed is mended."""

in_commons = played_in(Commons)


@in_commons
async def test_entries_of_living_sandboxes_are_put_back(commons: Commons) -> None:
    node, copy = commons.node("a"), commons.server.store.snapshot()
    for each in ("p", "q", "r"):
        await node.add(sandbox(each), ONE)
    await node.delete(sandbox("q"), ONE)
    commons.server.store.restore(copy)
    node.source.restored()
    await asyncio.sleep(SOON)
    assert {"10.0.0.1": "c-p", "10.0.0.3": "c-r"} == await holders(commons)


@in_commons
async def test_also_when_nobody_noticed_and_after_a_restart(commons: Commons) -> None:
    node, copy = commons.node("a"), commons.server.store.snapshot()
    await node.add(sandbox("p"), ONE)
    commons.server.store.restore(copy)
    await asyncio.sleep(1800.0 + SOON)
    assert {"10.0.0.1": "c-p"} == await holders(commons)
    commons.server.store.restore(copy)
    await node.kill()
    node.start()
    await asyncio.sleep(SOON)
    assert {"10.0.0.1": "c-p"} == await holders(commons)


@in_commons
async def test_no_other_sandbox_of_the_node_is_given_them_meanwhile(commons: Commons) -> None:
    node, copy = commons.node("a"), commons.server.store.snapshot()
    await node.add(sandbox("p"), ONE)
    commons.server.store.restore(copy)
    assert ("10.0.0.2",) == await node.add(sandbox("q"), ONE)
    assert ("10.0.0.1",) == await node.add(sandbox("p"), ONE)


@in_commons
async def test_who_was_given_one_meanwhile_is_told_of_and_left_alone(commons: Commons) -> None:
    node, other, copy = commons.node("a"), commons.node("b"), commons.server.store.snapshot()
    await node.add(sandbox("p"), ONE)
    commons.server.store.restore(copy)
    assert ("10.0.0.1",) == await other.add(sandbox("q"), ONE)
    for _ in range(2):
        node.source.restored()
        await asyncio.sleep(SOON)
    assert {"10.0.0.1": "c-q"} == await holders(commons)
    assert ["10.0.0.1 has two owners"] == [each[:23] for each in node.told if "two owners" in each]


@in_commons
async def test_nothing_is_put_back_that_is_deleted_meanwhile(commons: Commons) -> None:
    node = commons.node("a")
    await node.add(sandbox("first"), ONE)
    await node.delete(sandbox("first"), ONE)
    copy = commons.server.store.snapshot()
    for after in range(100):
        await node.add(sandbox("p"), ONE)
        commons.server.store.restore(copy)
        node.source.restored()
        await asyncio.sleep(after / 1000)
        await node.delete(sandbox("p"), ONE)
        await asyncio.sleep(SOON)
        assert {} == await holders(commons), after


@in_commons
async def test_nothing_is_put_back_that_no_sandbox_has_after_a_reboot(commons: Commons) -> None:
    node, copy = commons.node("a"), commons.server.store.snapshot()
    await node.add(sandbox("p"), ONE)
    await asyncio.sleep(SOON)
    commons.server.store.restore(copy)
    await node.reboot()
    node.start()
    await asyncio.sleep(SOON)
    assert {} == await holders(commons)
