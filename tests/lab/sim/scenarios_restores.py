"""Stories of leaders with old caches, and of books and objects that were restored from an older copy."""

from tests.lab.sim.story import Story, calls, lists, requests_of, statuses_of


async def a_new_leader_has_an_old_cache(story: Story) -> None:
    """One leader has taken addresses from a node and given them to another; the next still sees them at the first."""
    world = story.world
    await story.joined("a", "b")
    pods = await story.grown("a", 8)
    world.start_controller("next")
    await story.watch(3)
    cache = story.hold(lists("nodenetworkconfigs", "next"), most=None, answers=True)
    story.bind("b", 6)
    story.delete(pods[2:])
    await story.until(lambda: story.served("b") == 6)
    world.controllers["controller-0"].kill()
    await story.watch(25)
    cache.let_go()
    story.bind("a", 1)
    await story.settled(60)


async def a_call_arrives_at_restored_books(story: Story) -> None:
    """A node's Pods use what was granted after the copy was made, and a call for another node is under way."""
    world = story.world
    await story.joined("a", "b")
    image = world.office.image()
    await story.grown("a")
    call = story.hold(calls(lambda item: item["node"] == "b"))
    story.bind("b", 6)
    await story.until(lambda: call.caught)
    world.office.restore(image)
    call.let_go()
    await story.settled(90)


async def a_node_asks_restored_books(story: Story) -> None:
    """Another node's Pods use what was granted after the copy was made, and its controller is told so by nobody yet."""
    world = story.world
    await story.joined("a", "b")
    image = world.office.image()
    await story.grown("a")
    world.office.restore(image)
    story.bind("b", 6)
    await story.settled(90)


async def a_status_arrives_after_the_listing(story: Story) -> None:
    """A leader, paused, has sent what the ledger granted before it was restored; the next leader lists the NNCs."""
    world = story.world
    await story.joined("a", "b")
    image = world.office.image()
    status = story.hold(statuses_of("a"))
    story.bind("a", 6)
    await story.until(lambda: status.caught)
    world.controllers[status.caught[0].source].pause()
    world.office.restore(image)
    listing = story.hold(lambda each: each.request.path == "/v1/listings", answers=True)
    await story.until(lambda: listing.caught, within=60)
    status.let_go()
    await story.watch(15)
    listing.let_go()
    story.bind("b", 6)
    await story.settled(60)


async def addresses_in_use_are_not_in_the_restored_books(story: Story) -> None:
    """They were granted after the copy was made; only the lists tell of them. Nobody asks for anything meanwhile."""
    world = story.world
    await story.joined("a")
    image = world.office.image()
    await story.grown("a")
    world.office.restore(image)
    await story.settled(60)


async def a_cluster_without_nodes_is_waited_for(story: Story) -> None:
    """Its last machine has left since the copy was made, so it has nothing to ask of the ledger that wants its list."""
    world = story.world
    await story.joined("a")
    image = world.office.image()
    world.remove_host("a")
    await story.watch(70)
    world.office.restore(image)
    await story.settled(90)


async def old_names_are_written_once_more(story: Story) -> None:
    """The ledger, restored, grants again what was named and released; then somebody puts the old spec back."""
    world = story.world
    await story.joined("a")
    image = world.office.image()
    call = await story.shrunk("a", calls(lambda item: item.get("released")))
    names = story.named("a")
    call.let_go()
    await story.until(lambda: not story.named("a"))
    world.office.restore(image)
    await story.watch(20)
    await story.grown("a", 5)
    patch = story.hold(requests_of("a"), most=None)
    world.edit_request("a", 7, names=names)
    await story.watch(2)
    patch.let_go()
    await story.settled(60)


async def an_old_status_shows_what_others_have(story: Story) -> None:
    """The API server is restored to when a node's Pods had the addresses that another node's Pods have now."""
    world = story.world
    await story.joined("a", "b")
    pods = await story.grown("a", 8)
    story.bind("b", 6)
    await story.watch(5)
    copy = world.store.snapshot()
    story.delete(pods)
    await story.until(lambda: story.served("b") == 6)
    await story.watch(20)
    story.pause_controllers()
    world.restore_api(copy)
    await story.watch(20)
    story.resume_controllers()
    await story.watch(60)


async def an_old_status_is_shown_again(story: Story) -> None:
    """The API server is restored to when a node's Pods were bound, and the addresses for them not shown yet."""
    world = story.world
    await story.joined("a")
    status = story.hold(statuses_of("a"))
    story.bind("a", 6)
    await story.until(lambda: status.caught)
    copy = world.store.snapshot()
    status.let_go()
    await story.until(lambda: story.served("a") == 6)
    world.restore_api(copy)
    await story.settled(60)


async def a_container_that_was_given_up_is_shown_again(story: Story) -> None:
    """Its Node was gone and came back to another one; the API server is restored to when it had the first."""
    world = story.world
    await story.joined("a")
    copy = world.store.snapshot()
    world.delete_node("a")
    await story.watch(60)
    world.register("a")
    await story.watch(5)
    story.pause_controllers()
    world.restore_api(copy)
    await story.watch(12)
    story.bind("a", 2)
    await story.watch(5)
    story.resume_controllers()
    await story.settled(90)
