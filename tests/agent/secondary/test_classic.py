"""Ranges that all nodes share: what an ADD, a DEL, a CHECK and a GC do to the cluster's objects."""

import asyncio
from collections.abc import Awaitable

import pytest

from podpool.api.builtin import LEASES
from podpool.api.whereabouts import IP_POOLS, SEALED_ANNOTATION, ReservationSpec
from podpool.cni.protocol import CniError, ErrorCode
from podpool.core.addresses import parse_address
from tests.agent.secondary.commons import PATIENCE, SYSTEM, Commons, ForeignPlugin, network, played_in, sandbox

ONE, DUAL = network("10.0.0.0/24"), network("10.0.0.0/24", "fd00::/64")
WIDE, NARROW = network("10.0.0.0/24"), network("10.0.0.0/28")


in_commons = played_in(Commons)


async def holders(commons: Commons) -> dict[str, str]:
    """Which sandbox has which address."""
    return {str(address): owner.container for (_, address), owner in (await commons.entries()).items()}


async def refused(request: Awaitable[object]) -> CniError:
    with pytest.raises(CniError) as error:
        await request
    return error.value


class TestAdd:
    @in_commons
    async def test_the_lowest_address_of_each_range_is_stored_before_it_is_told(self, commons: Commons) -> None:
        assert ("10.0.0.1", "fd00::1") == await commons.node("a").add(sandbox("p"), DUAL)
        assert {"10.0.0.1": "c-p", "fd00::1": "c-p"} == await holders(commons)

    @in_commons
    async def test_the_same_sandbox_gets_the_same_again(self, commons: Commons) -> None:
        node = commons.node("a")
        assert await node.add(sandbox("p"), DUAL) == await node.add(sandbox("p"), DUAL)
        assert 2 == len(await holders(commons))

    @in_commons
    async def test_a_new_sandbox_of_the_pod_takes_the_entry_over_and_the_old_ones_del_finds_nothing(
        self, commons: Commons
    ) -> None:
        """On whichever node: a StatefulSet's Pod comes back under its name."""
        one, other = commons.node("a"), commons.node("b")
        given = await one.add(sandbox("web-0", container="c1"), ONE)
        assert given == await other.add(sandbox("web-0", container="c2"), ONE)
        await one.delete(sandbox("web-0", container="c1"), ONE)
        assert {given[0]: "c2"} == await holders(commons)
        assert [ReservationSpec(podref="default/web-0", ifname="net1", containerid="c2")] == [
            *(await commons.reservations()).values()
        ]

    @in_commons
    async def test_many_at_once_share_patches(self, commons: Commons) -> None:
        node = commons.node("a")
        given = await asyncio.gather(*(node.add(sandbox(f"p{each}"), ONE) for each in range(16)))
        assert 16 == len(set(given))
        assert node.transport.calls("PATCH") <= 3

    @in_commons
    async def test_nodes_that_write_at_once_never_take_one_address_twice(self, commons: Commons) -> None:
        nodes = [commons.node(f"n{each}") for each in range(8)]
        given = await asyncio.gather(*(node.add(sandbox(f"{node.name}-{n}"), ONE) for node in nodes for n in range(4)))
        assert 32 == len(set(given))
        assert {each for (each,) in given} == set(await holders(commons))

    @in_commons
    async def test_a_full_range_is_told_with_code_11_and_leaves_nothing_of_the_other_ranges(
        self, commons: Commons
    ) -> None:
        node, tight = commons.node("a"), network("10.0.0.0/24", "10.9.0.0/30")
        for each in "pq":
            await node.add(sandbox(each), tight)
        error = await refused(node.add(sandbox("r"), tight))
        assert ErrorCode.TRY_AGAIN_LATER == error.code
        assert "no address of 10.9.0.1-10.9.0.2 of 10.9.0.0/30 is free: 2 have an owner" in error.message
        await asyncio.sleep(1)
        assert "c-r" not in (await holders(commons)).values()

    @pytest.mark.parametrize("status", [422, 500])
    def test_what_is_not_stored_is_not_told_as_success(self, status: int) -> None:
        """Whereabouts answers with the address although its patch failed, when only the reservation went well."""

        @in_commons
        async def story(commons: Commons) -> None:
            await commons.fill("10.0.0.0/24")
            node = commons.node("a")
            node.transport.refuse = lambda each: status if each.method == "PATCH" and "/ippools/" in each.path else None
            error = await refused(node.add(sandbox("p"), ONE))
            assert ErrorCode.TRY_AGAIN_LATER == error.code
            assert f"not now ({status}" in error.message
            assert node.transport.calls("PATCH", "ippools") > 1
            assert {} == await commons.entries()
            assert {} == await commons.reservations()

        story()

    @in_commons
    async def test_while_the_api_server_is_away_an_add_says_so_within_its_deadline(self, commons: Commons) -> None:
        node = commons.node("a")
        node.transport.cut = True
        begun = asyncio.get_running_loop().time()
        error = await refused(node.add(sandbox("p"), ONE))
        assert ErrorCode.TRY_AGAIN_LATER == error.code
        assert "could not be written in time" in error.message
        assert asyncio.get_running_loop().time() - begun < PATIENCE + 1

    @in_commons
    async def test_a_name_that_no_object_can_have_is_refused_with_the_key_to_set(self, commons: Commons) -> None:
        """Whereabouts fails at each create, with the API server's words."""
        error = await refused(commons.node("a").add(sandbox("p"), network("::/126")))
        assert ErrorCode.INVALID_CONFIG == error.code
        assert "set network_name" in error.message

    @in_commons
    async def test_far_addresses_of_ipv6_are_kept(self, commons: Commons) -> None:
        """Whereabouts cannot read keys of 2^63 and more, and gives such an address to the next Pod too."""
        far = network("fd00::8000:0:0:1-fd00::8000:0:0:9/64")
        node = commons.node("a")
        assert ("fd00::8000:0:0:1",) == await node.add(sandbox("p"), far)
        assert ("fd00::8000:0:0:2",) == await node.add(sandbox("q"), far)
        assert {"fd00::8000:0:0:1": "c-p", "fd00::8000:0:0:2": "c-q"} == await holders(commons)

    @in_commons
    async def test_an_address_that_was_given_back_here_is_given_last(self, commons: Commons) -> None:
        """To its own Pod at once; other nodes know nothing of it."""
        node, other = commons.node("a"), commons.node("b")
        await node.add(sandbox("p"), ONE)
        await node.delete(sandbox("p"), ONE)
        assert ("10.0.0.2",) == await node.add(sandbox("q"), ONE)
        assert ("10.0.0.1",) == await node.add(sandbox("p", container="again"), ONE)
        await node.delete(sandbox("p", container="again"), ONE)
        assert ("10.0.0.1",) == await other.add(sandbox("r"), ONE)

    @in_commons
    async def test_a_del_ends_the_waiting_of_its_sandbox(self, commons: Commons) -> None:
        node = commons.node("a")
        node.transport.cut = True
        adding = asyncio.get_running_loop().create_task(node.add(sandbox("p"), ONE))
        await asyncio.sleep(1)
        await node.delete(sandbox("p"), ONE)
        assert "the sandbox was deleted" in (await refused(adding)).message


class TestCutIntoSlices:
    """The controller has marked a pool: nodes have slices of its range."""

    @in_commons
    async def test_nothing_new_is_given_and_the_error_names_the_cure(self, commons: Commons) -> None:
        node = commons.node("a")
        given = await node.add(sandbox("p"), WIDE)
        await shut(commons, "10.0.0.0-24")
        error = await refused(node.add(sandbox("q"), WIDE))
        assert ErrorCode.TRY_AGAIN_LATER == error.code
        assert "10.0.0.0/24 is cut into slices of nodes, says IPPool 10.0.0.0-24: set node_slice_size" in error.message
        assert {given[0]: "c-p"} == await holders(commons)

    @in_commons
    async def test_nor_through_a_range_that_overlaps_also_where_its_pool_is_not_there(self, commons: Commons) -> None:
        await commons.fill("10.0.0.0/24")
        await shut(commons, "10.0.0.0-24")
        error = await refused(commons.node("a").add(sandbox("p"), NARROW))
        assert "10.0.0.0/28 is cut into slices of nodes, says IPPool 10.0.0.0-24" in error.message
        assert ["10.0.0.0-24"] == [each.metadata.name for each in (await commons.kube.list(IP_POOLS)).items]

    @in_commons
    async def test_who_has_an_entry_gets_it_again_and_gives_it_back(self, commons: Commons) -> None:
        node = commons.node("a")
        given = await node.add(sandbox("p"), WIDE)
        await shut(commons, "10.0.0.0-24")
        assert given == await node.add(sandbox("p", container="next"), WIDE)
        await node.delete(sandbox("p", container="next"), WIDE)
        assert {} == await holders(commons)

    @in_commons
    async def test_who_had_looked_before_the_mark_stores_nothing(self, commons: Commons) -> None:
        """Its patch fits only the version that it looked at."""
        node = commons.node("a")
        await commons.fill("10.0.0.0/24")
        adding = asyncio.get_running_loop().create_task(
            node.add(sandbox("p"), network("10.0.0.0/24", sleep_for_race=1))
        )
        await asyncio.sleep(0.5)
        await shut(commons, "10.0.0.0-24")
        assert "is cut into slices" in (await refused(adding)).message
        assert {} == await holders(commons)


async def shut(commons: Commons, name: str) -> None:
    """Mark a pool as the controller does."""
    await commons.kube.merge_patch(IP_POOLS, name, {"metadata": {"annotations": {SEALED_ANNOTATION: "word"}}}, namespace=SYSTEM)


class TestDel:
    @in_commons
    async def test_every_range_is_looked_at(self, commons: Commons) -> None:
        """Whereabouts stops at the first that has nothing."""
        node = commons.node("a")
        await commons.fill("10.0.0.0/24")
        await commons.fill("fd00::/64", (7, sandbox("p")))
        await node.delete(sandbox("p"), DUAL)
        assert {} == await holders(commons)

    @in_commons
    async def test_nothing_there_is_a_success(self, commons: Commons) -> None:
        await commons.node("a").delete(sandbox("p"), DUAL)

    @in_commons
    async def test_only_its_own_sandbox_interface_is_freed(self, commons: Commons) -> None:
        node = commons.node("a")
        await node.add(sandbox("p"), ONE)
        await node.add(sandbox("p", ifname="net2"), ONE)
        await node.delete(sandbox("p", ifname="net2"), ONE)
        assert {"10.0.0.1": "c-p"} == await holders(commons)

    @in_commons
    async def test_a_reservation_of_another_stays(self, commons: Commons) -> None:
        """Whereabouts deletes whichever has the address for a name, also that of a Pod that runs."""
        node = commons.node("a")
        await commons.fill("10.0.0.0/24", (5, sandbox("p")))
        await commons.reserve("10.0.0.5", "default/another")
        await node.delete(sandbox("p"), ONE)
        assert {} == await holders(commons)
        assert ["10.0.0.5"] == [*await commons.reservations()]

    @in_commons
    async def test_while_the_api_server_is_away_it_succeeds_and_is_done_later_by_whichever_agent(
        self, commons: Commons
    ) -> None:
        """Whereabouts answers with success too, and forgets it."""
        node = commons.node("a")
        await node.add(sandbox("p"), DUAL)
        node.transport.cut = True
        await node.delete(sandbox("p"), DUAL)
        await node.kill()
        node.start()
        await asyncio.sleep(60)
        assert 2 == len(await holders(commons))
        node.transport.cut = False
        await asyncio.sleep(60)
        assert {} == await holders(commons)
        assert {} == await commons.reservations()

    @in_commons
    async def test_also_by_the_next_boot(self, commons: Commons) -> None:
        """What was answered is on the platter."""
        node = commons.node("a")
        await node.add(sandbox("p"), ONE)
        node.transport.cut = True
        await node.delete(sandbox("p"), ONE)
        await node.reboot()
        node.transport.cut = False
        node.start()
        await asyncio.sleep(60)
        assert {} == await holders(commons)

    @in_commons
    async def test_it_finds_what_was_given_whatever_the_configuration_says_by_then(self, commons: Commons) -> None:
        """Another network, other ranges, slices, or nothing that could be read."""
        node = commons.node("a")
        for pod, by_then in (("p", network("10.9.0.0/24")), ("q", network("10.0.0.0/24", network_name="blue"))):
            await node.add(sandbox(pod), DUAL)
            await node.delete(sandbox(pod), by_then)
        await node.add(sandbox("r"), DUAL)
        await node.source.give_back(node.want(sandbox("r"), DUAL).sandbox)
        assert {} == await holders(commons)

    @in_commons
    async def test_one_that_nobody_waits_for_is_done_as_well(self, commons: Commons) -> None:
        node = commons.node("a")
        await node.add(sandbox("p"), DUAL)
        await commons.fill("10.9.0.0/24", (7, sandbox("q")))
        node.source.release(node.want(sandbox("p"), DUAL).sandbox)
        stranger = node.want(sandbox("q"), network("10.9.0.0/24"))
        node.source.release(stranger.sandbox, stranger)
        await asyncio.sleep(1)
        assert {} == await holders(commons)

    @in_commons
    async def test_a_pool_that_cannot_be_read_holds_up_no_other_and_is_done_when_it_is_mended(
        self, commons: Commons
    ) -> None:
        node, other = commons.node("a"), network("10.9.0.0/24")
        await node.add(sandbox("p"), ONE)
        await node.add(sandbox("q"), other)
        await commons.kube.merge_patch(IP_POOLS, "10.0.0.0-24", {"spec": {"range": "10.0.0.0/99"}}, namespace=SYSTEM)
        node.transport.cut = True
        for each, settings in (("p", ONE), ("q", other)):
            await node.delete(sandbox(each), settings)
        node.transport.cut = False
        await asyncio.sleep(60)
        await commons.kube.merge_patch(IP_POOLS, "10.0.0.0-24", {"spec": {"range": "10.0.0.0/24"}}, namespace=SYSTEM)
        assert {"10.0.0.1": "c-p"} == await holders(commons)
        await asyncio.sleep(60)
        assert {} == await holders(commons)

    @in_commons
    async def test_one_that_was_kept_is_forgotten_when_the_sandbox_is_added_again(self, commons: Commons) -> None:
        node = commons.node("a")
        given = await node.add(sandbox("p"), ONE)
        node.transport.cut = True
        await node.delete(sandbox("p"), ONE)
        node.transport.cut = False
        assert given == await node.add(sandbox("p"), ONE)
        await asyncio.sleep(120)
        assert {given[0]: "c-p"} == await holders(commons)


class TestOverlap:
    @in_commons
    async def test_an_address_is_taken_in_every_range_that_has_it(self, commons: Commons) -> None:
        one, other = commons.node("a"), commons.node("b")
        given = await asyncio.gather(
            *(one.add(sandbox(f"p{each}"), WIDE) for each in range(5)),
            *(other.add(sandbox(f"q{each}"), NARROW) for each in range(5)),
        )
        assert 10 == len(set(given))

    @in_commons
    async def test_the_entries_of_other_pools_count_without_reservations(self, commons: Commons) -> None:
        await commons.fill("10.0.0.0/28", (1, sandbox("old")), (2, sandbox("older")))
        assert ("10.0.0.3",) == await commons.node("a").add(sandbox("p"), WIDE)

    @in_commons
    async def test_what_another_has_reserved_is_left_alone(self, commons: Commons) -> None:
        await commons.reserve("10.0.0.1", "default/another")
        assert ("10.0.0.2",) == await commons.node("a").add(sandbox("p"), WIDE)
        assert {"10.0.0.2": "c-p"} == await holders(commons)

    @in_commons
    async def test_networks_with_names_are_kept_apart(self, commons: Commons) -> None:
        node = commons.node("a")
        red, blue = network("10.0.0.0/24", network_name="red"), network("10.0.0.0/24", network_name="blue")
        assert await node.add(sandbox("p"), red) == await node.add(sandbox("q"), blue)
        assert {"red-10.0.0.1", "blue-10.0.0.1"} == set(await commons.reservations())

    @in_commons
    async def test_beside_foreign_plugins_every_address_is_reserved(self, commons: Commons) -> None:
        """They look at reservations alone, and may make a range that overlaps at any time."""
        await commons.node("a").add(sandbox("p"), ONE)
        assert {"10.0.0.1"} == set(await commons.reservations())
        assert "10.0.0.2" == await ForeignPlugin(commons, "elsewhere").add(sandbox("q"), NARROW)

    @in_commons
    async def test_among_ours_only_where_ranges_overlap(self, commons: Commons) -> None:
        node = commons.node("a", foreign=False)
        await node.add(sandbox("p"), WIDE)
        assert {} == await commons.reservations()
        assert ("10.0.0.2",) == await node.add(sandbox("q"), NARROW)
        assert {"10.0.0.2"} == set(await commons.reservations())

    @in_commons
    async def test_or_where_the_configuration_insists(self, commons: Commons) -> None:
        await commons.node("a", foreign=False).add(sandbox("p"), network("10.0.0.0/24", enable_overlapping_ranges=True))
        assert {"10.0.0.1"} == set(await commons.reservations())

    @in_commons
    async def test_and_never_where_it_forbids(self, commons: Commons) -> None:
        node = commons.node("a")
        first = network("192.168.33.0/24", enable_overlapping_ranges=False)
        second = network("192.168.33.0/28", enable_overlapping_ranges=False)
        assert ("192.168.33.1",) == await node.add(sandbox("p"), first)
        assert ("192.168.33.1",) == await node.add(sandbox("q"), second)
        assert {} == await commons.reservations()

    @in_commons
    async def test_who_forbids_it_and_who_does_not_may_ask_at_once(self, commons: Commons) -> None:
        """Each goes by its own configuration, in one pool."""
        await commons.fill("10.0.0.0/24", (1, sandbox("p")))
        node, forbidding = commons.node("a"), network("10.0.0.0/28", enable_overlapping_ranges=False)
        given = await asyncio.gather(node.add(sandbox("q"), NARROW), node.add(sandbox("r"), forbidding))
        assert [("10.0.0.2",), ("10.0.0.1",)] == [*given]

    @in_commons
    async def test_who_forbids_it_keeps_its_own_when_the_pool_has_lost_it(self, commons: Commons) -> None:
        node, forbidding = commons.node("a"), network("10.0.0.0/28", enable_overlapping_ranges=False)
        copy = commons.server.store.snapshot()
        await node.add(sandbox("p"), forbidding)
        commons.server.store.restore(copy)
        assert ("10.0.0.2",) == await node.add(sandbox("q"), forbidding)


class TestLease:
    @in_commons
    async def test_it_is_taken_where_ranges_overlap_and_given_back(self, commons: Commons) -> None:
        await commons.fill("10.0.0.0/28")
        await commons.node("a").add(sandbox("p"), WIDE)
        lease = await commons.kube.get(LEASES, "whereabouts", namespace=SYSTEM)
        assert "" == (lease.spec.holder_identity or "")
        assert 0 == lease.spec.lease_transitions

    @in_commons
    async def test_nobody_writes_there_while_a_foreign_plugin_has_it(self, commons: Commons) -> None:
        await commons.fill("10.0.0.0/28")
        spec = {"holderIdentity": "default/foreign", "leaseDurationSeconds": 4}
        await commons.kube.create(LEASES, {"metadata": {"name": "whereabouts", "namespace": SYSTEM}, "spec": spec})
        adding = asyncio.get_running_loop().create_task(commons.node("a").add(sandbox("p"), WIDE))
        await asyncio.sleep(3)
        assert {} == await holders(commons)
        assert ("10.0.0.1",) == await adding

    @in_commons
    async def test_it_is_not_touched_where_nothing_overlaps_nor_among_ours_nor_for_a_del(
        self, commons: Commons
    ) -> None:
        plain, ours = commons.node("a"), commons.node("b", foreign=False)
        await plain.add(sandbox("p"), ONE)
        await commons.fill("10.0.0.0/28")
        await ours.add(sandbox("q"), ONE)
        await plain.delete(sandbox("p"), ONE)
        assert [] == [each for node in (plain, ours) for each in node.transport.sent if "lease" in each[1]]


class TestRuntime:
    @in_commons
    async def test_check_tells_what_the_sandbox_has(self, commons: Commons) -> None:
        node = commons.node("a")
        given = await node.add(sandbox("p"), DUAL)
        assert tuple(map(parse_address, given)) == await node.source.check(node.want(sandbox("p"), DUAL))
        error = await refused(node.source.check(node.want(sandbox("q"), DUAL)))
        assert ErrorCode.CHECK_MISMATCH == error.code

    @in_commons
    async def test_gc_frees_what_the_runtime_does_not_list_of_its_network(self, commons: Commons) -> None:
        """Also what an earlier agent of this node gave; never what another node has."""
        node, other = commons.node("a"), commons.node("b")
        for pod in ("kept", "lost"):
            await node.add(sandbox(pod), ONE)
        await other.add(sandbox("elsewhere"), ONE)
        await node.kill()
        node.start()
        valid = frozenset({node.want(sandbox("kept"), ONE).sandbox})
        await node.source.collect("another", valid)
        assert 3 == len(await holders(commons))
        await node.source.collect(ONE.name, valid)
        assert {"c-kept", "c-elsewhere"} == set((await holders(commons)).values())

    @in_commons
    async def test_a_runtime_that_hangs_up_does_not_hold_up_the_others(self, commons: Commons) -> None:
        node = commons.node("a")
        asked = [asyncio.get_running_loop().create_task(node.add(sandbox(f"p{each}"), ONE)) for each in range(4)]
        await asyncio.sleep(0.005)
        asked[0].cancel()
        given = await asyncio.gather(*asked[1:])
        assert 3 == len(set(given))
