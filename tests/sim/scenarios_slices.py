"""Stories of node slices: what is taken back too early, by whom it is held, and who was told too late."""

from functools import partial

from podpool.resources.builtin import LEASES
from podpool.resources.whereabouts import IP_POOLS, SLICE_POOLS
from podpool.sim import attachments
from podpool.sim.network import Fits
from podpool.sim.slice_checks import check_slices, leases, pools
from tests.sim.story import Story

TABLE = "kube-system/red"
GONE = 60.0
"""Seconds after which a Node that nobody sees has been given up: the gone time, and a look."""


async def joined(story: Story, *names: str) -> None:
    """Let machines join, and take the slices that they are offered."""
    for name in names:
        story.world.add_host(name)
        await story.until(partial(holders, story, name))


def holders(story: Story, node: str) -> list[str]:
    """List the slices that a node's agent holds, by the names of their Leases."""
    found = leases(story.world).items()
    return [key for key, each in found if each.get("spec", {}).get("holderIdentity", "").startswith(f"{node}/")]


async def a_definition_is_deleted_under_running_pods(story: Story) -> None:
    """They keep what they have; when the last is gone the slice is handed back, and all of it goes."""
    await joined(story, "a")
    pods = await story.grown("a", 3)
    attachments.delete(story.world.store)
    await story.watch(20)
    assert 3 == story.served("a")
    story.delete(pods)
    await story.until(lambda: not pools(story.world), within=60)


async def a_slice_is_taken_while_it_is_withdrawn(story: Story) -> None:
    """Nobody had taken it when the leader decided; by the time its word arrives somebody has."""
    world = story.world
    taking = story.hold(writes(LEASES.plural, "a"))
    world.add_host("a")
    await story.until(lambda: taking.caught)
    word = story.hold(lambda each: each.request.method == "DELETE" and "/leases/" in each.request.path)
    attachments.delete(world.store)
    await story.until(lambda: word.caught)
    taking.let_go()
    await story.until(lambda: holders(story, "a"))
    word.let_go()
    await story.watch(5)
    attachments.write(world.store, world.shape.cidr, attachments.SIZES[0])
    await story.watch(60)
    check_slices(world)


async def a_node_comes_back_unseen(story: Story) -> None:
    """It is deleted and registered again in the same boot; the leader, whose cache lags, never sees that it is back."""
    world = story.world
    await joined(story, "a")
    await story.grown("a", 3)
    world.delete_node("a")
    await story.watch(1)
    lag = story.hold(watches("nodes", "controller"), most=None, answers=True)
    world.register("a")
    await story.watch(GONE)
    lag.let_go()
    await story.watch(60)
    check_slices(world)


async def a_new_leader_with_an_old_picture(story: Story) -> None:
    """It saw no slice yet, and the table is deleted: who has what is told by the IPPools alone, which it was not shown.

    The first node's slice is the third's by now, and the second has another than it would be given.
    """
    world = story.world
    first, second = world.controllers
    world.controllers[second].kill()
    await story.watch(25)
    world.start_controller(second)
    await story.watch(5)
    for kind in (IP_POOLS.plural, LEASES.plural):
        story.hold(watches(kind, second), most=None, answers=True)
    await joined(story, "a", "b")
    world.remove_host("a")
    await story.until(lambda: len(pools(world)) == 1, within=GONE)
    await joined(story, "c")
    world.controllers[first].kill()
    world.store.delete(world.store.kinds.find(SLICE_POOLS.group, SLICE_POOLS.version, SLICE_POOLS.plural), TABLE)
    await story.watch(60)


async def a_machine_is_back_after_it_was_given_up(story: Story) -> None:
    """It was cut off for long, its Node deleted, its slice given to who waited; then it is registered, and has Pods."""
    world = story.world
    await joined(story, "a", "b", "c", "d")
    world.add_host("e")
    world.strand("a")
    world.delete_node("a")
    await story.until(lambda: holders(story, "e"), within=GONE + 30)
    story.bind("e", 6)
    await story.until(lambda: story.served("e") == 6)
    world.hosts["a"].stranded = None
    world.register("a")
    world.network.mend("a", world.api.name)
    story.bind("a", 3)
    await story.watch(40)
    assert 0 == story.served("a")
    world.remove_host("b")
    await story.until(lambda: story.served("a") == 3, within=GONE + 60)


def watches(plural: str, source: str) -> Fits:
    """What somebody is told of a kind by watches alone."""
    return lambda each: (
        each.source.startswith(source) and "watch" in each.request.query and each.request.path.endswith(f"/{plural}")
    )


def writes(plural: str, source: str) -> Fits:
    """What somebody writes into objects of a kind."""
    return lambda each: each.source == source and each.request.method == "PATCH" and f"/{plural}/" in each.request.path
