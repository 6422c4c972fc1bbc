"""ADD and DEL, as a runtime sees them."""

import asyncio
import json

import pytest

from podpool.agent.agent import AgentStopped
from podpool.agent.lost_grant_gc import APART
from podpool.api.azure import AGENT_ANNOTATION, CLOSED_ANNOTATION, NODE_NETWORK_CONFIGS
from podpool.api.builtin import NODES, PODS
from podpool.cni.protocol import PluginRequest, encode_request
from podpool.core.settings import Settings
from tests.agent.disks import ForeignDisk
from tests.agent.worlds import NODE, SETTLED, SYSTEM, World, in_world

SETTINGS = Settings()


class TestAdd:
    @in_world
    async def test_it_gives_address_prefix_gateway_and_default_route(self, world: World) -> None:
        await world.start()
        told = json.loads((await world.call("ADD", "a")).stdout)
        assert [{"address": "10.0.1.1/16", "gateway": "10.0.0.1"}] == told["ips"]
        assert [{"dst": "0.0.0.0/0"}] == told["routes"]

    @in_world
    async def test_the_same_sandbox_gets_the_same_address_also_at_once(self, world: World) -> None:
        agent = await world.start()
        (first,) = set(await asyncio.gather(*(world.add("a") for _ in range(5))))
        assert first == await world.add("a")
        assert 1 == len(agent.pool.holdings)

    @in_world
    async def test_the_same_sandbox_gets_the_same_address_also_when_all_its_adds_wait(self, world: World) -> None:
        world.capacity = 0
        agent = await world.start()
        waiting = asyncio.gather(*(world.add("a") for _ in range(5)), world.add("b"))
        await asyncio.sleep(1.0)
        assert not agent.pool.holdings
        world.capacity = 100
        *firsts, other = await waiting
        assert {firsts[0]} == set(firsts) != {other}
        assert 2 == len(agent.pool.holdings)

    @in_world
    async def test_a_new_sandbox_of_the_same_pod_gets_another(self, world: World) -> None:
        await world.start()
        first, second = await world.add("a", pod="web"), await world.add("b", pod="web")
        assert first != second
        await world.call("DEL", "a", pod="web")
        assert second == await world.add("b", pod="web")

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
    def test_what_cannot_be_meant_is_refused_with_its_code(self, request_: PluginRequest, code: int) -> None:
        @in_world
        async def refused(world: World) -> None:
            agent = await world.start()
            answer = await agent.handle(encode_request(request_))
            assert 1 == answer[0]
            assert code == json.loads(answer[1:])["code"]
            assert not agent.pool.holdings

        refused()

    @in_world
    async def test_a_frame_of_others_is_refused(self, world: World) -> None:
        agent = await world.start()
        answer = await agent.handle(b"GET / HTTP/1.1")
        assert 6 == json.loads(answer[1:])["code"]


class TestWaiting:
    @in_world
    async def test_it_waits_for_addresses_on_their_way(self, world: World) -> None:
        """35 sandboxes on a pool of 15, before any Pod was seen: all get one, in the order in which they came."""
        await world.start()
        addresses = await asyncio.gather(*(world.add(f"s{n}") for n in range(35)))
        assert 35 == len(set(addresses))

    @in_world
    async def test_in_time_it_says_why_there_is_none(self, world: World) -> None:
        world.capacity = 1
        await world.start()
        await world.add("a")
        asked_at = asyncio.get_running_loop().time()
        error = await world.refused("b")
        assert SETTINGS.add_timeout == pytest.approx(asyncio.get_running_loop().time() - asked_at, abs=0.01)
        assert 11 == error["code"]
        for word in (NODE, "holds 1", "1 in use", "asked for 15", "pods", "NCUpdateSubnetFullError", "larger"):
            assert word in error["msg"]

    @in_world
    async def test_one_that_gave_up_leaves_no_place_behind(self, world: World) -> None:
        world.capacity = 1
        agent = await world.start()
        await world.add("a")
        await world.refused("b")
        await world.call("DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown + 1)
        assert "10.0.1.1/16" == await world.add("c")
        assert 1 == len(agent.pool.holdings)

    @in_world
    async def test_a_del_ends_the_waiting_of_its_sandbox(self, world: World) -> None:
        world.capacity = 0
        agent = await world.start()
        waiting = asyncio.ensure_future(world.refused("a"))
        await asyncio.sleep(1.0)
        assert 0 == (await world.call("DEL", "a")).exit_code
        assert "deleted" in (await waiting)["msg"]
        world.capacity = 100
        await asyncio.sleep(SETTLED)
        assert not agent.pool.holdings

    @in_world
    async def test_a_rest_that_ends_serves_who_waits_even_out_of_reach(self, world: World) -> None:
        world.capacity = 1
        await world.start()
        first = await world.add("a")
        world.road.cut = True
        await world.call("DEL", "a")
        await asyncio.sleep(SETTINGS.cooldown - 5.0)
        assert first == await world.add("b")

    @in_world
    async def test_a_pod_that_waits_is_demand_even_before_the_watch_shows_it(self, world: World) -> None:
        await world.start()
        for n in range(16):
            await world.add(f"s{n}")
        assert 31 == (await world.config()).spec.requested


class TestDel:
    @in_world
    async def test_of_something_unknown_it_succeeds(self, world: World) -> None:
        await world.start()
        assert (b"", 0) == ((await world.call("DEL", "never")).stdout, 0)

    @in_world
    async def test_a_late_one_never_frees_anothers(self, world: World) -> None:
        agent = await world.start()
        await world.add("a", pod="web")
        await world.call("DEL", "a", pod="web")
        second = await world.add("b", pod="web")
        await world.call("DEL", "a", pod="web")
        assert [second] == [f"{each.grant.address}/16" for each in agent.pool.holdings.values()]

    @in_world
    async def test_those_left_for_later_are_done_before_the_first_add(self, world: World) -> None:
        await world.start()
        await world.add("a")
        await world.stop()
        left = PluginRequest(command="DEL", container_id="a", ifname="eth0", stdin=b"{}")
        world.deletes.append("a-eth0", encode_request(left))
        world.deletes.append("b-eth0", b"rubbish")
        agent = await world.start()
        assert not agent.pool.holdings
        assert [] == world.deletes.names()
        assert any("b-eth0" in sentence for sentence in world.told)

    @in_world
    async def test_one_left_while_the_agent_ran_is_done_before_the_next_add(self, world: World) -> None:
        agent = await world.start()
        await world.add("a")
        left = PluginRequest(command="DEL", container_id="a", ifname="eth0", stdin=b"{}")
        world.deletes.append("a-eth0", encode_request(left))
        await world.add("b")
        assert ["b"] == [each.owner.container_id for each in agent.pool.holdings.values()]

    @in_world
    async def test_one_that_cannot_be_read_or_removed_is_told_once_and_holds_up_nobody(self, world: World) -> None:
        deletes = ForeignDisk()
        for sandbox in "ab":
            left = PluginRequest(command="DEL", container_id=sandbox, ifname="eth0", stdin=b"{}")
            deletes.append(f"{sandbox}-eth0", encode_request(left))
        deletes.secret = {"a-eth0"}
        agent = await world.start(deletes=deletes)
        await world.add("c")
        await asyncio.sleep(60.0)
        assert ["c"] == [each.owner.container_id for each in agent.pool.holdings.values()]
        assert ["a-eth0", "b-eth0"] == deletes.names()
        for name in deletes.names():
            assert 1 == sum(f"{name}: [Errno 13]" in sentence for sentence in world.told)

    @in_world
    async def test_where_they_cannot_be_looked_for_it_serves_all_the_same(self, world: World) -> None:
        deletes = ForeignDisk()
        deletes.listed = False
        await world.start(deletes=deletes)
        await world.add("a")
        await asyncio.sleep(60.0)
        assert 1 == sum("cannot be looked for" in sentence for sentence in world.told)


class TestRestarts:
    @in_world
    async def test_killed_it_has_every_address_that_it_answered(self, world: World) -> None:
        await world.start()
        given = {name: await world.add(name) for name in "abc"}
        await world.kill()
        await world.start()
        assert given == {name: await world.add(name) for name in "abc"}

    @in_world
    async def test_it_serves_while_the_api_server_is_away(self, world: World) -> None:
        await world.start()
        given = await world.add("a")
        await world.kill()
        world.road.cut = True
        agent = await world.start()
        assert given == await world.add("a")
        assert given != await world.add("b")
        assert not agent.fenced

    @in_world
    async def test_nothing_is_answered_after_a_clean_stop(self, world: World) -> None:
        agent = await world.start()
        await world.stop()
        with pytest.raises(AgentStopped):
            await agent.handle(encode_request(PluginRequest(command="DEL", container_id="a", ifname="eth0")))

    @in_world
    async def test_after_a_reboot_addresses_in_use_rest(self, world: World) -> None:
        await world.start()
        used = await world.add("a")
        await asyncio.sleep(1.0)
        await world.reboot("boot-2", clean=True)
        await world.report_boot("boot-2")
        await world.start()
        assert used not in {await world.add(f"n{n}") for n in range(14)}

    @in_world
    async def test_a_lost_journal_is_noticed_and_every_address_rests(self, world: World) -> None:
        await world.start()
        await world.add("a")
        await world.stop()
        world.disk = type(world.disk)()
        agent = await world.start()
        assert any("journal" in sentence for sentence in world.told)
        assert None is agent.pool.next_free(now=world.clock.boot(), rest=SETTINGS.cooldown)


class TestForgotten:
    """The journal is lost in the boot in which Pods got addresses that they still have."""

    @in_world
    async def test_what_a_pod_shows_is_given_to_nobody_and_the_rest_is(self, world: World) -> None:
        used = await self._forget(world)
        await asyncio.sleep(3 * APART)
        assert [used.partition("/")[0]] == self._lost(world)
        given = {await world.add(f"n{n}") for n in range(15)}
        assert used not in given
        assert 15 == len(given)

    @in_world
    async def test_nor_released(self, world: World) -> None:
        used = await self._forget(world)
        await world.scale_by(batch=1, buffer="0")
        await asyncio.sleep(400.0)
        (container,) = (await world.config()).status.network_containers
        assert [used.partition("/")[0]] == [each.ip for each in container.ip_assignments]

    @in_world
    async def test_while_a_pod_does_not_tell_its_address_any_may_be_its(self, world: World) -> None:
        await self._forget(world, shows=False)
        await asyncio.sleep(10 * APART)
        assert world.agent
        assert 1 < world.agent.pool.listed == len(self._lost(world))

    @in_world
    async def test_once_the_pod_is_gone_or_asks_anew_all_are_free(self, world: World) -> None:
        await self._forget(world, shows=False)
        await world.bind("gone")
        asking = asyncio.create_task(world.call("ADD", "new", pod="p"))
        await asyncio.sleep(SETTLED)
        await world.remove("gone")
        await asyncio.sleep(3 * APART)
        await asking
        assert [] == self._lost(world)

    @in_world
    async def test_an_older_journal_is_noticed_too_and_what_it_knows_stays(self, world: World) -> None:
        await world.start()
        kept = await world.add("a", pod="a")
        await asyncio.sleep(SETTLED)
        old = world.disk.after_kill()
        await world.bind("p")
        used = await world.add("b", pod="p")
        await self._show(world, used)
        for each in range(2):  # a report of the newer status
            await world.bind(*(f"q{each}-{n}" for n in range(20)))
            await asyncio.sleep(SETTLED)
        await world.kill()
        await world.remove(*(f"q{each}-{n}" for each in range(2) for n in range(20)))
        world.disk = old
        await world.start()
        await asyncio.sleep(3 * APART)
        assert kept == await world.add("a", pod="a")
        assert [used.partition("/")[0]] == self._lost(world)
        assert used not in {await world.add(f"n{n}") for n in range(12)}

    @staticmethod
    def _lost(world: World) -> list[str]:
        assert world.agent
        return [each.address for each in world.agent.pool.lost()]

    @classmethod
    async def _forget(cls, world: World, *, shows: bool = True) -> str:
        """Give a Pod an address, and lose the journal; gives the address."""
        await world.start()
        await world.bind("p")
        used = await world.add("s", pod="p")
        await asyncio.sleep(SETTLED)
        if shows:
            await cls._show(world, used)
        await world.kill()
        world.disk = type(world.disk)()
        await world.start()
        return used

    @staticmethod
    async def _show(world: World, used: str) -> None:
        status = {"status": {"phase": "Running", "podIPs": [{"ip": used.partition("/")[0]}]}}
        await world.kube.merge(PODS, "p", status, namespace="default", sub="status")


class TestFence:
    @in_world
    async def test_out_of_reach_for_the_fence_time_it_gives_nothing_new_and_says_so(self, world: World) -> None:
        agent = await world.start()
        given = await world.add("a")
        world.road.cut = True
        await asyncio.sleep(SETTINGS.fence - SETTINGS.confirmation_interval - 10)
        await world.add("b")
        await asyncio.sleep(SETTINGS.confirmation_interval + 10)
        assert agent.fenced
        assert "confirm its Node" in (await world.refused("c"))["msg"]
        assert given == await world.add("a")
        world.road.cut = False
        await world.add("c")

    @in_world
    async def test_a_reboot_starts_fenced_until_the_node_reports_the_new_boot(self, world: World) -> None:
        await world.start()
        await world.reboot("boot-2", clean=True)
        agent = await world.start()
        await asyncio.sleep(60.0)
        assert agent.fenced
        await world.report_boot("boot-2")
        await world.add("a")

    @in_world
    async def test_no_address_is_given_before_the_boot_id_is_in_the_config(self, world: World) -> None:
        """Else the Node, deleted and registered again, would count as another machine."""
        await world.start()
        await world.reboot("boot-2", clean=True)
        await world.report_boot("boot-2")
        world.road.hide("/pods")  # no view, so no patch
        agent = await world.start()
        assert agent.fenced
        world.road.hide(None)
        await asyncio.sleep(60.0)
        assert not agent.fenced

    @in_world
    async def test_a_node_registered_again_with_its_container_goes_on(self, world: World) -> None:
        agent = await world.start()
        given = await world.add("a")
        grants = {each.name: each.ip for each in (await world.config()).status.network_containers[0].ip_assignments}
        await self._register_again(world, container="nc-1", version=3, grants=grants)
        assert not agent.fenced
        assert given == await world.add("a")
        await world.add("b")

    @in_world
    async def test_a_container_is_given_up_when_a_claim_to_it_is_refused_and_then_for_good(self, world: World) -> None:
        agent = await world.start()
        await world.add("a")
        await self._register_again(world, container="nc-2", version=1, grants={})
        assert "nc-1" == agent.pool.adopted
        told = json.loads((await world.config()).metadata.annotations[AGENT_ANNOTATION])
        assert ("nc-1", "boot-1") == (told["container"], told["bootID"])
        answer = {"metadata": {"annotations": {CLOSED_ANNOTATION: "nc-1"}}}
        await world.kube.merge(NODE_NETWORK_CONFIGS, NODE, answer, namespace=SYSTEM)
        await asyncio.sleep(SETTLED)
        assert {"nc-1"} == agent.pool.closed
        assert any("given up" in sentence for sentence in world.told)
        fresh = await world.add("b")
        await world.call("DEL", "a")
        await world.write_status(version=99, grants={"old": "10.0.7.7"}, container="nc-1")
        await asyncio.sleep(SETTLED)
        assert "nc-2" == agent.pool.adopted
        assert [fresh] == [f"{each.grant.address}/16" for each in agent.pool.holdings.values()]

    @staticmethod
    async def _register_again(world: World, *, container: str, version: int, grants: dict[str, str]) -> None:
        world.controller_works = False
        spec = (await world.config()).spec
        annotations = (await world.config()).metadata.annotations
        await world.kube.delete(NODE_NETWORK_CONFIGS, NODE, namespace=SYSTEM)
        await world.kube.delete(NODES, NODE)
        await world.register_node()
        await world.create_config(container=container)
        kept = {"requestedIPCount": spec.requested, "ipsNotInUse": list(spec.released)} if grants else {}
        body = {"spec": kept, "metadata": {"annotations": dict(annotations) if grants else {}}}
        await world.kube.merge(NODE_NETWORK_CONFIGS, NODE, body, namespace=SYSTEM)
        await world.write_status(version=version, grants=grants, container=container)
        world.controller_works = True
        await asyncio.sleep(20.0)
