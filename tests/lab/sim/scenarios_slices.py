"""Stories of node slices: what is taken back too early, by whom it is held, and who was told too late."""

from functools import partial

from podpool.api.builtin import LEASES
from podpool.api.whereabouts import IP_POOLS, NODE_SLICE_POOLS, NODE_UID_LABEL
from podpool.lab.sim import nads
from podpool.lab.sim.nads import Attached
from podpool.lab.sim.network import Fits
from podpool.lab.sim.slice_invariants import check_slices, leases, pools
from tests.lab.sim.story import Story

TABLE = "kube-system/red"
GONE = 60.0
"""Seconds after which a Node that nobody sees has been given up: the gone time, and a look."""


async def joined(story: Story, *names: str) -> None:
    """Let machines join, and take the slices that they are offered."""
    for name in names:
        story.world.add_host(name)
        await story.until(partial(holders, story, name))


def network(story: Story) -> Attached:
    """The one network of a story."""
    return nads.networks(story.world.shape)[0]


def holders(story: Story, node: str) -> list[str]:
    """List the slices that a node's agent holds, by the names of their Leases."""
    found = leases(story.world).items()
    return [key for key, each in found if each.get("spec", {}).get("holderIdentity", "").startswith(f"{node}/")]


def slices(story: Story) -> list[str]:
    """List the slices that are any node's, by the names of their IPPools."""
    return [key for key, each in pools(story.world).items() if NODE_UID_LABEL in each["metadata"].get("labels", {})]


async def a_definition_is_deleted_under_running_pods(story: Story) -> None:
    """They keep what they have; when the last is gone the slice is handed back, and all of it goes."""
    await joined(story, "a")
    pods = await story.grown("a", 3)
    nads.delete(story.world.store, network(story))
    await story.watch(20)
    assert 3 == story.served("a")
    story.delete(pods)
    await story.until(lambda: not pools(story.world), within=60)


async def a_range_is_made_larger_and_smaller(story: Story) -> None:
    """Under running Pods: the slices stay, and serve the range as it is; who lost its slice to it gets another."""
    world, red = story.world, network(story)
    await joined(story, "a", "b", "c")
    await story.grown("a", 2)
    for changed in (red.larger, red, red.smaller):
        nads.write(world.store, changed)
        await story.watch(5)
        story.bind("a", 1)
        await story.watch(GONE)
        check_slices(world)
    nads.write(world.store, red)
    await story.watch(GONE)
    assert 5 == story.served("a")
    check_slices(world)


async def a_slice_is_taken_while_it_is_withdrawn(story: Story) -> None:
    """Nobody had taken it when the leader decided; by the time its word arrives somebody has."""
    world = story.world
    taking = story.hold(writes(LEASES.plural, "a"))
    world.add_host("a")
    await story.until(lambda: taking.caught)
    word = story.hold(lambda each: each.request.method == "DELETE" and "/leases/" in each.request.path)
    nads.delete(world.store, network(story))
    await story.until(lambda: word.caught)
    taking.let_go()
    await story.until(lambda: holders(story, "a"))
    word.let_go()
    await story.watch(5)
    nads.write(world.store, network(story))
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
    await story.until(lambda: len(slices(story)) == 1, within=GONE)
    await joined(story, "c")
    world.controllers[first].kill()
    world.store.delete(world.store.registry.find(NODE_SLICE_POOLS.group, NODE_SLICE_POOLS.version, NODE_SLICE_POOLS.plural), TABLE)
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


async def the_api_server_forgets_who_has_what(story: Story) -> None:
    """It goes back to a copy from before two nodes got their slices, and would give each the other's by now.

    The agents tell what they have, and get it again.
    """
    await forgotten(story)
    await story.watch(2 * GONE)
    story.bind("a", 2)
    await story.watch(GONE)
    assert 5 == story.served("a")
    check_slices(story.world)


async def one_who_could_tell_is_away(story: Story) -> None:
    """The same, and one of the two is cut off: nobody gets anything new before it has answered."""
    world = story.world
    await forgotten(story, away="b")
    story.bind("a", 2)
    await story.watch(2 * GONE)
    world.network.mend("b", world.api.name)
    await story.watch(3 * GONE)
    assert 5 == story.served("a")
    check_slices(world)


async def forgotten(story: Story, *, away: str = "") -> None:
    """Let b have the first slice, and a the second, in use; and restore a copy in which nobody has any.

    In the copy a is the first to be served: it was registered again since.
    """
    world = story.world
    first, second = world.controllers
    world.controllers[second].kill()
    await story.watch(25)
    world.start_controller(second)
    nads.delete(world.store, network(story))
    for name, pods in (("a", 3), ("b", 6)):
        world.add_host(name)
        story.bind(name, pods)
        await story.watch(2)
    copy = world.store.snapshot()
    world.delete_node("a")
    await story.watch(2)
    world.register("a")
    nads.write(world.store, network(story))
    await story.until(lambda: (story.served("a"), story.served("b")) == (3, 6), within=60)
    if away:
        world.network.cut(away, world.api.name)
    world.controllers[first].kill()  # who leads would remember
    world.restore_api(copy)
    nads.write(world.store, network(story))


async def an_old_offer_is_shown_again(story: Story) -> None:
    """A machine was offered a slice and did not take it; who waited has it by now; and a copy shows the offer."""
    world = story.world
    taking = story.hold(writes(LEASES.plural, "a"))
    world.add_host("a")
    await story.until(lambda: taking.caught)
    await joined(story, "c", "d", "e")
    world.add_host("b")
    story.bind("b", 6)
    await story.watch(5)
    copy = world.store.snapshot()
    world.remove_host("a")
    await story.until(lambda: story.served("b") == 6, within=60)
    world.add_host("a")
    world.restore_api(copy)
    story.bind("a", 3)
    await story.watch(4 * GONE)
    assert (0, 6) == (story.served("a"), story.served("b"))
    check_slices(world)


async def shared_by(story: Story, *names: str) -> None:
    """Let all nodes share the range, and machines join one after the other."""
    nads.write(story.world.store, network(story), "")
    for name in names:
        story.world.add_host(name)
        await story.watch(3)


async def a_shared_range_is_cut_under_running_pods(story: Story) -> None:
    """They keep what they have; another node, which joined before theirs, gets a slice that has nothing of it.

    When they are gone the slice that they were in is given too.
    """
    world = story.world
    await shared_by(story, "b", "a")
    pods = await story.grown("a", 3)
    nads.write(world.store, network(story))
    story.bind("b", 4)
    story.bind("a", 2)
    await story.until(lambda: (story.served("a"), story.served("b")) == (5, 4))
    await story.watch(2)
    check_slices(world)
    await joined(story, "c")
    world.add_host("d")
    await story.watch(10)
    assert not holders(story, "d")
    story.delete(pods)
    await story.until(lambda: holders(story, "d"))
    await story.watch(GONE)
    check_slices(world)


async def an_entry_is_on_its_way_while_its_range_is_cut(story: Story) -> None:
    """An agent has looked at the pool that all nodes share, and its patch arrives when another has a slice."""
    world = story.world
    await shared_by(story, "b", "a")
    story.delete(await story.grown("a", 1))
    await story.watch(5)
    patch = story.hold(writes(IP_POOLS.plural, "a"))
    story.bind("a", 1)
    await story.until(lambda: patch.caught)
    nads.write(world.store, network(story))
    story.bind("b", 6)
    await story.until(lambda: story.served("b") == 6, within=15)
    patch.let_go()
    await story.until(lambda: story.served("a") == 1)
    await story.watch(GONE)
    check_slices(world)


async def a_range_is_shared_again_under_running_pods(story: Story) -> None:
    """One node has Pods, and so its slice; the other has handed its own back, and waits until all have."""
    world = story.world
    await joined(story, "a", "b")
    pods = await story.grown("a", 3)
    nads.write(world.store, network(story), "")
    await story.until(lambda: not holders(story, "b"))
    await story.watch(5)
    story.bind("b", 2)
    await story.watch(20)
    assert (3, 0) == (story.served("a"), story.served("b"))
    story.delete(pods)
    await story.until(lambda: story.served("b") == 2, within=GONE)
    assert not slices(story)


def watches(plural: str, source: str) -> Fits:
    """What somebody is told of a kind by watches alone."""
    return lambda each: (
        each.source.startswith(source) and "watch" in each.request.query and each.request.path.endswith(f"/{plural}")
    )


def writes(plural: str, source: str) -> Fits:
    """What somebody writes into objects of a kind."""
    return lambda each: each.source == source and each.request.method == "PATCH" and f"/{plural}/" in each.request.path
