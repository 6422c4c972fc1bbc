"""Stories of Nodes that go, come back, or are taken for gone."""

from collections.abc import Callable

from podpool.controller.expectations import PATIENCE
from podpool.lab.sim.convergence import check_quiet
from podpool.lab.sim.network import MessageFilter
from podpool.lab.sim.cluster import NODES
from tests.lab.sim.driver import Story, lists

GONE = 60.0
"""Seconds after which a Node that nobody sees has been given up: the gone time, and a look."""


async def a_node_is_deleted_while_its_pods_run_on(story: Story) -> None:
    """Whoever deletes it, and its Pods, says that they have stopped. They have not, and nobody can know."""
    await _deleted(story, story.cluster.strand)


async def a_node_is_deleted_when_its_pods_have_stopped(story: Story) -> None:
    """The same, and what was said is true: the machine is cut off, and its Pods are no more."""
    await _deleted(story, lambda name: story.cluster.network.partition(name, "api"))


async def _deleted(story: Story, lose: Callable[[str], None]) -> None:
    cluster = story.cluster
    await story.joined("a", "b")
    pods = await story.grown("a")
    lose("a")
    story.delete(pods)
    cluster.delete_node("a")
    await story.watch(GONE + 10)
    story.bind("b", 9)
    await story.watch(30)


async def a_node_comes_back_unseen(story: Story) -> None:
    """It is deleted and registered again; the leader, whose cache lags, never sees that it is back."""
    cluster = story.cluster
    await story.joined("a")
    await story.grown("a")
    cluster.delete_node("a")
    await story.watch(1)
    lag = story.hold(lists("nodes", "controller"), most=None, answers=True)
    cluster.register("a")
    await story.watch(GONE)
    lag.release()
    await story.settled(60)


async def a_node_returns_while_it_is_being_given_up(story: Story) -> None:
    """The leader's last word on its container is under way to the ledger, and Pods are bound to the Node again."""
    cluster = story.cluster
    await story.joined("a")
    word = await story.given_up("a")
    cluster.register("a")
    story.bind("a", 2)
    await story.watch(10)
    word.release()
    await story.settled(60)


async def a_bookmark_is_read_late(story: Story) -> None:
    """It lies in the buffer of an agent that is paused while its Node is deleted and given up."""
    cluster = story.cluster
    await story.joined("a")
    await story.watch(59 - cluster.loop.time())
    cluster.store.update(
        NODES, "a", lambda node: {**node, "status": {**node["status"], "phase": "Running"}}, subresource="status"
    )
    await story.watch(0.5)
    agent = cluster.hosts["a"].agent_process
    assert agent
    agent.pause()
    await story.watch(3)
    cluster.delete_node("a")
    await story.watch(GONE)
    story.bind("a", 2)
    await story.watch(1)
    agent.resume()
    await story.watch(10)


async def a_rebooted_node_is_registered_again(story: Story) -> None:
    """The machine has a new boot id, which the controllers, paused, know neither from its Node nor from its NNC."""
    cluster = story.cluster
    await story.joined("a")
    await story.grown("a")
    story.pause_controllers()
    cluster.reboot("a")
    await story.until(lambda: story.served("a") == 6)
    cluster.delete_node("a")
    cluster.register("a")
    await story.watch(3)
    story.resume_controllers()
    await story.settled(2 * GONE)


async def another_machine_takes_over_a_name(story: Story) -> None:
    """At once, and Pods run on it: the container of the machine before is not theirs."""
    cluster = story.cluster
    await story.joined("a")
    await story.grown("a")
    cluster.remove_host("a")
    cluster.add_host("a")
    story.bind("a", 2)
    await story.settled(2 * GONE)


async def a_node_is_away_for_longer_than_the_gone_time(story: Story) -> None:
    """Its machine and its Pods live on, and are bound to it; then it is registered again."""
    cluster = story.cluster
    await story.joined("a")
    await story.grown("a")
    cluster.delete_node("a")
    await story.watch(2 * GONE)
    cluster.register("a")
    await story.settled(60)


async def a_node_is_registered_again(story: Story) -> None:
    """After a moment, its Pods still running; then the gone time passes."""
    cluster = story.cluster
    await story.joined("a")
    await story.grown("a")
    cluster.delete_node("a")
    await story.watch(3)
    cluster.register("a")
    await story.settled(2 * GONE)


async def a_node_is_away_for_less_than_the_gone_time(story: Story) -> None:
    """No Pod is bound to it meanwhile."""
    cluster = story.cluster
    await story.joined("a")
    await story.watch(5)
    cluster.delete_node("a")
    await story.watch(30)
    cluster.register("a")
    await story.settled(30)


async def a_node_is_cut_off_and_given_up(story: Story) -> None:
    """It has no Pods and cannot be reached; others have its addresses when Pods are bound to it again."""
    cluster = story.cluster
    await story.joined("a", "b")
    cluster.network.partition("a", "api")
    cluster.delete_node("a")
    await story.watch(GONE + 10)
    story.bind("b", 9)
    await story.watch(20)
    cluster.register("a")
    story.bind("a", 2)
    await story.watch(20)


async def a_node_is_cut_off(story: Story) -> None:
    """Its Node stays, nobody takes anything from it, and Pods are bound to it when the fence time has passed."""
    cluster = story.cluster
    await story.joined("a")
    cluster.network.partition("a", "api")
    await story.watch(35)
    story.bind("a", 2)
    await story.watch(15)
    cluster.network.heal("a", "api")
    await story.settled(30)


async def a_confirmation_is_answered_late(story: Story) -> None:
    """The reads take four seconds, no others are answered, and Pods are bound when the fence time has passed."""
    await story.joined("a")
    late = story.hold(_read_of("a"), answers=True)
    await story.until(lambda: late.messages)
    await story.watch(4)
    deaf = story.hold(_read_of("a"), most=None)
    late.release()
    await story.watch(27)
    story.bind("a", 2)
    await story.watch(5)
    deaf.release()
    await story.settled(30)


def _read_of(name: str) -> MessageFilter:
    return lambda each: (
        each.source == name and each.request.method == "GET" and each.request.path.endswith(f"/nodes/{name}")
    )


async def nothing_happens(story: Story) -> None:
    """Nodes have what they need, and nobody has a reason to write."""
    cluster = story.cluster
    await story.joined("a", "b")
    await story.settled(30)
    before = cluster.written()
    await story.watch(30)
    check_quiet(before, cluster.written())


async def the_last_word_of_an_old_leader(story: Story) -> None:
    """It gives a Node up, and is paused; under the next leader the Node is back, and Pods run on it."""
    cluster = story.cluster
    await story.joined("a")
    for _ in range(3):
        story.delete(await story.grown("a"))
        await story.watch(20)
    word = await story.given_up("a")
    cluster.controllers[word.messages[0].source].pause()
    cluster.register("a")
    story.bind("a", 2)
    await story.until(lambda: story.served("a") == 2, within=60)
    word.release()
    await story.settled(30)


async def a_word_that_took_too_long(story: Story) -> None:
    """The leader has given up waiting for an answer, and in the same term made the Node's NNC anew."""
    cluster = story.cluster
    await story.joined("a")
    word = await story.given_up("a")
    cluster.register("a")
    story.bind("a", 2)
    await story.until(lambda: story.served("a") == 2, within=60)
    word.release()
    await story.settled(30)


async def a_config_that_the_leader_does_not_see(story: Story) -> None:
    """A machine has just joined, its Node is deleted and registered again, and the leader's cache long has no NNC."""
    cluster = story.cluster
    await story.watch(2)
    cache = story.hold(lists("nodenetworkconfigs", "controller"), most=None, answers=True)
    cluster.add_host("a")
    await story.watch(2)
    cluster.delete_node("a")
    cluster.register("a")
    await story.watch(PATIENCE + 2)
    cache.release()
    story.bind("a", 2)
    await story.settled(20)


async def a_node_that_the_leader_does_not_see(story: Story) -> None:
    """It is registered again under its NNC, which is made anew, and the leader's cache still has the Node of before."""
    cluster = story.cluster
    await story.joined("a")
    await story.grown("a")
    cache = story.hold(lists("nodes", "controller"), most=None, answers=True)
    cluster.delete_node("a")
    cluster.register("a")
    await story.watch(5)
    before = cluster.written()
    await story.watch(10)
    check_quiet(before, cluster.written())
    cache.release()
    await story.settled(60)
