"""Stories of addresses on their way to Pods and back: names, rests, the journal."""

from tests.lab.sim.story import Story, calls, lists, requests_of


async def a_patch_lands_after_its_agent_was_killed(story: Story) -> None:
    """It names addresses that the next agent, which reads the NNC without the names, could give to Pods."""
    await story.joined("a")
    patch = await story.shrunk("a", requests_of("a"))
    story.bind("a", 5)
    story.agent_again("a")
    await story.until(lambda: story.served("a") == 6)
    patch.let_go()
    await story.settled(30)


async def a_patch_lands_after_a_reboot(story: Story) -> None:
    """As before, but the machine has lost power, and begins a new boot."""
    await story.joined("a")
    patch = await story.shrunk("a", requests_of("a"))
    story.bind("a", 5)
    story.world.reboot("a")
    await story.until(lambda: story.served("a") == 6)
    patch.let_go()
    await story.settled(30)


async def a_start_on_a_stale_list(story: Story) -> None:
    """The names are in the NNC, no controller has seen them yet, and the agent's first list does not show them."""
    world = story.world
    await story.joined("a")
    pods = await story.grown("a")
    story.delete(pods[1:])
    await story.watch(8)
    story.pause_controllers()
    before = world.store.revision
    await story.until(lambda: story.named("a"))
    story.bind("a", 5)
    world.store.lag = lambda: world.store.revision - before
    later = story.hold(
        lambda each: (
            each.source == "a"
            and "nodenetworkconfigs" in each.request.path
            and each.request.method == "GET"
            and each.request.query.get("resourceVersion") != "0"
        ),
        most=None,
    )
    story.agent_again("a")
    await story.watch(5)
    world.store.lag = lambda: 0
    story.resume_controllers()
    await story.watch(10)
    later.let_go()
    await story.settled(60)


async def pods_are_bound_before_the_underlay_knows(story: Story) -> None:
    """A node has addresses for six Pods that come at once, and its host takes a while to program them."""
    story.world.add_host("a")
    story.bind("a", 6)
    await story.until(lambda: story.served("a") == 6)
    await story.settled(30)


async def demand_returns_while_a_release_is_under_way(story: Story) -> None:
    """The controller has read the names, its call is on its way to the ledger, and Pods are bound again."""
    await story.joined("a")
    call = await story.shrunk("a", calls(lambda item: item.get("released")))
    story.bind("a", 5)
    await story.watch(4)
    call.let_go()
    await story.settled(60)


async def the_same_addresses_come_back_as_new_grants(story: Story) -> None:
    """In a full subnet, before the agent has taken the old names out of its NNC, which a person edits meanwhile."""
    await story.joined("a")
    pods = await story.grown("a", 12)
    call = story.hold(calls(lambda item: item.get("released")))
    story.delete(pods[4:])
    await story.until(lambda: call.caught)
    story.bind("a", 8)
    await story.until(lambda: story.spec("a")["requestedIPCount"] >= 12)
    patch = story.hold(requests_of("a"), most=None)
    call.let_go()
    await story.watch(4)
    story.world.edit_request("a", 14)
    await story.watch(4)
    patch.let_go()
    await story.settled(60)


async def a_reboot_under_running_pods(story: Story) -> None:
    """Their sandboxes are made anew at once, and there is but one address that nobody used before."""
    await story.joined("a")
    await story.grown("a")
    story.world.reboot("a")
    await story.settled(40)


async def a_reboot_out_of_reach(story: Story) -> None:
    """The machine is cut off, so that only its journal can tell it which status it had accepted."""
    world = story.world
    await story.joined("a")
    await story.grown("a")
    world.network.cut("a", "api")
    world.reboot("a")
    await story.watch(10)
    world.network.mend("a", "api")
    await story.settled(60)


async def pods_need_what_lies_idle(story: Story) -> None:
    """One node has as many Pods as the subnet has addresses, the other has a buffer and no Pod."""
    await story.joined("a", "b")
    story.bind("b", 9)
    await story.settled(90)


async def pods_follow_each_other(story: Story) -> None:
    """Some are deleted, and others bound, on a node that has few addresses, in a subnet that has many."""
    await story.joined("a")
    for _ in range(4):
        story.delete(await story.grown("a", 2))
        await story.watch(3)
    await story.settled(30)


async def an_agent_dies_as_it_answers(story: Story) -> None:
    """A Pod has its address; the agent that comes after knows what was written, and the next Pod asks."""
    await story.joined("a")
    story.bind("a", 1)
    await story.until(lambda: story.served("a") == 1)
    story.agent_again("a")
    story.bind("a", 1)
    await story.settled(30)


async def the_list_of_pods_is_slow(story: Story) -> None:
    """A machine joins, is told everything but its Pods, and must not ask for anything yet."""
    slow = story.hold(lists("pods", "a"), most=None)
    story.world.add_host("a")
    await story.watch(8)
    slow.let_go()
    await story.settled(60)
