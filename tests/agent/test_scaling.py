"""The agent's request follows its Pods: at once upwards, in its own time downwards, never on a guess."""

import asyncio
import json
from typing import Any

import pytest

from podpool.agent.state import AgentState
from podpool.api.azure import AGENT_ANNOTATION, CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.crds import CRDS
from podpool.kube.errors import ApiError
from tests.agent.worlds import NODE, SETTLED, SYSTEM, World, in_world


def requests(world: World) -> list[int]:
    return [patch["spec"]["requestedIPCount"] for patch in world.road.patches]


def report(patch: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(patch["metadata"]["annotations"][AGENT_ANNOTATION])
    return told


def fail(_body: dict[str, Any]) -> None:
    raise ApiError("patch", status=500)


@in_world
async def test_the_first_request_is_one_patch_with_everything_in_it(world: World) -> None:
    agent = await world.start()
    assert [15] == requests(world)
    patch = world.road.patches[0]
    assert [] == patch["spec"]["ipsNotInUse"]
    assert patch["metadata"]["resourceVersion"]
    container = agent.pool.adopted
    told = {"batch": 16, "bootID": "boot-1", "version": 1, "restedSeconds": 0.0, "container": container}
    assert told == report(patch)


@in_world
async def test_35_pods_at_once_are_one_patch(world: World) -> None:
    await world.start()
    world.road.patches.clear()
    await world.bind(*(f"pod-{n}" for n in range(35)))
    await asyncio.sleep(SETTLED)
    assert [47] == requests(world)
    assert 35 == report(world.road.patches[0])["demand"]
    for n in range(35):
        await world.add(f"sandbox-{n}", pod=f"pod-{n}")
    await asyncio.sleep(SETTLED)
    assert [47] == requests(world)


@in_world
async def test_pods_of_the_host_network_and_finished_ones_are_no_demand(world: World) -> None:
    await world.bind(*(f"host-{n}" for n in range(20)), host_network=True)
    await world.bind(*(f"done-{n}" for n in range(20)), phase="Succeeded")
    await world.start()
    assert [15] == requests(world)


@in_world
async def test_less_is_asked_for_when_the_wish_has_lasted_and_names_are_cleared_when_done(world: World) -> None:
    pods = [f"pod-{n}" for n in range(35)]
    await world.bind(*pods)
    agent = await world.start()
    for pod in pods:
        await world.add(pod, pod=pod)
    world.road.patches.clear()
    for pod in pods:
        await world.remove(pod)
        await world.call("DEL", pod)
    await asyncio.sleep(50.0)
    assert [] == requests(world)  # resting counts as demand, and then the hold
    await asyncio.sleep(30.0)
    assert [15, 15] == requests(world)
    assert 32 == len(world.road.patches[0]["spec"]["ipsNotInUse"])
    assert [] == world.road.patches[1]["spec"]["ipsNotInUse"]
    assert 15 == agent.pool.listed
    assert report(world.road.patches[0])["restedSeconds"] >= 30.0


@in_world
async def test_when_settled_nothing_is_written(world: World) -> None:
    await world.bind("pod-1")
    await world.start()
    await world.add("s", pod="pod-1")
    world.road.patches.clear()
    await asyncio.sleep(1000.0)
    assert [] == world.road.patches


@in_world
async def test_pods_that_end_are_not_counted_twice(world: World) -> None:
    """Their addresses rest while their objects are still there."""
    pods = [f"pod-{n}" for n in range(30)]
    await world.bind(*pods)
    await world.start()
    for pod in pods:
        await world.add(pod, pod=pod)
    world.road.patches.clear()
    for pod in pods:
        await world.call("DEL", pod)
    await asyncio.sleep(SETTLED)
    assert [] == world.road.patches


@in_world
async def test_a_pod_that_flaps_costs_one_request_per_hold(world: World) -> None:
    """It leaves for just over a hold, and comes back for a moment, at the edge of a batch."""
    await world.bind(*(f"pod-{n}" for n in range(8)))
    await world.start()
    begun = asyncio.get_running_loop().time()
    world.road.patches.clear()
    for _ in range(20):
        await world.bind("flapping")
        await asyncio.sleep(0.5)
        await world.remove("flapping")
        await asyncio.sleep(31.0)
    changes = [each for each, before in zip(requests(world)[1:], requests(world), strict=False) if each != before]
    assert 2 <= len(changes) <= (asyncio.get_running_loop().time() - begun) / 30.0 + 2


@in_world
async def test_a_request_edited_by_hand_is_brought_back_in_one_patch(world: World) -> None:
    await world.start()
    world.road.patches.clear()
    world.controller_works = False
    await world.kube.merge(NODE_NETWORK_CONFIGS, NODE, {"spec": {"requestedIPCount": 3}}, namespace=SYSTEM)
    await asyncio.sleep(SETTLED)
    assert [15] == requests(world)
    await world.kube.merge(NODE_NETWORK_CONFIGS, NODE, {"spec": {"requestedIPCount": 99}}, namespace=SYSTEM)
    await asyncio.sleep(100.0)
    assert [15, 15] == requests(world)


@in_world
async def test_a_report_that_was_set_back_is_told_again(world: World) -> None:
    """An API server that was restored must learn how far this agent has come."""
    await world.bind(*(f"pod-{n}" for n in range(20)))
    await world.start()
    await world.bind(*(f"more-{n}" for n in range(20)))
    await asyncio.sleep(SETTLED)
    told = report(world.road.patches[-1])
    assert told["version"] > 1
    older = {AGENT_ANNOTATION: json.dumps({**told, "version": 1})}
    world.road.patches.clear()
    await world.kube.merge(NODE_NETWORK_CONFIGS, NODE, {"metadata": {"annotations": older}}, namespace=SYSTEM)
    await asyncio.sleep(SETTLED)
    assert [True] == [report(patch)["version"] >= told["version"] for patch in world.road.patches]


@in_world
async def test_a_name_written_by_another_hand_is_consent(world: World) -> None:
    agent = await world.start()
    world.controller_works = False
    free = agent.pool.next_free(now=1e9, rest=0.0)
    assert free
    await world.kube.merge(NODE_NETWORK_CONFIGS, NODE, {"spec": {"ipsNotInUse": [free.id]}}, namespace=SYSTEM)
    await asyncio.sleep(SETTLED)
    assert [free.id] == list(agent.pool.named)
    assert any(free.id in sentence for sentence in world.told)


@in_world
async def test_a_grant_that_comes_after_the_wish_for_it_goes_back(world: World) -> None:
    agent = await world.start()
    world.controller_works = False
    await world.bind(*(f"pod-{n}" for n in range(20)))
    await asyncio.sleep(SETTLED)
    await world.remove(*(f"pod-{n}" for n in range(20)))
    await asyncio.sleep(100.0)
    assert [15, 31, 15] == requests(world)
    listed = {f"late-{n}": f"10.0.9.{n}" for n in range(1, 32)}
    await world.write_status(version=9, grants=listed)
    await asyncio.sleep(SETTLED)
    assert 16 == len(agent.pool.named)
    assert 16 == len(world.road.patches[-1]["spec"]["ipsNotInUse"])


class TestNothingIsGuessed:
    @in_world
    async def test_without_the_pods_there_is_no_request(self, world: World) -> None:
        await self._no_request_while_hidden(world, "/pods")

    @in_world
    async def test_without_the_subnet_there_is_no_request(self, world: World) -> None:
        await self._no_request_while_hidden(world, "/clustersubnets")

    @in_world
    async def test_without_the_node_there_is_no_request(self, world: World) -> None:
        await self._no_request_while_hidden(world, "/nodes/")

    @staticmethod
    async def _no_request_while_hidden(world: World, path: str) -> None:
        world.road.hide(path)
        await world.start(wait=False)
        await asyncio.sleep(60.0)
        assert [] == world.road.patches
        world.road.hide(None)
        await asyncio.sleep(60.0)
        assert [15] == requests(world)

    @in_world
    async def test_without_a_cluster_subnet_the_config_and_the_subnets_state_tell(self, world: World) -> None:
        await world.kube.delete(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        scaler = {"batchSize": 8, "requestThresholdPercent": 100, "releaseThresholdPercent": 200, "maxIPCount": 250}
        await world.kube.merge(NODE_NETWORK_CONFIGS, NODE, {"status": {"scaler": scaler}}, namespace=SYSTEM, sub="status")
        await world.start()
        assert [7] == requests(world)
        await world.say_exhausted(exhausted=True)
        await asyncio.sleep(SETTLED)
        assert [7, 1] == requests(world)[:2]

    @in_world
    async def test_a_cluster_that_knows_neither_kind_is_scaled_by_the_defaults(self, world: World) -> None:
        for kind in (CLUSTER_SUBNETS, CLUSTER_SUBNET_STATES):
            await world.kube.delete(CRDS, f"{kind.plural}.{kind.group}")
        await world.start()
        assert [15] == requests(world)

    @in_world
    async def test_the_subnets_own_batch_stands_while_it_is_exhausted(self, world: World) -> None:
        """Exhaustion then sets only how long to hold, and how long to rest."""
        await world.scale_by(batch=4, buffer="0.5", exhausted=True)
        await world.start()
        assert [3] == requests(world)


class TestPatchesThatFail:
    """Azure's second monitor keeps its request then; its first panics when they fail for long."""

    @in_world
    async def test_the_request_stays_and_grows_when_it_can(self, world: World) -> None:
        await world.start()
        world.road.on_patch = fail
        await world.bind(*(f"pod-{n}" for n in range(20)))
        await asyncio.sleep(600.0)
        assert 15 == (await world.config()).spec.requested
        world.road.on_patch = lambda _body: None
        await asyncio.sleep(20.0)
        assert 31 == (await world.config()).spec.requested

    @in_world
    async def test_what_was_named_is_named_again_and_nothing_more(self, world: World) -> None:
        pods = [f"pod-{n}" for n in range(6)]
        await world.bind(*pods, *(f"more-{n}" for n in range(14)))
        agent = await world.start()
        for pod in pods:
            await world.add(pod, pod=pod)
        world.road.on_patch = fail
        await world.remove(*(f"more-{n}" for n in range(14)))
        await asyncio.sleep(60.0)
        names = list(agent.pool.named)
        assert 16 == len(names)
        await asyncio.sleep(600.0)
        assert names == list(agent.pool.named)
        assert 31 == (await world.config()).spec.requested
        await world.add("another")
        world.road.on_patch = lambda _body: None
        world.road.patches.clear()
        await asyncio.sleep(20.0)
        assert sorted(names) == sorted(world.road.patches[0]["spec"]["ipsNotInUse"])
        assert 15 == (await world.config()).spec.requested
        assert 15 == agent.pool.listed


class TestNames:
    @in_world
    async def test_they_are_on_the_platter_before_they_are_on_the_wire(self, world: World) -> None:
        await world.start()
        seen: list[bool] = []

        def look(body: dict[str, Any]) -> None:
            names = set(body["spec"]["ipsNotInUse"])
            after = AgentState(world.disk.after_reboot(), world.clock, fence_limit=600.0)
            after.open(boot_id=world.boot_id)
            seen.append(
                bool(names) and names == set(after.pool.named) and report(body)["version"] == after.pool.version
            )

        world.road.on_patch = look
        await world.scale_by(batch=4, buffer="0.5")
        await asyncio.sleep(100.0)
        assert seen[0]

    @in_world
    async def test_killed_before_the_patch_was_answered_they_are_still_names(self, world: World) -> None:
        """The old patch may yet land: what it names must not be given to a Pod."""
        agent = await world.start()
        world.controller_works = False

        def cut(_body: dict[str, Any]) -> None:
            world.road.cut = True
            raise ApiError("patch", status=500)

        world.road.on_patch = cut
        await world.scale_by(batch=4, buffer="0.5")
        await asyncio.sleep(40.0)
        names = list(agent.pool.named)
        assert 12 == len(names)
        await world.kill()
        world.road.on_patch = lambda _body: None
        world.road.cut = False
        world.road.patches.clear()
        agent = await world.start()
        assert names == list(agent.pool.named)
        assert names == world.road.patches[0]["spec"]["ipsNotInUse"]

    @in_world
    async def test_a_conflict_is_read_again_and_decided_anew(self, world: World) -> None:
        await world.start()
        edits = iter([1])

        def edit(_body: dict[str, Any]) -> None:
            if next(edits, None):
                stored = world.server.store
                served = stored.registry.find("acn.azure.com", "v1alpha", "nodenetworkconfigs")
                stored.update(served, f"{SYSTEM}/{NODE}", lambda old: {**old, "spec": {**old["spec"], "x": 1}})

        world.road.on_patch = edit
        world.road.patches.clear()
        await world.bind(*(f"pod-{n}" for n in range(20)))
        await asyncio.sleep(SETTLED)
        assert 31 == (await world.config()).spec.requested


class TestWaiting:
    @in_world
    async def test_pods_wait_only_after_a_status_answered_short_and_both_turns_are_told(self, world: World) -> None:
        world.capacity = 5
        pods = [f"pod-{n}" for n in range(8)]
        await world.bind(*pods)
        await world.start()
        told = [report(patch).get("waiting", 0) for patch in world.road.patches]
        assert [0, 3] == told
        world.capacity = 100
        await asyncio.sleep(SETTLED)
        told = [report(patch).get("waiting", 0) for patch in world.road.patches]
        assert [0, 3, 0] == told

    @in_world
    async def test_a_request_for_more_does_not_make_them_stop_waiting(self, world: World) -> None:
        world.capacity = 5
        await world.bind(*(f"pod-{n}" for n in range(8)))
        await world.start()
        await world.bind(*(f"more-{n}" for n in range(10)))
        await asyncio.sleep(SETTLED)
        assert [0, 3, 13] == [report(patch).get("waiting", 0) for patch in world.road.patches]

    @in_world
    async def test_a_request_that_is_not_answered_yet_makes_nobody_wait(self, world: World) -> None:
        world.capacity = 10
        await world.bind(*(f"pod-{n}" for n in range(8)))
        await world.start()
        world.controller_works = False
        await world.bind("one-more")
        await asyncio.sleep(0.5)
        await world.bind(*(f"more-{n}" for n in range(5)))
        await asyncio.sleep(0.3)
        world.capacity, world.controller_works = 100, True
        await asyncio.sleep(SETTLED)
        assert [0, 0] == [report(patch).get("waiting", 0) for patch in world.road.patches]

    @in_world
    async def test_a_subnet_that_is_short_for_the_buffer_makes_nobody_wait(self, world: World) -> None:
        world.capacity = 10
        await world.bind(*(f"pod-{n}" for n in range(8)))
        await world.start()
        assert [0] == [report(patch).get("waiting", 0) for patch in world.road.patches]


class TestBootId:
    @in_world
    async def test_it_is_written_once_the_node_reports_it(self, world: World) -> None:
        await world.start()
        await world.reboot("boot-2")
        world.road.patches.clear()
        await world.start()
        assert [] == world.road.patches
        await world.report_boot("boot-2")
        await asyncio.sleep(SETTLED)
        assert ["boot-2"] == [report(patch)["bootID"] for patch in world.road.patches]


@pytest.mark.parametrize("demand", [0, 1, 8, 9, 24, 25])
def test_the_request_is_the_target_of_the_mathematics(demand: int) -> None:
    """With the primary a multiple of the batch, and half a batch free."""

    @in_world
    async def scaled(world: World) -> None:
        await world.bind(*(f"pod-{n}" for n in range(demand)))
        await world.start()
        request = requests(world)[-1]
        assert 0 == (request + 1) % 16
        assert 8 <= request + 1 - demand < 24

    scaled()
