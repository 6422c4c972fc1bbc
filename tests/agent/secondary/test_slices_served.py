"""ADD and DEL on the node's slices, as a runtime and the cluster see them."""

import asyncio
import json
from typing import Any

import pytest

from podpool.api.whereabouts import BOOT_ANNOTATION, Allocation
from podpool.cni.protocol import PluginRequest, encode_request
from podpool.core.settings import Settings
from tests.agent.secondary.slice_world import (
    DUAL,
    IPAM,
    SLICE6,
    V4,
    V6,
    add,
    call,
    lease_of,
    offer,
    refused,
    shown,
    with_slices,
)
from tests.agent.worlds import NODE, SETTLED, World, in_world

SETTINGS = Settings()
LARGE = "10.1.16.0/20"


def crowd(count: int, *, longest: int) -> dict[str, Allocation]:
    """As many entries, of Pods with names as long."""
    return {
        str(key): Allocation(id=f"{key}".zfill(64), podref=f"default/{'x' * longest}", ifname="net1")
        for key in range(1, count + 1)
    }


class TestAdd:
    @in_world
    async def test_the_lowest_of_the_slice_with_the_mask_of_the_range(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        assert ["10.1.4.1/16"] == await add(world, "a")
        assert ["10.1.4.2/16"] == await add(world, "b")
        assert ["10.1.4.1/16"] == await add(world, "a")
        await asyncio.sleep(1.0)
        assert {"1": "a", "2": "b"} == await shown(world, name)

    @in_world
    async def test_the_lease_names_this_node_before_anything_is_given(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        lease = await lease_of(world, name)
        assert lease
        assert (lease.spec.holder_identity or "").startswith(f"{NODE}/")
        assert world.boot_id == lease.metadata.annotations[BOOT_ANNOTATION]

    @in_world
    async def test_one_of_each_family_or_none(self, world: World) -> None:
        await offer(with_slices(world))
        await world.start()
        error = await refused(world, "ADD", "a", DUAL)
        assert V6 in error["msg"]
        assert V4 not in error["msg"]
        await offer(world, SLICE6, range_=V6)
        await asyncio.sleep(SETTLED)
        assert ["10.1.4.1/16", "fd00::401/64"] == await add(world, "b", DUAL)

    @in_world
    async def test_exclusions_and_bounds_hold_inside_the_slice(self, world: World) -> None:
        await offer(with_slices(world))
        await world.start()
        ipam = {**IPAM, "exclude": ["10.1.4.0/30"], "range_start": "10.1.4.2", "range_end": "10.1.4.5"}
        assert [["10.1.4.4/16"], ["10.1.4.5/16"]] == [await add(world, each, ipam) for each in "ab"]
        error = await refused(world, "ADD", "c", ipam)
        assert "2 in use" in error["msg"]

    @in_world
    async def test_ten_networks_of_one_pod_at_once(self, world: World) -> None:
        with_slices(world)
        for number in range(10):
            await offer(world, network=f"net{number}")
        await world.start()
        world.road.others = 0
        given = await asyncio.gather(
            *(
                add(world, "a", {**IPAM, "network_name": f"net{number}"}, ifname=f"net{number}", network=f"n{number}")
                for number in range(10)
            )
        )
        assert [["10.1.4.1/16"]] * 10 == given
        assert 0 == world.road.others
        await asyncio.sleep(1.0)
        assert 10 == world.road.others
        assert {"1": "a"} == await shown(world, f"net7-{NODE}-10.1.4.0-28")

    @in_world
    async def test_routes_dns_gateway_and_static_addresses_are_handed_on(self, world: World) -> None:
        await offer(with_slices(world))
        await world.start()
        more = {
            "gateway": "10.1.0.1",
            "routes": [{"dst": "10.0.0.0/8"}],
            "dns": {"nameservers": ["10.1.0.2"]},
            "addresses": [{"address": "192.168.1.5/24"}],
        }
        told = json.loads((await call(world, "ADD", "a", {**IPAM, **more})).stdout)
        assert [{"address": "10.1.4.1/16", "gateway": "10.1.0.1"}, {"address": "192.168.1.5/24"}] == told["ips"]
        assert [{"dst": "10.0.0.0/8"}] == told["routes"]
        assert {"nameservers": ["10.1.0.2"]} == told["dns"]

    @pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
    def test_every_versions_form(self, version: str) -> None:
        @in_world
        async def told(world: World) -> None:
            await offer(with_slices(world))
            await world.start()
            answer = json.loads((await call(world, "ADD", "a", version=version)).stdout)
            assert version == answer["cniVersion"]
            if version in ("0.1.0", "0.2.0"):
                assert "10.1.4.1/16" == answer["ip4"]["ip"]
            else:
                expected = {"address": "10.1.4.1/16"} | ({"version": "4"} if version.startswith("0.") else {})
                assert [expected] == answer["ips"]

        told()

    @in_world
    async def test_bad_configuration_is_refused_with_its_key(self, world: World) -> None:
        await offer(with_slices(world))
        await world.start()
        for ipam, word in (({**IPAM, "range": "foo"}, "range"), ({**IPAM, "exclude": ["10.0.0.1/99"]}, "exclude")):
            error = await refused(world, "ADD", "a", ipam)
            assert 7 == error["code"]
            assert word in error["msg"]

    @in_world
    async def test_also_while_nothing_can_be_given_yet_and_it_stops_nobody_else(self, world: World) -> None:
        """It must not wait among those who are served when a slice comes."""
        with_slices(world)
        await world.start()
        for bad in ("garbage", "10.0.0.1/99"):
            error = await refused(world, "ADD", "x", {**IPAM, "exclude": [bad]})
            assert 7 == error["code"]
        await offer(world)
        assert ["10.1.4.1/16"] == await add(world, "a")

    @in_world
    async def test_what_fits_into_no_object_is_refused_with_the_cure(self, world: World) -> None:
        """By the entries that there are, however short the name of who asks is."""
        name = await offer(with_slices(world), LARGE, entries=crowd(2800, longest=400))
        await world.start()
        told = f"the IPPool {name} has as many entries as fit into one object: use a smaller node_slice_size"
        assert told == (await refused(world, "ADD", "a"))["msg"]

    @in_world
    async def test_what_fits_is_given_however_long_the_name_of_who_asks(self, world: World) -> None:
        await offer(with_slices(world), LARGE, entries=crowd(4000, longest=1))
        await world.start()
        assert ["10.1.31.161/16"] == await add(world, "a" * 400)

    @in_world
    async def test_the_nodes_own_pool_is_served_beside_it(self, world: World) -> None:
        await offer(with_slices(world))
        await world.start()
        assert "10.0.1.1/16" == await world.add("a")
        assert ["10.1.4.1/16"] == await add(world, "a")


class TestWaiting:
    @in_world
    async def test_for_a_slice_on_its_way(self, world: World) -> None:
        await with_slices(world).start()
        waiting = asyncio.ensure_future(add(world, "a"))
        await asyncio.sleep(2.0)
        await offer(world)
        assert ["10.1.4.1/16"] == await waiting

    @in_world
    async def test_in_vain_says_where_to_look(self, world: World) -> None:
        await with_slices(world).start()
        error = await refused(world, "ADD", "a", {**IPAM, "network_name": "blue"})
        assert 11 == error["code"]
        for word in (NODE, V4, "network blue", "NodeSlicePool", "more nodes than slices", "controller"):
            assert word in error["msg"]

    @in_world
    async def test_for_rest_first_come_first_served(self, world: World) -> None:
        ipam = {**IPAM, "range_end": "10.1.4.1"}
        await offer(with_slices(world))
        await world.start()
        await add(world, "a", ipam)
        await call(world, "DEL", "a", ipam)
        began = asyncio.get_running_loop().time()
        first, second = (
            asyncio.ensure_future(add(world, "b", ipam)),
            asyncio.ensure_future(call(world, "ADD", "c", ipam)),
        )
        assert ["10.1.4.1/16"] == await first
        assert SETTINGS.cooldown_exhausted == pytest.approx(asyncio.get_running_loop().time() - began, abs=0.1)
        assert 1 == (await second).exit_code

    @in_world
    async def test_ends_with_the_sandbox(self, world: World) -> None:
        await with_slices(world).start()
        waiting = asyncio.ensure_future(refused(world, "ADD", "a"))
        await asyncio.sleep(1.0)
        assert 0 == (await call(world, "DEL", "a")).exit_code
        assert "deleted" in (await waiting)["msg"]


class TestDel:
    @in_world
    async def test_frees_every_range_and_lets_it_rest(self, world: World) -> None:
        name = await offer(with_slices(world))
        other = await offer(world, SLICE6, range_=V6)
        await world.start()
        await add(world, "a", DUAL)
        await asyncio.sleep(1.0)
        assert 0 == (await call(world, "DEL", "a", DUAL)).exit_code
        assert 0 == (await call(world, "DEL", "a", DUAL)).exit_code
        await asyncio.sleep(1.0)
        assert [{}, {}] == [await shown(world, each) for each in (name, other)]
        assert ["10.1.4.2/16", "fd00::402/64"] == await add(world, "b", DUAL)
        await asyncio.sleep(SETTINGS.cooldown + 1)
        assert ["10.1.4.1/16", "fd00::401/64"] == await add(world, "c", DUAL)

    @in_world
    async def test_needs_no_configuration_that_can_be_read(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        assert 0 == (await call(world, "DEL", "a", {"type": "whereabouts", "range": "foo"})).exit_code
        await asyncio.sleep(1.0)
        assert {} == await shown(world, name)

    @in_world
    async def test_one_left_while_no_agent_ran_is_done(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        await add(world, "a")
        await world.stop()
        stdin = json.dumps({"cniVersion": "1.0.0", "name": "net", "ipam": IPAM}).encode()
        left = encode_request(PluginRequest(command="DEL", container_id="a", ifname="net1", stdin=stdin))
        world.deletes.append("left", left)
        await world.start()
        assert [] == world.deletes.names()
        assert {} == await shown(world, name)


class TestOtherCommands:
    @in_world
    async def test_check_finds_what_is_there(self, world: World) -> None:
        await offer(with_slices(world))
        await world.start()
        assert 100 == (await refused(world, "CHECK", "a"))["code"]
        await add(world, "a")
        assert 0 == (await call(world, "CHECK", "a", prevResult={"ips": [{"address": "10.1.4.1/16"}]})).exit_code
        assert 100 == (await refused(world, "CHECK", "a", prevResult={"ips": [{"address": "10.1.4.9/16"}]}))["code"]

    @in_world
    async def test_gc_frees_what_is_not_listed_of_its_network(self, world: World) -> None:
        name = await offer(with_slices(world))
        await world.start()
        for each in "abc":
            await add(world, each)
        await add(world, "d", network="other")
        valid: dict[str, Any] = {"cni.dev/valid-attachments": [{"containerID": "b", "ifname": "net1"}]}
        assert 0 == (await call(world, "GC", "", version="1.1.0", **valid)).exit_code
        await asyncio.sleep(1.0)
        assert {"b", "d"} == set((await shown(world, name)).values())

    @in_world
    async def test_status_is_about_the_agent_not_about_slices(self, world: World) -> None:
        await with_slices(world).start()
        assert 0 == (await call(world, "STATUS", "", version="1.1.0")).exit_code
        world.road.cut = True
        await asyncio.sleep(SETTINGS.fence + 1)
        assert 50 == (await refused(world, "STATUS", "", version="1.1.0"))["code"]
