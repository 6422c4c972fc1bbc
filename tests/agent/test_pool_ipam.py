"""ADD and DEL on the node's pool, as a runtime sees them."""

import asyncio
import json

import pytest

from podpool.agent.agent import AgentStopped
from podpool.agent.deps import ChangeSignal
from podpool.api.azure import AGENT_ANNOTATION, CLOSED_ANNOTATION, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES, PODS
from podpool.cni.protocol import PluginRequest, PluginResponse, encode_request
from podpool.core.settings import Settings
from podpool.core.two_observations import OBSERVATION_INTERVAL
from tests.agent.disks import FullDisk, MemoryDisk, ReadOnlyDisk
from tests.agent.node_env import NODE, SETTLE_TIME, SYSTEM, NodeEnv, in_node_env

SETTINGS = Settings()


class TestAdd:
    @in_node_env
    async def test_the_result_has_address_prefix_gateway_and_default_route(self, env: NodeEnv) -> None:
        await env.start()
        result = json.loads((await env.call("ADD", "a")).stdout)
        assert [{"address": "10.0.1.1/16", "gateway": "10.0.0.1"}] == result["ips"]
        assert [{"dst": "0.0.0.0/0"}] == result["routes"]

    @in_node_env
    async def test_the_same_sandbox_gets_the_same_address_also_concurrently(self, env: NodeEnv) -> None:
        agent = await env.start()
        (first,) = set(await asyncio.gather(*(env.add("a") for _ in range(5))))
        assert first == await env.add("a")
        assert 1 == len(agent.pool.assigned)

    @in_node_env
    async def test_the_same_sandbox_gets_the_same_address_also_when_all_its_adds_wait(self, env: NodeEnv) -> None:
        env.capacity = 0
        agent = await env.start()
        waiting = asyncio.gather(*(env.add("a") for _ in range(5)), env.add("b"))
        await asyncio.sleep(1.0)
        assert not agent.pool.assigned
        env.capacity = 100
        *firsts, other = await waiting
        assert {firsts[0]} == set(firsts) != {other}
        assert 2 == len(agent.pool.assigned)

    @in_node_env
    async def test_a_new_sandbox_of_the_same_pod_gets_another(self, env: NodeEnv) -> None:
        await env.start()
        first, second = await env.add("a", pod="web"), await env.add("b", pod="web")
        assert first != second
        await env.call("DEL", "a", pod="web")
        assert second == await env.add("b", pod="web")

    @pytest.mark.parametrize(
        ("request_", "code"),
        [
            (PluginRequest(command="ADD", ifname="eth0", stdin=b"{}"), 4),
            (PluginRequest(command="ADD", container_id="a", stdin=b"{}"), 4),
            (PluginRequest(command="ADD", container_id="a", ifname="eth0", stdin=b"{"), 6),
            (PluginRequest(command="ADD", container_id="a", ifname="eth0", stdin=b'{"cniVersion":"7"}'), 1),
            (PluginRequest(command="JUMP", container_id="a", ifname="eth0", stdin=b"{}"), 4),
        ],
    )
    def test_an_invalid_request_fails_with_its_code(self, request_: PluginRequest, code: int) -> None:
        @in_node_env
        async def refused(env: NodeEnv) -> None:
            agent = await env.start()
            answer = await agent.handle(encode_request(request_))
            assert 1 == answer[0]
            assert code == json.loads(answer[1:])["code"]
            assert not agent.pool.assigned

        refused()

    @in_node_env
    async def test_a_frame_of_another_protocol_fails(self, env: NodeEnv) -> None:
        agent = await env.start()
        answer = await agent.handle(b"GET / HTTP/1.1")
        assert 6 == json.loads(answer[1:])["code"]


class TestLog:
    @in_node_env
    async def test_the_history_of_a_pod_and_an_address_is_logged(self, env: NodeEnv) -> None:
        await env.start()
        address = (await env.add("a", pod="web")).partition("/")[0]
        await env.call("DEL", "a", pod="web")
        await env.stop()
        lines = [each.partition(" node=")[0] for each in env.logs if "pod=default/web" in each]
        assert ["address assigned", "address released, cooling down"] == lines
        lines = [each.partition(" node=")[0] for each in env.logs if address in each]
        assert ["grants added", "address assigned", "address released, cooling down"] == lines


class TestWaiting:
    @in_node_env
    async def test_it_waits_for_requested_addresses(self, env: NodeEnv) -> None:
        """35 sandboxes on a pool of 15, before any Pod is known: all get one, in their order."""
        await env.start()
        addresses = await asyncio.gather(*(env.add(f"s{n}") for n in range(35)))
        assert 35 == len(set(addresses))

    @in_node_env
    async def test_after_the_timeout_it_fails_with_the_reason(self, env: NodeEnv) -> None:
        env.capacity = 1
        await env.start()
        await env.add("a")
        sent_at = asyncio.get_running_loop().time()
        error = await env.refused("b")
        assert SETTINGS.add_timeout == pytest.approx(asyncio.get_running_loop().time() - sent_at, abs=0.01)
        assert 11 == error["code"]
        for word in (NODE, "has 1 ", "1 assigned", "requested 15", "pods", "NCUpdateSubnetFullError", "add addresses"):
            assert word in error["msg"]

    @in_node_env
    async def test_after_its_timeout_an_add_no_longer_waits(self, env: NodeEnv) -> None:
        env.capacity = 1
        agent = await env.start()
        await env.add("a")
        await env.refused("b")
        await env.call("DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown_exhausted + 1)
        assert "10.0.1.1/16" == await env.add("c")
        assert 1 == len(agent.pool.assigned)

    @in_node_env
    async def test_a_del_ends_the_wait_of_its_sandbox(self, env: NodeEnv) -> None:
        env.capacity = 0
        agent = await env.start()
        waiting = asyncio.ensure_future(env.refused("a"))
        await asyncio.sleep(1.0)
        assert 0 == (await env.call("DEL", "a")).exit_code
        assert "deleted" in (await waiting)["msg"]
        env.capacity = 100
        await asyncio.sleep(SETTLE_TIME)
        assert not agent.pool.assigned

    @in_node_env
    async def test_one_whose_del_arrives_before_its_response_fails(self, env: NodeEnv) -> None:
        env.deps["changes"] = changes = ChangeSignal()
        env.capacity = 0
        agent = await env.start()
        deletions: list[asyncio.Task[PluginResponse]] = []

        def delete_when_served() -> None:
            if agent.pool.assigned and not deletions:
                deletions.append(asyncio.create_task(env.call("DEL", "a")))

        changes.subscribe(delete_when_served)
        waiting = asyncio.ensure_future(env.refused("a"))
        await asyncio.sleep(1.0)
        env.capacity = 100
        assert "deleted" in (await waiting)["msg"]
        assert (1, 0) == (len(deletions), len(agent.pool.assigned))

    @in_node_env
    async def test_an_address_that_has_cooled_down_serves_a_waiting_add_without_the_api_server(
        self, env: NodeEnv
    ) -> None:
        env.capacity = 1
        await env.start()
        first = await env.add("a")
        env.transport.cut = True
        await env.call("DEL", "a")
        deleted_at = asyncio.get_running_loop().time()
        assert first == await env.add("b")
        assert SETTINGS.cooldown_exhausted == pytest.approx(asyncio.get_running_loop().time() - deleted_at, abs=0.01)

    @in_node_env
    async def test_a_waiting_add_is_demand_even_before_the_watch_shows_its_pod(self, env: NodeEnv) -> None:
        await env.start()
        for n in range(16):
            await env.add(f"s{n}")
        assert 31 == (await env.nnc()).spec.requested


class TestDel:
    @in_node_env
    async def test_of_an_unknown_sandbox_it_succeeds(self, env: NodeEnv) -> None:
        await env.start()
        assert (b"", 0) == ((await env.call("DEL", "never")).stdout, 0)

    @in_node_env
    async def test_a_late_one_never_releases_the_address_of_another(self, env: NodeEnv) -> None:
        agent = await env.start()
        await env.add("a", pod="web")
        await env.call("DEL", "a", pod="web")
        second = await env.add("b", pod="web")
        await env.call("DEL", "a", pod="web")
        assert [second] == [f"{each.grant.address}/16" for each in agent.pool.assigned.values()]

    @in_node_env
    async def test_deferred_ones_are_processed_before_the_first_add(self, env: NodeEnv) -> None:
        await env.start()
        await env.add("a")
        await env.stop()
        left = PluginRequest(command="DEL", container_id="a", ifname="eth0", stdin=b"{}")
        env.deletes.append("a-eth0", encode_request(left))
        env.deletes.append("b-eth0", b"invalid")
        agent = await env.start()
        assert not agent.pool.assigned
        assert [] == env.deletes.names()
        assert any("b-eth0" in line for line in env.warnings)

    @in_node_env
    async def test_one_deferred_while_the_agent_ran_is_processed_before_the_next_add(self, env: NodeEnv) -> None:
        agent = await env.start()
        await env.add("a")
        left = PluginRequest(command="DEL", container_id="a", ifname="eth0", stdin=b"{}")
        env.deletes.append("a-eth0", encode_request(left))
        await env.add("b")
        assert ["b"] == [each.attachment.container_id for each in agent.pool.assigned.values()]

    @in_node_env
    async def test_one_that_cannot_be_read_or_removed_is_logged_once_and_blocks_nothing(self, env: NodeEnv) -> None:
        deletes = ReadOnlyDisk()
        for sandbox in "ab":
            left = PluginRequest(command="DEL", container_id=sandbox, ifname="eth0", stdin=b"{}")
            deletes.append(f"{sandbox}-eth0", encode_request(left))
        deletes.secret = {"a-eth0"}
        agent = await env.start(deletes=deletes)
        await env.add("c")
        await asyncio.sleep(60.0)
        assert ["c"] == [each.attachment.container_id for each in agent.pool.assigned.values()]
        assert ["a-eth0", "b-eth0"] == deletes.names()
        for name in deletes.names():
            assert 1 == sum(f"file={name}" in line and "[Errno 13]" in line for line in env.warnings)

    @in_node_env
    async def test_one_stays_until_the_disk_accepts_its_release(self, env: NodeEnv) -> None:
        disk = FullDisk()
        agent = await env.start(disk=disk)
        await env.add("a")
        disk.space = 0
        left = PluginRequest(command="DEL", container_id="a", ifname="eth0", stdin=b"{}")
        env.deletes.append("a-eth0", encode_request(left))
        await asyncio.sleep(60.0)
        assert (["a-eth0"], 1) == (env.deletes.names(), len(agent.pool.assigned))
        disk.space = None
        await asyncio.sleep(60.0)
        assert ([], 0) == (env.deletes.names(), len(agent.pool.assigned))

    @in_node_env
    async def test_where_they_cannot_be_listed_it_serves_nevertheless(self, env: NodeEnv) -> None:
        deletes = ReadOnlyDisk()
        deletes.listed = False
        await env.start(deletes=deletes)
        await env.add("a")
        await asyncio.sleep(60.0)
        assert 1 == sum("cannot list deferred DELs" in line for line in env.warnings)

    @in_node_env
    async def test_a_failure_after_the_former_one_ended_is_logged_again(self, env: NodeEnv) -> None:
        """So what was logged is forgotten with the file, and does not grow with every DEL of the node's life."""
        deletes = ReadOnlyDisk()
        await env.start(deletes=deletes)
        left = PluginRequest(command="DEL", container_id="a", ifname="eth0", stdin=b"{}")
        for _ in range(2):
            deletes.append("a-eth0", encode_request(left))
            await asyncio.sleep(60.0)
            MemoryDisk.remove(deletes, "a-eth0")
            await asyncio.sleep(60.0)
        assert 2 == sum("file=a-eth0" in line for line in env.warnings)


class TestRestart:
    @in_node_env
    async def test_killed_it_keeps_every_assignment_that_it_answered(self, env: NodeEnv) -> None:
        await env.start()
        given = {name: await env.add(name) for name in "abc"}
        await env.kill()
        await env.start()
        assert given == {name: await env.add(name) for name in "abc"}

    @in_node_env
    async def test_it_serves_while_the_api_server_is_unreachable(self, env: NodeEnv) -> None:
        await env.start()
        given = await env.add("a")
        await env.kill()
        env.transport.cut = True
        agent = await env.start()
        assert given == await env.add("a")
        assert given != await env.add("b")
        assert not agent.fenced

    @in_node_env
    async def test_nothing_is_answered_after_a_clean_shutdown(self, env: NodeEnv) -> None:
        agent = await env.start()
        await env.stop()
        with pytest.raises(AgentStopped):
            await agent.handle(encode_request(PluginRequest(command="DEL", container_id="a", ifname="eth0")))

    @in_node_env
    async def test_after_a_reboot_addresses_that_were_in_use_cool_down(self, env: NodeEnv) -> None:
        await env.start()
        used = await env.add("a")
        await asyncio.sleep(1.0)
        await env.reboot("boot-2", clean=True)
        await env.report_boot("boot-2")
        await env.start()
        assert used not in {await env.add(f"n{n}") for n in range(14)}

    @in_node_env
    async def test_after_the_loss_of_the_journal_every_address_cools_down(self, env: NodeEnv) -> None:
        await env.start()
        await env.add("a")
        await env.stop()
        env.disk = type(env.disk)()
        agent = await env.start()
        assert any("journal" in line for line in env.warnings)
        assert None is agent.pool.next_available(now=env.clock.boot(), cooldown=SETTINGS.cooldown_levels.in_force(1e6))


class TestLostGrants:
    """The journal is lost in the boot in which Pods got the addresses that they use."""

    @in_node_env
    async def test_an_address_that_a_pod_shows_is_not_assigned_and_the_others_are(self, env: NodeEnv) -> None:
        used = await self._lose_journal(env)
        await asyncio.sleep(3 * OBSERVATION_INTERVAL)
        assert [used.partition("/")[0]] == self._lost(env)
        given = {await env.add(f"n{n}") for n in range(15)}
        assert used not in given
        assert 15 == len(given)

    @in_node_env
    async def test_nor_released(self, env: NodeEnv) -> None:
        used = await self._lose_journal(env)
        await env.scale_by(batch=1, buffer="0")
        await asyncio.sleep(400.0)
        (nc,) = (await env.nnc()).status.network_containers
        assert [used.partition("/")[0]] == [each.ip for each in nc.ip_assignments]

    @in_node_env
    async def test_while_a_pod_shows_no_address_any_may_be_its(self, env: NodeEnv) -> None:
        await self._lose_journal(env, shows=False)
        await asyncio.sleep(10 * OBSERVATION_INTERVAL)
        assert env.agent
        assert 1 < env.agent.pool.granted == len(self._lost(env))

    @in_node_env
    async def test_once_the_pod_is_deleted_or_sends_an_add_all_are_cleared(self, env: NodeEnv) -> None:
        await self._lose_journal(env, shows=False)
        await env.bind("gone")
        adding = asyncio.create_task(env.call("ADD", "new", pod="p"))
        await asyncio.sleep(SETTLE_TIME)
        await env.remove("gone")
        await asyncio.sleep(3 * OBSERVATION_INTERVAL)
        await adding
        assert [] == self._lost(env)

    @in_node_env
    async def test_an_older_journal_is_detected_and_its_assignments_stay(self, env: NodeEnv) -> None:
        await env.start()
        kept = await env.add("a", pod="a")
        await asyncio.sleep(SETTLE_TIME)
        old = env.disk.after_kill()
        await env.bind("p")
        used = await env.add("b", pod="p")
        await self._show(env, used)
        for each in range(2):  # a report of the newer status
            await env.bind(*(f"q{each}-{n}" for n in range(20)))
            await asyncio.sleep(SETTLE_TIME)
        await env.kill()
        await env.remove(*(f"q{each}-{n}" for each in range(2) for n in range(20)))
        env.disk = old
        await env.start()
        await asyncio.sleep(3 * OBSERVATION_INTERVAL)
        assert kept == await env.add("a", pod="a")
        assert [used.partition("/")[0]] == self._lost(env)
        assert used not in {await env.add(f"n{n}") for n in range(12)}

    @staticmethod
    def _lost(env: NodeEnv) -> list[str]:
        assert env.agent
        return [each.address for each in env.agent.pool.unassigned_lost()]

    @classmethod
    async def _lose_journal(cls, env: NodeEnv, *, shows: bool = True) -> str:
        """Assign an address to a Pod and lose the journal; return the address."""
        await env.start()
        await env.bind("p")
        used = await env.add("s", pod="p")
        await asyncio.sleep(SETTLE_TIME)
        if shows:
            await cls._show(env, used)
        await env.kill()
        env.disk = type(env.disk)()
        await env.start()
        return used

    @staticmethod
    async def _show(env: NodeEnv, used: str) -> None:
        status = {"status": {"phase": "Running", "podIPs": [{"ip": used.partition("/")[0]}]}}
        await env.kube.merge_patch(PODS, "p", status, namespace="default", subresource="status")


class TestFence:
    @in_node_env
    async def test_without_the_api_server_for_the_fence_time_it_assigns_nothing_new(self, env: NodeEnv) -> None:
        agent = await env.start()
        given = await env.add("a")
        env.transport.cut = True
        await asyncio.sleep(SETTINGS.fence - SETTINGS.confirmation_interval - 10)
        await env.add("b")
        await asyncio.sleep(SETTINGS.confirmation_interval + 10)
        assert agent.fenced
        assert "confirm its Node" in (await env.refused("c"))["msg"]
        assert 1 == sum("fenced, no new address is assigned" in line for line in env.warnings)
        assert given == await env.add("a")
        env.transport.cut = False
        await env.add("c")

    @in_node_env
    async def test_a_reboot_starts_fenced_until_the_node_reports_the_new_boot(self, env: NodeEnv) -> None:
        await env.start()
        await env.reboot("boot-2", clean=True)
        agent = await env.start()
        await asyncio.sleep(60.0)
        assert agent.fenced
        await env.report_boot("boot-2")
        await env.add("a")

    @in_node_env
    async def test_no_address_is_assigned_before_the_boot_id_is_in_the_nnc(self, env: NodeEnv) -> None:
        """Otherwise the Node, deleted and registered again, would count as another machine."""
        await env.start()
        await env.reboot("boot-2", clean=True)
        await env.report_boot("boot-2")
        env.transport.hide("/pods")  # incomplete input, so no patch
        agent = await env.start()
        assert agent.fenced
        env.transport.hide(None)
        await asyncio.sleep(60.0)
        assert not agent.fenced

    @in_node_env
    async def test_a_node_registered_again_with_its_nc_continues(self, env: NodeEnv) -> None:
        agent = await env.start()
        given = await env.add("a")
        grants = {each.name: each.ip for each in (await env.nnc()).status.network_containers[0].ip_assignments}
        await self._register_again(env, nc="nc-1", version=3, grants=grants)
        assert not agent.fenced
        assert given == await env.add("a")
        await env.add("b")

    @in_node_env
    async def test_an_nc_is_replaced_when_it_was_declared_closed_and_then_for_good(self, env: NodeEnv) -> None:
        agent = await env.start()
        await env.add("a")
        await self._register_again(env, nc="nc-2", version=1, grants={})
        assert "nc-1" == agent.pool.adopted_nc
        report = json.loads((await env.nnc()).metadata.annotations[AGENT_ANNOTATION])
        assert ("nc-1", "boot-1") == (report["networkContainer"], report["bootID"])
        answer = {"metadata": {"annotations": {CLOSED_ANNOTATION: "nc-1"}}}
        await env.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, answer, namespace=SYSTEM)
        await asyncio.sleep(SETTLE_TIME)
        assert {"nc-1"} == agent.pool.closed_ncs
        assert any("network container replaced" in line and "former=nc-1" in line for line in env.logs)
        new = await env.add("b")
        await env.call("DEL", "a")
        await env.write_status(version=99, grants={"old": "10.0.7.7"}, nc="nc-1")
        await asyncio.sleep(SETTLE_TIME)
        assert "nc-2" == agent.pool.adopted_nc
        assert [new] == [f"{each.grant.address}/16" for each in agent.pool.assigned.values()]

    @staticmethod
    async def _register_again(env: NodeEnv, *, nc: str, version: int, grants: dict[str, str]) -> None:
        env.controller_works = False
        spec = (await env.nnc()).spec
        annotations = (await env.nnc()).metadata.annotations
        await env.kube.delete(NODE_NETWORK_CONFIGS, NODE, namespace=SYSTEM)
        await env.kube.delete(NODES, NODE)
        await env.register_node()
        await env.create_nnc(nc=nc)
        kept = {"requestedIPCount": spec.requested, "ipsNotInUse": list(spec.pending_release)} if grants else {}
        body = {"spec": kept, "metadata": {"annotations": dict(annotations) if grants else {}}}
        await env.kube.merge_patch(NODE_NETWORK_CONFIGS, NODE, body, namespace=SYSTEM)
        await env.write_status(version=version, grants=grants, nc=nc)
        env.controller_works = True
        await asyncio.sleep(20.0)
