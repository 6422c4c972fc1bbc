"""The request follows demand: growth at once, shrinking after a hold, nothing on incomplete input."""

import asyncio
import json
from functools import partial
from typing import Any

import pytest

from podpool.agent.scaling_decision import ScalingMode
from podpool.agent.state import AgentState
from podpool.api.azure import AGENT_ANNOTATION, CLUSTER_SUBNET_STATES, CLUSTER_SUBNETS, NODE_NETWORK_CONFIGS
from podpool.api.crds import CRDS
from podpool.kube.errors import ApiError
from tests.agent.node_env import NODE, SETTLE_TIME, SYSTEM, NodeEnv, in_node_env


def requests(env: NodeEnv) -> list[int]:
    return [patch["spec"]["requestedIPCount"] for patch in env.transport.patches]


def report(patch: dict[str, Any]) -> dict[str, Any]:
    reported: dict[str, Any] = json.loads(patch["metadata"]["annotations"][AGENT_ANNOTATION])
    return reported


def _set(event: asyncio.Event, _body: dict[str, Any]) -> None:
    event.set()


def fail(_body: dict[str, Any]) -> None:
    raise ApiError("patch", status=500)


@in_node_env
async def test_the_first_request_is_one_patch_with_everything_in_it(env: NodeEnv) -> None:
    agent = await env.start()
    assert [15] == requests(env)
    patch = env.transport.patches[0]
    assert [] == patch["spec"]["ipsNotInUse"]
    assert patch["metadata"]["resourceVersion"]
    nc, sent = agent.pool.adopted_nc, report(patch)
    assert sent.pop("journal").startswith("1970-01-12T13:46:40.")
    assert {"batch": 16, "bootID": "boot-1", "version": 1, "cooledSeconds": 0.0, "networkContainer": nc} == sent


@in_node_env
async def test_35_pods_at_once_are_one_patch(env: NodeEnv) -> None:
    await env.start()
    env.transport.patches.clear()
    await env.bind(*(f"pod-{n}" for n in range(35)))
    await asyncio.sleep(SETTLE_TIME)
    assert [47] == requests(env)
    assert 35 == report(env.transport.patches[0])["demand"]
    for n in range(35):
        await env.add(f"sandbox-{n}", pod=f"pod-{n}")
    await asyncio.sleep(SETTLE_TIME)
    assert [47] == requests(env)


@in_node_env
async def test_pods_of_the_host_network_and_finished_ones_are_no_demand(env: NodeEnv) -> None:
    await env.bind(*(f"host-{n}" for n in range(20)), host_network=True)
    await env.bind(*(f"done-{n}" for n in range(20)), phase="Succeeded")
    await env.start()
    assert [15] == requests(env)


@in_node_env
async def test_a_smaller_request_waits_for_the_hold_and_releases_are_removed_when_done(env: NodeEnv) -> None:
    pods = [f"pod-{n}" for n in range(35)]
    await env.bind(*pods)
    agent = await env.start()
    for pod in pods:
        await env.add(pod, pod=pod)
    env.transport.patches.clear()
    for pod in pods:
        await env.remove(pod)
        await env.call("DEL", pod)
    await asyncio.sleep(50.0)
    assert [] == requests(env)  # cooling down counts as demand, and then the hold
    await asyncio.sleep(30.0)
    assert [15, 15] == requests(env)
    assert 32 == len(env.transport.patches[0]["spec"]["ipsNotInUse"])
    assert [] == env.transport.patches[1]["spec"]["ipsNotInUse"]
    assert 15 == agent.pool.granted
    assert report(env.transport.patches[0])["cooledSeconds"] >= 30.0


@in_node_env
async def test_when_settled_nothing_is_written(env: NodeEnv) -> None:
    await env.bind("pod-1")
    await env.start()
    await env.add("s", pod="pod-1")
    env.transport.patches.clear()
    await asyncio.sleep(1000.0)
    assert [] == env.transport.patches


@in_node_env
async def test_pods_that_end_are_not_counted_twice(env: NodeEnv) -> None:
    """Their addresses cool down while their objects still exist."""
    pods = [f"pod-{n}" for n in range(30)]
    await env.bind(*pods)
    await env.start()
    for pod in pods:
        await env.add(pod, pod=pod)
    env.transport.patches.clear()
    for pod in pods:
        await env.call("DEL", pod)
    await asyncio.sleep(SETTLE_TIME)
    assert [] == env.transport.patches


@in_node_env
async def test_a_pod_that_flaps_costs_one_request_per_hold(env: NodeEnv) -> None:
    """It is deleted for just over a hold and returns for a moment, at the edge of a batch."""
    await env.bind(*(f"pod-{n}" for n in range(8)))
    await env.start()
    started = asyncio.get_running_loop().time()
    env.transport.patches.clear()
    for _ in range(20):
        await env.bind("flapping")
        await asyncio.sleep(0.5)
        await env.remove("flapping")
        await asyncio.sleep(31.0)
    changes = [each for each, before in zip(requests(env)[1:], requests(env), strict=False) if each != before]
    assert 2 <= len(changes) <= (asyncio.get_running_loop().time() - started) / 30.0 + 2


@in_node_env
async def test_a_request_edited_by_a_third_party_is_corrected_in_one_patch(env: NodeEnv) -> None:
    await env.start()
    env.transport.patches.clear()
    env.controller_works = False
    await env.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, {"spec": {"requestedIPCount": 3}}, namespace=SYSTEM)
    await asyncio.sleep(SETTLE_TIME)
    assert [15] == requests(env)
    await env.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, {"spec": {"requestedIPCount": 99}}, namespace=SYSTEM)
    await asyncio.sleep(100.0)
    assert [15, 15] == requests(env)


@in_node_env
async def test_an_older_report_is_rewritten(env: NodeEnv) -> None:
    """A restored API server must get the highest version that this agent accepted."""
    await env.bind(*(f"pod-{n}" for n in range(20)))
    await env.start()
    await env.bind(*(f"more-{n}" for n in range(20)))
    await asyncio.sleep(SETTLE_TIME)
    reported = report(env.transport.patches[-1])
    assert reported["version"] > 1
    older = {AGENT_ANNOTATION: json.dumps({**reported, "version": 1})}
    env.transport.patches.clear()
    await env.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, {"metadata": {"annotations": older}}, namespace=SYSTEM)
    await asyncio.sleep(SETTLE_TIME)
    assert [True] == [report(patch)["version"] >= reported["version"] for patch in env.transport.patches]


@in_node_env
async def test_a_release_by_a_third_party_is_final(env: NodeEnv) -> None:
    agent = await env.start()
    env.controller_works = False
    free = agent.pool.next_available(now=1e9, cooldown=env.settings.cooldown_levels.in_force(0.0))
    assert free
    await env.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, {"spec": {"ipsNotInUse": [free.id]}}, namespace=SYSTEM)
    await asyncio.sleep(SETTLE_TIME)
    assert [free.id] == list(agent.pool.pending_release)
    assert any("a third party released" in line and free.address in line for line in env.warnings)


@in_node_env
async def test_a_grant_that_arrives_after_the_request_shrank_is_released(env: NodeEnv) -> None:
    agent = await env.start()
    env.controller_works = False
    await env.bind(*(f"pod-{n}" for n in range(20)))
    await asyncio.sleep(SETTLE_TIME)
    await env.remove(*(f"pod-{n}" for n in range(20)))
    await asyncio.sleep(100.0)
    assert [15, 31, 15] == requests(env)
    listed = {f"late-{n}": f"10.0.9.{n}" for n in range(1, 32)}
    await env.write_status(version=9, grants=listed)
    await asyncio.sleep(SETTLE_TIME)
    assert 16 == len(agent.pool.pending_release)
    assert 16 == len(env.transport.patches[-1]["spec"]["ipsNotInUse"])


class TestIncompleteInput:
    @in_node_env
    async def test_without_the_pods_there_is_no_request(self, env: NodeEnv) -> None:
        await self._no_request_while_hidden(env, "/pods")

    @in_node_env
    async def test_without_the_subnet_there_is_no_request(self, env: NodeEnv) -> None:
        await self._no_request_while_hidden(env, "/clustersubnets")

    @in_node_env
    async def test_without_the_node_there_is_no_request(self, env: NodeEnv) -> None:
        await self._no_request_while_hidden(env, "/nodes/")

    @staticmethod
    async def _no_request_while_hidden(env: NodeEnv, path: str) -> None:
        env.transport.hide(path)
        await env.start(wait=False)
        await asyncio.sleep(60.0)
        assert [] == env.transport.patches
        env.transport.hide(None)
        await asyncio.sleep(60.0)
        assert [15] == requests(env)

    @in_node_env
    async def test_without_a_cluster_subnet_the_nnc_and_the_subnet_state_are_used(self, env: NodeEnv) -> None:
        await env.kube.delete(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        scaler = {"batchSize": 8, "requestThresholdPercent": 100, "releaseThresholdPercent": 200, "maxIPCount": 250}
        await env.kube.merge_patch(
            NODE_NETWORK_CONFIGS, NODE, {"status": {"scaler": scaler}}, namespace=SYSTEM, subresource="status"
        )
        await env.start()
        assert [7] == requests(env)
        await env.publish_exhausted(exhausted=True)
        await asyncio.sleep(env.settings.shrink_spread_max)  # the number of nodes is not known
        assert [7, 1] == requests(env)[:2]

    @in_node_env
    async def test_an_empty_cluster_subnet_does_not_hide_the_subnet_state(self, env: NodeEnv) -> None:
        """An operator creates one for its spec, before a controller that writes its status runs."""
        await env.kube.delete(CLUSTER_SUBNETS, "pods", namespace=SYSTEM)
        await env.publish_exhausted(exhausted=True)
        await env.start()
        assert [1] == requests(env)
        await env.kube.create(CLUSTER_SUBNETS, {"metadata": {"name": "pods", "namespace": SYSTEM}})
        await asyncio.sleep(100.0)
        assert [1] == requests(env)
        await env.publish_exhausted(exhausted=False)
        await asyncio.sleep(SETTLE_TIME)
        assert [1, 15] == requests(env)

    @in_node_env
    async def test_what_a_cluster_subnet_lacks_is_read_from_the_subnet_state(self, env: NodeEnv) -> None:
        """Each field by itself: here the scaler of one and the exhaustion of the other."""
        await env.kube.merge_patch(
            CLUSTER_SUBNETS,
            "pods",
            {"status": {"exhausted": None, "scaler": {"batch": 4}}},
            namespace=SYSTEM,
            subresource="status",
        )
        await env.publish_exhausted(exhausted=True)
        agent = await env.start()
        known = agent.metrics_snapshot().parameters
        assert known
        assert (True, 4, 5.0) == (known.exhausted, known.scaler.batch, known.cooldown.level)
        await env.scale_by(batch=8, buffer="0.5")
        await asyncio.sleep(SETTLE_TIME)
        known = agent.metrics_snapshot().parameters
        assert known
        assert (False, 8, 30.0) == (known.exhausted, known.scaler.batch, known.cooldown.level)

    @in_node_env
    async def test_without_both_kinds_the_defaults_are_used(self, env: NodeEnv) -> None:
        for kind in (CLUSTER_SUBNETS, CLUSTER_SUBNET_STATES):
            await env.kube.delete(CRDS, f"{kind.plural}.{kind.group}")
        await env.start()
        assert [15] == requests(env)

    @in_node_env
    async def test_the_subnets_own_batch_is_used_while_it_is_exhausted(self, env: NodeEnv) -> None:
        """Exhaustion then sets only hold and cooldown."""
        await env.scale_by(batch=4, buffer="0.5", exhausted=True)
        await env.start()
        assert [3] == requests(env)


class TestCooldown:
    @in_node_env
    async def test_the_level_is_that_of_the_subnet(self, env: NodeEnv) -> None:
        agent = await env.start()
        for published, level in ((130.0, 130.0), (2.5, 2.5), (0, 0.0), (None, 30.0)):
            await env.kube.merge_patch(
                CLUSTER_SUBNETS,
                "pods",
                {"status": {"scaler": {"cooldownSeconds": published}}},
                namespace=SYSTEM,
                subresource="status",
            )
            await asyncio.sleep(SETTLE_TIME)
            known = agent.metrics_snapshot().parameters
            assert known
            assert level == known.cooldown.level

    @in_node_env
    async def test_the_shortest_time_is_that_of_the_subnet(self, env: NodeEnv) -> None:
        agent = await env.start()
        for published, shortest in ((60.0, 60.0), (None, 5.0)):
            scaler = {"status": {"scaler": {"cooldownSeconds": 60, "shortestCooldownSeconds": published}}}
            await env.kube.merge_patch(CLUSTER_SUBNETS, "pods", scaler, namespace=SYSTEM, subresource="status")
            await asyncio.sleep(SETTLE_TIME)
            known = agent.metrics_snapshot().parameters
            assert known
            assert shortest == known.cooldown.shortest

    @in_node_env
    async def test_a_long_level_needs_no_more_addresses_and_no_more_patches(self, env: NodeEnv) -> None:
        """Pods that come and go, one after the other, on a node with a batch."""
        requested = {}
        for level in (30.0, 130.0):
            scaler = {"status": {"scaler": {"cooldownSeconds": level}}}
            await env.kube.merge_patch(CLUSTER_SUBNETS, "pods", scaler, namespace=SYSTEM, subresource="status")
            await env.start()
            env.transport.patches.clear()
            for number in range(40):
                await env.add(f"{level}-{number}")
                await asyncio.sleep(3.0)
                await env.call("DEL", f"{level}-{number}")
            await asyncio.sleep(300.0)
            requested[level] = requests(env)
            await env.stop()
        assert requested[30.0] == requested[130.0]

    @in_node_env
    async def test_a_long_level_refuses_no_pod(self, env: NodeEnv) -> None:
        env.capacity = 3
        scaler = {"status": {"scaler": {"cooldownSeconds": 130}}}
        await env.kube.merge_patch(CLUSTER_SUBNETS, "pods", scaler, namespace=SYSTEM, subresource="status")
        await env.start()
        for number in range(20):
            await env.add(f"s{number}")
            await env.call("DEL", f"s{number}")


@in_node_env
async def test_demand_is_reported_again_when_no_use_is_recent_any_more(env: NodeEnv) -> None:
    """The patch that releases addresses of an exhausted subnet still counts them; it must not be the last."""
    await env.scale_by(batch=1, buffer="0", exhausted=True)
    await env.start()
    for number in range(6):
        await env.add(f"s{number}")
    for number in range(6):
        await env.call("DEL", f"s{number}")
    await asyncio.sleep(env.settings.cooldown_exhausted + SETTLE_TIME)
    assert (0, 6) == (requests(env)[-1], report(env.transport.patches[-1])["demand"])
    env.transport.patches.clear()
    await asyncio.sleep(env.settings.cooldown_filling)
    assert [0] == [report(each).get("demand", 0) for each in env.transport.patches]
    await asyncio.sleep(600.0)
    assert 1 == len(env.transport.patches)


class TestSpread:
    @in_node_env
    async def test_releases_are_spread_by_the_number_of_nodes(self, env: NodeEnv) -> None:
        """5,000 nodes that see a smaller batch at once must not release within a second."""
        delays = {}
        for nodes in (1, 8192):
            await env.scale_by(batch=16, buffer="0.5", nodes=nodes)
            await env.start()
            env.transport.patches.clear()
            began = asyncio.get_running_loop().time()
            await env.scale_by(batch=4, buffer="0.5", exhausted=True, nodes=nodes)
            patched = asyncio.Event()
            env.transport.on_patch = partial(_set, patched)
            await patched.wait()
            delays[nodes] = asyncio.get_running_loop().time() - began
            await env.stop()
        assert delays[1] < 0.3
        assert delays[8192] > 1.0


class TestMaxBuffer:
    @in_node_env
    async def test_in_reactive_mode_it_decides_when_a_batch_is_released(self, env: NodeEnv) -> None:
        """Beside a ClusterSubnet, which does not have it: with 3 batches as maximum 48 free ones are too many."""
        env.options = {"mode": ScalingMode.REACTIVE}
        scaler = {"batchSize": 16, "requestThresholdPercent": 50, "releaseThresholdPercent": 300, "maxIPCount": 250}
        status = {"status": {"scaler": scaler}}
        await env.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, status, namespace=SYSTEM, subresource="status")
        await env.start()
        sandboxes = [f"s{number}" for number in range(40)]
        for each in sandboxes:
            await env.add(each)
            await asyncio.sleep(0.5)
        assert 48 == (await env.nnc()).spec.requested
        for each in sandboxes[4:]:
            await env.call("DEL", each)
        await asyncio.sleep(200.0)
        assert 48 == (await env.nnc()).spec.requested  # 44 are free
        for each in sandboxes[:4]:
            await env.call("DEL", each)
        await asyncio.sleep(200.0)
        assert 32 == (await env.nnc()).spec.requested


class TestFailingPatches:
    """Azure's idempotent monitor keeps its request then; the reactive one panics when they fail for long."""

    @in_node_env
    async def test_the_request_stays_and_grows_when_patches_succeed(self, env: NodeEnv) -> None:
        await env.start()
        env.transport.on_patch = fail
        await env.bind(*(f"pod-{n}" for n in range(20)))
        await asyncio.sleep(600.0)
        assert 15 == (await env.nnc()).spec.requested
        env.transport.on_patch = lambda _body: None
        await asyncio.sleep(20.0)
        assert 31 == (await env.nnc()).spec.requested

    @in_node_env
    async def test_the_same_releases_are_sent_again_and_no_more(self, env: NodeEnv) -> None:
        pods = [f"pod-{n}" for n in range(6)]
        await env.bind(*pods, *(f"more-{n}" for n in range(14)))
        agent = await env.start()
        for pod in pods:
            await env.add(pod, pod=pod)
        env.transport.on_patch = fail
        await env.remove(*(f"more-{n}" for n in range(14)))
        await asyncio.sleep(60.0)
        released = list(agent.pool.pending_release)
        assert 16 == len(released)
        await asyncio.sleep(600.0)
        assert released == list(agent.pool.pending_release)
        assert 31 == (await env.nnc()).spec.requested
        await env.add("another")
        env.transport.on_patch = lambda _body: None
        env.transport.patches.clear()
        await asyncio.sleep(20.0)
        assert sorted(released) == sorted(env.transport.patches[0]["spec"]["ipsNotInUse"])
        assert 15 == (await env.nnc()).spec.requested
        assert 15 == agent.pool.granted


class TestReleases:
    @in_node_env
    async def test_they_are_synced_before_they_are_sent(self, env: NodeEnv) -> None:
        await env.start()
        seen: list[bool] = []

        def check(body: dict[str, Any]) -> None:
            released = set(body["spec"]["ipsNotInUse"])
            after = AgentState(env.disk.after_reboot(), env.clock, fence_limit=600.0)
            after.open(boot_id=env.boot_id)
            seen.append(
                bool(released)
                and released == set(after.pool.pending_release)
                and report(body)["version"] == after.pool.version
            )

        env.transport.on_patch = check
        await env.scale_by(batch=4, buffer="0.5")
        await asyncio.sleep(100.0)
        assert seen[0]

    @in_node_env
    async def test_killed_before_the_patch_was_answered_they_are_still_pending(self, env: NodeEnv) -> None:
        """The patch may still arrive: what it releases must not be assigned."""
        agent = await env.start()
        env.controller_works = False

        def cut(_body: dict[str, Any]) -> None:
            env.transport.cut = True
            raise ApiError("patch", status=500)

        env.transport.on_patch = cut
        await env.scale_by(batch=4, buffer="0.5")
        await asyncio.sleep(40.0)
        released = list(agent.pool.pending_release)
        assert 12 == len(released)
        await env.kill()
        env.transport.on_patch = lambda _body: None
        env.transport.cut = False
        env.transport.patches.clear()
        agent = await env.start()
        assert released == list(agent.pool.pending_release)
        assert released == env.transport.patches[0]["spec"]["ipsNotInUse"]

    @in_node_env
    async def test_after_a_conflict_it_decides_on_the_present_nnc(self, env: NodeEnv) -> None:
        await env.start()
        edits = iter([1])

        def edit(_body: dict[str, Any]) -> None:
            if next(edits, None):
                stored = env.server.store
                served = stored.registry.find("acn.azure.com", "v1alpha", "nodenetworkconfigs")
                stored.update(served, f"{SYSTEM}/{NODE}", lambda old: {**old, "spec": {**old["spec"], "x": 1}})

        env.transport.on_patch = edit
        env.transport.patches.clear()
        await env.bind(*(f"pod-{n}" for n in range(20)))
        await asyncio.sleep(SETTLE_TIME)
        assert 31 == (await env.nnc()).spec.requested


class TestWaiting:
    @in_node_env
    async def test_pods_wait_only_after_a_short_answer_and_both_changes_are_reported(self, env: NodeEnv) -> None:
        env.capacity = 5
        pods = [f"pod-{n}" for n in range(8)]
        await env.bind(*pods)
        await env.start()
        waiting = [report(patch).get("waiting", 0) for patch in env.transport.patches]
        assert [0, 3] == waiting
        env.capacity = 100
        await asyncio.sleep(SETTLE_TIME)
        waiting = [report(patch).get("waiting", 0) for patch in env.transport.patches]
        assert [0, 3, 0] == waiting

    @in_node_env
    async def test_a_larger_request_does_not_end_their_wait(self, env: NodeEnv) -> None:
        env.capacity = 5
        await env.bind(*(f"pod-{n}" for n in range(8)))
        await env.start()
        await env.bind(*(f"more-{n}" for n in range(10)))
        await asyncio.sleep(SETTLE_TIME)
        assert [0, 3, 13] == [report(patch).get("waiting", 0) for patch in env.transport.patches]

    @in_node_env
    async def test_no_pod_waits_before_the_request_is_answered(self, env: NodeEnv) -> None:
        env.capacity = 10
        await env.bind(*(f"pod-{n}" for n in range(8)))
        await env.start()
        env.controller_works = False
        await env.bind("one-more")
        await asyncio.sleep(0.5)
        await env.bind(*(f"more-{n}" for n in range(5)))
        await asyncio.sleep(0.3)
        env.capacity, env.controller_works = 100, True
        await asyncio.sleep(SETTLE_TIME)
        assert [0, 0] == [report(patch).get("waiting", 0) for patch in env.transport.patches]

    @in_node_env
    async def test_no_pod_waits_while_only_the_buffer_is_short(self, env: NodeEnv) -> None:
        env.capacity = 10
        await env.bind(*(f"pod-{n}" for n in range(8)))
        await env.start()
        assert [0] == [report(patch).get("waiting", 0) for patch in env.transport.patches]


class TestBootId:
    @in_node_env
    async def test_it_is_written_once_the_node_reports_it(self, env: NodeEnv) -> None:
        await env.start()
        await env.reboot("boot-2")
        env.transport.patches.clear()
        await env.start()
        assert [] == env.transport.patches
        await env.report_boot("boot-2")
        await asyncio.sleep(SETTLE_TIME)
        assert ["boot-2"] == [report(patch)["bootID"] for patch in env.transport.patches]


@pytest.mark.parametrize("demand", [0, 1, 8, 9, 24, 25])
def test_the_request_is_the_target_of_core_scaling(demand: int) -> None:
    """With the primary a multiple of the batch, and half a batch free."""

    @in_node_env
    async def scaled(env: NodeEnv) -> None:
        await env.bind(*(f"pod-{n}" for n in range(demand)))
        await env.start()
        request = requests(env)[-1]
        assert 0 == (request + 1) % 16
        assert 8 <= request + 1 - demand < 24

    scaled()


@in_node_env
async def test_a_writer_that_changes_the_nnc_each_time_is_corrected_less_and_less_often(env: NodeEnv) -> None:
    """Such as a third-party agent on the same node: the first edits are corrected at once."""
    await env.start()
    env.transport.patches.clear()

    async def overwrite() -> None:
        while True:
            if (await env.nnc()).spec.requested != 7:
                await env.kube.merge_patch(
                    NODE_NETWORK_CONFIGS, NODE, {"spec": {"requestedIPCount": 7}}, namespace=SYSTEM
                )
            await asyncio.sleep(0.2)

    writing = asyncio.create_task(overwrite())
    await asyncio.sleep(SETTLE_TIME)
    assert 2 <= len(env.transport.patches) <= 6
    await asyncio.sleep(600.0)
    assert len(env.transport.patches) <= 50
    assert 1 == sum("another writer changes the NNC" in line for line in env.warnings)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await asyncio.sleep(120.0)
    assert 15 == (await env.nnc()).spec.requested
